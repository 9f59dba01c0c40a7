"""Checks and normal forms of transforms' arguments, with errors that name the value and what was allowed."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.errors import TransformError
from cuaug.plan import MAX_SIDE, Border, Filter

__all__ = [
    "MAX_SIDE",
    "Interpolation",
    "InterpolationMode",
    "ShownByName",
    "antialias",
    "array",
    "border",
    "channels",
    "color",
    "either_way",
    "flag",
    "index",
    "interpolation",
    "number",
    "one_of",
    "one_or_span",
    "pair",
    "point",
    "positive",
    "probability",
    "sides",
    "span",
    "values",
    "whole",
]


class ShownByName(Enum):
    """Its members are shown as they are written in a program."""

    def __repr__(self) -> str:
        return str(self)


class InterpolationMode(ShownByName):
    """How pixels between pixels are made; torchvision's names and values."""

    NEAREST = "nearest"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"


#: What `interpolation` takes. Torchvision's `InterpolationMode` is an Enum too, but not ours; Pillow has numbers.
Interpolation = str | int | Enum

_FILTERS = {"nearest": Filter.NEAREST, "bilinear": Filter.BILINEAR, "bicubic": Filter.BICUBIC}
_PIL_FILTERS = {0: "nearest", 2: "bilinear", 3: "bicubic"}
_BORDERS = {
    "constant": Border.CONSTANT,
    "edge": Border.EDGE,
    "reflect": Border.REFLECT,
    "symmetric": Border.SYMMETRIC,
    "wrap": Border.WRAP,
}


def interpolation(value: Interpolation) -> Filter:
    """A name, an `InterpolationMode` (torchvision's too), or Pillow's number."""
    name = getattr(value, "value", value)
    name = _PIL_FILTERS.get(name) if isinstance(name, int) and not isinstance(name, bool) else name
    return _FILTERS[one_of("interpolation", name if isinstance(name, str) else value, _FILTERS)]


def border(padding_mode: str) -> Border:
    return _BORDERS[one_of("padding_mode", padding_mode, _BORDERS)]


