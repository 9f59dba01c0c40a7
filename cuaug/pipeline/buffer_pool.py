"""Memory of finished batches, used again once nobody holds it.

Fresh memory for a batch costs more than writing the batch: the system maps and clears every page on first touch
(benchmarks/cpu_kernels.py measures both: a factor of four to twelve, by the machine).
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

from cuaug._runtime.huge_pages import pages

__all__ = ["BufferPool"]

_ALIGN = 64  # a line of the cache


class BufferPool:
    """Hands out host tensors, over memory that it handed out before where no tensor over that is left.

    It looks for such memory when it is asked for the next tensor. Nothing runs when a tensor goes: that would be in the
    consumer's thread, where a Ctrl-C that meets Python code of a finaliser is lost.

    Args:
        keep: how many of the blocks handed out last may be used again: as many as are in use at once.
    """

    def __init__(self, keep: int) -> None:
        self._lent: deque[tuple[list[weakref.ref[NDArray[np.uint8]]], NDArray[np.uint8]]] = deque(maxlen=keep)
        self._lock = threading.Lock()

    def empty(self, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype) -> list[torch.Tensor]:
        """Uninitialised contiguous tensors, in one block."""
        sizes = [math.prod(shape) * dtype.itemsize for shape in shapes]
        *starts, size = itertools.accumulate((-(-size // _ALIGN) * _ALIGN for size in sizes), initial=0)
        with self._lock:
            block = self._block(size)
            # Views of their own for every use: torch keeps each alive as long as any tensor or array shares its memory.
            # And one for each tensor, with which no other's memory is saved then.
            views = [block[start : start + size] for start, size in zip(starts, sizes, strict=True)]
            self._lent.append(([weakref.ref(view) for view in views], block))
        return [torch.from_numpy(view).view(dtype).view(shape) for view, shape in zip(views, shapes, strict=True)]

    def clear(self) -> None:
        """Keeps nothing of what was handed out; it goes with the last tensor over it."""
        self._lent = deque(maxlen=self._lent.maxlen)  # no lock: a fork's copy of it may be held for ever

    def _block(self, size: int) -> NDArray[np.uint8]:
        for i, (views, block) in enumerate(self._lent):
            if all(view() is None for view in views):
                del self._lent[i]
                # One that is too small, or far too large, is let go.
                return block if size <= len(block) <= 4 * size else pages(size)
        return pages(size)
