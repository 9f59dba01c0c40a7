"""Indexes of shards: byte offsets of samples, made by one scan of the shard and kept on disk.

An index lies beside its shard, as `<name>.cuaug-index`; that of a video as `.<name>.cuaug-index`. If that folder is
read-only, it lies in CUAUG_CACHE_DIR or the user's cache directory. It is valid for one size, modification time,
beginning and end of the shard; otherwise it is made again. Processes that start together may make the same index: each
writes its own file and renames it, so that no reader sees a partial one.

An index decides the labels of samples, and it may come from another user or be damaged. It is read only if it is
trusted (_runtime/disk.py) and used only if every number in it is within bounds. Otherwise it is made again: no index
raises an error.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import random
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.disk import Directory, UntrustedError, cache_directory, warn_once
from cuaug._runtime.limits import DEFAULT_MAX_BYTES
from cuaug.errors import SourceError
from cuaug.remote.object_store import RemoteFile
from cuaug.remote.urls import is_url
from cuaug.sources.file_bytes import open_regular

log = logging.getLogger("cuaug")

# Increase when the format changes: indexes on disk are then made again.
_VERSION = 3
#: Extension of an index file, after the shard's name.
SUFFIX = ".cuaug-index"

#: Bytes of a shard's beginning and end in its stamp. A tar ends with up to 11 kB of zeros.
HEAD_BYTES, TAIL_BYTES = 4096, 16_384
# Limit on an index's size: this, plus 8 bytes per byte of the shard. A member of 512 bytes or more takes 36, a record
# of 16 bytes or more takes 16, and JSON writes one byte of a name as at most 6.
_EXTRA_BYTES = 65_536


class Stamp(NamedTuple):
    """Identifies one version of a file: size, modification time, and CRC-32 of its beginning and end."""

    size: int
    mtime_ns: int
    checksum: int

    @classmethod
    def of(cls, fd: int) -> Stamp:
        """The stamp of an open file."""
        status = os.fstat(fd)
        checksum = zlib.crc32(os.pread(fd, HEAD_BYTES, 0))
        checksum = zlib.crc32(os.pread(fd, TAIL_BYTES, max(0, status.st_size - TAIL_BYTES)), checksum)
        return cls(status.st_size, status.st_mtime_ns, checksum)


@dataclass(frozen=True)
class Index:
    """Locations of samples in one shard.

    Attributes:
        stamp: the shard's version.
        notes: data that JSON can hold.
        arrays: one-dimensional arrays.
    """

    stamp: Stamp
    notes: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


class IndexFormat(NamedTuple):
    """The index format of one kind of shard.

    Attributes:
        name: tells this format apart from others beside the same file.
        scan: (path or URL, open file) -> (notes, arrays). It reads a file by its methods, `pread` and `file_size`.
        dtypes: dtype of each array, as `numpy.dtype.str`.
        check: raises ValueError, KeyError or TypeError if a value is out of the bounds that `scan` keeps. The arrays
            already have these dtypes and one dimension.
        is_hidden: whether the name beside the file begins with a dot: a data set has many videos, and few shards.
    """

    name: str
    scan: Callable[[str, BinaryIO], tuple[dict[str, Any], dict[str, NDArray[Any]]]]
    dtypes: Mapping[str, str]
    check: Callable[[Index], None]
    is_hidden: bool = False


def pread(file: BinaryIO | RemoteFile, size: int, offset: int) -> bytes:
    """Reads a range of an open local or remote file; shorter at its end."""
    return file.pread(size, offset) if isinstance(file, RemoteFile) else os.pread(file.fileno(), size, offset)


def file_size(file: BinaryIO | RemoteFile) -> int:
    """Size of an open local or remote file, in bytes."""
    return file.remote.size if isinstance(file, RemoteFile) else os.fstat(file.fileno()).st_size


def max_index_bytes(shard_bytes: int) -> int:
    """Limit on the size of an index; `shard_bytes` is a server's claim where the shard is remote."""
    return min(_EXTRA_BYTES + 8 * shard_bytes, DEFAULT_MAX_BYTES)


def check_spans(offsets: NDArray[np.int64], sizes: NDArray[np.int64], begin: int, end: int) -> None:
    """Checks that byte ranges lie within begin ... end.

    Args:
        offsets, sizes: (n,) bytes.

    Raises:
        ValueError: a range lies outside, a size is negative, or the lengths differ.
    """
    if len(offsets) != len(sizes):
        raise ValueError("its arrays have different lengths")
    # offset + size could overflow, so each size is compared with the space after its offset.
    if ((offsets < begin) | (offsets > end) | (sizes < 0) | (sizes > end - offsets)).any():
        raise ValueError("it places data outside the file")


