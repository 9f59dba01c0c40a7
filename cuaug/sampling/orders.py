"""The orders of epochs: in sequence, shuffled, weighted, by shards, or as a torch Sampler says.

Each is a function of (seed, epoch), so every rank and every resumed run makes the same one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch.utils.data.distributed import DistributedSampler

from cuaug.arguments import integer
from cuaug.errors import LoaderError
from cuaug.sampling.rng import SampleRNG, hash_seed

__all__ = [
    "Order",
    "SamplerView",
    "SequentialOrder",
    "ShardSampler",
    "ShuffledOrder",
    "TorchOrder",
    "WeightedSampler",
    "open_sampler",
    "order_of",
]

_INDEX_BITS = 32
_CHUNK = 1 << 16


@runtime_checkable
class Order(Protocol):
    """What a loader needs of a sampler; any object with these may be given as one.

    Attributes:
        repeats: whether an index may come more than once in an epoch.
    """

    repeats: bool

    def __len__(self) -> int: ...

    def order(self, seed: int, epoch: int) -> NDArray[np.int64]:
        """(len,): the indices of an epoch, of any integer type; the same for the same arguments, in every process."""
        ...


class SequentialOrder:
    """Given indices in their order, or 0, 1, ..., n - 1."""

    def __init__(self, indices: int | NDArray[np.int64]) -> None:
        self.indices = np.arange(indices) if isinstance(indices, int) else indices
        self.repeats = not isinstance(indices, int) and len(np.unique(indices)) < len(indices)

    def __len__(self) -> int:
        return len(self.indices)

    def order(self, seed: int, epoch: int) -> NDArray[np.int64]:
        return self.indices


class ShuffledOrder:
    """A new random order of 0, 1, ..., n - 1 each epoch.

    It sorts the indices by a random number each, in place: 8 bytes a sample are all it takes.
    """

    repeats = False

    def __init__(self, count: int) -> None:
        if count >= 1 << _INDEX_BITS:
            raise LoaderError(f"shuffling takes fewer than 2**{_INDEX_BITS} samples, not {count}")
        self.count = count

    def __len__(self) -> int:
        return self.count

    def order(self, seed: int, epoch: int) -> NDArray[np.int64]:
        keys = np.empty(self.count, dtype=np.uint64)
        for begin in range(0, self.count, _CHUNK):
            part = np.arange(begin, min(begin + _CHUNK, self.count), dtype=np.uint64)
            drawn = (SampleRNG(seed, epoch, part).uniform() * 2.0**_INDEX_BITS).astype(np.uint64)
            keys[begin : begin + len(part)] = (drawn << np.uint64(_INDEX_BITS)) | part
        keys.sort()
        keys &= np.uint64((1 << _INDEX_BITS) - 1)
        return keys.view(np.int64)


class WeightedSampler:
    """Draws samples with probabilities in proportion to their weights, as torch's WeightedRandomSampler.

    Args:
        weights: (n,) one per sample of the source, 0 or more.
        num_samples: how many make an epoch; None: n.
        replacement: whether a sample may come more than once. Each time it is augmented differently.

    Raises:
        LoaderError: weights that are negative, not finite or all 0, or fewer of them above 0 than `num_samples` where
            there is no replacement; from the loader: not one per sample.
    """

    def __init__(self, weights: ArrayLike, num_samples: int | None = None, *, replacement: bool = True) -> None:
        try:
            self.weights = np.asarray(weights, dtype=np.float64)
        except (TypeError, ValueError, RuntimeError):  # a tensor on a GPU raises the first, with a gradient the last
            raise LoaderError(f"weights are one number per sample, not {weights!r:.100}") from None
        if self.weights.ndim != 1:
            raise LoaderError(f"weights are one number per sample, not an array of shape {self.weights.shape}")
        bad = ~np.isfinite(self.weights) | (self.weights < 0)
        if bad.any():
            where = int(np.argmax(bad))
            raise LoaderError(f"weights are finite and 0 or more; that of sample {where} is {self.weights[where]}")
        self.num_samples = len(self.weights) if num_samples is None else integer("num_samples", num_samples)
        self.repeats = replacement
        above = int((self.weights > 0).sum())
        if above == 0 or self.num_samples < 1:
            raise LoaderError(f"nothing to draw: {above} weights are above 0, and num_samples is {self.num_samples}")
        if not replacement and above < self.num_samples:
            raise LoaderError(f"without replacement {above} samples of weight above 0 do not make {self.num_samples}")

    def __len__(self) -> int:
        return self.num_samples

    def order(self, seed: int, epoch: int) -> NDArray[np.int64]:
        # Scaled by a power of two, which changes no draw: the sum of the largest floats would not be finite.
        shares = np.ldexp(self.weights, -np.frexp(self.weights.max())[1])
        if not self.repeats:
            # The largest u ** (1 / weight) first (Efraimidis and Spirakis 2006), by its logarithm.
            u = _fine(seed, epoch, len(self.weights))
            with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
                late = np.fmin(-np.log1p(-u) / shares, np.finfo(np.float64).max)  # before those of weight 0
                ranks = np.where(self.weights > 0, late, np.inf)
            return np.argsort(ranks, kind="stable")[: self.num_samples]
        ends = np.cumsum(shares)
        drawn = np.searchsorted(ends, _fine(seed, epoch, self.num_samples) * ends[-1], side="right")
        return np.minimum(drawn, np.flatnonzero(self.weights)[-1])


class ShardSampler:
    """Shuffles the shards, and the samples within a window that moves over them: reading stays nearly sequential.

    Args:
        shard_sizes: samples in each shard, in the order of their indices: `source.shard_sizes`.
        window: a sample comes fewer than this many places before or after where its shuffled shard would have it.

    Raises:
        LoaderError: no samples, a size that is negative or no integer, or a window below 1; from the loader: not as
            many samples as the source has.
    """

    repeats = False

    def __init__(self, shard_sizes: Sequence[int], window: int = 10_000) -> None:
        given = shard_sizes if isinstance(shard_sizes, Iterable) else ()
        sizes = [integer(f"the size of shard {number}", size, 0) for number, size in enumerate(given)]
        self.sizes = np.array(sizes, dtype=np.int64)
        if self.sizes.sum() < 1:
            raise LoaderError(f"shard_sizes are the numbers of samples of each shard, not {shard_sizes!r:.100}")
        self.window = integer("window", window, 1)

    def __len__(self) -> int:
        return int(self.sizes.sum())

    def order(self, seed: int, epoch: int) -> NDArray[np.int64]:
        shards = np.argsort(SampleRNG(seed, epoch, np.arange(len(self.sizes))).uniform(), kind="stable")
        begins = np.cumsum(self.sizes) - self.sizes
        inside = np.arange(len(self)) - np.repeat(
            np.cumsum(self.sizes[shards]) - self.sizes[shards], self.sizes[shards]
        )
        order = np.repeat(begins[shards], self.sizes[shards]) + inside
        # Each goes back by a random part of the window: no two change places that are further apart than it.
        late = np.arange(len(self)) + _fine(seed, epoch, len(self)) * self.window
        return order[np.argsort(late, kind="stable")]


class TorchOrder:
    """The order of a torch Sampler, or of any iterable of indices that can be iterated again.

    What it draws from torch's global CPU generator is made a function of (seed, epoch); the generator's state is left
    as it was. A sampler with a generator of its own must be given the same state on every rank and when resuming.
    """

    repeats = True

    def __init__(self, sampler: Iterable[int]) -> None:
        self.sampler = sampler

    def __len__(self) -> int:
        return len(self.sampler)  # type: ignore[arg-type]

    def order(self, seed: int, epoch: int) -> NDArray[np.int64]:
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)
        generator = torch.default_generator
        state = generator.get_state()
        generator.manual_seed(hash_seed(seed, epoch) >> 1)
        try:
            given = list(itertools.islice(self.sampler, len(self) + 1))  # one without end would take all memory
        finally:
            generator.set_state(state)
        return _integers(given, f"the sampler {type(self.sampler).__name__}")


class SamplerView:
    """What trainers look for in the samplers of a DataLoader: sizes, and whom to tell which epoch comes next."""

    def __init__(self, length: int, batch_size: int, set_epoch: Callable[[int], None]) -> None:
        self._length = length
        self.batch_size = batch_size
        self.set_epoch = set_epoch

    def __len__(self) -> int:
        return self._length


def open_sampler(sampler: Any, count: int, *, shuffle: bool) -> Order:
    """The order that a loader's `sampler` and `shuffle` mean for a source of `count` samples.

    Raises:
        LoaderError: not a sampler, or one that does not fit.
    """
    if sampler is None:
        return ShuffledOrder(count) if shuffle else SequentialOrder(count)
    if shuffle:
        raise LoaderError("shuffle=True and a sampler exclude each other: the sampler gives the order")
    if isinstance(sampler, DistributedSampler) or (hasattr(sampler, "num_replicas") and hasattr(sampler, "rank")):
        raise LoaderError(
            f"a {type(sampler).__name__} divides the samples among ranks, which the loader does itself: "
            "leave it out, or give the sampler that is to be divided"
        )
    if isinstance(sampler, WeightedSampler) and len(sampler.weights) != count:
        raise LoaderError(f"weights are one per sample: there are {len(sampler.weights)} of {count} samples")
    if isinstance(sampler, ShardSampler) and len(sampler) != count:
        raise LoaderError(f"shard_sizes are {len(sampler)} samples in all, and the source has {count}")
    if isinstance(sampler, Order):
        return sampler
    again = isinstance(sampler, Iterable) and hasattr(sampler, "__len__") and not isinstance(sampler, (str, bytes))
    if not again:
        raise LoaderError(
            "sampler is a torch Sampler with a length, a sequence of indices, or an object with len(), `repeats` and "
            f"order(seed, epoch), not {sampler!r:.100}"
        )
    if isinstance(sampler, (Sequence, np.ndarray, torch.Tensor)):
        # A copy: an array that its owner shuffles meanwhile changes no epoch.
        return SequentialOrder(_in_range(_integers(sampler, "sampler").copy(), count))
    return TorchOrder(sampler)


def order_of(sampler: Order, seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    """The order that a sampler gives for an epoch of a source of `count` samples.

    Raises:
        LoaderError: not as long as the sampler says, an index that the source does not have, or one that a user's
            sampler repeats although it says that it repeats none: each time the sample would look the same.
    """
    name = type(sampler.sampler if isinstance(sampler, TorchOrder) else sampler).__name__
    order = _integers(sampler.order(seed, epoch), f"the sampler {name}")
    if len(order) != len(sampler):
        gave = len(order) if len(order) < len(sampler) else "more"
        raise LoaderError(f"{name} says that it has {len(sampler)} indices and gave {gave}")
    _in_range(order, count)
    if not sampler.repeats and type(sampler).__module__ != __name__:
        there = np.zeros(count, dtype=bool)
        there[order] = True
        if np.count_nonzero(there) < len(order):
            often = int(np.bincount(order).argmax())
            raise LoaderError(
                f"{name} says by `repeats` that no index comes twice, but {often} does: say repeats = True"
            )
    return order


def _in_range(order: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    if not len(order):
        raise LoaderError("the sampler gave no index: an epoch has at least one sample")
    least, most = int(order.min()), int(order.max())
    if least < 0 or most >= count:
        raise LoaderError(f"the sampler gave index {least if least < 0 else most}; the source has 0 ... {count - 1}")
    return order


def _integers(given: Any, name: str) -> NDArray[np.int64]:
    try:
        values = np.asarray(given)
    except (ValueError, TypeError, RuntimeError):  # lists of several lengths, what is on a GPU
        values = np.empty((1, 1))
    if values.size == 0:
        return np.empty(0, dtype=np.int64)
    if values.ndim != 1 or values.dtype.kind not in "iu":
        one = given[0] if isinstance(given, Sequence) else given
        raise LoaderError(f"{name} gives one index at a time, not {one!r:.100}")
    return np.ascontiguousarray(values, dtype=np.int64)


def _fine(seed: int, epoch: int, count: int) -> NDArray[np.float64]:
    """(count,): uniform in [0, 1), in steps of 2**-53; 2**-32 would leave some of many samples out."""
    high, low = SampleRNG(seed, epoch, np.arange(count)).uniform(2).T
    return np.floor(high * 2.0**32) * 2.0**-32 + np.floor(low * 2.0**21) * 2.0**-53
