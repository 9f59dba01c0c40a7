"""Indexes of shards: made once, by reading through the shard, then kept on disk.

An index holds arrays that say where things lie in its file. It is kept beside the file, `<name>.cuaug-index`, or, where
nothing can be written there, in CUAUG_CACHE_DIR or the user's cache directory. It belongs to a file of one size,
time of change, beginning and end, and is made anew for any other. Processes that start together may make the same one:
each writes a file of its own and renames it into place, so that a reader never sees half of one.

An index decides which labels the samples have, and it may come from another user or be damaged. So it is read only if
it is trusted (trusted_files.py), and used only if every number in it is within its bounds. Otherwise it is made
anew: no index raises an error.
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

from cuaug._runtime.trusted_files import Directory, UntrustedError, cache_directory, warn_once
from cuaug.errors import LoaderError
from cuaug.sources._bytes import open_regular

__all__ = ["SUFFIX", "Index", "Kind", "Stamp", "check_spans", "indexes", "is_text"]

log = logging.getLogger("cuaug")

# Raise it when an index gets another form: those on disk are then made anew.
_VERSION = 3
#: What the name of an index adds to that of its file.
SUFFIX = ".cuaug-index"

# What of a file's content tells it from another as large and as old. A tar ends with up to 11 kB of zeros.
_HEAD_BYTES, _TAIL_BYTES = 4096, 16_384
# Limit of an index's size in bytes: these, and 8 for each byte of its file. A member of 512 bytes or more takes 36, a
# record of 16 bytes or more takes 16, and JSON writes a byte of a name as at most 6.
_EXTRA_BYTES = 65_536


class Stamp(NamedTuple):
    """What tells one state of a file from another."""

    size: int
    mtime_ns: int
    checksum: int

    @classmethod
    def of(cls, number: int) -> Stamp:
        """Of an open file, by its descriptor."""
        status = os.fstat(number)
        checksum = zlib.crc32(os.pread(number, _HEAD_BYTES, 0))
        checksum = zlib.crc32(os.pread(number, _TAIL_BYTES, max(0, status.st_size - _TAIL_BYTES)), checksum)
        return cls(status.st_size, status.st_mtime_ns, checksum)


@dataclass(frozen=True)
class Index:
    """Where things lie in a file.

    Attributes:
        stamp: of the file that this is about.
        notes: what JSON can hold.
        arrays: one-dimensional.
    """

    stamp: Stamp
    notes: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


class Kind(NamedTuple):
    """A kind of index.

    Attributes:
        name: other kinds of index beside the same file are not taken for this one.
        scan: (path, open file) -> (notes, arrays).
        dtypes: of each array, as `numpy.dtype.str` writes them.
        check: raises ValueError, KeyError or TypeError unless all values are within the bounds that `scan` keeps to.
            The arrays have these dtypes and one dimension.
    """

    name: str
    scan: Callable[[str, BinaryIO], tuple[dict[str, Any], dict[str, NDArray[Any]]]]
    dtypes: Mapping[str, str]
    check: Callable[[Index], None]


def check_spans(offsets: NDArray[np.int64], sizes: NDArray[np.int64], begin: int, end: int) -> None:
    """Refuses spans of a file that do not lie between two of its bytes.

    Args:
        offsets, sizes: (n,) bytes.

    Raises:
        ValueError: a span lies outside, has a negative size, or there are not as many sizes as offsets.
    """
    if len(offsets) != len(sizes):
        raise ValueError("its arrays have different lengths")
    # No sum can overflow: each size is compared with the room behind its offset.
    if ((offsets < begin) | (offsets > end) | (sizes < 0) | (sizes > end - offsets)).any():
        raise ValueError("it says that data lies outside the file")


def is_text(value: Any) -> bool:
    """Whether a value that JSON gave is a list of strings."""
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def indexes(kind: Kind, paths: Sequence[str]) -> list[Index]:
    """The indexes of some files, in their order; those that are nowhere yet are made and kept.

    Raises:
        LoaderError: a file cannot be read, or changed while it was; and what `kind.scan` raises.
    """
    found: dict[int, Index] = {}
    # In an order of its own, so that processes that start together make different indexes and find each other's.
    for i in random.Random().sample(range(len(paths)), len(paths)):
        try:
            with open(paths[i], "rb", opener=open_regular) as file:
                found[i] = _load(kind, paths[i], file) or _make(kind, paths[i], file)
        except OSError as error:
            raise LoaderError(f"cannot read {paths[i]!r}: {error.strerror or error}") from error
    return [found[i] for i in range(len(paths))]


def _make(kind: Kind, path: str, file: BinaryIO) -> Index:
    stamp = Stamp.of(file.fileno())
    index = Index(stamp, *kind.scan(path, file))
    if Stamp.of(file.fileno()) != stamp:
        raise LoaderError(f"{path!r} changed while its index was made: wait until it is written")
    log.info("made the index of %s", path)
    data = _pack(kind, index)
    mode = os.fstat(file.fileno()).st_mode  # whoever may read the shard may read its index
    for beside in (True, False):
        try:
            with (
                _open_place(path, beside, make=True) as (directory, name),
                directory.atomic_write(name, mode=mode) as new,
            ):
                new.write(data)
            return index
        except OSError as error:
            reason = error
    if not isinstance(reason, UntrustedError):  # of which there is a warning already
        log.warning("the index of %s cannot be kept, and will be made anew each time: %s", path, reason)
    return index


@contextlib.contextmanager
def _open_place(path: str, beside: bool, *, make: bool) -> Iterator[tuple[Directory, str]]:
    """Where the index of a file may be, and its name there: beside the file, or in the user's cache directory."""
    if beside:
        folder, name = os.path.split(path)
        with Directory(folder or os.curdir, trusted=False) as directory:
            yield directory, name + SUFFIX
    else:
        name = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:32]
        with cache_directory("indexes", make=make) as directory:
            yield directory, name + SUFFIX


