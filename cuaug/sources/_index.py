"""Indexes of shards: made once, by reading through the shard, then kept on disk.

An index holds arrays that say where things lie in its file. It is kept beside the file, `<name>.cuaug-index`, or, where
nothing can be written there, in CUAUG_CACHE_DIR or the user's cache directory. It belongs to a file of one size,
time of change, beginning and end, and is made anew for any other. Processes that start together may make the same one:
each writes a file of its own and renames it into place, so that a reader never sees half of one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import random
import stat
import tempfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cuaug.errors import LoaderError
from cuaug.sources._bytes import open_regular, read_bytes

__all__ = ["SUFFIX", "Index", "Stamp", "indexes"]

log = logging.getLogger("cuaug")

# Raise it when an index gets another form: those on disk are then made anew.
_VERSION = 2
#: What the name of an index adds to that of its file.
SUFFIX = ".cuaug-index"

# What of a file's content tells it from another as large and as old. A tar ends with up to 11 kB of zeros.
_HEAD_BYTES, _TAIL_BYTES = 4096, 16_384


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


Scan = Callable[[str, BinaryIO], tuple[dict[str, Any], dict[str, NDArray[Any]]]]


def indexes(kind: str, paths: Sequence[str], scan: Scan) -> list[Index]:
    """The indexes of some files, in their order; those that are nowhere yet are made and kept.

    Args:
        kind: what `scan` makes; another kind of index beside the same file is not taken for it.
        scan: (path, open file) -> (notes, arrays).

    Raises:
        LoaderError: a file cannot be read, or changed while it was; and what `scan` raises.
    """
    found: dict[int, Index] = {}
    # In an order of its own, so that processes that start together make different indexes and find each other's.
    for i in random.Random().sample(range(len(paths)), len(paths)):
        try:
            with open(paths[i], "rb", opener=open_regular) as file:
                found[i] = _load(kind, paths[i], Stamp.of(file.fileno())) or _make(kind, paths[i], file, scan)
        except OSError as error:
            raise LoaderError(f"cannot read {paths[i]!r}: {error.strerror or error}") from error
    return [found[i] for i in range(len(paths))]


def _make(kind: str, path: str, file: BinaryIO, scan: Scan) -> Index:
    stamp = Stamp.of(file.fileno())
    index = Index(stamp, *scan(path, file))
    if Stamp.of(file.fileno()) != stamp:
        raise LoaderError(f"{path!r} changed while its index was made: wait until it is written")
    log.info("made the index of %s", path)
    data = _pack(kind, index)
    for place in _places(path):
        try:
            _write(place, data, stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o666)
            return index
        except OSError as error:
            reason = error
    log.warning("the index of %s cannot be kept, and will be made anew each time: %s", path, reason)
    return index


def _places(path: str) -> list[Path]:
    """Where the index of a file may be, the best place first."""
    name = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:32] + SUFFIX
    places = [Path(path + SUFFIX)]
    with contextlib.suppress(RuntimeError):  # nobody's home, as in some containers
        places.append(Path(os.environ.get("CUAUG_CACHE_DIR") or Path.home() / ".cache" / "cuaug") / "indexes" / name)
    return places


def _write(place: Path, data: bytes, mode: int) -> None:
    """Puts a file in place, whole. `mode` is who may read it: whoever may read the shard."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=place.parent, prefix=".", suffix=SUFFIX, delete=False) as file:
        try:
            file.write(data)
            os.fchmod(file.fileno(), mode)
            file.flush()
            os.replace(file.name, place)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):  # a Ctrl-C may come when it is in its place already
                os.unlink(file.name)
            raise


def _pack(kind: str, index: Index) -> bytes:
    """A line with the checksum of the rest, a line of JSON, then the arrays' bytes."""
    head = {
        "kind": [kind, _VERSION],
        "stamp": index.stamp,
        "notes": index.notes,
        "arrays": [[name, array.dtype.str, len(array)] for name, array in index.arrays.items()],
    }
    rest = b"\n".join([json.dumps(head).encode(), b"".join(array.tobytes() for array in index.arrays.values())])
    return b"%08x\n" % zlib.crc32(rest) + rest


def _load(kind: str, path: str, stamp: Stamp) -> Index | None:
    """The index of a file, if there is a whole one that fits."""
    for place in _places(path):
        try:
            checksum, _, rest = read_bytes(place).partition(b"\n")
            if checksum != b"%08x" % zlib.crc32(rest):
                continue
            head, _, body = rest.partition(b"\n")
            fields = json.loads(head)
            if fields["kind"] == [kind, _VERSION] and tuple(fields["stamp"]) == stamp:
                arrays, start = {}, 0
                for name, dtype, count in fields["arrays"]:
                    arrays[name] = np.frombuffer(body, dtype, count, start)
                    start += arrays[name].nbytes
                return Index(stamp, fields["notes"], arrays)
        except (OSError, ValueError, KeyError, TypeError):  # none there, or of another form: it is made anew
            continue
    return None
