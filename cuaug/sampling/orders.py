"""Samplers: sequential, shuffled, weighted, repeated, by shards, or a torch Sampler.

Each order is a function of (seed, epoch), so every rank and every resumed run computes the same one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence, Sized
from typing import Any, NoReturn, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch.utils.data import DistributedSampler, SequentialSampler

from cuaug._runtime.arguments import flag, integer
from cuaug._runtime.migration_hints import suggests_arguments
from cuaug.errors import ArgumentError
from cuaug.sampling.rng import SampleRNG, hash_seed

_INDEX_BITS = 32
_CHUNK = 1 << 16


@runtime_checkable
class Order(Protocol):
    """The protocol of a loader's sampler.

    Attributes:
        repeats: whether an epoch may hold an index more than once.
    """

    repeats: bool

    def __len__(self) -> int: ...

    def order(self, seed: int, epoch: int) -> NDArray[np.int64]:
        """(len,) sample indices of an epoch, of any integer dtype; equal in every process."""
        ...


class SequentialOrder:
    """The indices as given, or 0, 1, ..., n - 1."""

    def __init__(self, indices: int | NDArray[np.int64]) -> None:
        self.indices = np.arange(indices) if isinstance(indices, int) else indices
        self.repeats = not isinstance(indices, int) and len(np.unique(indices)) < len(indices)

    def __len__(self) -> int:
        return len(self.indices)

    def order(self, seed: int, epoch: int) -> NDArray[np.int64]:
        return self.indices


class ShuffledOrder:
    """A new random order of 0, 1, ..., n - 1 each epoch.

    It sorts the indices in place by one random number each, with 8 bytes of memory per sample.
    """

    repeats = False

    def __init__(self, count: int) -> None:
        if count >= 1 << _INDEX_BITS:
            raise ArgumentError(f"shuffle=True supports fewer than 2**{_INDEX_BITS} samples, not {count}")
        self.count = count

    def __len__(self) -> int:
        return self.count

    def order(self, seed: int, epoch: int) -> NDArray[np.int64]:
        keys = np.empty(self.count, dtype=np.uint64)
        for begin in range(0, self.count, _CHUNK):
            chunk = np.arange(begin, min(begin + _CHUNK, self.count), dtype=np.uint64)
            drawn = (SampleRNG(seed, epoch, chunk).uniform() * 2.0**_INDEX_BITS).astype(np.uint64)
            keys[begin : begin + len(chunk)] = (drawn << np.uint64(_INDEX_BITS)) | chunk
        keys.sort()
        keys &= np.uint64((1 << _INDEX_BITS) - 1)
        return keys.view(np.int64)


@suggests_arguments
class WeightedSampler:
    """Draws samples with probabilities proportional to weights, as torch's WeightedRandomSampler.

    Args:
        weights: (n,) one per sample of the source, 0 or more.
        num_samples: samples per epoch; None: n.
        replacement: whether a sample may come more than once. Each repetition is augmented differently.

    Raises:
        LoaderError: weights are negative, not finite or all 0; or, without replacement, fewer than `num_samples` are
            above 0. The loader raises it where their number is not the number of samples.
    """

    def __init__(self, weights: ArrayLike, num_samples: int | None = None, *, replacement: bool = True) -> None:
        try:
            self.weights = np.asarray(weights, dtype=np.float64)
        except (TypeError, ValueError, RuntimeError):  # tensors: on a GPU TypeError, with a gradient RuntimeError
            raise ArgumentError(f"weights has one number per sample, not {weights!r:.100}") from None
        if self.weights.ndim != 1:
            raise ArgumentError(f"weights has one number per sample, not the shape {self.weights.shape}")
        bad = ~np.isfinite(self.weights) | (self.weights < 0)
        if bad.any():
            sample = int(np.argmax(bad))
            raise ArgumentError(f"weights must be finite and at least 0, not {self.weights[sample]} (sample {sample})")
        self.num_samples = len(self.weights) if num_samples is None else integer("num_samples", num_samples)
        self.repeats = replacement
        positive = int((self.weights > 0).sum())
        if positive == 0 or self.num_samples < 1:
            raise ArgumentError(f"nothing to draw: {positive} weights are above 0, num_samples is {self.num_samples}")
        if not replacement and positive < self.num_samples:
            raise ArgumentError(
                f"num_samples must be at most {positive}, the number of weights above 0, not {self.num_samples}; or "
                "use replacement=True"
            )

    def __len__(self) -> int:
        return self.num_samples

    def order(self, seed: int, epoch: int) -> NDArray[np.int64]:
        """The sample indices of an epoch, (len,); equal in every process."""
        # A power of two scales exactly: the sum of the largest floats would overflow.
        scaled = np.ldexp(self.weights, -np.frexp(self.weights.max())[1])
        if not self.repeats:
            # Largest u ** (1 / weight) first (Efraimidis and Spirakis 2006), in logarithms.
            u = _uniform53(seed, epoch, len(self.weights))
            with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
                sort_keys = np.fmin(-np.log1p(-u) / scaled, np.finfo(np.float64).max)
            sort_keys[self.weights == 0] = np.inf  # after all others
            return np.argsort(sort_keys, kind="stable")[: self.num_samples]
        ends = np.cumsum(scaled)
        drawn = np.searchsorted(ends, _uniform53(seed, epoch, self.num_samples) * ends[-1], side="right")
        return np.minimum(drawn, np.flatnonzero(self.weights)[-1])


@suggests_arguments
class ShardSampler:
    """Shuffles shards, and samples within a moving window; reads stay nearly sequential.

    Args:
        shard_sizes: samples of each shard, in index order: `source.shard_sizes`.
        window: a sample moves by fewer than this many positions within the order of the shuffled shards.

    Raises:
        LoaderError: there are no samples, a size is negative or no integer, or `window` is below 1. The loader raises
            it where the sizes do not add up to the source's samples.
    """

    repeats = False

    def __init__(self, shard_sizes: Sequence[int], window: int = 10_000) -> None:
        iterable = shard_sizes if isinstance(shard_sizes, Iterable) else ()
        sizes = [integer(f"shard_sizes[{number}]", size, 0) for number, size in enumerate(iterable)]
        self.sizes = np.array(sizes, dtype=np.int64)
        if self.sizes.sum() < 1:
            raise ArgumentError(f"shard_sizes has the number of samples of each shard, not {shard_sizes!r:.100}")
        self.window = integer("window", window, 1)

    def __len__(self) -> int:
        return int(self.sizes.sum())

    def order(self, seed: int, epoch: int) -> NDArray[np.int64]:
        """The sample indices of an epoch, (len,); equal in every process."""
        shards = np.argsort(SampleRNG(seed, epoch, np.arange(len(self.sizes))).uniform(), kind="stable")
        begins = np.cumsum(self.sizes) - self.sizes
        inside = np.arange(len(self)) - np.repeat(
            np.cumsum(self.sizes[shards]) - self.sizes[shards], self.sizes[shards]
        )
        order = np.repeat(begins[shards], self.sizes[shards]) + inside
        # A delay below `window` for each sample: no two samples further apart than that swap.
        delayed = np.arange(len(self)) + _uniform53(seed, epoch, len(self)) * self.window
        return order[np.argsort(delayed, kind="stable")]


@suggests_arguments
class RepeatedSampler:
    """Each sample several times in a row, as `RASampler` of DeiT and timm: repeated augmentation.

    Each repetition is augmented differently. The ranks take the order in turn, sample by sample, so the repetitions of
    a sample go to different ranks. An epoch is as long as without repetitions, and holds other samples each time.

    Args:
        source: the Loader's data, or its number of samples.
        num_repeats: how often each sample comes in an epoch that has it.
        num_samples: length of an epoch, over all ranks; None: the number of samples. `num_repeats` times that number
            has each sample in every epoch; RASampler has `len(source) // 256 * 256`.
        shuffle: whether the samples are in a new random order each epoch, or in the source's.

    Raises:
        LoaderError: a number is below 1, or `num_samples` is above `num_repeats` times the number of samples. The
            loader raises it where its source has another number of samples.
    """

    repeats = True

    def __init__(
        self, source: int | Sized, num_repeats: int = 3, num_samples: int | None = None, *, shuffle: bool = True
    ) -> None:
        self.count = integer("source", len(source) if isinstance(source, Sized) else source, 1)
        self.num_repeats = integer("num_repeats", num_repeats, 1)
        self.num_samples = self.count if num_samples is None else integer("num_samples", num_samples, 1)
        if self.num_samples > self.count * self.num_repeats:
            raise ArgumentError(
                f"num_samples must be at most {self.count * self.num_repeats}, {self.num_repeats} times each of "
                f"{self.count} samples, not {self.num_samples}"
            )
        self._order = ShuffledOrder(self.count) if flag("shuffle", shuffle) else SequentialOrder(self.count)

    def __len__(self) -> int:
        return self.num_samples

    def order(self, seed: int, epoch: int) -> NDArray[np.int64]:
        """The sample indices of an epoch, (len,); equal in every process."""
        return self._order.order(seed, epoch)[np.arange(self.num_samples) // self.num_repeats]


class TorchOrder:
    """The order of a torch Sampler, or of another re-iterable of indices.

    Draws from torch's global CPU generator become a function of (seed, epoch), and its state is restored. A sampler's
    own generator needs the same state on every rank and when resuming.
    """

    repeats = True

    def __init__(self, sampler: Iterable[int]) -> None:
        self.sampler = sampler

    def __len__(self) -> int:
        return len(self.sampler)  # type: ignore[arg-type]

    def order(self, seed: int, epoch: int) -> NDArray[np.int64]:
        for level in reversed(levels_of(self.sampler)):  # the outermost has the last word
            if callable(getattr(level, "set_epoch", None)):
                level.set_epoch(epoch)
        generator = torch.default_generator
        state = generator.get_state()
        generator.manual_seed(hash_seed(seed, epoch) >> 1)
        try:
            return self._read()
        finally:
            generator.set_state(state)

    def _read(self) -> NDArray[np.int64]:
        indices = list(itertools.islice(self.sampler, len(self) + 1))  # an endless one would fill the memory
        return _integers(indices, f"the sampler {type(self.sampler).__name__}")


class SamplerView(SequentialSampler):
    """A DataLoader-like sampler for trainers: sizes and `set_epoch`.

    It is a SequentialSampler, whatever the order: in place of any other, Lightning's `overfit_batches` makes a
    DataLoader of `loader.dataset`, without the transforms.
    """

    def __init__(self, sized: Sized, batch_size: int | None, set_epoch: Callable[[int], None]) -> None:
        super().__init__(sized)
        self.batch_size = batch_size
        self.set_epoch = set_epoch

    def __iter__(self) -> NoReturn:
        raise TypeError(
            "a Loader's sampler has a length and set_epoch, but no indices: a DataLoader of loader.dataset would leave "
            "out the transforms. Iterate over the Loader; to skip batches, use loader.load_state_dict"
        )


def open_sampler(sampler: Any, count: int, *, shuffle: bool) -> Order:
    """The `Order` for a loader's `sampler` and `shuffle`, over `count` samples.

    Raises:
        LoaderError: `sampler` is not a sampler, or does not fit the source.
    """
    if sampler is None:
        return ShuffledOrder(count) if shuffle else SequentialOrder(count)
    if shuffle:
        raise ArgumentError(
            "shuffle=True and sampler exclude each other: the sampler sets the order; leave out shuffle"
        )
    refuse_divided("sampler", sampler)
    if isinstance(sampler, WeightedSampler) and len(sampler.weights) != count:
        raise ArgumentError(f"weights has one number per sample: {len(sampler.weights)} weights, {count} samples")
    if isinstance(sampler, ShardSampler) and len(sampler) != count:
        raise ArgumentError(f"shard_sizes adds up to {len(sampler)} samples, but the source has {count}")
    if isinstance(sampler, RepeatedSampler) and sampler.count != count:
        raise ArgumentError(f"RepeatedSampler is for {sampler.count} samples, but the source has {count}")
    if isinstance(sampler, Order):
        return sampler
    if not isinstance(sampler, Iterable) or not hasattr(sampler, "__len__") or isinstance(sampler, (str, bytes)):
        raise ArgumentError(
            "sampler is a torch Sampler with a length, a sequence of indices, or an object with len(), `repeats` and "
            f"order(seed, epoch), not {sampler!r:.100}"
        )
    if isinstance(sampler, (Sequence, np.ndarray, torch.Tensor)):
        # A copy: the user may shuffle the array in place.
        return SequentialOrder(_in_range(_integers(sampler, "sampler").copy(), count))
    order = TorchOrder(sampler)
    if len(order) >= 1 << _INDEX_BITS:
        raise ArgumentError(f"sampler has len() {len(order)}: an epoch has fewer than 2**{_INDEX_BITS} samples")
    return order


def levels_of(sampler: Any) -> list[Any]:
    """A sampler and those that it wraps: torch names them `sampler`, Accelerate `batch_sampler`; at most 8."""
    levels = [sampler]
    while levels[-1] is not None and len(levels) < 8:
        levels.append(getattr(levels[-1], "sampler", getattr(levels[-1], "batch_sampler", None)))
    return [level for level in levels if level is not None]


def refuse_divided(name: str, sampler: Any) -> None:
    """Raise an ArgumentError if a sampler yields the samples of one rank."""
    if isinstance(sampler, DistributedSampler) or (hasattr(sampler, "num_replicas") and hasattr(sampler, "rank")):
        kind = type(sampler).__name__
        is_repeated = kind in ("RASampler", "RepeatAugSampler")
        remedy = (
            "cuaug.RepeatedSampler" if is_repeated else "shuffle=True, or an undivided sampler such as RandomSampler"
        )
        raise ArgumentError(
            f"{name} is a {kind}, which divides the samples among ranks as the loader does itself: use {remedy}"
        )


def order_of(sampler: Order, seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    """(n,) a sampler's checked order of one epoch, over `count` samples.

    Raises:
        LoaderError: the length differs from len(sampler), the source lacks an index, or a user's sampler with
            repeats = False repeats one, whose repetitions would all look the same.
    """
    name = type(sampler.sampler if isinstance(sampler, TorchOrder) else sampler).__name__
    order = _integers(sampler.order(seed, epoch), f"the sampler {name}")
    if len(order) != len(sampler):
        length = len(order) if len(order) < len(sampler) else "more"
        raise ArgumentError(f"{name} has len() {len(sampler)} but yields {length} indices")
    _in_range(order, count)
    if not sampler.repeats and type(sampler).__module__ != __name__:
        present = np.zeros(count, dtype=bool)
        present[order] = True
        if np.count_nonzero(present) < len(order):
            index = int(np.bincount(order).argmax())
            raise ArgumentError(f"{name} has repeats = False but yields index {index} twice: set repeats = True")
    return order


def _in_range(order: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    if not len(order):
        raise ArgumentError("sampler yields no index: an epoch has at least one sample")
    first, last = int(order.min()), int(order.max())
    if first < 0 or last >= count:
        raise ArgumentError(f"sampler yields index {first if first < 0 else last}; the source has 0 ... {count - 1}")
    return order


def _integers(indices: Any, name: str) -> NDArray[np.int64]:
    try:
        values = np.asarray(indices)
    except (ValueError, TypeError, RuntimeError):  # ragged lists, tensors on a GPU
        values = np.empty((1, 1))
    if values.size == 0:
        return np.empty(0, dtype=np.int64)
    if values.ndim != 1 or values.dtype.kind not in "iu":
        first = indices[0] if isinstance(indices, Sequence) else indices
        raise ArgumentError(
            f"{name} yields one index at a time, not {first!r:.100}; lists of indices are for batch_sampler="
        )
    return np.ascontiguousarray(values, dtype=np.int64)


def _uniform53(seed: int, epoch: int, count: int) -> NDArray[np.float64]:
    """(count,) uniform in [0, 1) in steps of 2**-53; steps of 2**-32 would skip samples of large sources."""
    high, low = SampleRNG(seed, epoch, np.arange(count)).uniform(2).T
    return np.floor(high * 2.0**32) * 2.0**-32 + np.floor(low * 2.0**21) * 2.0**-53
