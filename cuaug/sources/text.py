"""Helpers for list files and tables: opening text, parsing numbers, resolving paths."""

from __future__ import annotations

import io
import math
import os
from typing import TextIO

from cuaug.errors import SourceError
from cuaug.remote.urls import is_url
from cuaug.sources.file_bytes import read_metadata


def open_text(path: str) -> TextIO:
    """Reads a UTF-8 file, with or without a byte order mark. File names in other encodings survive.

    Raises:
        LoaderError: the file cannot be read.
    """
    return io.TextIOWrapper(io.BytesIO(read_metadata(path)), "utf-8-sig", "surrogateescape", newline="")


def parse_number(text: str) -> int | float:
    """Parses a 64-bit integer or a float.

    Raises:
        ValueError: the text is neither, or a number too large.
    """
    if "_" in text or len(text) > 1000:  # Python accepts 1_000; list files do not mean it as a number
        raise ValueError(text)
    try:
        value = int(text)
    except ValueError:
        if math.isinf(number := float(text)) and "inf" not in text.lower():
            raise ValueError(text) from None
        return number
    if not -(2**63) <= value < 2**63:
        raise ValueError(text)
    return value


class PathResolver:
    """Turns the paths named in a list or table into paths to open.

    The file may come from anyone, so its paths must lie below one folder. The text of a path decides; links below the
    folder are followed.

    Args:
        file: the list or table, for errors.
        root: the folder, or a URL; None: the folder of `file`.
        allow_outside: also accept paths outside the folder.
        argument: the source's name of `root`, for errors.
    """

    def __init__(
        self, file: str, root: str | os.PathLike[str] | None, *, allow_outside: bool = False, argument: str = "root"
    ) -> None:
        self._file, self._allow_outside, self._argument = file, allow_outside, argument
        self._is_checked = False
        self._root = os.path.join(os.path.dirname(file) if root is None else os.fspath(root), "")
        self._absolute_root = "" if is_url(self._root) else os.path.join(os.path.abspath(self._root), "")

    def __call__(self, path: str) -> str:
        """The path to open.

        Raises:
            LoaderError: the path leads out of the folder.
        """
        joined = self.join(path)
        if not self._is_checked:
            self._check_root(path, joined)
        if not self._allow_outside and (path.startswith("/") or ".." in path) and self._leads_out(path, joined):
            raise SourceError(
                f"{self._file!r}: the path {path!r:.200} leads out of {self._root or './'!r}: give {self._argument}=, "
                f"such as {self._argument}='/' for absolute paths, or allow_outside=True if you trust the file"
            )
        return joined

    def _check_root(self, path: str, joined: str) -> None:
        """Refuses a first path that the working folder has, and the folder of the list has not."""
        self._is_checked = True
        if joined != path and not is_url(joined) and not os.path.lexists(joined) and os.path.isfile(path):
            raise SourceError(
                f"{self._file!r}: {self._root!r} has no {path!r:.200}, but the working folder has it: give "
                f"{self._argument}='.'"
            )

    def join(self, path: str) -> str:
        """The path below the folder, unchecked."""
        return path if path.startswith("/") or is_url(path) else self._root + path

    def _leads_out(self, path: str, joined: str) -> bool:
        if is_url(path):
            return False
        if not self._absolute_root:
            return path.startswith("/") or ".." in path.split("/")
        return not os.path.join(os.path.abspath(joined), "").startswith(self._absolute_root)
