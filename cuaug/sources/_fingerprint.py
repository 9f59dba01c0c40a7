"""Digests: of which samples a source has and of their labels, wherever they lie; and of where its files do lie."""

from __future__ import annotations

import functools
import hashlib
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cuaug.sources._columns import Columns
from cuaug.sources._urls import is_url

__all__ = ["cache_key", "fingerprint", "once", "relative"]

S = TypeVar("S")
T = TypeVar("T")

# Raise it when the same data set would get another fingerprint: states from before are then refused.
_VERSION = 2
# Items that are joined before they are hashed: few enough for memory, many enough for speed.
_CHUNK = 65_536
# How many of a source's files are asked when they were written: enough to notice a data set that was made anew.
_LOOKED_AT = 1000


def fingerprint(kind: str, *parts: Any) -> str:
    """A hex digest of some names, labels and other plain data.

    Numbers count by value: lists, arrays and tensors of any width that hold the same numbers are the same.
    """
    digest = hashlib.sha256(f"{kind} {_VERSION}".encode())
    for part in parts:
        for piece in _pieces(part):
            digest.update(piece)
    return digest.hexdigest()


def relative(paths: Sequence[str]) -> list[str]:
    """The paths as seen from the deepest folder that they have in common."""
    below = len(_folder(paths))
    return [path[below:] for path in paths]


def cache_key(paths: Sequence[str], *parts: Any) -> str:
    """The deepest folder that files have in common, as it lies on this machine, and a digest.

    The digest is of when up to 1,000 of the files, throughout them, were written, of their sizes, and of other plain
    data. Data sets of the same names and labels have one fingerprint and different origins.
    """
    folder = _folder(paths)
    written = [_written(path) for path in paths[:: -(-len(paths) // _LOOKED_AT)]]
    there = folder if is_url(min(paths)) or is_url(max(paths)) else os.path.realpath(folder)
    return f"{there} {fingerprint('origin', written, *parts)[:16]}"


def _folder(paths: Sequence[str]) -> str:
    """The deepest that they have in common, with its slash; empty for none."""
    low, high = min(paths), max(paths)  # what these two begin with, all between them begin with
    same = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    return low[: low.rfind("/", 0, same) + 1]


def _written(path: str) -> tuple[int, int]:
    """A file's size in bytes and its time of change in nanoseconds; zeros for none, or a url."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return 0, 0
    return status.st_size, status.st_mtime_ns


def once(method: Callable[[S], T]) -> Callable[[S], T]:
    """A method without arguments whose result is kept on its object."""
    name = f"_{method.__name__}_once"

    @functools.wraps(method)
    def kept(self: S) -> T:
        if name not in self.__dict__:
            self.__dict__[name] = method(self)
        return self.__dict__[name]

    return kept


def _pieces(value: Any) -> Iterator[Any]:
    """Bytes to hash, such that different values give different bytes."""
    if isinstance(value, (str, bytes)):
        data = _encoded(value)
        yield (b"text" if isinstance(value, str) else b"bytes") + struct.pack("<q", len(data))
        yield data
    elif isinstance(value, Mapping):
        yield b"fields" + struct.pack("<q", len(value))
        for key, item in value.items():
            yield from _pieces(key)
            yield from _pieces(item)
    elif isinstance(value, Columns):
        yield from _pieces(value.columns)
    elif isinstance(value, Iterator):
        yield b"parts"
        for item in value:
            yield from _pieces(item)
    elif isinstance(value, range):
        yield from _numbers(np.arange(value.start, value.stop, value.step))
    elif isinstance(value, Sequence) and len(value) and isinstance(value[0], (str, bytes)):
        yield from _texts(value)
    else:
        yield from _others(value)


def _encoded(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")


def _texts(values: Sequence[Any]) -> Iterator[Any]:
    """Strings, or bytes; a list that is a mixture takes the slow way."""
    kind = str if isinstance(values[0], str) else bytes
    if not all(issubclass(each, kind) for each in set(map(type, values))):
        yield from _items(values)
        return
    yield kind.__name__.encode() + struct.pack("<q", len(values))
    separator: Any = "\0" if kind is str else b"\0"
    for start in range(0, len(values), _CHUNK):
        chunk = values[start : start + _CHUNK]
        data = _encoded(separator.join(chunk))
        if data.count(b"\0") >= len(chunk):  # some hold a separator themselves
            yield np.fromiter(map(len, chunk), dtype="<i8", count=len(chunk)).tobytes()
        yield data + b"\0"


def _others(value: Any) -> Iterator[Any]:
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError):  # ragged, or a tensor that NumPy has no type for
        array = None
    if array is not None and array.dtype.kind in "biuf":
        yield from _numbers(array)
    elif isinstance(value, np.ndarray):  # of strings, or of anything
        yield from _pieces(value.tolist())
    elif isinstance(value, Sequence):
        yield from _items(value)
    else:
        yield b"other"
        yield from _pieces(repr(value))


def _items(values: Any) -> Iterator[Any]:
    yield b"items" + struct.pack("<q", len(values))
    for item in values:
        yield from _pieces(item)


def _numbers(array: NDArray[Any]) -> Iterator[Any]:
    dtype = {"f": "<f8", "b": "|b1"}.get(array.dtype.kind, "<i8")
    yield f"numbers {dtype} {array.shape}".encode()
    yield np.ascontiguousarray(array, dtype=dtype).tobytes()
