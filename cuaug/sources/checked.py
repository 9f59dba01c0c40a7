"""A source whose bytes are checked each time they are read: a disk that flips a bit gives an error, not a picture."""

from __future__ import annotations

import hashlib
import operator
import os
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from cuaug.errors import DecodeError, LoaderError
from cuaug.limits import DEFAULT_MAX_BYTES
from cuaug.sources._bytes import error_reason, is_fd_limit_error, read_bytes
from cuaug.sources._repr import ReprMixin, some
from cuaug.sources._urls import is_url

if TYPE_CHECKING:
    from cuaug.sources import Source

__all__ = ["ChecksumSource"]

_PASSED_ON = frozenset(
    ["classes", "encoded_size", "fingerprint", "label", "cache_key", "path", "picture_size", "shard_sizes"]
)
_SAMPLES_PER_TASK = 256
# How coreutils writes names that would break a line.
_ESCAPES = (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"))


class ChecksumSource(ReprMixin):
    r"""Another source, whose samples are verified against checksums.

    Damaged JPEGs mostly decode, to a damaged picture. With checksums such a sample is a `DecodeError`, and `on_error`
    says what becomes of it. Where a sample is a path, its file is read here, and the bytes that were verified are the
    bytes that are decoded. Where it is an array, the checksum is over its bytes. Labels are not covered.

        sums = ChecksumSource.compute(source)                      # once, while the data are known to be good
        loader = cuaug.Loader(ChecksumSource(source, sums), ...)
        ChecksumSource(source, sums).save("photos/train.crc32")    # or kept in a file
        loader = cuaug.Loader(ChecksumSource(source, "photos/train.crc32"), ...)

    Args:
        source: any source; what else it has beside `read`, such as `classes`, this one has too.
        checksums: one for each sample, in their order; a mapping from `source.path(i)`; or the path of a text file as
            `sha256sum` writes it, "digest  path" a line, in which relative paths begin in the folder of the file. Each
            is a string of hexadecimal digits, of crc32 also an integer.
        algorithm: "crc32", or any that hashlib has, such as "sha256" or "blake2b".

    Attributes:
        max_bytes: limit for one file.

    Raises:
        LoaderError: an unknown algorithm, a sample without a checksum, or one that cannot be of this algorithm.
    """

    max_bytes = DEFAULT_MAX_BYTES

    def __init__(
        self,
        source: Source,
        checksums: Sequence[str | int] | Mapping[str, str | int] | str | os.PathLike[str],
        algorithm: str = "crc32",
    ) -> None:
        _check(source)
        size = _digest_size(algorithm)
        self.source = source
        self.algorithm = algorithm
        if isinstance(checksums, (str, os.PathLike)):
            path = os.fspath(checksums)
            checksums = _in_order([_resolved(name) for name in _paths(source)], _from_file(path), repr(path))
        elif isinstance(checksums, Mapping):
            checksums = _in_order(_paths(source), checksums, "the mapping")
        if len(checksums) != len(source):
            raise LoaderError(f"{len(source)} samples but {len(checksums)} checksums")
        # (samples, size) uint8: a list of strings would take four times the memory, and be copied into every process.
        digests = b"".join(_parsed(checksum, algorithm, size, i) for i, checksum in enumerate(checksums))
        self._digests = np.frombuffer(digests, dtype=np.uint8).reshape(len(source), size)

    @staticmethod
    def compute(source: Source, algorithm: str = "crc32", *, threads: int | None = None) -> list[str]:
        """The checksums of all samples, in their order, as hexadecimal digits.

        Args:
            source: it is read once, from several threads.
            algorithm: as above.
            threads: None: as many as a `ThreadPoolExecutor` takes.

        Raises:
            DecodeError: a sample cannot be read; the first in their order is named.
            LoaderError: this is no source.
        """
        _check(source)
        _digest_size(algorithm)

        def part(start: int) -> list[str]:
            stop = min(start + _SAMPLES_PER_TASK, len(source))
            return [_digest(algorithm, _read(source, i, ChecksumSource.max_bytes)[0]).hex() for i in range(start, stop)]

        with ThreadPoolExecutor(threads) as pool:
            parts = pool.map(part, range(0, len(source), _SAMPLES_PER_TASK))
            return [checksum for checksums in parts for checksum in checksums]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the checksums as `sha256sum` does, and `sha256sum --check` in the folder of the file verifies them.

        Paths below that folder are written as seen from there, so that both can move together; others are absolute.

        Raises:
            LoaderError: the source has no `path(i)`.
        """
        path = os.path.abspath(path)
        folder = os.path.join(os.path.dirname(path), "")
        lines = []
        for name, digest in zip(_paths(self.source), self._digests, strict=True):
            name = _resolved(name).removeprefix(folder)
            escaped = _escaped(name)
            mark = "" if escaped == name else "\\"
            lines.append(f"{mark}{digest.tobytes().hex()}  {escaped}\n")
        with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            file.writelines(lines)

    def __len__(self) -> int:
        return len(self.source)

    def read(self, index: int) -> tuple[Any, Any]:
        """(bytes or array, label) as they were when the checksums were made.

        Raises:
            DecodeError: they are others, or cannot be read.
        """
        data, label, path = _read(self.source, index, self.max_bytes)
        found, wanted = _digest(self.algorithm, data), self._digests[index].tobytes()
        if found != wanted:
            raise DecodeError(
                f"its {memoryview(data).nbytes} bytes have the {self.algorithm} checksum {found.hex()} instead of "
                f"{wanted.hex()}: they are not what they were when the checksums were made",
                path=path,
                index=index,
            )
        return data, label

    def _which(self) -> str:
        return some([self.source])

    def __getattr__(self, name: str) -> Any:
        if name in _PASSED_ON:
            return getattr(self.source, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _read(source: Source, index: int, max_bytes: int) -> tuple[Any, Any, str | None]:
    """(bytes or array, label, path or None) of a sample."""
    named = getattr(source, "path", None)
    path = None if named is None else os.fspath(named(index))
    try:
        data, label = source.read(index)
        if isinstance(data, (str, os.PathLike)):
            path = os.fspath(data)
            data = read_bytes(path, max_bytes)
    except DecodeError as error:
        raise error.at(path, index) from error
    except OSError as error:
        if is_fd_limit_error(error):
            raise
        raise DecodeError(error_reason(error), path=path, index=index) from error
    return data, label, path


def _digest(algorithm: str, data: Any) -> bytes:
    view = memoryview(data)
    whole = view if view.c_contiguous else view.tobytes()
    if algorithm == "crc32":
        return zlib.crc32(whole).to_bytes(4, "big")
    return hashlib.new(algorithm, whole, usedforsecurity=False).digest()


def _check(source: object) -> None:
    if not hasattr(source, "read") or not hasattr(source, "__len__"):
        raise LoaderError(
            f"source must have __len__ and read(i), got {source!r:.200}; cuaug.sources.open_source makes a source of "
            "files, folders and data sets"
        )


def _digest_size(algorithm: str) -> int:
    """In bytes."""
    if algorithm == "crc32":
        return 4
    try:
        size = hashlib.new(algorithm, usedforsecurity=False).digest_size
    except (TypeError, ValueError):
        size = 0
    if size == 0:  # also of shake_128 and shake_256, whose digests have no length of their own
        known = ", ".join(sorted(name for name in hashlib.algorithms_guaranteed if "shake" not in name))
        raise LoaderError(f"algorithm is crc32 or one of hashlib ({known}), not {algorithm!r}")
    return size


def _parsed(checksum: Any, algorithm: str, size: int, index: int) -> bytes:
    try:
        digest = bytes.fromhex(checksum) if isinstance(checksum, str) else None
        if digest is None and algorithm == "crc32":
            digest = operator.index(checksum).to_bytes(size, "big")
    except (TypeError, ValueError, OverflowError):
        digest = None
    if digest is None or len(digest) != size:
        wanted = f"{2 * size} hexadecimal digits" + (" or an integer of 32 bits" if algorithm == "crc32" else "")
        raise LoaderError(f"the checksum of sample {index} is {checksum!r:.200}; {algorithm} has {wanted}")
    return digest


def _paths(source: Any) -> list[str]:
    if not hasattr(source, "path"):
        raise LoaderError(
            f"{type(source).__name__} has no path(i) to name its samples: keep the checksums as a list, in their order"
        )
    return [os.fspath(source.path(i)) for i in range(len(source))]


def _in_order(names: list[str], checksums: Mapping[str, Any], where: str) -> list[Any]:
    """The checksums of the samples of these names."""
    missing = [name for name in names if name not in checksums]
    if missing:
        raise LoaderError(
            f"{where} has no checksum for {len(missing)} of {len(names)} samples; the first is {missing[0]!r}"
        )
    return [checksums[name] for name in names]


def _from_file(path: str) -> dict[str, str]:
    """Absolute path -> digest."""
    checksums: dict[str, str] = {}
    folder = os.path.dirname(os.path.abspath(path))
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            lines = file.read().split("\n")
    except OSError as error:
        raise LoaderError(f"cannot read {path!r}: {error.strerror}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        digest, _, name = line.partition(" ")
        if name[:1] not in (" ", "*") or not name[1:]:  # a star: read as binary, which is the same here
            raise LoaderError(f"{path!r} line {number}: 'digest  path' should stand here, not {line!r:.200}")
        name = name[1:]
        if digest.startswith("\\"):
            digest, name = digest[1:], _unescaped(name)
        name = _resolved(name, folder)
        if checksums.setdefault(name, digest) != digest:
            raise LoaderError(f"{path!r} line {number}: another checksum of {name!r} stands above")
    return checksums


def _resolved(path: str, folder: str = "") -> str:
    """An absolute path; a url is one."""
    return path if is_url(path) else os.path.abspath(os.path.join(folder, path))


def _escaped(name: str) -> str:
    for plain, escape in _ESCAPES:
        name = name.replace(plain, escape)
    return name


def _unescaped(name: str) -> str:
    pieces = name.split("\\\\")
    for plain, escape in _ESCAPES[1:]:
        pieces = [piece.replace(escape, plain) for piece in pieces]
    return "\\".join(pieces)
