"""Moves masks with the kernels.

Three byte planes form an image, which moves by whole pixels.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.native import BEST_ISA, address, library
from cuaug.devices.cpu import CpuExecutor
from cuaug.plan import CompiledPlan

__all__ = ["MaskExecutor"]


class MaskExecutor:
    """Moves masks as a compiled plan moves their images. Thread-safe."""

    def __init__(self, compiled: CompiledPlan) -> None:
        self._executor = CpuExecutor(compiled.for_masks())
        self._heights, self._widths = compiled.sizes()

    def run(self, sample: int, planes: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Move the byte planes over one image: (M, H, W) to (M, h, w)."""
        count, height, width = planes.shape
        if count % 3 == 2:  # repeat one plane to complete the image
            planes = np.concatenate([planes, planes[-1:]])
        planes = np.ascontiguousarray(planes)
        packed = np.empty((height, width, 3), dtype=np.uint8)
        output = np.empty((int(self._heights[sample]), int(self._widths[sample]), 3), dtype=np.uint8)
        result = np.empty((count, *output.shape[:2]), dtype=np.uint8)
        for first in range(0, count, 3):
            three = planes[first : first + 3]
            step = height * width if len(three) == 3 else 0  # 0: all channels are the one plane
            library.cuaug_interleave(BEST_ISA, 1, address(three), 1, 0, step, height * width, 1, address(packed))
            self._executor.run(sample, packed, output.ctypes.data)
            for channel, plane in enumerate(result[first : first + 3]):
                plane[...] = output[..., channel]
        return result
