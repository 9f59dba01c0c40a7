"""Integers among the arguments of loaders, samplers and caches, checked."""

from __future__ import annotations

import operator
from typing import Any

from cuaug.errors import LoaderError

__all__ = ["integer"]


def integer(name: str, value: Any, least: int | None = None) -> int:
    """A Python int, from any kind of integer but a bool.

    Raises:
        LoaderError: it is none, or less than `least`.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or (least is not None and number < least):
        raise LoaderError(f"{name} is an integer{'' if least is None else f' of at least {least}'}, not {value!r}")
    return number
