"""Where encoded images and labels come from.

A source is anything with `len(source)` and `source.read(i)`, which returns (what, label): `what` is a path or the
encoded bytes. `read` is called from several threads. `source.path(i)`, where there is one, names sample i in errors.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

from cuaug.errors import LoaderError
from cuaug.sources.files import Files

__all__ = ["Files", "Source", "open_source"]


@runtime_checkable
class Source(Protocol):
    """What a loader needs of a source."""

    def __len__(self) -> int: ...

    def read(self, index: int) -> tuple[str | bytes, Any]:
        """(path or encoded bytes, label) of one sample; index is in 0 ... len - 1."""
        ...


def open_source(files: str | os.PathLike[str] | Iterable[Any] | Source) -> Source:
    """A source from a directory of class folders, paths, (path, label) pairs, or a source itself.

    Raises:
        LoaderError: nothing there, or not one of these.
    """
    if isinstance(files, (str, os.PathLike)):
        return Files.from_directory(files)
    if isinstance(files, Source):
        return files
    if not isinstance(files, Iterable):
        raise LoaderError(
            f"files is a directory, paths, (path, label) pairs, or a source with __len__ and read(i), not {files!r}"
        )
    entries: Sequence[Any] = files if isinstance(files, Sequence) else list(files)
    return Files.from_entries(entries)
