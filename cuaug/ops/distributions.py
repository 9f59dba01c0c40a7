"""Distributions of a pixel function's parameters: one draw per sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.errors import TransformError
from cuaug.sampling.rng import SampleRNG

#: A number, or one per channel.
Numbers = float | Sequence[float]


@dataclass(frozen=True)
class Uniform:
    """A uniform distribution; `uniform` makes it."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    def draw(self, rng: SampleRNG) -> NDArray[np.float64]:
        return rng.uniform(len(self.low), np.array(self.low), np.array(self.high))

    def __repr__(self) -> str:
        return f"uniform({_shown(self.low)}, {_shown(self.high)})"


@dataclass(frozen=True)
class Normal:
    """A normal distribution; `normal` makes it."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def draw(self, rng: SampleRNG) -> NDArray[np.float64]:
        return np.array(self.mean) + np.array(self.std) * rng.normal(len(self.mean))

    def __repr__(self) -> str:
        return f"normal({_shown(self.mean)}, {_shown(self.std)})"


@dataclass(frozen=True)
class Choice:
    """A choice among values; `choice` makes it."""

    values: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...]

    def draw(self, rng: SampleRNG) -> NDArray[np.float64]:
        ends = np.cumsum(self.weights)
        # side="right": a value of weight 0 is never chosen.
        return np.array(self.values)[np.searchsorted(ends, rng.uniform() * ends[-1], side="right")]

    def __repr__(self) -> str:
        weights = f", weights={list(self.weights)}" if len(set(self.weights)) > 1 else ""
        return f"choice({[_shown(value) for value in self.values]}{weights})"


#: A function takes (rng, n), as `make_params` gets `rng`, and returns (n,) or (n, 3) numbers.
Distribution = Uniform | Normal | Choice | Callable[[SampleRNG, int], Any]


def uniform(low: Numbers, high: Numbers) -> Uniform:
    """A number drawn uniformly from [low, high) for each sample.

    Args:
        low, high: numbers, or three, one per channel: then each channel draws its own.

    Raises:
        TransformError: they are no finite numbers, or `low` is above `high`.
    """
    lower, upper = _alike(("low", low), ("high", high))
    if any(one > other for one, other in zip(lower, upper, strict=True)):
        raise TransformError(f"low must be at most high, {high!r}, not {low!r}")
    return Uniform(lower, upper)


def normal(mean: Numbers, std: Numbers) -> Normal:
    """A number drawn from a normal distribution for each sample.

    Args:
        mean, std: numbers, or three, one per channel: then each channel draws its own. `std` is 0 or more.

    Raises:
        TransformError: they are no finite numbers, or `std` is negative.
    """
    center, deviation = _alike(("mean", mean), ("std", std))
    if min(deviation) < 0.0:
        raise TransformError(f"std must be 0 or more, not {std!r}")
    return Normal(center, deviation)


def choice(values: Sequence[Numbers], weights: Sequence[float] | None = None) -> Choice:
    """One of several values for each sample.

    Args:
        values: numbers, or triples of numbers, one per channel.
        weights: a weight of 0 or more for each value; None: equal weights.

    Raises:
        TransformError: `values` is empty or mixes numbers and triples, or the weights do not fit.
    """
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence) or not values:
        raise TransformError(f"values must be a sequence of numbers, or of triples of numbers, not {values!r:.100}")
    checked = tuple(numbers(f"values[{i}]", value) for i, value in enumerate(values))
    if len({len(value) for value in checked}) > 1:
        raise TransformError(f"values must all be numbers, or all be triples of numbers, not {values!r:.100}")
    shares = np.ones(len(checked)) if weights is None else np.asarray(weights, dtype=np.float64)
    if shares.shape != (len(checked),) or not (np.isfinite(shares) & (shares >= 0.0)).all() or not shares.any():
        raise TransformError(
            f"weights must be a number of 0 or more for each of the {len(checked)} values, not all 0, not {weights!r}"
        )
    return Choice(checked, tuple(shares.tolist()))


def draw(name: str, distribution: Distribution, rng: SampleRNG) -> NDArray[np.float64]:
    """(N,) or (N, 3) draws of a parameter.

    Raises:
        TransformError: a user's function returns something else.
    """
    if isinstance(distribution, (Uniform, Normal, Choice)):
        drawn = distribution.draw(rng)
        return drawn[:, 0] if drawn.shape[1] == 1 else drawn
    result = distribution(rng, len(rng))
    try:
        drawn = np.asarray(result, dtype=np.float64)
    except (TypeError, ValueError):
        drawn = np.empty(0)
    if drawn.shape not in ((len(rng),), (len(rng), 3)) or not _are_float32(drawn):
        shown = f"an array of shape {drawn.shape}" if isinstance(result, np.ndarray) else f"{result!r:.100}"
        raise TransformError(
            f"{name} must draw finite numbers of shape (N,) or (N, 3) for N samples, N = {len(rng)} here, not {shown}"
        )
    return drawn


def _alike(*named: tuple[str, Numbers]) -> list[tuple[float, ...]]:
    """The values as tuples of the same length, 1 or 3."""
    checked = [numbers(name, value) for name, value in named]
    longest = max(map(len, checked))
    return [value if len(value) == longest else value * longest for value in checked]


def numbers(name: str, value: Any) -> tuple[float, ...]:
    """A number or a triple of numbers, as a tuple."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        array = np.empty(0)
    if array.shape not in ((), (3,)) or not _are_float32(array) or isinstance(value, (str, bytes, bool)):
        raise TransformError(f"{name} must be a finite number, or three, one per channel, not {value!r:.100}")
    return tuple(array.reshape(-1).tolist())


def _are_float32(values: NDArray[np.float64]) -> bool:
    """Whether all are finite as float32."""
    return bool((np.abs(values) < np.finfo(np.float32).max).all())


def _shown(numbers: tuple[float, ...]) -> float | tuple[float, ...]:
    return numbers[0] if len(numbers) == 1 else numbers
