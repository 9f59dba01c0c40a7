"""One epoch: its order, and the numbers under which its samples draw."""

from __future__ import annotations

import zlib
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cuaug.sampling.rng import STAND_IN_POSITION, SampleRNG

__all__ = ["Epoch"]

# A sample's draws are keyed with its index. Where a sampler repeats a sample within an epoch, the k-th repetition is
# keyed with index + k * 2**40: it looks different from the first, and the same however the epoch is loaded.
_REPETITION = 1 << 40


class Epoch:
    """The order of one epoch.

    Args:
        number: which epoch.
        seed: what its draws are keyed with, beside the number.
        order: (n,) the indices, in order.
        repeats: whether an index may stand in it more than once.

    Attributes:
        indices: the order, as given.
    """

    def __init__(self, number: int, seed: int, order: NDArray[np.int64], *, repeats: bool = False) -> None:
        self.number, self.seed, self.indices = number, seed, order
        self._keys = _keys(order) if repeats else order

    def __len__(self) -> int:
        return len(self.indices)

    def keys(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """What the samples at these places draw under: `SampleRNG(seed, number, keys)`."""
        return self._keys[positions]

    def followed(self, positions: NDArray[np.int64], count: int) -> NDArray[np.int64]:
        """The places, and `count` more that follow the last of them in the order, which goes round at its end."""
        return np.concatenate([positions, (positions[-1:] + 1 + np.arange(count)) % len(self)])

    def replacements(self, positions: NDArray[np.int64], attempt: int) -> NDArray[np.int64]:
        """Places of other samples to take instead; a function of (seed, epoch, sample, attempt) and the order alone."""
        rng = SampleRNG(self.seed, self.number, self._keys[positions], position=STAND_IN_POSITION)
        return np.floor(rng.uniform(attempt + 1)[:, attempt] * len(self)).astype(np.int64)

    @cached_property
    def checksum(self) -> int:
        """Of the order."""
        return zlib.crc32(np.ascontiguousarray(self.indices).data)


def _keys(order: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n,): each index, plus 2**40 for every time that it came before."""
    by_index = np.argsort(order, kind="stable")
    ordered = order[by_index]
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    lengths = np.diff(np.append(first, len(order)))
    keys = np.empty_like(order)
    keys[by_index] = ordered + (np.arange(len(order)) - np.repeat(first, lengths)) * _REPETITION
    return keys
