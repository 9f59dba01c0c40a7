"""Reads whole files as bytes, with few system calls."""

from __future__ import annotations

import errno
import os
import stat
import sys

from cuaug.errors import DecodeError, SourceError
from cuaug.limits import check_bytes

__all__ = ["error_reason", "is_fd_limit_error", "open_regular", "read_bytes", "read_metadata"]

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
    return reason if reason and isinstance(reason, str) else str(error) or type(error).__name__
