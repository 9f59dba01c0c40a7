"""Host memory in mappings of its own, with huge pages where large."""

from __future__ import annotations

import contextlib
import mmap

import numpy as np
from numpy.typing import NDArray

__all__ = ["pages"]

# Above these sizes a separate mapping is cheap next to its use, and huge pages pay off.
_LARGE_BYTES = 256 << 10
_HUGE_BYTES = 4 << 20


def pages(size: int) -> NDArray[np.uint8]:
    """(size,) uint8, uninitialized. The system gets the memory back with the last view of it.

    malloc would keep large freed blocks. Blocks of many sizes, used by many threads, then fragment the heap, and the
    process grows.

    Raises:
        MemoryError: the system lacks memory.
    """
    if size < _LARGE_BYTES:
        return np.empty(size, dtype=np.uint8)
    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:  # an OSError would look like an unreadable file
        raise MemoryError(f"no memory for {size:,} bytes: {error.strerror}") from error
    if size >= _HUGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        # As NumPy does. Linux built without huge pages refuses, which is harmless.
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, dtype=np.uint8)
