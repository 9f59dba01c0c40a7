"""Memory for pictures, used again once nobody holds it."""

from __future__ import annotations

import weakref
from collections import deque

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.fork import fork_safe_lock
from cuaug._runtime.huge_pages import pages

__all__ = ["Blocks"]

# For each power of two: so many bytes of what was handed out last may be used again.
_KEPT_BYTES = 1 << 30
# How many blocks are looked at: those handed out first, which mostly are free first.
_MAX_TRIES = 8


class Blocks:
    """Hands out memory, over blocks that it handed out before where no array over these is left.

    Reading a picture into fresh memory takes several times as long as reading it: the system maps and clears every page
    on first touch. Nothing runs when an array is freed: that would be Python code of a finalizer.
    """

    def __init__(self) -> None:
        self._lent: dict[int, deque[tuple[weakref.ref[NDArray[np.uint8]], memoryview]]] = {}
        self._lock = fork_safe_lock()

    def empty(self, size: int) -> NDArray[np.uint8]:
        """(size,) uint8, uninitialized.

        Raises:
            MemoryError: the system does not have that much.
        """
        bits = (size - 1).bit_length()
        with self._lock:
            lent = self._lent.setdefault(bits, deque(maxlen=max(1, _KEPT_BYTES >> bits)))
            block = None
            for _ in range(min(len(lent), _MAX_TRIES)):
                holder, found = lent.popleft()
                if holder() is None:
                    block = found
                    break
                lent.append((holder, found))
            if block is None:
                block = pages(1 << bits).data  # pages that no picture reaches take no memory
            # All views of this array keep it alive, since its base is no array.
            array = np.frombuffer(block, dtype=np.uint8, count=size)
            lent.append((weakref.ref(array), block))
        return array
