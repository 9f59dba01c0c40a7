"""Files that cuaug writes and later believes: indexes of shards, compiled kernels, decoded pixels.

Other users may plant files in a directory that cuaug uses. A file or directory is trusted only if nobody but this user
and root could have written it:

- It belongs to this user or to root.
- Neither its group nor others may write it. A sticky directory (as /tmp) is an exception: there only the owner of a
  file may rename or remove it.
- A file is regular, and its name is no symbolic link. A symbolic link to a directory belongs to this user or to root.

Files are opened relative to a directory that is held open and was checked: nobody can exchange it in between. New files
have random names until they are whole, then replace the old file. Group and others may never write them.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import pwd
import secrets
import stat
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any, BinaryIO

__all__ = ["Directory", "UntrustedError", "cache_directory", "warn_once"]

log = logging.getLogger("cuaug")

_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # opening a pipe would wait for its writer
_warned: set[str] = set()


class UntrustedError(OSError):
    """Other users may have written a file or directory.

    Args:
        reason: verb and object of a sentence about the path.
    """

    def __init__(self, reason: str, path: str) -> None:
        super().__init__(errno.EPERM, reason, path)

    def __reduce__(self) -> Any:
        return type(self), (self.strerror, self.filename)

    def __str__(self) -> str:
        return f"{self.filename!r} {self.strerror}"


class Directory:
    """A directory that is held open, and the files in it.

    Args:
        path: of the directory.
        make: permissions to make it with, and its parents, where it is missing; None: it must exist.
        trusted: refuse a directory that other users may write. Its files are checked in any case.

    Attributes:
        fd: its descriptor. The caller closes it, or uses a `with` statement.

    Raises:
        UntrustedError: it is not trusted.
        OSError: it cannot be made or opened.
    """

    def __init__(self, path: str | os.PathLike[str], *, make: int | None = None, trusted: bool = True) -> None:
        self.path = os.fspath(path)
        if make is not None:
            _make(self.path, make)
        if trusted:
            _check_owner(self.path, os.lstat(self.path))  # a symbolic link, if it is one: who made it?
        self.fd = os.open(self.path, _DIRECTORY)
        try:
            if trusted:
                _check_directory(self.path, os.fstat(self.fd))
        except BaseException:
            os.close(self.fd)
            raise

    def __enter__(self) -> Directory:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    def open(self, name: str, flags: int, *, mode: int = 0o644, owners: Container[int] = ()) -> int:
        """Descriptor of a trusted file.

        Args:
            flags: as of `os.open`.
            mode: permissions of a file that is made; the umask applies.
            owners: user ids that are trusted besides this user and root.

        Raises:
            UntrustedError: the file is not trusted.
            OSError: it cannot be opened.
        """
        path = os.path.join(self.path, name)
        try:
            fd = os.open(name, flags | _FILE, mode & 0o644, dir_fd=self.fd)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise UntrustedError("is a symbolic link", path) from error
            raise
        try:
            _check_file(path, os.fstat(fd), owners)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def read(self, name: str, *, limit: int, owners: Container[int] = ()) -> bytes:
        """All bytes of a trusted file.

        Raises:
            UntrustedError: the file is not trusted.
            OSError: it cannot be read, or has more than `limit` bytes.
        """
        with open(self.open(name, os.O_RDONLY, owners=owners), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > limit:
                raise OSError(errno.EFBIG, f"it has {size:,} bytes, more than {limit:,}", os.path.join(self.path, name))
            return file.read()

    @contextlib.contextmanager
    def atomic_write(self, name: str, *, mode: int) -> Iterator[BinaryIO]:
        """A new file to write, which takes its name at the end of the `with` block, whole or not at all.

        Args:
            mode: its permissions, less the right of group and others to write; the umask does not apply.

        Raises:
            UntrustedError: the name is a file of another user, which stays.
            OSError: it cannot be written.
        """
        unfinished = f".{secrets.token_hex(8)}{os.path.splitext(name)[1]}"
        fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, 0o600, dir_fd=self.fd)
        try:
            with open(fd, "wb") as file:
                yield file
                os.fchmod(fd, mode & 0o644)
            with contextlib.suppress(FileNotFoundError):
                there = os.stat(name, dir_fd=self.fd, follow_symlinks=False)
                _check_owner(os.path.join(self.path, name), there)
            os.replace(unfinished, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        except BaseException:
            with contextlib.suppress(OSError):  # a Ctrl-C may come after the rename, an error of the disk at any time
                os.unlink(unfinished, dir_fd=self.fd)
            raise


def cache_directory(name: str = ".", *, make: bool) -> Directory:
    """CUAUG_CACHE_DIR or ~/.cache/cuaug, or the directory `name` in it. Directories are made for this user alone.

    Raises:
        UntrustedError: it is not trusted.
        OSError: it is missing, or cannot be made.
    """
    try:
        root = Path(os.environ.get("CUAUG_CACHE_DIR") or Path.home() / ".cache" / "cuaug")
    except RuntimeError as error:  # in some containers
        raise FileNotFoundError(errno.ENOENT, "this user has no home directory") from error
    mode = 0o700 if make else None
    with Directory(root, make=mode):
        return Directory(root / name, make=mode)


def warn_once(error: UntrustedError, consequence: str) -> None:
    """Logs a warning, once for each directory in this process."""
    directory = os.path.dirname(error.filename)
    if directory not in _warned:
        _warned.add(directory)
        log.warning("%s: %s", error, consequence)


def _make(path: str, mode: int) -> None:
    """`os.makedirs` gives parents the permissions that the umask leaves."""
    with contextlib.suppress(FileExistsError):
        try:
            os.mkdir(path, mode)
        except FileNotFoundError:
            _make(os.path.dirname(path) or os.curdir, mode)
            os.mkdir(path, mode)


def _check_file(path: str, status: os.stat_result, owners: Container[int]) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UntrustedError("is not a regular file", path)
    _check_owner(path, status, owners)
    _check_mode(path, status)


def _check_directory(path: str, status: os.stat_result) -> None:
    _check_owner(path, status)
    if not status.st_mode & stat.S_ISVTX:
        _check_mode(path, status)


def _check_mode(path: str, status: os.stat_result) -> None:
    if status.st_mode & 0o022:
        permissions = f"{stat.S_IMODE(status.st_mode):04o}"
        raise UntrustedError(f"can be written by other users (mode {permissions}): run `chmod go-w {path}`", path)


def _check_owner(path: str, status: os.stat_result, owners: Container[int] = ()) -> None:
    user = os.geteuid()
    if status.st_uid not in (user, 0) and status.st_uid not in owners:
        trusted = f"{_named(user)} and root are" if user else "root is"
        raise UntrustedError(f"belongs to {_named(status.st_uid)}, and only {trusted} trusted", path)


def _named(user: int) -> str:
    try:
        return f"user {pwd.getpwuid(user).pw_name!r}"
    except KeyError:
        return f"user id {user}"