def _pack(kind: Kind, index: Index) -> bytes:
    """A line with the checksum of the rest, a line of JSON, then the arrays' bytes."""
    head = {
        "kind": [kind.name, _VERSION],
        "stamp": index.stamp,
        "notes": index.notes,
        "lengths": {name: len(index.arrays[name]) for name in kind.dtypes},
    }
    body = b"".join(index.arrays[name].astype(dtype, copy=False).tobytes() for name, dtype in kind.dtypes.items())
    rest = b"\n".join([json.dumps(head).encode(), body])
    return b"%08x\n" % zlib.crc32(rest) + rest


def _load(kind: Kind, path: str, file: BinaryIO) -> Index | None:
    """The index of a file, if there is a whole one that fits and is trusted."""
    stamp, owner = Stamp.of(file.fileno()), os.fstat(file.fileno()).st_uid
    for beside in (True, False):
        try:
            with _open_place(path, beside, make=False) as (directory, name):
                # The shard's owner could as well write other labels into the shard itself.
                owners = (owner,) if beside else ()
                data = directory.read(name, limit=_EXTRA_BYTES + 8 * stamp.size, owners=owners)
            index = _unpack(kind, stamp, data)
        except UntrustedError as error:
            warn_once(error, "this index and others like it there are not used but made anew")
        except OSError:  # mostly there is none
            continue
        except ValueError as error:
            log.warning("the index of %s is damaged and is made anew: %s", path, error)
        else:
            if index is not None:
                return index
    return None


def _unpack(kind: Kind, stamp: Stamp, data: bytes) -> Index | None:
    """The opposite of `_pack`; None for an index of another kind, version or state of the file.

    Raises:
        ValueError: it is damaged.
    """
    checksum, _, rest = data.partition(b"\n")
    if checksum != b"%08x" % zlib.crc32(rest):
        raise ValueError("its checksum is wrong")
    head, _, body = rest.partition(b"\n")
    try:
        fields = json.loads(head)
        if fields["kind"] != [kind.name, _VERSION] or tuple(fields["stamp"]) != stamp:
            return None
        arrays, start = {}, 0
        for name, dtype in kind.dtypes.items():
            arrays[name] = np.frombuffer(body, dtype, fields["lengths"][name], start)
            start += arrays[name].nbytes
        if start != len(body):
            raise ValueError("it is too long")
        index = Index(stamp, fields["notes"], arrays)
        kind.check(index)
    except (ArithmeticError, LookupError, RecursionError, TypeError) as error:
        raise ValueError(f"{type(error).__name__} ({error})") from error
    return index
