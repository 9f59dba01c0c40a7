"""Large pieces of host memory, straight from the system and straight back to it."""

from __future__ import annotations

import contextlib
import mmap

import numpy as np
from numpy.typing import NDArray

__all__ = ["pages"]

# From these sizes on a mapping of its own costs less than what it is used for, and huge pages pay.
_LARGE_BYTES = 256 << 10
_HUGE_BYTES = 4 << 20


def pages(size: int) -> NDArray[np.uint8]:
    """(size,) uint8, uninitialised. The system has the memory back as soon as the last view of it is gone.

    malloc would keep it instead, once it has seen a few large pieces come and go: pieces of many sizes, which threads
    ask for and give back, then leave holes that only fit some of the next ones, and the process grows.

    Raises:
        MemoryError: the system does not have that much.
    """
    if size < _LARGE_BYTES:
        return np.empty(size, dtype=np.uint8)
    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:  # which would look as if a file could not be read
        raise MemoryError(f"no memory for {size:,} bytes: {error.strerror}") from error
    if size >= _HUGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        # As NumPy does. A kernel that is built without huge pages refuses; the memory is as good.
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, dtype=np.uint8)
