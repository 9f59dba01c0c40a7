"""Random numbers that are a pure function of (seed, epoch, class of the transform, sample index, position, draw).

`position` counts the transforms of that class in the chain, `draw` the numbers of one transform. So a transform of
another class in front changes nothing. Batch, thread, rank and device do not matter. The generator is Philox4x32-10
(kernels/core/philox.h): (seed, epoch, class) make the 64-bit key, (index, position, draw) the counter. A hash of 64
bits keeps classes apart: among 1,000 classes two share a key with a probability of 3e-14.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cuaug._runtime.native import BEST_ISA, address, library
from cuaug.errors import TransformError

_MASK64 = (1 << 64) - 1
#: Position of the draws for replacements. Position 0 is for the epoch's order; both have the key without a class.
REPLACEMENT_POSITION = (1 << 32) - 1
# Distance between the keys of a sample's views, beyond its repetitions in an epoch, which are 2**40 apart.
_STRIDE = 1 << 52
#: Most views that `SampleRNG.for_view` distinguishes.
MAX_VIEWS = (1 << 63) // _STRIDE - 1


def _mix(value: int) -> int:
    """SplitMix64's finalizer (Steele, Lea and Flood 2014), a bijection of 64 bits."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK64
    return value ^ (value >> 31)


def hash_seed(seed: int, epoch: int) -> int:
    """64 bits from two integers, each taken modulo 2**64."""
    return _mix(_mix(seed & _MASK64) ^ (epoch & _MASK64))


