"""The protocol of a source: samples by index. Read this page to write a source of your own.

All sources share the helpers beside it: `repr`, digests of samples and labels (`fingerprint`), and of where files are
stored (`cache_key`).
"""

from __future__ import annotations

import functools
import hashlib
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.migration_hints import SuggestsArguments
from cuaug.errors import DecodeError
from cuaug.remote.urls import is_url
from cuaug.sources.file_bytes import FilePaths, FileRanges, read_bytes
from cuaug.sources.labels import LabelColumns

_SOURCES_SHOWN = 3


class ReprMixin(SuggestsArguments):
    """Prints a source as its class, its number of samples, and the path of its first sample."""

    def __repr__(self: Any) -> str:
        count, classes = len(self), getattr(self, "classes", None)
        samples = f"{count} sample{'' if count == 1 else 's'}{f' in {len(classes)} classes' if classes else ''}"
        return f"{type(self).__name__}({samples}, {self._repr_detail()})"

    def _repr_detail(self: Any) -> str:
        return f"the first {self.path(0)!r}"


def describe_sources(sources: Sequence[Any]) -> str:
    """Lists the first few sources inside a composite source."""
    more = len(sources) - _SOURCES_SHOWN
    return f"of {', '.join(map(repr, sources[:_SOURCES_SHOWN]))}{f' and {more} more' if more > 0 else ''}"


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


def file_contents(paths: Iterable[str], max_bytes: int) -> Iterator[bytes]:
    """Each file's bytes, to be hashed; none for a file that cannot be read, which costs its sample alone."""
    for path in paths:
        try:
            yield read_bytes(path, max_bytes)
        except (OSError, DecodeError):
            yield b""


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


@runtime_checkable
class Source(Protocol):
    """Samples by index: any object with `len(source)` and `source.read(i)`.

        class Scans:
            def __init__(self, paths, labels):
                self.paths, self.labels = paths, labels

            def __len__(self):
                return len(self.paths)

            def read(self, index):
                return self.paths[index], self.labels[index]

        loader = cuaug.Loader(Scans(paths, labels), transforms, batch_size=64)

    **Threads and processes.** The loader calls `read` from several threads at once. A source may also run in forked
    processes and, if it pickles, in spawned ones.

    **Errors.** An OSError or `DecodeError` from `read` damages one sample, and `on_error` decides what follows. Any
    other exception ends the iteration; from Python 3.11 on, a note names the sample. An OSError that says that too many
    files are open ends the iteration too.

    **Optional members.** The loader uses each of these if the source has it:

    - `encoded_size(i) -> int`: bytes of the encoded image, known without reading it. The loader then refuses a sample
      above `DecodeOptions(max_bytes=)` before reading it.
    - `label(i)`: the label alone. Define it if it costs less than `read(i)`.
    - `path(i) -> str`: name of sample i in error messages.
    - `locate(indices) -> FilePaths | FileRanges | None`: where the samples of a batch lie, so that native code reads
      them without Python: whole files, or ranges of files that are open or in memory; see `cuaug.sources.file_bytes`.
      `indices` is (N,) int64. It reads nothing itself. `read` reads the samples that it leaves out or that native code
      cannot read, and raises their errors; None: all.
    - `picture_size(i) -> (height, width)`: size of the image that the label describes, in pixels, as displayed. An
      image of another size is a `DecodeError`. (0, 0): unknown.
    - `label_path_names`: the keys in dict labels whose paths the Loader may open, for masks and further pictures; an
      empty set where labels come from data that nobody has checked. None: all.
    - `start_stream(seed, epoch, indices)`: for a source without samples by index. Each iteration calls it with the
      samples that it will read, in ascending order. See `FromIterable`.
    - `classes`: names of the labels 0, 1, ....
    - `labels`: all labels, in sample order: their numbers decide the dtype of the labels of all batches.
    - `shard_sizes`: samples in each shard, in sample order, for `ShardSampler`.
    - `read_ahead(batches) -> ReadAhead | None`: called when an iteration begins; `batches` can be iterated over any
      number of times, and gives the indices that each batch will read, as arrays. A slow source requests them in
      advance. Samples may also be read in another order, more often, or not at all. None: nothing to do.
    - `remote_counts() -> dict[str, int]`: counts of requests, for `Stats.remote`.
    - `fingerprint() -> str | None`: digest of the samples and their labels, independent of where they are stored. A
      loader refuses a state from a source with another fingerprint. None: unknown.
    - `cache_key() -> str | None`: digest that also tells apart images with equal names and labels, for example by
      folder and modification time. A loader refuses a cache filled from a source with another key. None: unknown.
      Without this method the fingerprint decides alone.
    """

    def __len__(self) -> int: ...

    def read(self, index: int) -> tuple[Any, Any]:
        """Returns (image, label) of one sample.

        Args:
            index: 0 ... len - 1.

        Returns:
            image: a path; encoded bytes (bytes or any buffer); or decoded pixels, uint8 of shape (H, W, 3), (H, W, 1)
                or (H, W).
            label: a number, an array or list of numbers, a string, or a dict or tuple of these: see `cuaug.collate`.
        """
        ...


class ReadAhead(Protocol):
    """An iteration's read-ahead, see `Source`."""

    def finish(self, batches: int) -> None:
        """Called when the first `batches` batches are complete: nothing of them will be read again."""

    def close(self) -> None:
        """Called when the iteration ends. Threads of the read-ahead must end."""


def optional_method(source: Source, name: str) -> Any:
    """Returns a source's method, or None if it has no callable of that name."""
    method = getattr(source, name, None)
    return method if callable(method) else None


def locate(source: Source, indices: NDArray[np.int64]) -> FilePaths | FileRanges | None:
    """Where samples lie, as the source's `locate` says; None without that method."""
    method = optional_method(source, "locate")
    return None if method is None else method(indices)


def label_path_names(source: Any) -> frozenset[str] | None:
    """The keys whose paths may be opened in labels of a source, or of all sources within it; None: all."""
    inner = getattr(source, "sources", None)
    if not isinstance(inner, list):
        names = getattr(source, "label_path_names", None)
        return None if names is None else frozenset(names)
    limits = [names for names in map(label_path_names, inner) if names is not None]
    return frozenset.intersection(*limits) if limits else None
