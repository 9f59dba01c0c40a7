"""A remote object as a file: for scans of shards from front to back, and for libraries that read files."""

from __future__ import annotations

import io
from typing import Any

from cuaug.remote.object_store import ObjectStore
from cuaug.remote.transport import RemoteObject

__all__ = ["RemoteFile"]

# A jump within this distance costs less as part of one request than as a second request: 1 MiB takes a connection of
# object storage about 10 ms, and an answer 20 to 80 ms.
_WINDOW_BYTES = 1 << 20
# After a longer jump, mostly over one large member.
_HEADER_BYTES = 8192
# A longer range is split, for several connections.
_MAX_REQUEST_BYTES = 4 << 20


class RemoteFile(io.RawIOBase):
    """A remote object, of which one window is in memory.

    Attributes:
        remote: the object.

    Raises:
        OSError: of `ObjectStore.read`, by every method that reads.
    """

    def __init__(self, store: ObjectStore, remote: RemoteObject) -> None:
        super().__init__()
        self._store, self.remote = store, remote
        self._at = self._start = 0
        self._window = b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self.remote.size)[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Reads without the copies of `RawIOBase.read`."""
        data = self.pread(self.remote.size if size < 0 else size, self._at)
        self._at += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        data = self.pread(len(buffer), self._at)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def pread(self, size: int, offset: int) -> bytes:
        """Reads a range as `os.pread` does: shorter at the end of the file."""
        size = max(0, min(size, self.remote.size - offset))
        end = self._start + len(self._window)
        if offset < self._start or offset + size > end:
            if size > _WINDOW_BYTES:
                return self._read(offset, size)
            is_near = self._window and self._start <= offset < end + _WINDOW_BYTES
            wanted = max(size, _WINDOW_BYTES if is_near else _HEADER_BYTES)
            self._window = self._read(offset, min(wanted, self.remote.size - offset))
            self._start = offset
        at = offset - self._start
        return self._window[at : at + size]

    def _read(self, offset: int, size: int) -> bytes:
        """Reads a range; a long one by several requests at a time."""
        starts = range(offset, offset + size, _MAX_REQUEST_BYTES)
        ranges = [(start, min(_MAX_REQUEST_BYTES, offset + size - start)) for start in starts]
        return b"".join(self._store.read_ranges(self.remote, ranges))
