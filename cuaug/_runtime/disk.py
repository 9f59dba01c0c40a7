"""Everything that cuaug writes to disk: indexes, caches and compiled kernels.

Other users may plant files, links and pipes in a directory that cuaug uses. So:

- Files are opened, made, renamed and removed relative to an open directory, so no user can exchange it in between. No
  file is reached through a symbolic link.
- A new file has a random name until it is complete. Then it gets its own name, and replaces at most a regular file of
  this user or root. Other hard links to the replaced file keep its data.
- A file that is written in place has no other hard link, which could be a file of the user's own.
- Only files that cuaug has named are removed, and only regular ones of this user or root.

A file or directory that decides pixels, labels or machine code must be trusted: no user but this one and root could
have written it.

- Its owner is this user or root.
- Its group and others cannot write it. Exception: a sticky directory such as /tmp, in which only a file's owner can
  rename or remove it.
- A symbolic link to a directory belongs to this user or root.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import pwd
import secrets
import stat
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any, BinaryIO

log = logging.getLogger("cuaug")

#: Names of unfinished files begin with this.
TEMPORARY_PREFIX = ".cuaug-"

_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_LISTABLE = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC  # also for syncing
_FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # opening a pipe would wait for its writer
_warned: set[str] = set()


class UntrustedError(OSError):
    """Other users may have written or planted a file or directory.

    Args:
        reason: predicate of a sentence whose subject is the path.
    """

    def __init__(self, reason: str, path: str) -> None:
        super().__init__(errno.EPERM, reason, path)

    def __reduce__(self) -> Any:
        return type(self), (self.strerror, self.filename)

    def __str__(self) -> str:
        return f"{self.filename!r} {self.strerror}"


class Directory:
    """An open directory and the files in it.

    Args:
        path: the directory.
        make_mode: permissions for making the directory and its parents if missing; None: it must exist.
        trusted: refuse a directory that other users can write. Its files are checked in any case.

    Attributes:
        fd: the descriptor. Close it, or use a `with` statement.

    Raises:
        UntrustedError: the directory is not trusted.
        OSError: the directory cannot be made or opened.
    """

    def __init__(self, path: str | os.PathLike[str], *, make_mode: int | None = None, trusted: bool = True) -> None:
        self.path = os.fspath(path)
        if make_mode is not None:
            _make_directories(self.path, make_mode)
        if trusted:
            _check_owner(self.path, os.lstat(self.path))  # lstat: the owner of a symbolic link counts
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
        """Opens a trusted file and returns its descriptor.

        Args:
            flags: as in `os.open`.
            mode: permissions of a new file; the umask applies.
            owners: further trusted user ids.

        Raises:
            UntrustedError: the file is not trusted, or it is opened for writing and has another hard link.
            OSError: the file cannot be opened.
        """
        path = os.path.join(self.path, name)
        try:
            fd = os.open(name, flags | _FILE, mode & 0o644, dir_fd=self.fd)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise UntrustedError("is a symbolic link", path) from error
            raise
        try:
            status = os.fstat(fd)
            _check_file(path, status, owners)
            _check_mode(path, status)
            if flags & (os.O_WRONLY | os.O_RDWR) and status.st_nlink > 1:
                raise UntrustedError(f"has {status.st_nlink} hard links, which would all change: delete it", path)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def read(self, name: str, *, limit: int, owners: Container[int] = ()) -> bytes:
        """Reads a whole trusted file.

        Raises:
            UntrustedError: the file is not trusted.
            OSError: the file cannot be read, or has more than `limit` bytes.
        """
        with open(self.open(name, os.O_RDONLY, owners=owners), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > limit:
                raise OSError(errno.EFBIG, f"it has {size:,} bytes, more than {limit:,}", os.path.join(self.path, name))
            return file.read()

    @contextlib.contextmanager
    def atomic_write(self, name: str, *, mode: int, is_durable: bool = True) -> Iterator[BinaryIO]:
        """Yields a new file, which gets its name at the end of the `with` block, complete or not at all.

        Args:
            mode: permissions, to which the umask does not apply.
            is_durable: the file is complete even after a power failure; False: its reader verifies a checksum.

        Raises:
            UntrustedError: the name belongs to anything but a regular file of this user or root, which stays.
            OSError: the file cannot be written.
        """
        temporary = f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, 0o600, dir_fd=self.fd)
        try:
            with open(fd, "wb") as file:
                yield file
                file.flush()
                os.fchmod(fd, mode)
                if is_durable:
                    os.fsync(fd)
            self._check_own(name)
            os.replace(temporary, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        except BaseException:
            with contextlib.suppress(OSError):  # Ctrl-C may come after the rename
                os.unlink(temporary, dir_fd=self.fd)
            raise
        if is_durable:
            self._sync()

    def remove(self, name: str) -> None:
        """Removes a file if there is one.

        Raises:
            UntrustedError: it is anything but a regular file of this user or root.
            OSError: it cannot be removed.
        """
        if self._check_own(name):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self.fd)

    @contextlib.contextmanager
    def locked(self, name: str, *, wait: bool = True) -> Iterator[int | None]:
        """Locks a file against all other threads and processes; yields its descriptor.

        flock belongs to an open file description, so the file is opened each time: this excludes other threads and
        forked children alike. The system releases the lock if the process is killed. Other users may not even read the
        file, since a reader could hold the lock forever.

        Args:
            wait: wait for the lock; False: yield None if another holds it.

        Raises:
            UntrustedError: the file is not trusted.
            OSError: the file cannot be opened or locked.
        """
        file = self.open(name, os.O_RDWR | os.O_CREAT, mode=0o600)
        is_locked = False
        try:
            try:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
                    is_locked = True
            except OSError as error:
                raise OSError(error.errno, "its file system has no locks (flock)", self.path) from error
            yield file if is_locked else None
        finally:
            if is_locked:
                fcntl.flock(file, fcntl.LOCK_UN)  # a forked child may hold a copy, so closing is not enough
            os.close(file)

    def names(self) -> list[str]:
        """Names of the files and directories."""
        with self._listable() as fd:
            return os.listdir(fd)

    def _sync(self) -> None:
        """Writes the names to disk, if this user can list them and the file system can write them."""
        try:
            with self._listable() as fd:
                os.fsync(fd)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EINVAL):
                raise

    @contextlib.contextmanager
    def _listable(self) -> Iterator[int]:
        """The directory, open for listing and syncing."""
        fd = os.open(".", _LISTABLE, dir_fd=self.fd)
        try:
            yield fd
        finally:
            os.close(fd)

    def _check_own(self, name: str) -> bool:
        """Checks that a file may be replaced or removed. Returns whether there is one."""
        try:
            status = os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENAMETOOLONG):
                raise
            return False
        _check_file(os.path.join(self.path, name), status)
        return True


def cache_directory(name: str = ".", *, make: bool) -> Directory:
    """Opens CUAUG_CACHE_DIR or ~/.cache/cuaug, or the directory `name` in it.

    Args:
        make: make missing directories, accessible to this user alone.

    Raises:
        UntrustedError: the directory is not trusted.
        OSError: the directory is missing or cannot be made.
    """
    try:
        root = Path(os.environ.get("CUAUG_CACHE_DIR") or Path.home() / ".cache" / "cuaug")
    except RuntimeError as error:  # in some containers
        raise FileNotFoundError(errno.ENOENT, "this user has no home directory") from error
    mode = 0o700 if make else None
    with Directory(root, make_mode=mode):
        return Directory(root / name, make_mode=mode)


def warn_once(error: UntrustedError, consequence: str) -> None:
    """Logs a warning, once per directory and process."""
    directory = os.path.dirname(error.filename)
    if directory not in _warned:
        _warned.add(directory)
        log.warning("%s: %s", error, consequence)


def _make_directories(path: str, mode: int) -> None:
    """Makes a directory and its parents with this mode. `os.makedirs` gives parents the default mode."""
    with contextlib.suppress(FileExistsError):
        try:
            os.mkdir(path, mode)
        except FileNotFoundError:
            _make_directories(os.path.dirname(path) or os.curdir, mode)
            os.mkdir(path, mode)


def _check_file(path: str, status: os.stat_result, owners: Container[int] = ()) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UntrustedError(f"is {'a symbolic link' if stat.S_ISLNK(status.st_mode) else 'not a regular file'}", path)
    _check_owner(path, status, owners)


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
        trusted = f"{_user_name(user)} and root are" if user else "root is"
        raise UntrustedError(f"belongs to {_user_name(status.st_uid)}, and only {trusted} trusted", path)


def _user_name(user: int) -> str:
    try:
        return f"user {pwd.getpwuid(user).pw_name!r}"
    except KeyError:
        return f"user id {user}"
