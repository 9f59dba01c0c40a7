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
    """Turns the paths that a file names into paths to open.

    The file may come from anybody: its paths must lie below one folder. That is decided by their text; links below the
    folder are followed.

    Args:
        file: the list or table, for errors.
        root: the folder, or a url; None: the folder of `file`.
        allow_outside: accept paths that lead out of the folder, too.
    """

    def __init__(self, file: str, root: str | os.PathLike[str] | None, *, allow_outside: bool = False) -> None:
        self._file, self._allow_outside = file, allow_outside
        self._root = os.path.join(os.path.dirname(file) if root is None else os.fspath(root), "")
        self._below = "" if is_url(self._root) else os.path.join(os.path.abspath(self._root), "")

    def __call__(self, path: str) -> str:
        """The path to open.

        Raises:
            LoaderError: it leads out of the folder.
        """
        joined = self.join(path)
        if not self._allow_outside and (path.startswith("/") or ".." in path) and self._leads_out(path, joined):
            raise LoaderError(
                f"{self._file!r}: the path {path!r:.200} leads out of {self._root or './'!r}: give root=, such as "
                "root='/' for absolute paths, or allow_outside=True if you trust the file"
            )
        return joined

    def join(self, path: str) -> str:
        """The path below the folder, unchecked."""
        return path if path.startswith("/") or is_url(path) else self._root + path

    def _leads_out(self, path: str, joined: str) -> bool:
        if is_url(path):
            return False
        if not self._below:
            return path.startswith("/") or ".." in path.split("/")
        return not os.path.abspath(joined).startswith(self._below)
