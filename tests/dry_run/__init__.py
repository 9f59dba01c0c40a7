"""The CUDA pipeline with fakes for all of CUDA: host memory, one stream, kernels of the CPU build.

These tests check the Python around the kernels: slots, memory, order, and the streams that the allocator knows. The
executor alone is tested in `kernels/test_cuda_executor.py`, the GPU's own part in `tests/cuda/`. `fake_gpu.py` and
`test_fake_gpu.py` check the tests of `tests/cuda/` without a GPU.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from cuaug import Batch
from cuaug import transforms as T
from cuaug.batch import each_tensor
from tests.support.run_plans import assert_same

CHAIN = [T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.RandomErasing(p=0.5), T.Normalize([0.5] * 3, [0.2] * 3)]


def assert_same_batches(got: Iterable[Batch], want: Iterable[Batch]) -> None:
    """Asserts that an epoch of two loaders has the same samples, labels and bits."""
    for one, other in zip(got, want, strict=True):
        for image, expected in zip(each_tensor(one.images), each_tensor(other.images), strict=True):
            assert image.stride() == expected.stride()
            assert_same(image, expected)
        assert one.digest == other.digest
        assert one.indices.equal(other.indices) and one.valid.equal(other.valid)
        if isinstance(other.labels, torch.Tensor):
            assert one.labels.equal(other.labels)
        if other.clips is not None:
            assert one.clips.numbers.equal(other.clips.numbers)
            assert one.clips.timestamps.equal(other.clips.timestamps)
