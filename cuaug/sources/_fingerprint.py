"""Digests of a source: `fingerprint` of its samples and labels, `cache_key` of where its files are stored."""

from __future__ import annotations

import functools
import hashlib
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cuaug.remote.urls import is_url
from cuaug.sources._labels import LabelColumns

__all__ = ["cache_key", "cached_method", "common_folder", "fingerprint", "relative_paths"]

S = TypeVar("S")
T = TypeVar("T")

# Increase when an unchanged dataset would get another fingerprint: older states are then refused.
_VERSION = 2
# Items joined before hashing, to save time without much memory.
_ITEMS_PER_CHUNK = 65_536
# Files whose modification time is read, evenly spaced: enough to notice a dataset that was written again.
_FILES_CHECKED = 1000


def fingerprint(kind: str, *parts: Any) -> str:
    """Hex digest of names, labels and other plain data.

    Numbers count by value: lists, arrays and tensors of any width give the same digest for the same numbers.
    """
    digest = hashlib.sha256(f"{kind} {_VERSION}".encode())
    for part in parts:
        for piece in _pieces(part):
            digest.update(piece)
    return digest.hexdigest()


def relative_paths(paths: Sequence[str]) -> list[str]:
    """The paths relative to their deepest common folder."""
    start = len(common_folder(paths))
    return [path[start:] for path in paths]


def cache_key(paths: Sequence[str], *parts: Any) -> str:
    """The files' deepest common folder on this machine, and a digest.

    The digest covers the sizes and modification times of up to 1,000 evenly spaced files, and `parts`. It tells apart
    datasets with equal names and labels, which have equal fingerprints.
    """
    folder = common_folder(paths)
    stats = [_size_and_mtime(path) for path in paths[:: -(-len(paths) // _FILES_CHECKED)]]
    location = folder if is_url(min(paths)) or is_url(max(paths)) else os.path.realpath(folder)
    return f"{location} {fingerprint('origin', stats, *parts)[:16]}"


def common_folder(paths: Sequence[str]) -> str:
    """The deepest common folder, with its slash; "" if there is none."""
    low, high = min(paths), max(paths)  # all paths share the prefix of these two
    same = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    return low[: low.rfind("/", 0, same) + 1]


def _size_and_mtime(path: str) -> tuple[int, int]:
    """A file's size in bytes and modification time in nanoseconds; zeros for a missing file or a URL."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return 0, 0
    return status.st_size, status.st_mtime_ns


def cached_method(method: Callable[[S], T]) -> Callable[[S], T]:
    """Caches the result of a method without arguments on its object, so that it pickles with the object."""
    name = f"_{method.__name__}_result"

    @functools.wraps(method)
    def cached(self: S) -> T:
        if name not in self.__dict__:
            self.__dict__[name] = method(self)
        return self.__dict__[name]

    return cached


def _pieces(value: Any) -> Iterator[Any]:
    """Yields bytes to hash; different values yield different bytes."""
    if isinstance(value, (str, bytes)):
        data = _to_bytes(value)
        yield (b"text" if isinstance(value, str) else b"bytes") + struct.pack("<q", len(data))
        yield data
    elif isinstance(value, Mapping):
        yield b"fields" + struct.pack("<q", len(value))
        for key, item in value.items():
            yield from _pieces(key)
            yield from _pieces(item)
    elif isinstance(value, LabelColumns):
        yield from _pieces(value.columns)
    elif isinstance(value, Iterator):
        yield b"parts"
        for item in value:
            yield from _pieces(item)
    elif isinstance(value, range):
        yield from _number_pieces(np.arange(value.start, value.stop, value.step))
    elif isinstance(value, Sequence) and len(value) and isinstance(value[0], (str, bytes)):
        yield from _text_pieces(value)
    else:
        yield from _other_pieces(value)


def _to_bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")


def _text_pieces(values: Sequence[Any]) -> Iterator[Any]:
    """Pieces of a list of strings or bytes; a mixed list takes the slow path."""
    kind = str if isinstance(values[0], str) else bytes
    if not all(issubclass(item_type, kind) for item_type in set(map(type, values))):
        yield from _item_pieces(values)
        return
    yield kind.__name__.encode() + struct.pack("<q", len(values))
    separator: Any = "\0" if kind is str else b"\0"
    for start in range(0, len(values), _ITEMS_PER_CHUNK):
        chunk = values[start : start + _ITEMS_PER_CHUNK]
        data = _to_bytes(separator.join(chunk))
        if data.count(b"\0") >= len(chunk):  # an item contains the separator
            yield np.fromiter(map(len, chunk), dtype="<i8", count=len(chunk)).tobytes()
        yield data + b"\0"


def _other_pieces(value: Any) -> Iterator[Any]:
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError):  # ragged, or a tensor of a dtype that NumPy lacks
        array = None
    if array is not None and array.dtype.kind in "biuf":
        yield from _number_pieces(array)
    elif isinstance(value, np.ndarray):  # of strings or objects
        yield from _pieces(value.tolist())
    elif isinstance(value, Sequence):
        yield from _item_pieces(value)
    else:
        yield b"other"
        yield from _pieces(repr(value))


def _item_pieces(values: Any) -> Iterator[Any]:
    yield b"items" + struct.pack("<q", len(values))
    for item in values:
        yield from _pieces(item)


def _number_pieces(array: NDArray[Any]) -> Iterator[Any]:
    dtype = {"f": "<f8", "b": "|b1"}.get(array.dtype.kind, "<i8")
    yield f"numbers {dtype} {array.shape}".encode()
    yield np.ascontiguousarray(array, dtype=dtype).tobytes()
