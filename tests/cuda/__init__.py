"""Tests that need a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cuaug import Batch, Loader
from cuaug.batch import each_tensor
from cuaug.profiling.bottleneck import Stats
from tests.support.same_batches import assert_same_batches


def equal_epochs(source: Any, chain: Any, epochs: int, **options: Any) -> Stats:
    """Compares the epochs of loaders on the GPU and on the CPU; returns the statistics of the one on the GPU."""
    with Loader(source, chain, device="cuda", **options) as gpu, Loader(source, chain, device="cpu", **options) as cpu:
        for _ in range(epochs):
            assert_same_batches(_on_gpu(gpu), cpu)
        return gpu.stats()


def _on_gpu(loader: Loader) -> Iterator[Batch]:
    for batch in loader:
        assert all(tensor.is_cuda for tensor in (*each_tensor(batch.images), *each_tensor(batch.labels)))
        yield batch
