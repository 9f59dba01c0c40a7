"""Verifies a source's bytes on every read: a flipped bit on disk gives an error, not a damaged image."""

from __future__ import annotations

import hashlib
import operator
import os
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from cuaug._runtime.disk import Directory
from cuaug.errors import ArgumentError, DecodeError, SourceError
from cuaug.limits import DEFAULT_MAX_BYTES
from cuaug.remote.urls import is_url
from cuaug.sources._bytes import error_reason, is_fd_limit_error, read_bytes, read_metadata
from cuaug.sources._repr import ReprMixin, describe_sources
from cuaug.sources.videos import ClipRequest

if TYPE_CHECKING:
    from cuaug.sources.source import Source

__all__ = ["ChecksumSource", "checksum_line"]

_FORWARDED = frozenset(
    ["classes", "clip_sampler", "encoded_size", "fingerprint", "label", "cache_key", "path", "picture_size"]
    + ["read_ahead", "remote_counts", "shard_sizes"]
)
_SAMPLES_PER_TASK = 256
# coreutils escapes names that would break a line.
_ESCAPES = (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"))


class ChecksumSource(ReprMixin):
    r"""Another source, whose samples are verified against checksums.

    Damaged JPEGs mostly decode, to a damaged image. With checksums, such a sample is a `DecodeError`, and `on_error`
    decides what follows. If a sample is a path, its file is read here, so that the verified bytes are the decoded
    bytes. If it is an array, the checksum covers its bytes. Labels are not covered. Clips are decoded from the verified
    bytes of their video, which are read as a whole.

        sums = ChecksumSource.compute(source)                      # once, while the data are known to be good
        loader = cuaug.Loader(ChecksumSource(source, sums), ...)
        ChecksumSource(source, sums).save("photos/train.crc32")    # or kept in a file
        loader = cuaug.Loader(ChecksumSource(source, "photos/train.crc32"), ...)

    Args:
        source: any source. Its optional members, such as `classes`, remain available.
        checksums: one per sample, in sample order; a mapping from `source.path(i)`; or the path of a text file as
            `sha256sum` writes it, "digest  path" per line, with paths relative to that file's folder. Each checksum is
            a string of hexadecimal digits; for crc32 also an integer.
        algorithm: "crc32", or any algorithm of hashlib, such as "sha256" or "blake2b".

    Attributes:
        max_bytes: limit on one file.

    Raises:
        LoaderError: the algorithm is unknown, a sample has no checksum, or a checksum does not fit the algorithm.
    """

    max_bytes = DEFAULT_MAX_BYTES

    def __init__(
        self,
        source: Source,
        checksums: Sequence[str | int] | Mapping[str, str | int] | str | os.PathLike[str],
        algorithm: str = "crc32",
    ) -> None:
        _check_source(source)
        size = _digest_size(algorithm)
        self.source = source
        self.algorithm = algorithm
        if isinstance(checksums, (str, os.PathLike)):
            path = os.fspath(checksums)
            checksums = _match_checksums(list(map(_to_absolute, _paths(source))), _parse_file(path), repr(path))
        elif isinstance(checksums, Mapping):
            checksums = _match_checksums(_paths(source), checksums, "the mapping")
        if len(checksums) != len(source):
            raise ArgumentError(
                f"checksums has {len(checksums)} entries for {len(source)} samples: give one per sample"
            )
        # (samples, size) uint8: a list of strings would take four times the memory, in every process.
        digests = b"".join(_parse_checksum(checksum, algorithm, size, i) for i, checksum in enumerate(checksums))
        self._digests = np.frombuffer(digests, dtype=np.uint8).reshape(len(source), size)

    @staticmethod
    def compute(source: Source, algorithm: str = "crc32", *, threads: int | None = None) -> list[str]:
        """Returns the checksums of all samples, in sample order, as hexadecimal digits.

        Args:
            source: read once, from several threads.
            algorithm: as above.
            threads: number of threads; None: the default of `ThreadPoolExecutor`.

        Raises:
            DecodeError: a sample cannot be read; the message names the first.
            LoaderError: `source` is no source.
        """
        _check_source(source)
        _digest_size(algorithm)

        def compute_slice(start: int) -> list[str]:
            stop = min(start + _SAMPLES_PER_TASK, len(source))
            return [_digest(algorithm, _read(source, i, ChecksumSource.max_bytes)[0]).hex() for i in range(start, stop)]

        with ThreadPoolExecutor(threads) as pool:
            slices = pool.map(compute_slice, range(0, len(source), _SAMPLES_PER_TASK))
            return [checksum for checksums in slices for checksum in checksums]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the checksums in the format of `sha256sum`.

        Run `sha256sum --check` in the file's folder to verify them. Paths below that folder are written relative to it,
        so that both can move together; others are absolute.

        Raises:
            LoaderError: the source has no `path(i)`.
            OSError: the file cannot be written, or `path` is anything but a regular file.
        """
        path = os.path.abspath(path)
        folder = os.path.join(os.path.dirname(path), "")
        lines = []
        for name, digest in zip(_paths(self.source), self._digests, strict=True):
            line = _format_line(_to_absolute(name).removeprefix(folder), digest.tobytes())
            try:
                lines.append(line.encode("utf-8", "surrogateescape"))
            except UnicodeEncodeError as error:
                raise SourceError(f"{name!r} cannot be written to {path!r}: no file can have such a name") from error
        with Directory(folder, trusted=False) as directory, directory.atomic_write(os.path.basename(path)) as file:
            file.writelines(lines)

    def __len__(self) -> int:
        return len(self.source)

    def read(self, index: int) -> tuple[Any, Any]:
        """Returns (bytes or array, label), verified; or (a clip's request, label), verified when its video is read.

        Raises:
            DecodeError: the checksum does not match, or the sample cannot be read.
        """
        if getattr(self, "clip_sampler", None) is not None:
            request, label = self.source.read(index)
            return request._replace(verify=partial(self._verify, index, request.path)), label
        data, label, path = _read(self.source, index, self.max_bytes)
        self._verify(index, path, data)
        return data, label

    def _verify(self, index: int, path: str | None, data: Any) -> None:
        actual, expected = _digest(self.algorithm, data), self._digests[index].tobytes()
        if actual != expected:
            raise DecodeError(
                f"its {memoryview(data).nbytes} bytes have the {self.algorithm} checksum {actual.hex()} instead of "
                f"{expected.hex()}: they have changed since the checksums were made",
                path=path,
                index=index,
            )

    def _repr_detail(self) -> str:
        return describe_sources([self.source])

    def __getattr__(self, name: str) -> Any:
        if name in _FORWARDED:
            return getattr(self.source, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def checksum_line(name: str, data: bytes) -> str:
    """A sample's line in a file of CRC-32 checksums; `name` is relative to the file's folder."""
    return _format_line(name, _digest("crc32", data))


def _format_line(name: str, digest: bytes) -> str:
    escaped = _escape(name)
    prefix = "" if escaped == name else "\\"
    return f"{prefix}{digest.hex()}  {escaped}\n"


def _read(source: Source, index: int, max_bytes: int) -> tuple[Any, Any, str | None]:
    """Returns (bytes or array, label, path or None) of a sample."""
    path_of = getattr(source, "path", None)
    path = None if path_of is None else os.fspath(path_of(index))
    try:
        data, label = source.read(index)
        if isinstance(data, ClipRequest):
            data = data.path
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
    contiguous = view if view.c_contiguous else view.tobytes()
    if algorithm == "crc32":
        return zlib.crc32(contiguous).to_bytes(4, "big")
    return hashlib.new(algorithm, contiguous, usedforsecurity=False).digest()


def _check_source(source: object) -> None:
    if not hasattr(source, "read") or not hasattr(source, "__len__"):
        raise SourceError(
            f"source must have __len__ and read(i), got {source!r:.200}; cuaug.sources.open_source opens files, "
            "folders and datasets as sources"
        )


def _digest_size(algorithm: str) -> int:
    """Size of a digest in bytes."""
    if algorithm == "crc32":
        return 4
    try:
        size = hashlib.new(algorithm, usedforsecurity=False).digest_size
    except (TypeError, ValueError):
        size = 0
    if size == 0:  # shake_128 and shake_256 have no fixed digest size
        known = ", ".join(sorted(name for name in hashlib.algorithms_guaranteed if "shake" not in name))
        raise ArgumentError(f"algorithm must be crc32 or one of hashlib ({known}), not {algorithm!r}")
    return size


def _parse_checksum(checksum: Any, algorithm: str, size: int, index: int) -> bytes:
    try:
        digest = bytes.fromhex(checksum) if isinstance(checksum, str) else None
        if digest is None and algorithm == "crc32":
            digest = operator.index(checksum).to_bytes(size, "big")
    except (TypeError, ValueError, OverflowError):
        digest = None
    if digest is None or len(digest) != size:
        expected = f"{2 * size} hexadecimal digits" + (" or a 32-bit integer" if algorithm == "crc32" else "")
        raise ArgumentError(f"checksums: that of sample {index} is {checksum!r:.200}; {algorithm} needs {expected}")
    return digest


def _paths(source: Any) -> list[str]:
    if not hasattr(source, "path"):
        raise SourceError(
            f"{type(source).__name__} has no path(i) to name its samples: keep the checksums as a list, in sample order"
        )
    return [os.fspath(source.path(i)) for i in range(len(source))]


def _match_checksums(names: list[str], checksums: Mapping[str, Any], where: str) -> list[Any]:
    """Returns the checksums of these names, in their order."""
    missing = [name for name in names if name not in checksums]
    if missing:
        raise SourceError(
            f"{where} has no checksum for {len(missing)} of {len(names)} samples; the first is {missing[0]!r}"
        )
    return [checksums[name] for name in names]


def _parse_file(path: str) -> dict[str, str]:
    """Parses a checksum file into {absolute path: digest}."""
    checksums: dict[str, str] = {}
    folder = os.path.dirname(os.path.abspath(path))
    lines = read_metadata(path).decode("utf-8", "surrogateescape").split("\n")
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        digest, _, name = line.partition(" ")
        if name[:1] not in (" ", "*") or not name[1:]:  # a star marks binary mode, which is no different here
            raise SourceError(f"{path!r} line {number}: expected 'digest  path', got {line!r:.200}")
        name = name[1:]
        if digest.startswith("\\"):
            digest, name = digest[1:], _unescape(name)
        name = _to_absolute(name, folder)
        if checksums.setdefault(name, digest) != digest:
            raise SourceError(f"{path!r} line {number}: {name!r} has another checksum above")
    return checksums


def _to_absolute(path: str, folder: str = "") -> str:
    """Makes a path absolute; a URL stays as it is."""
    return path if is_url(path) else os.path.abspath(os.path.join(folder, path))


def _escape(name: str) -> str:
    for plain, escape in _ESCAPES:
        name = name.replace(plain, escape)
    return name


def _unescape(name: str) -> str:
    pieces = name.split("\\\\")
    for plain, escape in _ESCAPES[1:]:
        pieces = [piece.replace(escape, plain) for piece in pieces]
    return "\\".join(pieces)
