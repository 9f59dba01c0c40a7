"""Memory of finished batches, used again once nobody holds it.

Fresh memory for a batch costs more than writing the batch: the system maps and clears every page on first touch
(benchmarks/cpu_kernels.py measures both: a factor of four to five).
"""

from __future__ import annotations

import weakref
from collections import deque

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["Recycler"]


class Recycler:
    """Hands out host tensors; takes their memory back when the last tensor over it is gone, in whatever thread.

    Args:
        keep: blocks kept at most while nobody uses them.
    """

    def __init__(self, keep: int) -> None:
        # A deque's append and pop need no lock, which a finaliser, run anywhere, could find held by its own thread.
        self._blocks: deque[NDArray[np.uint8]] = deque(maxlen=keep)

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """An uninitialised contiguous tensor."""
        size = int(np.prod(shape)) * dtype.itemsize
        # A view of its own for every use: torch keeps it alive as long as any tensor or array shares the memory.
        block = self._block(size)
        lent = block[:size]
        weakref.finalize(lent, self._blocks.append, block).atexit = False
        return torch.from_numpy(lent).view(dtype).view(shape)

    def _block(self, size: int) -> NDArray[np.uint8]:
        try:
            block = self._blocks.pop()
        except IndexError:
            return np.empty(size, dtype=np.uint8)
        # A block that is too small, or far too large, is let go.
        return block if size <= len(block) <= 4 * size else np.empty(size, dtype=np.uint8)
