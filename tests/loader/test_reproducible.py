"""Pixels are a function of (seed, epoch, index) and the file, and equal a manual computation."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from cuaug import Loader
from cuaug import transforms as T
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms.execute import apply
from tests.support.loader.further_pictures import Memory, write_photos
from tests.support.loader.programs import run_apart

COUNT = 13


def training_chain() -> list[T.Transform]:
    return [
        T.RandomResizedCrop(24),
        T.RandomHorizontalFlip(),
        T.ColorJitter(0.4, 0.4, 0.4, 0.1),
        T.RandomApply([T.RandomGrayscale(0.5), T.RandomVerticalFlip()], p=0.5),
        T.RandomErasing(p=0.5, value="random"),
        T.RandomMask(0.1, p=0.5),
        T.Normalize([0.5, 0.4, 0.3], [0.2, 0.3, 0.4]),
    ]


@pytest.fixture(scope="module")
def photos(tmp_path_factory, loaders_device) -> list[str]:
    return write_photos(tmp_path_factory.mktemp("photos"), COUNT)


def samples(loader: Loader) -> dict[int, torch.Tensor]:
    """{index: image} of one epoch."""
    with loader:
        return {int(label): image for images, labels in loader for image, label in zip(images, labels, strict=True)}


@functools.cache
def _alone(paths: tuple[str, ...], seed: int, epoch: int) -> dict[int, torch.Tensor]:
    loader = Loader(paths, training_chain(), batch_size=1, threads=1, prefetch=1, seed=seed)
    loader.set_epoch(epoch)
    return samples(loader)


@given(
    seed=st.sampled_from([0, 1]),
    epoch=st.sampled_from([0, 3]),
    batch_size=st.integers(1, COUNT + 2),
    threads=st.integers(1, 6),
    prefetch=st.integers(1, 6),
    shuffle=st.booleans(),
    last_batch=st.sampled_from(["partial", "drop"]),
)
def test_pixels_do_not_depend_on_how_they_are_loaded(photos, seed, epoch, **how):
    loader = Loader(photos, training_chain(), seed=seed, **how)
    loader.set_epoch(epoch)
    got, want = samples(loader), _alone(tuple(photos), seed, epoch)
    assert len(got) == (COUNT // how["batch_size"] * how["batch_size"] if how["last_batch"] == "drop" else COUNT)
    for index, image in got.items():
        assert image.equal(want[index]), f"sample {index}"


@pytest.mark.parametrize("between", [[], [T.Lambda(lambda images: images)]], ids=["one stage", "two stages"])
@pytest.mark.cpu_only
def test_a_damaged_neighbor_changes_nothing(photos, tmp_path, caplog, between):
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(Path(photos[2]).read_bytes()[:-300])
    paths = [*photos[:2], bad, *photos[3:]]  # other files follow it in its batch
    chain = [*training_chain()[:2], *between, *training_chain()[2:]]
    got = samples(Loader(paths, chain, batch_size=5, on_error="skip", seed=0))
    want = samples(Loader(photos, chain, batch_size=5, seed=0))
    assert set(want) - set(got) == {2}
    assert all(image.equal(want[index]) for index, image in got.items())


def test_seeds_epochs_and_samples_have_independent_draws(photos):
    """One file with other indices, epochs and seeds: always another image."""
    seen = []
    for seed in (0, 1, 2**40):
        loader = Loader([photos[0]] * 8, training_chain(), batch_size=8, seed=seed)
        seen += [image.cpu().numpy().tobytes() for _ in range(3) for images, _ in loader for image in images]
        loader.close()
    assert len(set(seen)) == len(seen) == 72


@pytest.mark.slow
def test_another_process_makes_the_same_pixels():
    output = run_apart(
        """
import hashlib, torch
from tests.loader.test_reproducible import training_chain
loader = Loader(Memory(20), [T.Pad(9, fill=(9, 99, 199)), *training_chain()], batch_size=6, shuffle=True, seed=5)
print(hashlib.sha256(b"".join(images.cpu().numpy().tobytes() for _ in range(2) for images, _ in loader)).hexdigest())
""",
        {"PYTHONHASHSEED": "1"},
    )
    torch.manual_seed(123)
    np.random.seed(4)
    chain = [T.Pad(9, fill=(9, 99, 199)), *training_chain()]
    with Loader(Memory(20), chain, batch_size=4, shuffle=True, seed=5, threads=3) as loader:
        images = [images.cpu().numpy().tobytes() for _ in range(2) for images, _ in loader]
    assert hashlib.sha256(b"".join(images)).hexdigest() == output.strip()


# --- manual computation ----------------------------------------------------------------------------------------------


def by_hand(path: str, chain: T.Compose, seed: int, epoch: int, index: int) -> torch.Tensor:
    """Decodes the whole image with Pillow, and runs the chain with the loader's draws."""
    pixels = torch.from_numpy(np.array(Image.open(path).convert("RGB"))).permute(2, 0, 1)
    return apply(pixels, lambda plan: chain.plan(plan, SampleRNG(seed, epoch, [index])))


geometry = st.sampled_from(
    [
        T.RandomCrop(40),
        T.RandomCrop(44, padding=7, padding_mode="reflect"),
        T.RandomCrop(70, pad_if_needed=True, fill=40),
        T.RandomHorizontalFlip(),
        T.RandomVerticalFlip(0.7),
        T.CenterCrop((41, 45)),
        T.RandomResizedCrop(48, interpolation="bicubic"),
        T.RandomResizedCrop((50, 45), antialias=False),
        T.Resize(60),
        T.Resize((52, 49), interpolation="nearest"),
        T.Pad((3, 4, 5, 6), padding_mode="symmetric"),
        T.RandomErasing(0.8),
        T.ColorJitter(0.3, 0.3, 0.3, 0.2),
        T.RandomApply([T.Pad(4), T.RandomCrop(40)], 0.5),
    ]
)


@given(
    chain=st.lists(geometry, max_size=4),
    seed=st.integers(0, 5),
    end=st.sampled_from([T.CenterCrop(39), T.Resize((33, 44)), T.RandomCrop(1)]),
)
@example(chain=[], seed=0, end=T.RandomCrop(1))
@pytest.mark.cpu_only
def test_a_region_of_a_jpeg_gives_the_pixels_of_the_whole(photos, chain, seed, end):
    """The decoded region depends on the plan; the result is bit-identical to the whole image's."""
    compose = T.Compose([*chain, end])
    got = samples(Loader(photos[:6], compose, batch_size=6, seed=seed, threads=1))
    for index, image in got.items():
        assert image.equal(by_hand(photos[index], compose, seed, 0, index))


@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.cpu_only
def test_regions_of_every_chroma_subsampling(tmp_path, subsampling, progressive):
    paths = write_photos(tmp_path, 8, seed=50, subsampling=subsampling, progressive=progressive)
    chain = T.Compose([T.RandomResizedCrop(32, scale=(0.01, 0.5)), T.RandomHorizontalFlip(), T.Normalize([0.5], [0.5])])
    for epoch in range(4):
        loader = Loader(paths, chain, batch_size=8, seed=9)
        loader.set_epoch(epoch)
        for index, image in samples(loader).items():
            assert image.equal(by_hand(paths[index], chain, 9, epoch, index))
