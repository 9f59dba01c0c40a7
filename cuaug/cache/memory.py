"""`MemoryStore`: decoded pixels in this process's memory."""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.fork import fork_safe_lock
from cuaug.cache.limits import CacheStats

__all__ = ["MemoryStore"]

log = logging.getLogger("cuaug")

# Memory is allocated in blocks of this size and filled from one end: untouched pages take no memory. A single block of
# the whole limit would fail if the limit exceeds the machine's memory.
BLOCK_BYTES = 64 << 20


class MemoryStore:
    """Keeps decoded images in large memory blocks of this process, one after the other.

    It grows block by block up to `limit_bytes`, and stops growing if memory runs out. A forked child keeps what its
    parent held; its own additions stay its own.

    `_views` maps a sample to its pixels. None marks a sample that a thread is copying: absent for `get`, present for
    `put`.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._free = np.empty(0, dtype=np.uint8)  # the rest of the last block
        self._views: dict[int, NDArray[np.uint8] | None] = {}
        self._lock = fork_safe_lock()

    def get(self, index: int) -> NDArray[np.uint8] | None:
        return self._views.get(index)

    def put(self, index: int, pixels: NDArray[np.uint8]) -> NDArray[np.uint8] | None:
        with self._lock:
            if index in self._views:
                return self._views[index]
            memory = self._allocate(pixels.nbytes)
            if memory is None:
                return None
            self._views[index] = None
        view = memory.reshape(pixels.shape)
        view[...] = pixels  # first touch of its pages: slow, so not under the lock
        view.flags.writeable = False
        self._views[index] = view
        return view

    def _allocate(self, size: int) -> NDArray[np.uint8] | None:
        available = self._limit_bytes - self._bytes
        if size > available:
            return None
        if size > len(self._free):
            try:
                self._free = np.empty(max(size, min(BLOCK_BYTES, available)), dtype=np.uint8)
            except MemoryError:
                log.warning("the decoded cache takes no more samples: out of memory beyond %d bytes", self._bytes)
                self._limit_bytes = self._bytes
                return None
        memory, self._free = self._free[:size], self._free[size:]
        self._bytes += size
        return memory

    def stats(self) -> CacheStats:
        return CacheStats(len(self._views), self._bytes, self._limit_bytes)
