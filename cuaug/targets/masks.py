"""Masks through the kernels: three planes of bytes are an image, moved whole pixel by whole pixel."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cuaug.devices.host import HostProgram
from cuaug.plan import Tables

__all__ = ["MaskProgram"]


class MaskProgram:
    """Moves masks as a plan moves the images under them; on any thread.

    Args:
        tables: of the images.
    """

    def __init__(self, tables: Tables) -> None:
        self._program = HostProgram(tables.for_masks())
        self._heights, self._widths = tables.sizes()

    def run(self, sample: int, planes: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """(M, h, w) of (M, H, W) planes over one image."""
        count, height, width = planes.shape
        packed = np.zeros((-(-count // 3), height, width, 3), dtype=np.uint8)
        made = np.empty((len(packed), int(self._heights[sample]), int(self._widths[sample]), 3), dtype=np.uint8)
        for k, (image, target) in enumerate(zip(packed, made, strict=True)):
            for channel, plane in enumerate(planes[3 * k : 3 * k + 3]):
                image[..., channel] = plane
            self._program.run(sample, image, target.ctypes.data)
        return np.moveaxis(made, -1, 1).reshape(-1, *made.shape[1:3])[:count]
