"""Whole files as bytes, with few system calls; where samples lie in files or in memory, for native code."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.limits import check_bytes
from cuaug._runtime.native import data_address
from cuaug.errors import DecodeError, SourceError

_CHUNK_BYTES = 1 << 20
# The largest annotation files in use have several GB.
MAX_METADATA_BYTES = 16 << 30


def read_bytes(path: str | os.PathLike[str], max_bytes: int = sys.maxsize) -> bytes:
    """Reads a whole file. `open` makes twice as many system calls and takes the GIL after each.

    Raises:
        DecodeError: the file has more than `max_bytes`.
        OSError: the file cannot be read, is no regular file, has an impossible name, or does not fit in memory.
    """
    fd, size = _open(path, os.O_RDONLY)
    try:
        check_bytes(size, max_bytes)
        data = os.read(fd, size)
        if size and len(data) == size:
            return data
        parts, size = [data], len(data)
        while size <= max_bytes and (part := os.read(fd, _CHUNK_BYTES)):  # a growing, very large or /proc file
            parts.append(part)
            size += len(part)
        check_bytes(size, max_bytes)
        return b"".join(parts)
    except MemoryError as error:
        raise OSError(errno.ENOMEM, f"its {size:,} bytes do not fit in memory", os.fspath(path)) from error
    finally:
        os.close(fd)


def read_metadata(path: str | os.PathLike[str], max_bytes: int = MAX_METADATA_BYTES) -> bytes:
    """Reads a list, table, index or annotation file.

    Raises:
        SourceError: it cannot be read, is no regular file, or has more than `max_bytes`.
    """
    try:
        return read_bytes(path, max_bytes)
    except DecodeError as error:
        raise SourceError(f"cannot read {os.fspath(path)!r}: {error.cause}") from error
    except OSError as error:
        hint = "; write a pipe's data into a file first" if error.errno == errno.EINVAL else ""
        raise SourceError(f"cannot read {os.fspath(path)!r}: {error_reason(error)}{hint}") from error


def open_regular(path: str | os.PathLike[str], flags: int) -> int:
    """Opens a regular file and returns its descriptor: an `opener` for `open` that never waits at a pipe.

    Raises:
        OSError: the file cannot be opened, is no regular file, or has an impossible name.
    """
    return _open(path, flags)[0]


def _open(path: str | os.PathLike[str], flags: int) -> tuple[int, int]:
    """Returns (descriptor, size) of a regular file or a folder; reading a folder raises a clear error."""
    try:
        try:
            fd = os.open(path, flags | os.O_NONBLOCK)  # without it, a pipe waits for its writer
        except BlockingIOError:  # a regular file with a lease: wait for it
            fd = os.open(path, flags)
    except ValueError as error:  # a null character, or half of a surrogate pair
        raise OSError(f"no file can have such a name: {error}") from error
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", os.fspath(path))
    except BaseException:
        os.close(fd)
        raise
    return fd, status.st_size


def is_fd_limit_error(error: OSError) -> bool:
    """Whether this process or the system has too many open files, which is no fault of the file."""
    errors = (error, error.__cause__)
    return any(getattr(candidate, "errno", None) in (errno.EMFILE, errno.ENFILE) for candidate in errors)


def error_reason(error: OSError) -> str:
    """The reason of an error, as text. `strerror` may be missing or any object if a source raised the error."""
    reason = error.strerror
    text = reason if reason and isinstance(reason, str) else str(error) or type(error).__name__
    return text + home_hint(error.filename) if isinstance(error, FileNotFoundError) else text


def home_hint(path: Any) -> str:
    """The remedy for a missing path that begins with "~", which shells expand; else empty."""
    is_home = isinstance(path, str) and path.startswith("~")
    return f"; only shells expand '~': give os.path.expanduser({path!r:.200})" if is_home else ""


class FilePaths(NamedTuple):
    """Where N samples lie that are whole files, for native code to read.

    Attributes:
        paths: N paths, of type str.
        labels: N labels.
    """

    paths: list[str]
    labels: list[Any]


class FileRanges(NamedTuple):
    """Where N samples lie in files that are open, or in memory, for native code to read.

    Attributes:
        files: the open files, or bytes in memory; keep them until they are read.
        states: (files, 4) int64: descriptor, size, and times of modification and change in ns, as when last verified;
            of bytes in memory -1, size, address, 0.
        table: (N, K, 4) int64: number of the file, -1 if only the source's `read` can read it; offset and size in
            bytes; CRC-32 of the header before it. A sample's first range is its image, the others make its label.
        header_bytes: size of these headers; 0: not checked.
        make_label: (position, bytes of the label's ranges) -> label.
    """

    files: Sequence[Any]
    states: NDArray[np.int64]
    table: NDArray[np.int64]
    header_bytes: int
    make_label: Callable[[int, list[bytes]], Any]


def join_paths(count: int, parts: Sequence[tuple[NDArray[np.int64], FilePaths]]) -> FilePaths:
    """The paths of a batch whose samples come from several sources; as `join_ranges`."""
    joined = FilePaths([""] * count, [None] * count)
    for positions, found in parts:
        for position, *joined_values in zip(positions.tolist(), *found, strict=True):
            joined.paths[position], joined.labels[position] = joined_values
    return joined


def join_ranges(count: int, parts: Sequence[tuple[NDArray[np.int64], FileRanges]]) -> FileRanges:
    """The ranges of a batch whose samples come from several sources.

    Args:
        count: samples of the batch.
        parts: (positions in the batch, ranges of these samples) by source. Sources whose headers have another size than
            the first one's are left to `read`.
    """
    header_bytes = parts[0][1].header_bytes
    columns = max(ranges.table.shape[1] for _, ranges in parts)
    table = np.full((count, columns, 4), -1, np.int64)
    places: list[tuple[int, int]] = [(0, 0)] * count  # of each sample: its part, and its position there
    files: list[Any] = []
    for number, (positions, ranges) in enumerate(parts):
        own = ranges.table.copy()
        own[..., 0] = np.where((own[..., 0] < 0) | (ranges.header_bytes != header_bytes), -1, own[..., 0] + len(files))
        # A source with fewer labels than others reads nothing where its image is, in their places.
        padding = np.repeat(own[:, :1], columns - own.shape[1], axis=1)
        padding[..., 2] = 0
        table[positions] = np.concatenate([own, padding], axis=1)
        files += ranges.files
        for i, position in enumerate(positions.tolist()):
            places[position] = number, i

    def make_label(position: int, data: list[bytes]) -> Any:
        number, i = places[position]
        ranges = parts[number][1]
        return ranges.make_label(i, data[: ranges.table.shape[1] - 1])

    states = np.concatenate([ranges.states for _, ranges in parts])
    return FileRanges(files, states, table, header_bytes, make_label)


def encode_paths(paths: list[str]) -> tuple[NDArray[np.int64], bytes]:
    """Addresses of the paths in the system's encoding, and their memory; an impossible name becomes empty."""
    try:
        names = os.fsencode("\0".join(paths))
    except ValueError:  # half of a surrogate pair
        names = b""
    ends = (np.frombuffer(names, dtype=np.uint8) == 0).nonzero()[0]
    if len(ends) != len(paths) - 1:
        return encode_paths([path if _is_possible(path) else "" for path in paths])
    starts = np.zeros(len(paths), dtype=np.int64)
    starts[1:] = ends + 1
    return starts + data_address(names), names


def _is_possible(path: str) -> bool:
    try:
        return b"\0" not in os.fsencode(path)
    except ValueError:
        return False
