"""Memory of batches, reused once the consumer has released it.

New memory for a batch costs four to twelve times as much as writing the batch, by machine: the system maps and clears
each page on first touch (benchmarks/cpu_kernels.py measures both).
"""

from __future__ import annotations

import itertools
import math
import threading
import weakref
from collections import deque
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug._runtime.huge_pages import empty, pages

__all__ = ["BufferPool", "SeparateBuffers"]

_ALIGN = 64  # bytes of a cache line


class BufferPool:
    """Allocates CPU tensors, in blocks whose earlier tensors no longer exist.

    The pool looks for a free block at the next allocation, without callbacks: a finalizer would run in the consumer's
    thread, where Python drops a Ctrl-C.

    Args:
        keep: number of blocks that may be reused: as many as are in use at once.
    """

    def __init__(self, keep: int) -> None:
        self._blocks: deque[tuple[list[weakref.ref[NDArray[np.uint8]]], NDArray[np.uint8]]] = deque(maxlen=keep)
        self._lock = threading.Lock()

    def empty(self, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype) -> list[torch.Tensor]:
        """Uninitialised contiguous tensors, in one block."""
        sizes = [math.prod(shape) * dtype.itemsize for shape in shapes]
        *starts, size = itertools.accumulate((-(-size // _ALIGN) * _ALIGN for size in sizes), initial=0)
        with self._lock:
            block = self._take_block(size)
            # New views at each use: torch keeps a view alive as long as any tensor or array shares its memory.
            # One view per tensor: saving a tensor then does not save the memory of the others.
            views = [block[start : start + size] for start, size in zip(starts, sizes, strict=True)]
            self._blocks.append(([weakref.ref(view) for view in views], block))
        return [torch.from_numpy(view).view(dtype).view(shape) for view, shape in zip(views, shapes, strict=True)]

    def clear(self) -> None:
        """Forgets all blocks; each lives as long as its tensors."""
        # Without the lock, which a fork may have copied locked; without the module's globals, which the interpreter
        # clears at exit before an iterator that another module holds.
        self._blocks = type(self._blocks)(maxlen=self._blocks.maxlen)

    def _take_block(self, size: int) -> NDArray[np.uint8]:
        for i, (views, block) in enumerate(self._blocks):
            if all(view() is None for view in views):
                del self._blocks[i]
                return block if size <= len(block) <= 4 * size else pages(size)
        return pages(size)


class SeparateBuffers(BufferPool):
    """Allocates each CPU tensor alone, and keeps nothing: for batches whose tensors live for different times."""

    def __init__(self) -> None:
        super().__init__(keep=0)

    def empty(self, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype) -> list[torch.Tensor]:
        return [empty(shape, dtype, torch.device("cpu")) for shape in shapes]
