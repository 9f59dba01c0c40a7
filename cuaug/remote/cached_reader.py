"""Reads byte ranges of remote objects through a cache of blocks on local disk."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

from cuaug._runtime.fork import renew_after_fork
from cuaug.remote.block_cache import BlockCache
from cuaug.remote.object_store import ObjectStore
from cuaug.remote.transport import Buffer, RemoteObject

__all__ = ["CachedReader"]

log = logging.getLogger("cuaug")

_POLL_SECONDS = 0.1


class CachedReader:
    """Reads as `ObjectStore.read` does, but requests whole blocks and keeps them in a cache.

    Adjacent missing blocks make one request. Threads of one process that need the same block wait for one request;
    processes do not wait for each other. Objects without a version are requested each time, since nothing tells whether
    a kept block is still theirs. Once the cache keeps no further blocks, missing ranges alone are requested.

    It pickles.
    """

    def __init__(self, store: ObjectStore, cache: BlockCache) -> None:
        self._store, self.cache = store, cache
        self._renew()
        renew_after_fork(self._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()
        self._has_warned = False
        self._requested: dict[tuple[RemoteObject, int], threading.Event] = {}

    def __reduce__(self) -> Any:
        return type(self), (self._store, self.cache)

    @property
    def connections(self) -> int:
        return self._store.connections

    def read(self, remote: RemoteObject, offset: int, size: int, stop: threading.Event | None = None) -> Buffer:
        """Reads one byte range in the calling thread.

        Args:
            stop: ends the wait before a repetition, and for another thread's request.

        Raises:
            ChangedObjectError, OSError: as of `ObjectStore.read`.
        """
        if not size or not 0 <= offset <= offset + size <= remote.size:
            return self._store.read(remote, offset, size, stop)
        if not remote.version:
            self._count_unversioned(remote)
            return self._store.read(remote, offset, size, stop)
        length = self.cache.block_bytes
        parts: dict[int, bytes | None] = {
            i: self._read_kept(remote, i, offset, size) for i in range(offset // length, -(-(offset + size) // length))
        }
        missing = [i for i, part in parts.items() if part is None]
        if missing and not self.cache.is_writable:
            self.cache.count_dropped(len(missing))
            return self._store.read(remote, offset, size, stop)
        own, others = self._claim(remote, missing)
        try:
            for i in own:  # another thread may have kept it just before the claim
                parts[i] = self._read_kept(remote, i, offset, size)
            self._request(remote, [i for i in own if parts[i] is None], parts, offset, size, stop)
        finally:
            self._release(remote, own)
        for i, event in others.items():
            while not event.wait(_POLL_SECONDS):
                if stop is not None and stop.is_set():
                    raise OSError(f"reading {remote.url!r} was stopped")
            parts[i] = self._read_kept(remote, i, offset, size)
        # The other threads' requests have failed, or their blocks were not kept.
        self._request(remote, [i for i in others if parts[i] is None], parts, offset, size, stop)
        return b"".join(part for part in parts.values() if part is not None)

    def _count_unversioned(self, remote: RemoteObject) -> None:
        self.cache.count_dropped(1)
        with self._lock:
            is_first, self._has_warned = not self._has_warned, True
        if is_first:
            log.warning("%r is not cached, as other objects without a version: its server gives none", remote.url)

    def _bounds(self, number: int, offset: int, size: int) -> tuple[int, int]:
        """The part of a block that lies in a range."""
        begin = number * self.cache.block_bytes
        return max(0, offset - begin), min(self.cache.block_bytes, offset + size - begin)

    def _read_kept(self, remote: RemoteObject, number: int, offset: int, size: int) -> bytes | None:
        return self.cache.read(remote, number, *self._bounds(number, offset, size))

    def _claim(self, remote: RemoteObject, numbers: list[int]) -> tuple[list[int], dict[int, threading.Event]]:
        """Returns the blocks that this thread requests, and those that others do."""
        own, others = [], {}
        with self._lock:
            for i in numbers:
                if (event := self._requested.get((remote, i))) is not None:
                    others[i] = event
                else:
                    own.append(i)
                    self._requested[remote, i] = threading.Event()
        return own, others

    def _release(self, remote: RemoteObject, own: list[int]) -> None:
        with self._lock:
            for i in own:
                self._requested.pop((remote, i)).set()

    def _request(
        self,
        remote: RemoteObject,
        numbers: list[int],
        parts: dict[int, bytes | None],
        offset: int,
        size: int,
        stop: threading.Event | None,
    ) -> None:
        """Requests blocks, keeps them, and sets their parts of the range."""
        length = self.cache.block_bytes
        for first, last in _runs(numbers):
            begin = first * length
            data = memoryview(self._store.read(remote, begin, min(last * length, remote.size) - begin, stop))
            for i in range(first, last):
                block = data[i * length - begin :][:length]
                self.cache.write(remote, i, block)
                start, end = self._bounds(i, offset, size)
                parts[i] = bytes(block[start:end])


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Yields (first, last + 1) of each run of successive numbers.

    >>> list(_runs([1, 2, 3, 7, 9, 10]))
    [(1, 4), (7, 8), (9, 11)]
    """
    for i, number in enumerate(numbers):
        if not i or numbers[i - 1] != number - 1:
            first = number
        if i + 1 == len(numbers) or numbers[i + 1] != number + 1:
            yield first, number + 1
