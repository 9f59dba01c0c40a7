"""Mixes in a loader: partners do not depend on batch size, ranks or damaged files; mixes may end at an epoch."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import cuaug
from cuaug import Batch, ChainWarning, TransformError
from cuaug import transforms as T
from tests.support.loader.further_pictures import assert_epoch_raises, epoch_of

EPOCHS, END, COUNT = 4, 2, 11


@pytest.fixture
def files(tmp_path) -> list[tuple[str, Any, int]]:
    """Paths of images, each with boxes and a mask, and with a class."""
    paths = []
    for i in range(COUNT):
        pixels = np.random.default_rng(i).integers(0, 256, (40 + i, 50, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path := tmp_path / f"{i}.png")
        mask = np.zeros((1, 40 + i, 50), np.uint8)
        mask[0, 5 : 20 + i, 4:30] = 1
        boxes = np.array([[4.0, 5.0, 30.0, 20.0 + i]], np.float32)
        paths.append((str(path), {"boxes": boxes, "labels": np.array([i]), "masks": mask}, i % 4))
    return paths


def labeled(files: list[Any], of_boxes: bool) -> list[tuple[str, Any]]:
    return [(path, target if of_boxes else number) for path, target, number in files]


def plain(label: Any) -> Any:
    if isinstance(label, dict):
        return {key: plain(value) for key, value in label.items()}
    return label.tolist() if isinstance(label, (torch.Tensor, np.ndarray)) else label


def samples_of(batches: list[Batch]) -> dict[int, tuple[torch.Tensor, Any]]:
    """{index: (image, label)} of the valid samples, in their order."""
    return {
        int(index): (image, plain(label))
        for batch in batches
        for index, image, label, valid in zip(batch.indices, batch.images, batch.labels, batch.valid, strict=True)
        if valid
    }


def assert_same(ours: dict[int, tuple[torch.Tensor, Any]], others: dict[int, tuple[torch.Tensor, Any]]) -> None:
    assert list(ours) == list(others) and ours
    for index, (image, label) in ours.items():
        assert torch.equal(image, others[index][0]) and label == others[index][1]


# --- partners --------------------------------------------------------------------------------------------------------

CHAIN = [
    T.RandomResizedCrop(16),
    T.ToDtype(torch.float32, scale=True),
    T.RandomChoice([T.MixUp(0.3, 4), T.CutMix(num_classes=4)]),
]


def mixed(files: list[Any], **settings: Any) -> list[Batch]:
    batches = epoch_of(labeled(files, False), CHAIN, shuffle=True, seed=5, **settings)
    for batch in batches:
        assert batch.labels.shape == (len(batch.images), 4) and batch.labels.dtype == torch.float32
        torch.testing.assert_close(batch.labels.cpu().sum(1), torch.ones(len(batch.images)))
    return batches


@pytest.mark.parametrize("settings", [{"batch_size": 1}, {"batch_size": 4}, {"batch_size": 4, "threads": 3}])
def test_mixes_do_not_depend_on_the_batch_size(files, settings):
    assert_same(samples_of(mixed(files, batch_size=11)), samples_of(mixed(files, **settings)))


def test_mixes_do_not_depend_on_the_ranks(files):
    together = [batch for rank in range(3) for batch in mixed(files, batch_size=2, rank=rank, world_size=3)]
    alone = samples_of(mixed(files, batch_size=11))
    assert_same(dict(sorted(alone.items())), dict(sorted(samples_of(together).items())))


class WithNumbers:
    """Labels are (class, sample number), with as many fields as classes."""

    def __len__(self):
        return 3

    def __getitem__(self, i):
        return np.zeros((40, 40, 3), np.uint8), i % 2, 100 + i


def test_fields_of_a_label_are_no_soft_label():
    message = "the label is a tuple of 2 fields"
    assert_epoch_raises(cuaug.CuaugError, message, WithNumbers(), [T.MixUp(num_classes=2)], batch_size=3)


@pytest.mark.parametrize("on_error", ["replace", "skip"])
def test_damaged_samples(files, on_error):
    for i in (0, 5, 6):
        open(files[i][0], "wb").close()
    batches = mixed(files, batch_size=4, on_error=on_error)
    assert sorted(samples_of(batches)) == [1, 2, 3, 4, 7, 8, 9, 10]
    if on_error == "replace":
        assert [len(batch.images) for batch in batches] == [4, 4, 3]
        assert_same(samples_of(mixed(files, batch_size=11, on_error=on_error)), samples_of(batches))
    assert all(len(batch.params()) == len(batch.images) for batch in batches)


# --- until an epoch: equal to mixes that do not end before it, and to no mixes from it on -----------------------------

CROP = [T.RandomCrop(24), T.RandomHorizontalFlip()]
MIXES = {
    "mixup": (False, lambda end: T.MixUp(0.3, 4, until_epoch=end)),
    "cutmix": (False, lambda end: T.CutMix(num_classes=4, until_epoch=end)),
    "choice": (
        False,
        lambda end: T.RandomChoice([T.MixUp(num_classes=4, until_epoch=end), T.CutMix(num_classes=4, until_epoch=end)]),
    ),
    "mosaic": (True, lambda end: T.Mosaic(until_epoch=end)),
    "copy-paste": (True, lambda end: T.CopyPaste(1.0, until_epoch=end)),
    "mixup of boxes": (True, lambda end: T.MixUp(32.0, until_epoch=end)),
}


@pytest.fixture(params=MIXES)
def case(request, files):
    of_boxes, make = MIXES[request.param]
    return labeled(files, of_boxes), make


def open_loader(samples, mix, **settings):
    # The color transform after the mix has draws of its own: mixing that is over must not change them.
    chain = [*CROP, *([mix] if mix is not None else []), T.ColorJitter(0.4)]
    return cuaug.Loader(samples, chain, batch_size=4, shuffle=True, seed=3, **settings)


@pytest.mark.parametrize("end", [0, END])
def test_epochs_before_and_after(case, end):
    """The loader reads ahead into the next epoch, whose batches are made while this one is consumed."""
    samples, make = case
    with (
        open_loader(samples, make(end), prefetch=4) as ending,
        open_loader(samples, make(None)) as endless,
        open_loader(samples, None) as unmixed,
    ):
        for epoch in range(EPOCHS):
            ours, mixed, alone = (samples_of(list(loader)) for loader in (ending, endless, unmixed))
            if epoch < end:
                assert_same(ours, mixed)
                assert any(not torch.equal(image, alone[index][0]) for index, (image, _) in ours.items())
                continue
            assert list(ours) == list(alone)
            for index, (image, label) in ours.items():
                other, own_label = alone[index]
                assert torch.equal(image, other)
                soft = np.eye(4)[own_label].tolist() if isinstance(own_label, int) else own_label
                assert label == soft, index


def test_resuming_ranks_and_replay(case):
    samples, make = case
    with open_loader(samples, make(END)) as loader:
        whole = [list(loader) for _ in range(EPOCHS)]
        for epoch in range(EPOCHS):
            assert torch.equal(loader.replay(epoch=epoch, step=1).images, whole[epoch][1].images)
    with open_loader(samples, make(END)) as loader:
        loader.set_epoch(END - 1)
        batches = iter(loader)
        first = [next(batches)]
        state = pickle.loads(pickle.dumps(loader.state_dict()))
    with open_loader(samples, make(END)) as loader:
        loader.load_state_dict(state)
        assert_same(samples_of(first + list(loader)), samples_of(whole[END - 1]))
        assert_same(samples_of(list(loader)), samples_of(whole[END]))
    want = samples_of(whole[END])
    for rank in range(2):
        with open_loader(samples, make(END), rank=rank, world_size=2) as loader:
            loader.set_epoch(END)
            for index, (image, label) in samples_of(list(loader)).items():
                assert torch.equal(image, want[index][0]) and label == want[index][1]


def test_a_chain_pickles_and_shows_its_end():
    chain = T.Compose([mix(7) for _, mix in MIXES.values()])
    again = pickle.loads(pickle.dumps(chain))
    assert repr(again) == repr(chain) and repr(chain).count("until_epoch=7") == 7
    assert chain.explain().count("until_epoch=7") == 7
    for make in (T.MixUp, T.CutMix, T.Mosaic, T.CopyPaste):
        assert "until_epoch" not in repr(make())
        for value in (-1, 1.5, "3"):
            with pytest.raises(TransformError, match="until_epoch must be"):
                make(until_epoch=value)


def test_a_call_mixes_always_and_warns(files):
    x = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (5, 3, 8, 8), dtype=np.uint8))
    ending, endless = (T.Compose([T.MixUp(num_classes=4, until_epoch=end)]) for end in (0, None))
    torch.manual_seed(0)
    with pytest.warns(ChainWarning, match=r"until_epoch has no effect in a call.*cuaug\.Loader") as warned:
        (images, _), params = ending.trace(x, [0] * 5)
    assert warned[0].filename == __file__
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(images, endless(x, [0] * 5)[0])
        assert torch.equal(ending.replay(params, x, [0] * 5)[0], images)
        samples = labeled(files, False)
        with open_loader(samples, T.MixUp(num_classes=4, until_epoch=1)) as loader:  # a Loader counts epochs
            list(loader)


def test_a_mosaic_that_ends_keeps_the_size(files):
    """It is refused in the first epoch, and not when mosaics end."""
    with (
        open_loader(labeled(files, True), T.Mosaic(48, until_epoch=END)) as loader,
        pytest.raises(TransformError, match=r"output_size must be the images' size, 24 x 24.*without until_epoch"),
    ):
        next(iter(loader))
