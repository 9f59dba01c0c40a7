"""Reusable memory for images read from a disk cache."""

from __future__ import annotations

import weakref
from collections import deque

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.fork import fork_safe_lock
from cuaug._runtime.huge_pages import pages

__all__ = ["ImageBuffers"]

# Limit on reusable bytes per power of two of the buffer size.
_MAX_REUSABLE_BYTES = 1 << 30
# Buffers tried per request, oldest first: these are most likely free.
_MAX_TRIES = 8


class ImageBuffers:
    """Hands out memory, reusing buffers whose arrays are all freed.

    Reading an image into fresh memory takes several times as long as reading it: the system maps and clears every page
    on first touch. Nothing runs when an array is freed, so no Python code runs in a finalizer.
    """

    def __init__(self) -> None:
        self._lent: dict[int, deque[tuple[weakref.ref[NDArray[np.uint8]], memoryview]]] = {}
        self._lock = fork_safe_lock()

    def empty(self, size: int) -> NDArray[np.uint8]:
        """Returns an uninitialized (size,) uint8 array.

        Raises:
            MemoryError: the system does not have that much.
        """
        bits = (size - 1).bit_length()
        with self._lock:
            lent = self._lent.setdefault(bits, deque(maxlen=max(1, _MAX_REUSABLE_BYTES >> bits)))
            buffer = None
            for _ in range(min(len(lent), _MAX_TRIES)):
                user, candidate = lent.popleft()
                if user() is None:
                    buffer = candidate
                    break
                lent.append((user, candidate))
            if buffer is None:
                buffer = pages(1 << bits).data  # untouched pages take no memory
            # All views of this array keep it alive, since its base is no array.
            array = np.frombuffer(buffer, dtype=np.uint8, count=size)
            lent.append((weakref.ref(array), buffer))
        return array
