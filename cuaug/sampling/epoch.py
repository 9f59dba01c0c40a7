"""One epoch: its order and the RNG keys of its samples."""

from __future__ import annotations

import zlib
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cuaug.sampling.rng import REPLACEMENT_POSITION, SampleRNG

__all__ = ["Epoch"]

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

    Attributes:
        indices: `order`.
    """

    def __init__(
        self,
        number: int,
        seed: int,
        order: NDArray[np.int64],
        *,
        repeats: bool = False,
        keys: NDArray[np.int64] | None = None,
    ) -> None:
        self.number, self.seed, self.indices = number, seed, order
        self._keys = keys if keys is not None else _keys(order) if repeats else order

    def __len__(self) -> int:
        return len(self.indices)

    def keys(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) RNG keys of the samples at these positions, for `SampleRNG(seed, number, keys)`."""
        return self._keys[positions]

    def with_next(self, positions: NDArray[np.int64], count: int) -> NDArray[np.int64]:
        """The positions and the next `count` ones after the last; the order wraps around at its end."""
        return np.concatenate([positions, (positions[-1:] + 1 + np.arange(count)) % len(self)])

    def replacements(self, positions: NDArray[np.int64], attempt: int) -> NDArray[np.int64]:
        """(n,) positions of replacement samples, a pure function of (seed, epoch, sample, attempt) and the order."""
        rng = SampleRNG(self.seed, self.number, self._keys[positions], position=REPLACEMENT_POSITION)
        return np.floor(rng.uniform(attempt + 1)[:, attempt] * len(self)).astype(np.int64)

    @cached_property
    def checksum(self) -> int:
        """CRC-32 of the order."""
        return zlib.crc32(np.ascontiguousarray(self.indices).data)


def _keys(order: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n,) each index, plus 2**40 for each earlier occurrence."""
    by_index = np.argsort(order, kind="stable")
    ordered = order[by_index]
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    lengths = np.diff(np.append(first, len(order)))
    keys = np.empty_like(order)
    keys[by_index] = ordered + (np.arange(len(order)) - np.repeat(first, lengths)) * _REPETITION
    return keys
