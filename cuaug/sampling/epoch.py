"""One epoch: its order, the RNG keys of its samples, and its steps, divided into rank slices.

Step s takes the next world_size * batch_size samples of the order; rank r takes the r-th slice of them. So all ranks
together have always loaded a prefix of the order, and any number of ranks can resume from there.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cuaug.sampling.rng import REPLACEMENT_POSITION, SampleRNG

#: Values of the loader's `last_batch`.
LAST_BATCH = ("partial", "drop", "pad")


@dataclass(frozen=True)
class RankSlice:
    """The samples of one rank in one step.

    Attributes:
        positions: (n,) positions in the epoch's order.
        valid: (n,) False for padding.
        kept: number of samples that are yielded, n or 0. A rank without samples loads one to learn the shape of its
            empty batch.
        end: position in the order that all ranks together reach with this step.
        size: (height, width) that stands in place of `cuaug.BUCKET` in transforms; None: the batch has no bucket.
    """

    positions: NDArray[np.int64]
    valid: NDArray[np.bool_]
    kept: int
    end: int
    size: tuple[int, int] | None = None


class Steps:
    """The rank slices of one rank, as a sequence.

    Args:
        count: samples in the epoch's order.
        batch_size: samples per rank and step.
        last_batch: "drop" leaves out an incomplete last step; "pad" fills it with samples from the start of the order,
            marked as not valid; "partial" divides its samples among the ranks.
        rank, world_size: this rank and the number of ranks.
        start: position in the order where the first step begins.
        interleaved: rank r takes every world_size-th sample of a step, from the r-th on, not the r-th slice.

    All ranks have the same number of steps. With "partial", a last step with fewer samples than ranks borrows some
    from the step before. Ranks get empty batches only where that is impossible: batches of one sample, or fewer
    samples than ranks in total.
    """

    def __init__(
        self,
        count: int,
        batch_size: int,
        last_batch: str,
        *,
        rank: int = 0,
        world_size: int = 1,
        start: int = 0,
        interleaved: bool = False,
    ) -> None:
        self._count, self._start = count, min(start, count)
        self._batch_size, self._rank, self._world_size = batch_size, rank, world_size
        self._last_batch, self._interleaved = last_batch, interleaved
        self._global_size = batch_size * world_size
        full, self._remainder = divmod(self._count - self._start, self._global_size)
        self._steps = full + (self._remainder > 0 and last_batch != "drop")

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[RankSlice]:
        return (self[step] for step in range(self._steps))

    def __getitem__(self, step: int) -> RankSlice:
        if not 0 <= step < self._steps:
            raise IndexError(f"step {step} of {self._steps}")
        if self._last_batch != "partial":
            begin = self._start + step * self._global_size
            positions = self._own(begin, begin + self._global_size)
            end = min(begin + self._global_size, self._count)
            return RankSlice(positions % self._count, positions < self._count, self._batch_size, end)
        begin, end = self._begin(step), self._begin(step + 1)
        positions = self._own(begin, end)
        if len(positions):
            return RankSlice(positions, np.ones(len(positions), dtype=bool), len(positions), end)
        return RankSlice(np.array([begin]), np.zeros(1, dtype=bool), 0, end)

    def _own(self, begin: int, end: int) -> NDArray[np.int64]:
        """This rank's share of the positions of a step."""
        if self._interleaved:
            return np.arange(begin + self._rank, end, self._world_size)
        first, last = (-(-(end - begin) * rank // self._world_size) for rank in (self._rank, self._rank + 1))
        return np.arange(begin + first, begin + last)

    def _begin(self, step: int) -> int:
        """Position where a step begins with "partial"; the end of the order after the last step."""
        begin = self._start + step * self._global_size
        if step == self._steps - 1 > 0 and 0 < self._remainder < self._world_size and self._batch_size > 1:
            begin -= self._world_size - self._remainder  # borrowed: one sample for each rank
        return min(begin, self._count)


# A sample's RNG key is its index. The k-th repetition of a sample in an epoch has the key index + k * 2**40: it is
# augmented differently from the first, and independently of how the epoch is loaded.
_REPETITION = 1 << 40


class Epoch:
    """The order of one epoch.

    Args:
        number: the epoch's number.
        seed: the loader's seed.
        order: (n,) sample indices, in order.
        repeats: whether `order` may hold an index more than once.
        keys: (n,) RNG keys of the samples; None: from the indices.
        ends: (b,) positions where a batch sampler's batches end; None: there is none.
        buckets: (b, 3) height and width of each batch's bucket, 0 without one, and the samples of padding at its end.

    Attributes:
        indices, ends, buckets: `order`, `ends` and `buckets`.
    """

    def __init__(
        self,
        number: int,
        seed: int,
        order: NDArray[np.int64],
        *,
        repeats: bool = False,
        keys: NDArray[np.int64] | None = None,
        ends: NDArray[np.int64] | None = None,
        buckets: NDArray[np.int64] | None = None,
    ) -> None:
        self.number, self.seed, self.indices, self.ends, self.buckets = number, seed, order, ends, buckets
        self._keys = keys if keys is not None else _keys(order) if repeats else order

    def __len__(self) -> int:
        return len(self.indices)

    def keys(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) RNG keys of the samples at these positions, for `SampleRNG(seed, number, keys)`."""
        return self._keys[positions]

    def with_next(self, positions: NDArray[np.int64], count: int) -> NDArray[np.int64]:
        """The positions and the next `count` ones after the last; the order wraps around at its end."""
        if not count:
            return positions
        return np.concatenate([positions, (positions[-1:] + 1 + np.arange(count)) % len(self)])

    def replacements(self, positions: NDArray[np.int64], attempt: int) -> NDArray[np.int64]:
        """(n,) positions of replacement samples, a pure function of (seed, epoch, sample, attempt) and the order."""
        rng = SampleRNG(self.seed, self.number, self._keys[positions], position=REPLACEMENT_POSITION)
        return np.floor(rng.uniform(attempt + 1)[:, attempt] * len(self)).astype(np.int64)

    @cached_property
    def checksum(self) -> int:
        """CRC-32 of the order."""
        return zlib.crc32(np.ascontiguousarray(self.indices).data)

    @property
    def batches_checksum(self) -> int | None:
        """CRC-32 of a batch sampler's batches and their sizes; None: there is none."""
        if self.ends is None or self.buckets is None:
            return None
        return zlib.crc32(self.buckets.data, zlib.crc32(self.ends.data))


def _keys(order: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n,) each index, plus 2**40 for each earlier occurrence."""
    by_index = np.argsort(order, kind="stable")
    ordered = order[by_index]
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    lengths = np.diff(np.append(first, len(order)))
    keys = np.empty_like(order)
    keys[by_index] = ordered + (np.arange(len(order)) - np.repeat(first, lengths)) * _REPETITION
    return keys
