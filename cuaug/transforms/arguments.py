"""Checks and normal forms of transforms' arguments, with errors that name the value and what was allowed."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any

from cuaug.errors import TransformError
from cuaug.plan import Border, Filter

__all__ = [
    "InterpolationMode",
    "ShownByName",
    "border",
    "color",
    "either_way",
    "interpolation",
    "number",
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


_FILTERS = {"nearest": Filter.NEAREST, "bilinear": Filter.BILINEAR, "bicubic": Filter.BICUBIC}
_PIL_FILTERS = {0: "nearest", 2: "bilinear", 3: "bicubic"}
_BORDERS = {
    "constant": Border.CONSTANT,
    "edge": Border.EDGE,
    "reflect": Border.REFLECT,
    "symmetric": Border.SYMMETRIC,
    "wrap": Border.WRAP,
}


def interpolation(value: Any) -> Filter:
    """A name, an `InterpolationMode` (torchvision's too), or Pillow's number."""
    name = getattr(value, "value", value)
    name = _PIL_FILTERS.get(name, name) if isinstance(name, int) else name
    if name not in _FILTERS:
        raise TransformError(f"interpolation is one of {', '.join(map(repr, _FILTERS))}, not {value!r}")
    return _FILTERS[name]


def border(padding_mode: str) -> Border:
    if padding_mode not in _BORDERS:
        raise TransformError(f"padding_mode is one of {', '.join(map(repr, _BORDERS))}, not {padding_mode!r}")
    return _BORDERS[padding_mode]


def values(value: Any, kind: Callable[[Any], Any]) -> tuple[Any, ...]:
    """One number or several as a tuple, each made a Python number by `kind`; empty where that cannot be done."""
    if isinstance(value, str):
        return ()
    try:
        return tuple(kind(v) for v in (value if isinstance(value, Iterable) else (value,)))
    except (TypeError, ValueError):
        return ()


def pair(name: str, value: int | Sequence[int]) -> tuple[int, int]:
    """(height, width) in pixels from one number or two."""
    numbers = values(value, operator.index)
    if len(numbers) not in (1, 2) or min(numbers) < 1:
        raise TransformError(f"{name} is an integer of at least 1, or (height, width) of two, not {value!r}")
    return numbers[0], numbers[-1]


def sides(padding: int | Sequence[int]) -> tuple[int, int, int, int]:
    """(left, top, right, bottom) from one number, (left and right, top and bottom), or all four."""
    numbers = values(padding, operator.index)
    if len(numbers) not in (1, 2, 4) or min(numbers) < 0:
        raise TransformError(
            f"padding is one integer, (left/right, top/bottom) or (left, top, right, bottom), 0 or more each, "
            f"not {padding!r}"
        )
    left, top, right, bottom = (numbers * 4)[:4]
    return left, top, right, bottom


def color(name: str, value: float | Sequence[float] | None) -> float | tuple[float, ...]:
    """A number, or one per channel, in the image's units; None is 0."""
    if value is None:
        return 0.0
    numbers = values(value, float)
    if len(numbers) not in (1, 3):
        raise TransformError(f"{name} is a number or a sequence of 3, not {value!r}")
    return numbers if len(numbers) == 3 else numbers[0]


def probability(name: str, value: float) -> float:
    numbers = values(value, float)
    if len(numbers) != 1 or not 0.0 <= numbers[0] <= 1.0:
        raise TransformError(f"{name} is a probability in [0, 1], not {value!r}")
    return numbers[0]


def span(
    name: str, value: float | Sequence[float], *, low: float = 0.0, high: float = float("inf")
) -> tuple[float, float]:
    """(lower, upper) with low <= lower <= upper <= high."""
    numbers = values(value, float)
    if len(numbers) != 2 or not low <= numbers[0] <= numbers[1] <= high:
        raise TransformError(f"{name} is (lower, upper) within [{low:g}, {high:g}], in that order, not {value!r}")
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
    if len(numbers) not in (1, 2) or not low <= numbers[0] <= numbers[-1] <= high:
        raise TransformError(
            f"{name} is a number or (lower, upper) within [{low:g}, {high:g}], in that order, not {value!r}"
        )
    return numbers[0], numbers[-1]


def number(name: str, value: float) -> float:
    numbers = values(value, float)
    if len(numbers) != 1 or not abs(numbers[0]) < float("inf"):
        raise TransformError(f"{name} is a number, not {value!r}")
    return numbers[0]


def positive(name: str, value: float) -> float:
    numbers = values(value, float)
    if len(numbers) != 1 or not 0.0 < numbers[0] < float("inf"):
        raise TransformError(f"{name} is a number above 0, not {value!r}")
    return numbers[0]


def point(name: str, value: Sequence[float] | None) -> tuple[float, float] | None:
    """(x, y), or None."""
    numbers = () if value is None else values(value, float)
    if value is not None and len(numbers) != 2:
        raise TransformError(f"{name} is two numbers, (x, y), not {value!r}")
    return (numbers[0], numbers[1]) if numbers else None


def whole(name: str, value: Any, low: int | None = None) -> int:
    """An integer, of at least `low`."""
    numbers = values(value, operator.index)
    if len(numbers) != 1 or (low is not None and numbers[0] < low):
        raise TransformError(f"{name} is an integer{'' if low is None else f' of at least {low}'}, not {value!r}")
    return numbers[0]
