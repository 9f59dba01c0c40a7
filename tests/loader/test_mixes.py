"""MixUp and CutMix in a loader: partners do not depend on batch size, ranks or damaged files."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

import cuaug
from cuaug import transforms as T


@pytest.fixture
def files(tmp_path):
    paths = []
    for i in range(11):
        pixels = np.random.default_rng(i).integers(0, 256, (40 + i, 50, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path := tmp_path / f"{i}.png")
        paths.append((str(path), i % 4))
    return paths


CHAIN = [
    T.RandomResizedCrop(16),
    T.ToDtype(torch.float32, scale=True),
    T.RandomChoice([T.MixUp(0.3, 4), T.CutMix(num_classes=4)]),
]


def epoch(files, **settings):
    """{index: mixed sample}."""
    with cuaug.Loader(files, CHAIN, shuffle=True, seed=5, **settings) as loader:
        batches = list(loader)
    for batch in batches:
        assert batch.labels.shape == (len(batch.images), 4) and batch.labels.dtype == torch.float32
        torch.testing.assert_close(batch.labels.cpu().sum(1), torch.ones(len(batch.images)))
    got = {}
    for batch in batches:
        for index, valid, image, label in zip(batch.indices, batch.valid, batch.images, batch.labels, strict=True):
            if valid:
                got[int(index)] = (image, label)
    return batches, got


def assert_same(one, other):
    assert sorted(one) == sorted(other)
    for index, (image, label) in one.items():
        assert torch.equal(image, other[index][0]) and torch.equal(label, other[index][1])


@pytest.mark.parametrize("settings", [{"batch_size": 1}, {"batch_size": 4}, {"batch_size": 4, "threads": 3}])
def test_mixes_do_not_depend_on_the_batch_size(files, settings):
    assert_same(epoch(files, batch_size=11)[1], epoch(files, **settings)[1])


def test_mixes_do_not_depend_on_the_ranks(files):
    together = {}
    for rank in range(3):
        together.update(epoch(files, batch_size=2, rank=rank, world_size=3)[1])
    assert_same(epoch(files, batch_size=11)[1], together)


class WithNumbers:
    """Labels are (class, sample number), with as many fields as classes."""

    def __len__(self):
        return 3

    def __getitem__(self, i):
        return np.zeros((40, 40, 3), np.uint8), i % 2, 100 + i


def test_fields_of_a_label_are_no_soft_label():
    loader = cuaug.Loader(WithNumbers(), [T.MixUp(num_classes=2)], batch_size=3)
    with loader, pytest.raises(cuaug.CuaugError, match="the label is a tuple of 2 fields"):
        next(iter(loader))


@pytest.mark.parametrize("on_error", ["replace", "skip"])
def test_damaged_samples(files, on_error):
    for i in (0, 5, 6):
        open(files[i][0], "wb").close()
    batches, got = epoch(files, batch_size=4, on_error=on_error)
    assert sorted(got) == [1, 2, 3, 4, 7, 8, 9, 10]
    if on_error == "replace":
        assert [len(batch.images) for batch in batches] == [4, 4, 3]
        assert_same(epoch(files, batch_size=11, on_error=on_error)[1], got)
    assert all(len(batch.params()) == len(batch.images) for batch in batches)
