"""Files that appear complete or not at all, also when processes are killed, and locks that die with their process.

A set of shards has a partial folder while it is made. Each unfinished file in it has an exclusive `flock`, which the
kernel releases when its process ends, so a file that a killed process left is taken over and overwritten. A finished
file reaches the disk (fsync) before it gets its name (rename), and its name before the next file is written.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import io
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["PartialFile", "claim_file", "open_partial_folder", "sync_folder"]

_LOCK = "lock"


class PartialFile(io.RawIOBase):
    """A new file under a temporary name; it can only be written from its beginning to its end.

    Attributes:
        temporary: its path until `publish`.
        size: bytes written.
        digest: hashlib object of the bytes written, SHA-256.
    """

    def __init__(self, fd: int, temporary: Path) -> None:
        super().__init__()
        self._fd, self.temporary = fd, temporary
        self.size, self.digest = 0, hashlib.sha256()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def tell(self) -> int:
        return self.size

    def write(self, data: bytes) -> int:  # type: ignore[override]
        """Writes all bytes.

        Raises:
            OSError: the disk is full or fails.
            ValueError: the file is closed; its descriptor may be another file's by now.
        """
        if self.closed:
            raise ValueError(f"{str(self.temporary)!r} is closed")
        view = memoryview(data).cast("B")
        self.digest.update(view)
        self.size += len(view)
        size = len(view)
        try:
            while len(view):
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.temporary)) from error
        return size

    def publish(self, target: Path) -> None:
        """Writes the file to disk, then gives it its name; an existing file is replaced."""
        os.fsync(self._fd)
        os.replace(self.temporary, target)
        sync_folder(target.parent)

    def discard(self) -> None:
        """Removes the file, which is still locked."""
        self.temporary.unlink()

    def close(self) -> None:
        """Closes the file and releases its lock; an unpublished one stays, for a later claim."""
        if not self.closed:
            os.close(self._fd)
        super().close()


def claim_file(temporary: Path, *, wait: bool) -> PartialFile | None:
    """Opens a new, empty file that this process alone may write.

    Args:
        wait: wait for a process that writes it now, rather than return None.

    Raises:
        OSError: the file cannot be opened, or its file system has no locks.
    """
    while True:
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        file = PartialFile(fd, temporary)
        try:
            _lock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), temporary)
            # The process that had the lock may have renamed the file: it is now a finished one.
            if _has_path(fd, temporary):
                os.ftruncate(fd, 0)
                return file
        except BlockingIOError:
            file.close()
            return None
        except BaseException:
            file.close()
            raise
        file.close()


@contextlib.contextmanager
def open_partial_folder(folder: Path, plan: Path, manifest: Path) -> Iterator[None]:
    """Makes the partial folder if it is missing; the last process to leave removes it unless it is needed.

    It is needed from the moment when the plan exists until the manifest exists.
    """
    fd = _lock_folder(folder)
    try:
        yield
    finally:
        try:
            if manifest.exists() or not plan.exists():  # finished, or not begun
                with contextlib.suppress(BlockingIOError):  # another process is in the folder, and removes it later
                    _lock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, folder)
                    _remove(folder)
        finally:
            os.close(fd)


def sync_folder(folder: Path) -> None:
    """Writes a folder's entries to disk."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _lock_folder(folder: Path) -> int:
    """A descriptor with a shared lock on the folder's lock file."""
    while True:
        folder.mkdir(exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # another process has removed the folder since
            fd = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                _lock(fd, fcntl.LOCK_SH, folder)
                if _has_path(fd, folder / _LOCK):
                    return fd
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)


def _lock(fd: int, operation: int, path: Path) -> None:
    try:
        fcntl.flock(fd, operation)
    except OSError as error:
        if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            reason = "its file system has no locks (flock): write to another one, then copy the set"
            raise OSError(error.errno, reason, str(path)) from error
        raise


def _remove(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name != _LOCK:
            path.unlink()
    (folder / _LOCK).unlink()
    with contextlib.suppress(OSError):  # a process that starts now has made a new lock file
        folder.rmdir()


def _has_path(fd: int, path: Path) -> bool:
    """Whether an open file still has this path."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(status, os.fstat(fd))
