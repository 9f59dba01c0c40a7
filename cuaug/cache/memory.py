"""Decoded pixels in this process's memory."""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.fork import fork_safe_lock
from cuaug.cache.limits import CacheStats

__all__ = ["MemoryStore"]

log = logging.getLogger("cuaug")

# Memory is asked for in blocks of this size, and used from one end to the other: pages that no picture has reached yet
# take none. One block of the whole limit would be refused where the limit is above what the machine has.
BLOCK_BYTES = 64 << 20


class MemoryStore:
    """Pictures one behind the other in large blocks, each found by its view.

    A sample that a thread is just copying in is in `_views` as None: not there yet for `get`, but taken for `put`.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._free = np.empty(0, dtype=np.uint8)  # what is left of the last block
        self._views: dict[int, NDArray[np.uint8] | None] = {}
        self._lock = fork_safe_lock()

    def get(self, index: int) -> NDArray[np.uint8] | None:
        return self._views.get(index)

    def put(self, index: int, pixels: NDArray[np.uint8]) -> NDArray[np.uint8] | None:
        with self._lock:
            if index in self._views:
                return self._views[index]
            place = self._take(pixels.nbytes)
            if place is None:
                return None
            self._views[index] = None
        view = place.reshape(pixels.shape)
        view[...] = pixels  # the first touch of its pages, so most of the time: not under the lock
        view.flags.writeable = False
        self._views[index] = view
        return view

    def _take(self, size: int) -> NDArray[np.uint8] | None:
        left = self._limit_bytes - self._bytes
        if size > left:
            return None
        if size > len(self._free):
            try:
                self._free = np.empty(max(size, min(BLOCK_BYTES, left)), dtype=np.uint8)
            except MemoryError:
                log.warning("the decoded cache takes no more samples: there is no memory beyond %d bytes", self._bytes)
                self._limit_bytes = self._bytes
                return None
        place, self._free = self._free[:size], self._free[size:]
        self._bytes += size
        return place

    def stats(self) -> CacheStats:
        return CacheStats(len(self._views), self._bytes, self._limit_bytes)
