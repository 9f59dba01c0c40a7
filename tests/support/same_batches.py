"""Compares batches of two loaders."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from cuaug import Batch
from cuaug.batch import each_tensor


def assert_same_batches(got: Iterable[Batch], want: Iterable[Batch]) -> None:
    """Asserts that an epoch of two loaders has the same samples, labels and bits, on any device."""
    for one, other in zip(got, want, strict=True):
        for image, expected in zip(each_tensor(one.images), each_tensor(other.images), strict=True):
            exact = {"rtol": 0, "atol": 0, "equal_nan": True}
            torch.testing.assert_close(image.cpu(), expected.cpu(), **exact, check_stride=True)
        assert one.digest == other.digest
        assert one.indices.equal(other.indices) and one.valid.equal(other.valid)
        if isinstance(other.labels, torch.Tensor):
            assert one.labels.cpu().equal(other.labels)
        if other.clips is not None:
            assert one.clips.numbers.equal(other.clips.numbers)
            assert one.clips.timestamps.equal(other.clips.timestamps)
