"""What the readers of list files and tables share: lines, numbers, and where relative paths begin."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from cuaug.errors import LoaderError
from cuaug.sources._urls import is_url

__all__ = ["Resolver", "array_of", "number", "open_text"]


def open_text(path: str) -> TextIO:
    """UTF-8, with or without a byte order mark; names of files that are not UTF-8 stay usable.

    Raises:
        LoaderError: it cannot be opened.
    """
    try:
        return open(path, encoding="utf-8-sig", errors="surrogateescape", newline="")
    except OSError as error:
        raise LoaderError(f"cannot read {path!r}: {error.strerror}") from error


def number(text: str) -> int | float:
    """An integer of 64 bits, or a float.

    Raises:
        ValueError: neither.
    """
    if "_" in text:  # Python reads 1_000 as a number, nobody who writes lists does
        raise ValueError(text)
    try:
        value = int(text)
    except ValueError:
        return float(text)
    if not -(2**63) <= value < 2**63:
        raise ValueError(text)
    return value


def array_of(values: Sequence[Any]) -> NDArray[Any]:
    """int64 where all are integers, else float64: one type for the whole list, whatever a batch of it holds."""
    array = np.asarray(values)
    return array.astype(np.int64 if array.dtype.kind == "i" else np.float64, copy=False)


class Resolver:
    """Turns the paths that stand in a file into paths to open.

    Args:
        file: relative paths begin in its folder,
        root: or here. It may be a url.
    """

    def __init__(self, file: str, root: str | os.PathLike[str] | None) -> None:
        self._start = os.path.join(os.path.dirname(file) if root is None else os.fspath(root), "")

    def __call__(self, path: str) -> str:
        return path if path.startswith("/") or is_url(path) else self._start + path
