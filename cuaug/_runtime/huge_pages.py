"""Host memory in mappings of its own, with huge pages where large."""

from __future__ import annotations

import contextlib
import math
import mmap
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

# Above these sizes a separate mapping is cheap next to its use, and huge pages pay off.
_LARGE_BYTES = 256 << 10
_HUGE_BYTES = 4 << 20
# glibc maps fresh memory for allocations of this size and more. The kernel clears each page at its first write, which
# takes longer than the augmentation. Smaller allocations reuse freed memory.
_MAPPED_BYTES = 32 << 20


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


def empty(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """An uninitialized contiguous tensor; a large one on the CPU has huge pages."""
    size = math.prod(shape) * dtype.itemsize
    if device.type != "cpu" or size < _MAPPED_BYTES:
        return torch.empty(shape, dtype=dtype, device=device)
    return torch.from_numpy(pages(size)).view(dtype).view(shape)
