"""Batch samplers: objects that yield the indices of one batch after the other, as torch's BatchSampler."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence, Sized
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.arguments import integer
from cuaug.errors import ArgumentError
from cuaug.sampling.epoch import RankSlice, Steps
from cuaug.sampling.orders import TorchOrder, levels_of, refuse_divided

# An endless batch sampler is refused after so many indices, 512 MB, or 16 times the samples of the source.
_MOST_INDICES = 1 << 26


class SizedBatch(list[int]):
    """The indices of one batch, and the size that its images get, for a batch sampler to yield.

    Args:
        indices: of the samples.
        size: (height, width) in pixels, which stands in place of `cuaug.BUCKET` in the Loader's transforms.
        padding: number of samples at the end that only fill the batch: `Batch.valid` is False for them.
    """

    def __init__(self, indices: Iterable[int], size: tuple[int, int], padding: int = 0) -> None:
        super().__init__(indices)
        height, width = size
        self.size = integer("size", height, 1), integer("size", width, 1)
        self.padding = integer("padding", padding, 0)
        if self.padding >= len(self):
            raise ArgumentError(f"padding must be below {len(self)}, the samples of the batch, not {padding}")


class BatchOrder(TorchOrder):
    """The order of a batch sampler: its batches, one after the other.

    Args:
        batch_sampler: yields the indices of each batch.
        count: samples of the source.

    Attributes:
        ends: (b,) positions where the batches of the epoch end that was read last.
        buckets: (b, 3) height, width and padding of its `SizedBatch`es; zeros for other batches.
    """

    def __init__(self, batch_sampler: Any, count: int) -> None:
        super().__init__(batch_sampler)
        self.ends: NDArray[np.int64] = np.empty(0, np.int64)
        self.buckets: NDArray[np.int64] = np.empty((0, 3), np.int64)
        self._most = max(_MOST_INDICES, 16 * count)

    def __len__(self) -> int:
        """Samples of the epoch that was read last: a batch sampler does not know their number before."""
        return int(self.ends[-1]) if len(self.ends) else 0

    @property
    def batch_count(self) -> int:
        """The batch sampler's own length, or a TypeError."""
        try:
            return len(self.sampler)  # type: ignore[arg-type]
        except Exception as error:
            raise TypeError(f"the batch_sampler, {type(self.sampler).__name__}, has no length: {error}") from error

    def _read(self) -> NDArray[np.int64]:
        indices, ends, buckets = array("q"), array("q"), array("q")
        for batch in self.sampler:
            members: Any = batch.tolist() if hasattr(batch, "tolist") else batch  # elements of tensors are slow
            try:
                indices.extend(members)
            except (TypeError, OverflowError) as error:
                raise ArgumentError(
                    f"batch_sampler yields lists of indices, not {batch!r:.100}: is it a sampler=?"
                ) from error
            if len(indices) == (ends[-1] if ends else 0):
                raise ArgumentError(f"batch_sampler yields a batch without samples, number {len(ends)}")
            ends.append(len(indices))
            buckets.extend((*batch.size, batch.padding) if isinstance(batch, SizedBatch) else (0, 0, 0))
            if len(indices) > self._most:
                raise ArgumentError(f"batch_sampler does not end: it yields more than {self._most} indices in an epoch")
        if not ends:
            raise ArgumentError(
                "batch_sampler yields no batch; an iterator or generator ends with its first epoch: give an object "
                "whose __iter__ begins again"
            )
        self.ends = np.array(ends, dtype=np.int64)
        self.buckets = np.array(buckets, dtype=np.int64).reshape(-1, 3)
        return np.array(indices, dtype=np.int64)


class BatchSteps(Steps):
    """The rank slices of one rank in an epoch of a batch sampler: a step has a whole batch for each rank.

    Args:
        ends: (b,) positions in the order where the batches end.
        last_batch: where the last step has fewer batches than ranks, "drop" leaves it out; "pad" fills it with batches
            from the start of the epoch, marked as not valid; "partial" raises an ArgumentError.
        rank, world_size: this rank and the number of ranks.
        start: position where the first step begins; inside a batch, with the rest of that batch.
        buckets: (b, 3) height, width and padding of the batches; None: zeros.
    """

    def __init__(
        self,
        ends: NDArray[np.int64],
        last_batch: str,
        *,
        rank: int = 0,
        world_size: int = 1,
        start: int = 0,
        buckets: NDArray[np.int64] | None = None,
    ) -> None:
        self._ends, self._rank, self._world_size = ends, rank, world_size
        self._buckets = np.zeros((len(ends), 3), np.int64) if buckets is None else buckets
        self._bounds = np.concatenate([[start], ends[ends > start]])
        self._steps = count_steps(len(self._bounds) - 1, last_batch, world_size)
        if not start and not self._steps:
            raise ArgumentError(
                f"last_batch='drop' leaves no batch: batch_sampler has {len(ends)}, fewer than {world_size} ranks"
            )

    def __getitem__(self, step: int) -> RankSlice:
        if not 0 <= step < self._steps:
            raise IndexError(f"step {step} of {self._steps}")
        count = len(self._bounds) - 1
        number, end = step * self._world_size + self._rank, min((step + 1) * self._world_size, count)
        bounds, is_own = self._bounds, number < count
        if not is_own:
            number, bounds = (number - count) % len(self._ends), np.concatenate([[0], self._ends])
        positions = np.arange(bounds[number], bounds[number + 1])
        height, width, padding = self._buckets[number + len(self._ends) + 1 - len(bounds)].tolist()
        valid = (positions < bounds[number + 1] - padding) & is_own
        size = (height, width) if height else None
        return RankSlice(positions, valid, len(positions), int(self._bounds[end]), size)


def count_steps(batches: int, last_batch: str, world_size: int) -> int:
    """Steps in which each rank takes a whole batch.

    Raises:
        ArgumentError: the last step would leave ranks without a batch, and `last_batch` is "partial".
    """
    full, rest = divmod(batches, world_size)
    if rest and last_batch == "partial":
        raise ArgumentError(
            f"batch_sampler: {world_size} ranks take whole batches in turn, which {batches} batches do not fill: use "
            "last_batch='drop' or 'pad'"
        )
    return full + (rest > 0 and last_batch == "pad")


def open_batch_sampler(
    batch_sampler: Any, count: int, batch_size: int, *, excluded: bool
) -> tuple[BatchOrder, int | None]:
    """The order of a loader's `batch_sampler` over `count` samples, and its batch size, as far as it tells one.

    Args:
        batch_size: the loader's argument; 1, its default, gives way to the batch sampler's own.
        excluded: whether shuffle=True or a sampler is given as well.
    """
    if excluded:
        raise ArgumentError("batch_sampler sets the order: leave out shuffle and sampler")
    for depth, level in enumerate(levels_of(batch_sampler)):
        refuse_divided("batch_sampler" + ".sampler" * depth, level)
    if not hasattr(batch_sampler, "__iter__") and not hasattr(batch_sampler, "__getitem__"):
        raise ArgumentError(f"batch_sampler yields lists of indices, unlike {type(batch_sampler).__name__}")
    own = getattr(batch_sampler, "batch_size", None)
    if isinstance(batch_sampler, Sequence) and batch_sampler and isinstance(batch_sampler[0], Sized):
        own = len(batch_sampler[0])
    if type(own) is not int or own < 1:
        own = None if batch_size == 1 else batch_size
    elif batch_size not in (1, own):
        raise ArgumentError(f"batch_size is {batch_size}, but batch_sampler has batches of {own}: leave out batch_size")
    return BatchOrder(batch_sampler, count), own
