"""Batch samplers: objects that yield the indices of one batch after the other, as torch's BatchSampler."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any

import numpy as np
import torch

from cuaug._runtime.arguments import integer
from cuaug.errors import ArgumentError
from cuaug.sampling.orders import TorchOrder, refuse_divided

__all__ = ["BatchOrder", "check_whole_batches", "open_batch_sampler"]


class BatchOrder(TorchOrder):
    """The order of a torch batch sampler: its batches, one after the other.

    Args:
        batch_sampler: yields lists of indices.
        batch_size: their length; the last may be smaller.
    """

    def __init__(self, batch_sampler: Any, batch_size: int) -> None:
        super().__init__(batch_sampler)
        self.batch_size = batch_size

    def __len__(self) -> int:
        batches: Any = self.sampler
        if isinstance(batches, Sequence):
            return sum(map(len, batches))
        most = len(batches) * self.batch_size
        samples = getattr(batches, "sampler", None)
        missing = most - len(samples) if isinstance(samples, Sized) else 0
        return most - missing if 0 < missing < self.batch_size else most  # torch's BatchSampler without drop_last

    def _indices(self) -> Iterator[int]:
        batches: Any = self.sampler
        size = self.batch_size
        for batch in batches:
            if not isinstance(batch, (Sequence, np.ndarray, torch.Tensor)):
                raise ArgumentError(f"batch_sampler yields lists of indices, not {batch!r:.100}: is it a sampler=?")
            if size != self.batch_size or len(batch) > size:
                odd = size if size != self.batch_size else len(batch)
                raise ArgumentError(
                    f"batch_sampler must yield batches of {self.batch_size} samples, only the last may be smaller; it "
                    f"yields one of {odd}"
                )
            size = len(batch)
            yield from batch


def open_batch_sampler(batch_sampler: Any, batch_size: int, *, excluded: bool) -> BatchOrder:
    """The `Order` for a loader's `batch_sampler`, whose batches may hold any indices.

    Args:
        batch_size: the loader's argument; 1, its default, gives way to the batch sampler's own.
        excluded: whether shuffle=True or a sampler is given as well.

    Raises:
        LoaderError: `batch_sampler` is no batch sampler of one batch size, or the ranks cannot share it.
    """
    if excluded:
        raise ArgumentError("batch_sampler sets the order: leave out shuffle and sampler")
    refuse_divided("batch_sampler", batch_sampler)
    refuse_divided("batch_sampler.sampler", getattr(batch_sampler, "sampler", None))
    if not isinstance(batch_sampler, Iterable) or not isinstance(batch_sampler, Sized):
        raise ArgumentError(
            f"batch_sampler has len() and yields lists of indices, unlike {type(batch_sampler).__name__}"
        )
    own = getattr(batch_sampler, "batch_size", None)
    if isinstance(batch_sampler, Sequence) and batch_sampler and isinstance(batch_sampler[0], Sized):
        own = len(batch_sampler[0])
    if own is None and batch_size == 1:
        raise ArgumentError(
            f"batch_size: {type(batch_sampler).__name__} has no attribute of that name: give batch_size= as well"
        )
    if own is not None and batch_size not in (1, own):
        raise ArgumentError(f"batch_size is {batch_size}, but batch_sampler has batches of {own}: leave out batch_size")
    return BatchOrder(batch_sampler, integer("batch_size of batch_sampler", batch_size if own is None else own, 1))


def check_whole_batches(samples: int, batch_size: int, world_size: int) -> None:
    """Raise an ArgumentError if the last step would divide batches among ranks.

    Args:
        samples: what is left of the epoch.
    """
    if world_size > 1 and samples % (batch_size * world_size):
        raise ArgumentError(
            f"batch_sampler: {world_size} ranks take whole batches of {batch_size} in turn, which {samples} samples do "
            "not fill: use last_batch='drop' or 'pad'"
        )
