"""Masks through the kernels: three planes of bytes are an image, moved whole pixel by whole pixel."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.native import BEST_ISA, address, library
from cuaug.devices.cpu import CpuExecutor
from cuaug.plan import CompiledPlan

__all__ = ["MaskProgram"]


class MaskProgram:
    """Moves masks as a plan moves the images under them; on any thread.

    Args:
        tables: of the images.
    """

    def __init__(self, tables: CompiledPlan) -> None:
        self._program = CpuExecutor(tables.for_masks())
        self._heights, self._widths = tables.sizes()

    def run(self, sample: int, planes: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """(M, h, w) of (M, H, W) planes over one image."""
        count, height, width = planes.shape
        if count % 3 == 2:  # one that nobody looks at makes three
            planes = np.concatenate([planes, planes[-1:]])
        planes = np.ascontiguousarray(planes)
        packed = np.empty((height, width, 3), dtype=np.uint8)
        target = np.empty((int(self._heights[sample]), int(self._widths[sample]), 3), dtype=np.uint8)
        made = np.empty((count, *target.shape[:2]), dtype=np.uint8)
        for first in range(0, count, 3):
            three = planes[first : first + 3]
            step = height * width if len(three) == 3 else 0  # of one plane all channels are the same
            library.cuaug_interleave(BEST_ISA, 1, address(three), 1, 0, step, height * width, 1, address(packed))
            self._program.run(sample, packed, target.ctypes.data)
            for channel, plane in enumerate(made[first : first + 3]):
                plane[...] = target[..., channel]
        return made
