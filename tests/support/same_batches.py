"""Compares batches of two loaders."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

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
        assert _on_cpu(one.labels) == _on_cpu(other.labels)
        if other.clips is not None:
            assert one.clips.numbers.equal(other.clips.numbers)
            assert one.clips.timestamps.equal(other.clips.timestamps)


def _on_cpu(labels: Any) -> tuple[list[Any], Any]:
    """The leaves of labels, and their structure; tensors as lists."""
    leaves, structure = tree_flatten(labels)
    return [(leaf.dtype, leaf.tolist()) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves], structure
