"""Caches save reads and decodes, and change no pixel."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import Subset

from cuaug import DecodedCache, DecodeOptions, EncodedCache, Loader, LoaderError, functional
from cuaug import transforms as T
from cuaug.codec import CpuDecoder, read_header
from cuaug.sources import FromDataset
from tests.loader.test_reproducible import samples, training_chain
from tests.support.loader.further_pictures import Arrays, Memory, epoch_of, numbers_of, photo, png, write_photos


class Counting:
    """A source that counts reads of each sample's file and label."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths
        self.reads = [0] * len(paths)

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, index: int) -> tuple[bytes, int]:
        self.reads[index] += 1
        return Path(self.paths[index]).read_bytes(), index


class Labeled(Counting):
    def label(self, index: int) -> int:
        return index


@pytest.fixture(scope="module")
def photos(tmp_path_factory, loaders_device) -> list[str]:
    return write_photos(tmp_path_factory.mktemp("photos"), 12)


def epochs(loader: Loader, count: int = 3) -> list[dict[int, torch.Tensor]]:
    """{index: image} of each epoch."""
    return [
        {index: image for batch in loader for index, image in zip(batch.indices.tolist(), batch.images, strict=True)}
        for _ in range(count)
    ]


def assert_equal(got: list[dict[int, torch.Tensor]], want: list[dict[int, torch.Tensor]]) -> None:
    for mine, other in zip(got, want, strict=True):
        assert mine.keys() == other.keys()
        for index, image in mine.items():
            assert image.equal(other[index]), f"sample {index}"


def shrunk(path: str, short_side: int) -> np.ndarray:
    """The cached image by the documentation: decoded, and resized if its short side is longer."""
    pixels = CpuDecoder().decode(read_header(Path(path).read_bytes())).copy()
    return functional.resize(pixels, short_side) if min(pixels.shape[:2]) > short_side else pixels


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["decoded", lambda: DecodedCache(limit_bytes=90_000)])
@settings(max_examples=15, deadline=None)
@given(batch_size=st.integers(1, 13), threads=st.integers(1, 4), shuffle=st.booleans(), seed=st.integers(0, 2))
def test_with_and_without_a_cache(photos, cache, batch_size, threads, shuffle, seed):
    """Bit-identical in full size, in every epoch, also where only some samples fit."""
    with Loader(photos, training_chain(), batch_size=5, seed=seed) as plain:
        want = epochs(plain)
    cache = cache() if callable(cache) else cache
    options = {"batch_size": batch_size, "threads": threads, "shuffle": shuffle, "seed": seed}
    with Loader(photos, training_chain(), cache=cache, **options) as loader:
        assert_equal(epochs(loader), want)
        stats = loader.cache.stats
        assert 0 < stats.samples <= 12 and stats.bytes <= stats.limit_bytes
        assert (stats.samples == 12) == isinstance(cache, str)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    short_side=st.integers(20, 160),
    limit_bytes=st.sampled_from([1, 60_000, 10**9]),
    batch_size=st.integers(1, 13),
    threads=st.integers(1, 4),
)
def test_at_a_short_side_samples_look_as_if_resized_first(photos, short_side, limit_bytes, batch_size, threads):
    """Cached or not: also in the first epoch, and where nothing fits."""
    chain = [T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ColorJitter(0.3, 0.3), T.Normalize([0.5], [0.2])]
    with Loader(Arrays(*(shrunk(path, short_side) for path in photos)), chain, batch_size=4, seed=0) as plain:
        want = epochs(plain)
    cache = DecodedCache(short_side, limit_bytes=limit_bytes)
    with Loader(photos, chain, cache=cache, batch_size=batch_size, threads=threads, seed=0) as loader:
        assert_equal(epochs(loader), want)
        assert cache.stats.samples == 12 or limit_bytes < 10**9


def test_arrays_are_cached_at_the_short_side_too():
    arrays = [photo(50 + k, 60, seed=k) for k in range(4)]
    with Loader(Arrays(*(functional.resize(a, 32) for a in arrays)), T.CenterCrop(30), batch_size=4) as plain:
        want = epochs(plain)
    with Loader(Arrays(*arrays), T.CenterCrop(30), batch_size=4, cache=DecodedCache(32)) as loader:
        assert_equal(epochs(loader), want)


@pytest.mark.parametrize(
    ("kind", "cache", "reads"),
    [(Labeled, "decoded", 1), (Counting, "decoded", 3), (Counting, None, 3)],
    ids=["decoded", "decoded without label()", "none"],
)
def test_a_cached_sample_is_not_read_again(photos, kind, cache, reads):
    source = kind(photos)
    with Loader(source, T.CenterCrop(32), cache=cache, batch_size=4, shuffle=True) as loader:
        for _ in range(3):
            for batch in loader:
                assert batch.labels.cpu().equal(batch.indices)
        assert source.reads == [reads] * 12
        if cache == "decoded":
            stats = loader.stats()
            before = stats.seconds["decode"]
            list(loader)
            assert loader.stats().seconds["decode"] - before < before / 4, "decoding is a look-up"


def test_damaged_samples_are_not_cached(tmp_path):
    paths = write_photos(tmp_path, 6)
    data = Path(paths[2]).read_bytes()
    Path(paths[2]).write_bytes(data[:-200])
    Path(paths[4]).write_bytes(b"")
    with Loader(paths, T.CenterCrop(32), cache=DecodedCache(40), batch_size=3, on_error="replace") as loader:
        for _ in range(3):
            for batch in loader:
                assert len(batch.images) == 3
        assert loader.stats().failed >= 6, "they fail in every epoch"
        assert loader.cache.get(4) is None and loader.cache.get(2) is None
        good = samples(Loader(paths, T.CenterCrop(32), batch_size=3, on_error="skip", cache=loader.cache))
        assert set(good) == {0, 1, 3, 5}