def one_of(name: str, value: Any, allowed: Iterable[str]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise TransformError(f"{name} is one of {', '.join(map(repr, allowed))}, not {value!r}")
    return value


def flag(name: str, value: bool) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise TransformError(f"{name} is True or False, not {value!r}")
    return bool(value)


def antialias(value: bool | None) -> bool:
    """None, which older code for torchvision has, is True."""
    return True if value is None else flag("antialias", value)


def index(value: Any) -> int:
    """A Python int, from any kind of integer but a bool, which is one by Python's rules alone."""
    if isinstance(value, bool):
        raise TypeError(f"{value} is no integer")
    return operator.index(value)


def values(value: Any, kind: Callable[[Any], Any]) -> tuple[Any, ...]:
    """One number or several as a tuple, each made a Python number by `kind`; empty where that cannot be done."""
    if isinstance(value, (str, bytes)):
        return ()
    several = isinstance(value, Iterable) and getattr(value, "ndim", 1) > 0
    try:
        return tuple(kind(v) for v in (value if several else (value,)))
    except (TypeError, ValueError, OverflowError):
        return ()


def array(name: str, value: Any, *shapes: tuple[int, ...]) -> NDArray[np.float64]:
    """Finite numbers of one of these shapes; of any where there are none."""
    wanted = f"{name} takes finite numbers" + (f" of shape {' or '.join(map(str, shapes))}" if shapes else "")
    try:
        made = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # a tensor with a gradient raises the last
        raise TransformError(f"{wanted}, not {value!r:.100}") from None
    if shapes and made.shape not in shapes:
        raise TransformError(f"{wanted}, not {made.shape if made.ndim else repr(value)}")
    if not np.isfinite(made).all():
        place = tuple(np.argwhere(~np.isfinite(made))[0].tolist())
        raise TransformError(f"{wanted}, not {made[place]}{f' at {place}' if place else ''}")
    return made


def pair(name: str, value: int | Sequence[int]) -> tuple[int, int]:
    """(height, width) in pixels from one number or two."""
    numbers = values(value, index)
    if len(numbers) not in (1, 2) or not 1 <= min(numbers) <= max(numbers) <= MAX_SIDE:
        raise TransformError(f"{name} is an integer{_bounds(1, MAX_SIDE)}, or (height, width) of two, not {value!r}")
    return numbers[0], numbers[-1]


def sides(padding: int | Sequence[int]) -> tuple[int, int, int, int]:
    """(left, top, right, bottom) from one number, (left and right, top and bottom), or all four."""
    numbers = values(padding, index)
    if len(numbers) not in (1, 2, 4) or not 0 <= min(numbers) <= max(numbers) <= MAX_SIDE:
        raise TransformError(
            "padding is one integer, (left/right, top/bottom) or (left, top, right, bottom),"
            f"{_bounds(0, MAX_SIDE)} each, not {padding!r}"
        )
    left, top, right, bottom = (numbers * 4)[:4]
    return left, top, right, bottom


def channels(name: str, value: float | Sequence[float]) -> tuple[float, ...]:
    """One number for all channels, or one for each."""
    numbers = values(value, float)
    if len(numbers) not in (1, 3) or not all(map(math.isfinite, numbers)):
        raise TransformError(f"{name} is a number or a sequence of 3, not {value!r}")
    return numbers


def color(name: str, value: float | Sequence[float] | None) -> float | tuple[float, ...]:
    """A number, or one per channel, in the image's units; None is 0."""
    numbers = (0.0,) if value is None else channels(name, value)
    return numbers if len(numbers) == 3 else numbers[0]


def probability(name: str, value: float) -> float:
    numbers = values(value, float)
    if len(numbers) != 1 or not 0.0 <= numbers[0] <= 1.0:
        raise TransformError(f"{name} is a probability in [0, 1], not {value!r}")
    return numbers[0]


def span(
    name: str, value: float | Sequence[float], *, low: float = 0.0, high: float = float("inf")
) -> tuple[float, float]:
    """(lower, upper), finite, with low <= lower <= upper <= high."""
    numbers = values(value, float)
    if len(numbers) != 2 or not _in_order(numbers, low, high):
        raise TransformError(f"{name} is (lower, upper){_bounds(low, high)}, in that order, not {value!r}")
    return numbers[0], numbers[1]


def either_way(name: str, value: float | Sequence[float]) -> tuple[float, float]:
    """(lower, upper) in that order; one number, 0 or more, is as much either way."""
    numbers = values(value, float)
    if len(numbers) == 1 and 0.0 <= numbers[0] < float("inf"):
        return -numbers[0], numbers[0]
    if len(numbers) != 2 or not -float("inf") < numbers[0] <= numbers[1] < float("inf"):
        raise TransformError(f"{name} is a number of 0 or more, or (lower, upper) in that order, not {value!r}")
    return numbers[0], numbers[1]


def one_or_span(
    name: str, value: float | Sequence[float], *, low: float = 0.0, high: float = float("inf")
) -> tuple[float, float]:
    """(lower, upper) as `span`; one number is both."""
    numbers = values(value, float)
    if len(numbers) not in (1, 2) or not _in_order(numbers, low, high):
        raise TransformError(f"{name} is a number or (lower, upper){_bounds(low, high)}, in that order, not {value!r}")
    return numbers[0], numbers[-1]


def number(name: str, value: float, low: float = -float("inf"), high: float = float("inf")) -> float:
    """A finite number from `low` to `high`."""
    numbers = values(value, float)
    if len(numbers) != 1 or not _in_order(numbers, low, high):
        raise TransformError(f"{name} is a number{_bounds(low, high)}, not {value!r}")
    return numbers[0]


def _in_order(numbers: tuple[Any, ...], low: float, high: float) -> bool:
    return low <= numbers[0] <= numbers[-1] <= high and all(map(math.isfinite, numbers))


def _bounds(low: float, high: float) -> str:
    """What a message says of them."""
    if math.isinf(high):
        return "" if math.isinf(low) else f" of at least {low:.10g}"
    return f" up to {high:.10g}" if math.isinf(low) else f" from {low:.10g} to {high:.10g}"


def positive(name: str, value: float) -> float:
    numbers = values(value, float)
    if len(numbers) != 1 or not 0.0 < numbers[0] < float("inf"):
        raise TransformError(f"{name} is a number above 0, not {value!r}")
    return numbers[0]


def point(name: str, value: Sequence[float]) -> tuple[float, float]:
    """(x, y)."""
    numbers = values(value, float)
    if len(numbers) != 2 or not all(map(math.isfinite, numbers)):
        raise TransformError(f"{name} is two numbers, (x, y), not {value!r}")
    return numbers[0], numbers[1]


def whole(name: str, value: Any, low: float = -float("inf"), high: float = float("inf")) -> int:
    """An integer from `low` to `high`."""
    numbers = values(value, index)
    if len(numbers) != 1 or not low <= numbers[0] <= high:
        raise TransformError(f"{name} is an integer{_bounds(low, high)}, not {value!r}")
    return int(numbers[0])