@functools.cache
def _hash_name(name: str) -> int:
    """64 bits from a name, the same in every process."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


class SampleRNG:
    """Random numbers for N samples of one epoch, transform by transform.

    Args:
        seed: any integer; taken modulo 2**64.
        epoch: any integer; taken modulo 2**64.
        indices: (N,) integers, the samples' indices in their source.
        position: position of the first draws.
        is_clip: the samples are the frames of clips; those of one clip have the same index.

    Attributes:
        epoch: the number of a Loader's epoch; None in a call of a chain, which counts no epochs.

    Every method that draws returns one row per sample and advances by its number of columns, whatever the values are.
    So a sample's numbers do not depend on its neighbors.
    """

    def __init__(self, seed: int, epoch: int, indices: ArrayLike, *, position: int = 0, is_clip: bool = False) -> None:
        self.indices: NDArray[np.int64] = np.ascontiguousarray(indices, dtype=np.int64)
        self.epoch: int | None = epoch
        self._seed = hash_seed(seed, epoch)
        self._key = self._seed & 0xFFFFFFFF, self._seed >> 32
        self.is_clip = is_clip
        self._position = position
        self._draw = 0
        self._counts: dict[str, int] = {}  # transforms so far, by class
        self._repetition = ""

    def __len__(self) -> int:
        return len(self.indices)

    def of(self, indices: NDArray[np.int64]) -> SampleRNG:
        """Other samples, from the same transform on; both then go on independently."""
        rng = SampleRNG.__new__(SampleRNG)
        rng.__dict__.update(self.__dict__)
        rng.indices, rng._draw, rng._counts = np.ascontiguousarray(indices), 0, dict(self._counts)
        return rng

    def for_view(self, numbers: NDArray[np.int64]) -> SampleRNG:
        """Independent draws for views of the same samples; `numbers` are (N,) view numbers below `MAX_VIEWS`."""
        return self.of(self.indices + (numbers + 1) * _STRIDE)

    def for_frame(self, numbers: NDArray[np.int64], views: int) -> SampleRNG:
        """Independent draws for the frames of the same clips.

        Args:
            numbers: (N,) frame numbers.
            views: number of views of a clip, which `for_view` may have told apart already.

        Raises:
            TransformError: too many frames.
        """
        if numbers.max(initial=0) * (views + 1) >= MAX_VIEWS:
            raise TransformError(f"PerFrame draws for at most {MAX_VIEWS // (views + 1)} frames of a clip")
        rng = self.of(self.indices + numbers * (views + 1) * _STRIDE)
        rng._repetition = f"{self._repetition}/frame"
        return rng

    def repetition(self, number: int) -> SampleRNG:
        """Independent draws for the same transforms, planned once more: `number` counts from 1."""
        rng = self.of(self.indices)
        rng._repetition = f"{self._repetition}/{number}"
        return rng

    def select(self, rows: NDArray[np.int64]) -> SampleRNG:
        """The samples in these rows, from the current draw on."""
        rng = self.of(self.indices[rows])
        rng._draw = self._draw
        return rng

    @property
    def counts(self) -> Mapping[str, int]:
        """How many transforms of each class have drawn."""
        return self._counts

    def skip(self, counts: Mapping[str, int]) -> None:
        """Goes on after the transforms that another generator's `counts` tell."""
        self._counts = dict(counts)

    def next_transform(self, transform: object) -> None:
        """Moves to the draws of the next transform of a chain, nested ones included.

        They depend on the name of its class, and on how many of that class came before.
        """
        name = type(transform).__name__
        self._position = self._counts[name] = self._counts.get(name, 0) + 1
        key = _mix(self._seed ^ _hash_name(name + self._repetition))
        self._key = key & 0xFFFFFFFF, key >> 32
        self._draw = 0

    def uniform(self, count: int | None = None, low: ArrayLike = 0.0, high: ArrayLike = 1.0) -> NDArray[np.float64]:
        """(N,) or (N, count) uniform in [low, high), in steps of (high - low) / 2**32; the bounds broadcast."""
        columns, n = 1 if count is None else count, len(self.indices)
        out = np.empty(n if count is None else (n, count))
        is_scalar = isinstance(low, (int, float)) and isinstance(high, (int, float))
        begin, span = (float(low), float(high) - float(low)) if is_scalar else (0.0, 1.0)  # type: ignore[arg-type]
        counter = self._position, self._draw, columns
        library.cuaug_draw(BEST_ISA, *self._key, address(self.indices), n, *counter, begin, span, address(out))
        self._draw += columns
        if is_scalar:
            return out
        first, end = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
        return first + out * (end - first)

    def normal(self, count: int) -> NDArray[np.float64]:
        """(N, count) from the standard normal distribution; two draws each (Box and Muller 1958)."""
        first, second = self.uniform(count), self.uniform(count)
        return np.sqrt(-2.0 * np.log1p(-first)) * np.cos(2.0 * np.pi * second)

    def bernoulli(self, p: float) -> NDArray[np.bool_]:
        """(N,) True with probability p."""
        return self.uniform() < p

    def integers(self, low: ArrayLike, high: ArrayLike) -> NDArray[np.int64]:
        """(N,) uniform in low .. high, both included; `low` and `high` are numbers or (N,)."""
        low, high = np.asarray(low, dtype=np.int64), np.asarray(high, dtype=np.int64)
        return low + np.floor(self.uniform() * (high - low + 1)).astype(np.int64)

    def permutation(self, count: int) -> NDArray[np.int64]:
        """(N, count) a permutation of 0 .. count - 1 per sample."""
        return np.argsort(self.uniform(count), axis=1, kind="stable")

    def beta(self, alpha: float) -> NDArray[np.float64]:
        """(N,) from Beta(alpha, alpha); two draws."""
        return np.exp(self._log_halves(alpha, 1)[:, 0, 0])

    def dirichlet(self, alpha: float, count: int) -> NDArray[np.float64]:
        """(N, count) from the symmetric Dirichlet distribution with parameter alpha.

        1 is split in two by Beta draws, recursively, up to a power of two of at least `count` parts. The first `count`
        parts, normalized, are Dirichlet again.
        """
        parts = np.zeros((len(self), 1))
        for k in reversed(range((count - 1).bit_length())):
            halves = self._log_halves(alpha * 2**k, parts.shape[1])
            parts = (parts[:, :, None] + halves).reshape(len(self), -1)
        weights = np.exp(parts[:, :count] - parts[:, :count].max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    def _log_halves(self, alpha: float, count: int) -> NDArray[np.float64]:
        """(N, count, 2) log(x) and log(1 - x), x from Beta(alpha, alpha); x may be close to 0.

        Devroye 1996, "Random variate generation in one line of code": with u and v uniform, c = cos(2 pi v) and
        q = 1 / (u ** (-1 / alpha) - 1), x = (1 + c / sqrt(c ** 2 + q)) / 2.
        """
        u, v = self.uniform(2 * count).reshape(len(self), count, 2).transpose(2, 0, 1)
        # Plus half a step: never 0.
        y = -np.log(u + 2.0**-33) / alpha
        log_q = -y - np.log(-np.expm1(-y))
        c = np.cos(2.0 * np.pi * v)
        sqrt = np.sqrt(c * c + np.exp(log_q))
        log_min = log_q - np.log(2.0 * sqrt * (sqrt + np.abs(c)))
        log_max = np.log1p(-np.exp(log_min))
        return np.where((c < 0.0)[..., None], np.stack([log_min, log_max], -1), np.stack([log_max, log_min], -1))

    def keys(self) -> NDArray[np.uint32]:
        """(N, 2) keys of the kernels' per-pixel generators."""
        return (self.uniform(2) * 4294967296.0).astype(np.uint32)