def is_string_list(value: Any) -> bool:
    """Whether a JSON value is a list of strings."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def load_indexes(index_format: IndexFormat, paths: Sequence[str]) -> list[Index]:
    """Loads the index of each file, in order; makes and keeps missing ones.

    Raises:
        LoaderError: a file cannot be read or changed during the scan; also errors of `scan`.
    """
    indexes: dict[int, Index] = {}
    # In random order, so that processes that start together make different indexes and find each other's.
    for i in random.Random().sample(range(len(paths)), len(paths)):
        try:
            with open(paths[i], "rb", opener=open_regular) as file:
                indexes[i] = _load(index_format, paths[i], file) or _make(index_format, paths[i], file)
        except OSError as error:
            raise SourceError(f"cannot read {paths[i]!r}: {error.strerror or error}") from error
    return [indexes[i] for i in range(len(paths))]


def _make(index_format: IndexFormat, path: str, file: BinaryIO) -> Index:
    stamp = Stamp.of(file.fileno())
    index = Index(stamp, *index_format.scan(path, file))
    if Stamp.of(file.fileno()) != stamp:
        raise SourceError(f"{path!r} changed while its index was made: wait until it is fully written")
    log.info("made the index of %s", path)
    mode = os.fstat(file.fileno()).st_mode & 0o644  # readers of the shard may read its index
    try:
        _write(index_format, path, index, mode, beside=True)
    except OSError:  # mostly: a folder of another user
        keep_cached(index_format, path, index, mode)
    return index


def keep_cached(index_format: IndexFormat, path: str, index: Index, mode: int = 0o600) -> None:
    """Keeps the index of a shard, or of a shard's URL, in the user's cache."""
    try:
        _write(index_format, path, index, mode, beside=False)
    except UntrustedError as error:
        warn_once(error, "indexes there are made again each time")
    except OSError as error:
        log.warning("cannot keep the index of %s; it will be made again each time: %s", path, error)


def _write(index_format: IndexFormat, path: str, index: Index, mode: int, *, beside: bool) -> None:
    with (
        _open_location(index_format, path, beside, make=True) as (directory, name),
        directory.atomic_write(name, mode=mode) as new,
    ):
        new.write(_pack(index_format, index))


@contextlib.contextmanager
def _open_location(
    index_format: IndexFormat, path: str, beside: bool, *, make: bool
) -> Iterator[tuple[Directory, str]]:
    """Opens the directory of a file's index, beside the file or in the user's cache; yields it and the index's name."""
    if beside:
        folder, name = os.path.split(path)
        with Directory(folder or os.curdir, trusted=False) as directory:
            yield directory, f"{'.' * index_format.is_hidden}{name}{SUFFIX}"
    else:
        location = path if is_url(path) else os.path.realpath(path)
        name = hashlib.sha256(os.fsencode(location)).hexdigest()[:32]
        with cache_directory("indexes", make=make) as directory:
            yield directory, name + SUFFIX


def _pack(index_format: IndexFormat, index: Index) -> bytes:
    """Serializes an index: a line with the checksum of the rest, a line of JSON, the arrays' bytes."""
    head = {
        "kind": [index_format.name, _VERSION],
        "stamp": index.stamp,
        "notes": index.notes,
        "lengths": {name: len(index.arrays[name]) for name in index_format.dtypes},
    }
    arrays = (index.arrays[name].astype(dtype, copy=False) for name, dtype in index_format.dtypes.items())
    rest = b"\n".join([json.dumps(head).encode(), b"".join(array.tobytes() for array in arrays)])
    return b"%08x\n" % zlib.crc32(rest) + rest


def _load(index_format: IndexFormat, path: str, file: BinaryIO) -> Index | None:
    """Loads a file's index if it is trusted, valid and current."""
    stamp, owner = Stamp.of(file.fileno()), os.fstat(file.fileno()).st_uid
    # The shard's owner could as well write other labels into the shard itself.
    beside = _read(index_format, path, stamp, beside=True, owners=(owner,))
    return load_cached(index_format, path, stamp) if beside is None else beside


def load_cached(index_format: IndexFormat, path: str, stamp: Stamp) -> Index | None:
    """Loads the index of a shard, or of a shard's URL, from the user's cache, if it is trusted, valid and current."""
    return _read(index_format, path, stamp, beside=False)


def _read(
    index_format: IndexFormat, path: str, stamp: Stamp, *, beside: bool, owners: tuple[int, ...] = ()
) -> Index | None:
    try:
        with _open_location(index_format, path, beside, make=False) as (directory, name):
            data = directory.read(name, limit=max_index_bytes(stamp.size), owners=owners)
        return unpack(index_format, stamp, data, stamp.__eq__)
    except UntrustedError as error:
        warn_once(error, "this index and others like it there are ignored and made again")
    except OSError:  # mostly: no such file
        pass
    except ValueError as error:
        log.warning("the index of %s is damaged and is made again: %s", path, error)
    return None


def unpack(index_format: IndexFormat, stamp: Stamp, data: bytes, is_current: Callable[[Stamp], bool]) -> Index | None:
    """Parses an index, which gets this stamp; None if it has another format or version, or a stamp that is not current.

    Raises:
        ValueError: the index is damaged.
    """
    checksum, _, rest = data.partition(b"\n")
    if checksum != b"%08x" % zlib.crc32(rest):
        raise ValueError("its checksum is wrong")
    head, _, body = rest.partition(b"\n")
    try:
        fields = json.loads(head)
        if fields["kind"] != [index_format.name, _VERSION] or not is_current(Stamp(*fields["stamp"])):
            return None
        arrays, start = {}, 0
        for name, dtype in index_format.dtypes.items():
            arrays[name] = np.frombuffer(body, dtype, fields["lengths"][name], start)
            start += arrays[name].nbytes
        if start != len(body):
            raise ValueError("it is too long")
        index = Index(stamp, fields["notes"], arrays)
        index_format.check(index)
    except (ArithmeticError, LookupError, RecursionError, TypeError) as error:
        raise ValueError(f"{type(error).__name__} ({error})") from error
    return index
