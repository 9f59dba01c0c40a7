"""Files as bytes."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import sys
from collections.abc import Sequence

from cuaug._runtime.native import library
from cuaug.limits import check_bytes

__all__ = ["error_reason", "is_fd_limit_error", "open_regular", "read_bytes", "read_files"]

_CHUNK = 1 << 20
# (None, n) -> n bytes that are yet to be written.
_new_bytes = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t)(
    ("PyBytes_FromStringAndSize", ctypes.pythonapi)
)


def read_bytes(path: str | os.PathLike[str], max_bytes: int = sys.maxsize) -> bytes:
    """All of a file. `open` makes twice as many system calls, and takes the GIL after each.

    Raises:
        DecodeError: it has more than `max_bytes`.
        OSError: it cannot be read, is no regular file, has no room in memory, or no file can have such a name.
    """
    file, size = _opened(path, os.O_RDONLY)
    try:
        check_bytes(size, max_bytes)
        data = os.read(file, size)
        if size and len(data) == size:
            return data
        parts, size = [data], len(data)
        while size <= max_bytes and (part := os.read(file, _CHUNK)):  # it grows, is very large, or one of the system's
            parts.append(part)
            size += len(part)
        check_bytes(size, max_bytes)
        return b"".join(parts)
    except MemoryError as error:
        raise OSError(errno.ENOMEM, f"its {size:,} bytes find no room in memory", os.fspath(path)) from error
    finally:
        os.close(file)


def read_files(paths: Sequence[str], at: ctypes.c_int64, max_bytes: int = sys.maxsize) -> list[bytes | None]:
    """All of several files. `read_bytes` takes the GIL four times for each file.

    Args:
        at: is set to the number of the one that it is at.
        max_bytes: files that have more are left to `read_bytes`, too.

    Returns:
        None for what is not read here: `read_bytes` reads it, or says what is wrong.
    """
    count = len(paths)
    files, sizes = (ctypes.c_int32 * count)(), (ctypes.c_int64 * count)()
    many = ctypes.c_char_p * count
    library.cuaug_open_files(many(*map(_encoded, paths)), count, files, sizes, ctypes.byref(at))
    try:
        for i, size in enumerate(sizes):
            if size > max_bytes:
                os.close(files[i])
                files[i], sizes[i] = -1, 0
        made = [_new_bytes(None, size) if size else b"" for size in sizes]
    except MemoryError:
        for file in files:
            if file >= 0:
                os.close(file)
        return [None] * count
    library.cuaug_read_files(files, count, many(*made), sizes, ctypes.byref(at))
    return [data if size else None for data, size in zip(made, sizes, strict=True)]


def _encoded(path: str) -> bytes:
    """As the system takes it; nothing where no file can have such a name."""
    try:
        name = os.fsencode(path)
    except ValueError:
        return b""
    return b"" if b"\0" in name else name


def open_regular(path: str | os.PathLike[str], flags: int) -> int:
    """A descriptor of a regular file: as the `opener` of `open`, for what would wait at a pipe.

    Raises:
        OSError: it cannot be opened, is no regular file, or no file can have such a name.
    """
    return _opened(path, flags)[0]


def _opened(path: str | os.PathLike[str], flags: int) -> tuple[int, int]:
    """(descriptor, size) of a regular file, or of a folder, whose reader is told what it is."""
    try:
        try:
            file = os.open(path, flags | os.O_NONBLOCK)  # a pipe would wait for its writer
        except BlockingIOError:  # somebody has a lease on it: a regular file, which is waited for
            file = os.open(path, flags)
    except ValueError as error:  # a null character, or half of a surrogate pair
        raise OSError(f"no file can have such a name: {error}") from error
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", os.fspath(path))
    except BaseException:
        os.close(file)
        raise
    return file, status.st_size


def is_fd_limit_error(error: OSError) -> bool:
    """Whether this process, or the system, has as many files open as it may: then it is no fault of this one."""
    return any(getattr(each, "errno", None) in (errno.EMFILE, errno.ENFILE) for each in (error, error.__cause__))


def error_reason(error: OSError) -> str:
    """What was wrong, in words; `strerror` is whatever stood second where a source raised it, or nothing."""
    said = error.strerror
    return said if said and isinstance(said, str) else str(error) or type(error).__name__
