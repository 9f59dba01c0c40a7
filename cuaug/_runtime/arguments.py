"""Checks of arguments; each raises a LoaderError that names the argument."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from numbers import Real
from typing import Any

import numpy as np

from cuaug.errors import ArgumentError

_INT64_MAX = 2**63 - 1
_MOST_THREADS = 4096  # beyond the CPUs of any machine; tens of thousands of threads exhaust its memory


def integer(name: str, value: Any, minimum: int | None = None) -> int:
    """A Python int, from any kind of integer but a bool; with a minimum also within int64, as native code needs it."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or (minimum is not None and number < minimum):
        raise ArgumentError(
            f"{name} must be an integer{'' if minimum is None else f' of at least {minimum}'}, not {value!r}"
        )
    if minimum is not None and number > _INT64_MAX:
        raise ArgumentError(f"{name} must be an integer below 2**63, not one of {number.bit_length()} bits")
    return number


def limit(name: str, value: Any, minimum: int) -> int:
    """A limit on bytes or pixels. One beyond int64, in which native code counts, is as good as the largest there."""
    if not isinstance(value, bool) and hasattr(value, "__index__"):
        value = min(operator.index(value), _INT64_MAX)
    return integer(name, value, minimum)


def thread_count(value: Any) -> int | None:
    """A number of threads, or None."""
    if value is None:
        return None
    if (number := integer("threads", value, 1)) > _MOST_THREADS:
        raise ArgumentError(f"threads must be at most {_MOST_THREADS}, not {number}")
    return number


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, int, np.bool_)):
        raise ArgumentError(f"{name} must be True or False, not {value!r}")
    return bool(value)


def one_of(name: str, value: str, allowed: Iterable[str]) -> Any:
    if value not in (allowed := tuple(allowed)):
        raise ArgumentError(f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r}")
    return value


def seconds(name: str, value: Any) -> float | None:
    """A time above 0, or None."""
    if value is None or (_is_number(value) and value > 0):
        return value
    raise ArgumentError(f"{name} must be a number above 0, or None, not {value!r}")


def function(name: str, value: Any) -> Any:
    if value is None or callable(value):
        return value
    raise ArgumentError(f"{name} must be a function, or None, not {value!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
