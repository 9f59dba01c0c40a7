"""An epoch's order divided into steps, and each step among the ranks.

Step s takes the next world_size * batch_size samples of the order; rank r takes the r-th part of them. So what all
ranks together have loaded after a step is always a prefix of the order, and any number of ranks can go on from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["LAST_BATCH", "RankSlice", "Steps"]

#: What becomes of the samples left over at the end of an epoch.
LAST_BATCH = ("partial", "drop", "pad")


@dataclass(frozen=True)
class RankSlice:
    """What one rank loads in one step.

    Attributes:
        positions: (n,) places in the epoch's order.
        valid: (n,) False for padding.
        kept: how many of them are yielded, all or none: a rank that nothing is left for loads one sample all the
            same, to know the shape of its empty batch.
        end: how far in the order all ranks together are after this step.
    """

    positions: NDArray[np.int64]
    valid: NDArray[np.bool_]
    kept: int
    end: int


class Steps:
    """The shares of one rank, as a sequence.

    Args:
        count: samples in the epoch's order.
        batch_size: samples per rank and step.
        last_batch: "drop" leaves out what does not fill a batch on every rank; "pad" fills the last step with samples
            from the beginning of the order, marked as not valid; "partial" divides what is left among the ranks.
        rank, world_size: which rank of how many.
        start: where in the order the first step begins.

    All ranks have the same number of steps. With "partial" a step that would have fewer samples than ranks takes some
    from the step before; only where that cannot be (batches of one, or fewer samples than ranks in all) the batches of
    some ranks are empty.
    """

    def __init__(
        self, count: int, batch_size: int, last_batch: str, *, rank: int = 0, world_size: int = 1, start: int = 0
    ) -> None:
        self._count, self._start = count, min(start, count)
        self._batch_size, self._rank, self._world_size = batch_size, rank, world_size
        self._last_batch = last_batch
        self._global_size = batch_size * world_size
        full, self._left = divmod(self._count - self._start, self._global_size)
        self._steps = full + (self._left > 0 and last_batch != "drop")

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[RankSlice]:
        return (self[step] for step in range(self._steps))

    def __getitem__(self, step: int) -> RankSlice:
        if not 0 <= step < self._steps:
            raise IndexError(f"step {step} of {self._steps}")
        if self._last_batch != "partial":
            begin = self._start + step * self._global_size
            mine = begin + self._rank * self._batch_size + np.arange(self._batch_size)
            end = min(begin + self._global_size, self._count)
            return RankSlice(mine % self._count, mine < self._count, self._batch_size, end)
        begin, end = self._begin(step), self._begin(step + 1)
        first, last = (-(-(end - begin) * rank // self._world_size) for rank in (self._rank, self._rank + 1))
        mine = np.arange(begin + first, begin + last)
        if len(mine):
            return RankSlice(mine, np.ones(len(mine), dtype=bool), len(mine), end)
        return RankSlice(np.array([begin]), np.zeros(1, dtype=bool), 0, end)

    def _begin(self, step: int) -> int:
        """Where step `step` of a "partial" division begins, in the order; the end, for the number of steps."""
        begin = self._start + step * self._global_size
        lend = self._world_size - self._left
        if step == self._steps - 1 > 0 and 0 < self._left < self._world_size and self._batch_size > 1:
            begin -= lend
        return min(begin, self._count)