def test_a_disk_cache_outlives_its_loader(photos, tmp_path):
    def make(**options: Any) -> Loader:
        cache = DecodedCache(64, limit_bytes=10**8, directory=tmp_path / "cache")
        source = Labeled(photos)
        source.fingerprint = lambda: "photos"
        return Loader(source, training_chain(), cache=cache, batch_size=5, **options, seed=0)

    with make() as loader:
        want = epochs(loader, 1)
    with make(threads=3) as loader:
        loader.set_epoch(0)
        assert_equal(epochs(loader, 1), want)
        assert loader.source.reads == [0] * 12, "nothing was read"
    with pytest.raises(LoaderError, match="apply_exif is True there and False here"):
        make(decode=DecodeOptions(apply_exif=False))
    shutil.rmtree(tmp_path / "cache")


@pytest.mark.parametrize("kind", ["decoded", "disk"])
def test_the_same_names_in_another_folder_are_another_data_set(tmp_path, kind):
    """For example left and right images of stereo pairs; their states are compatible."""
    cache = DecodedCache(limit_bytes=10**6, directory=tmp_path / "cache" if kind == "disk" else None)
    paths = {}
    for side in ("left", "right"):
        (tmp_path / side).mkdir()
        paths[side] = write_photos(tmp_path / side, 3)
    with Loader(paths["left"], T.CenterCrop(32), cache=cache) as left:
        list(left)
    with pytest.raises(LoaderError, match=r"cache_key is '.*/left .* there and '.*/right .* here"):
        Loader(paths["right"], T.CenterCrop(32), cache=cache)
    with Loader(paths["right"], T.CenterCrop(32)) as right:
        right.load_state_dict(left.state_dict())


def test_a_disk_cache_notices_a_rebuilt_data_set(tmp_path):
    def load() -> int:
        cache = DecodedCache(limit_bytes=10**6, directory=tmp_path / "cache")
        return numbers_of(epoch_of([str(tmp_path / "0.png")], cache=cache)[0].images)[0]

    (tmp_path / "0.png").write_bytes(png(1))
    assert load() == load() == 1
    (tmp_path / "0.png").write_bytes(png(2))
    with pytest.raises(LoaderError, match="holds another decoded cache: cache_key is "):
        load()


def test_subsets_of_a_dataset_are_distinguished(photos, tmp_path):
    """By indices where the inner Dataset has a fingerprint, else by identity; on disk they are refused."""

    class Folder(list):
        @property
        def samples(self):
            return [(path, 0) for path in self]

    class Unknown(Arrays):
        def __getitem__(self, index):
            return self.read(index)

    known, unknown = FromDataset(Folder(photos)), FromDataset(Unknown(*[photo(9, 9)] * 12))
    for dataset in (known.dataset, unknown.dataset):
        train, test = (Subset(dataset, part) for part in (range(6), range(6, 12)))
        cache = DecodedCache()
        Loader(train, cache=cache)
        with pytest.raises(LoaderError, match="serves a loader over other samples"):
            Loader(test, cache=cache)
    Loader(Subset(known.dataset, range(6)), cache=DecodedCache(limit_bytes=10**6, directory=tmp_path / "known"))
    with pytest.raises(LoaderError, match=r"FromDataset has no fingerprint\(\)"):
        Loader(Subset(unknown.dataset, range(6)), cache=DecodedCache(limit_bytes=10**6, directory=tmp_path / "unknown"))


def test_sources_without_a_fingerprint(photos, tmp_path):
    """Distinguished by identity in memory; refused on disk, where identity means nothing to another process."""
    cache, first = DecodedCache(), Counting(photos)
    for _ in range(2):
        with Loader(first, T.CenterCrop(48), cache=cache, batch_size=4) as loader:
            list(loader)
    with pytest.raises(LoaderError, match="serves a loader over other samples"):
        Loader(Counting(photos[::-1]), T.CenterCrop(48), cache=cache)
    with pytest.raises(LoaderError, match=r"Counting has no fingerprint\(\)"):
        Loader(first, cache=DecodedCache(limit_bytes=10**6, directory=tmp_path))


def test_a_file_that_failed_once_is_read_again(photos):
    """A failing mount must not lose a sample for the rest of the run."""

    class Flaky(Labeled):
        def read(self, index: int) -> tuple[bytes, int]:
            data, label = super().read(index)
            return (b"" if index == 3 and self.reads[3] == 1 else data), label

    source = Flaky(photos)
    with Loader(source, T.CenterCrop(48), cache="decoded", batch_size=4, on_error="skip") as loader:
        assert [sum(len(batch.images) for batch in loader) for _ in range(3)] == [11, 12, 12]
    assert source.reads[3] == 2


@pytest.mark.parametrize(
    ("cache", "message"),
    [
        ("disk", "cache must be 'decoded', a DecodedCache or an EncodedCache, not 'disk'"),
        (3, "an EncodedCache, not 3"),
        (EncodedCache(1000), "the loader is on 'cpu': leave it out"),
        (DecodedCache(64, limit_bytes=1000, on_device=True), "needs a loader on a GPU, not on cpu"),
    ],
)
def test_invalid_caches_are_refused(cache, message):
    with pytest.raises(LoaderError, match=message):
        Loader(Memory(3), cache=cache, device="cpu")
