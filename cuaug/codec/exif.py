"""Pictures as they are stored, and as they are displayed by their EXIF orientation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.native import address, library
from cuaug.codec.sniff import swaps_axes

__all__ = ["Region", "turned", "turned_region"]

Region = tuple[int, int, int, int]
"""y0, x0, y1, x1 in pixels, the ends excluded."""

_UPSIDE_DOWN, _MIRRORED = {3, 4, 6, 7}, {2, 3, 7, 8}


def turned_region(region: Region, size: tuple[int, int], orientation: int, *, back: bool = False) -> Region:
    """Where a region of a picture as stored, with this (height, width), lies as displayed; or `back`, the other way."""
    y0, x0, y1, x1 = region
    height, width = size
    if back and swaps_axes(orientation):
        y0, x0, y1, x1 = x0, y0, x1, y1
        height, width = width, height
    if orientation in _UPSIDE_DOWN:
        y0, y1 = height - y1, height - y0
    if orientation in _MIRRORED:
        x0, x1 = width - x1, width - x0
    return (x0, y0, x1, y1) if not back and swaps_axes(orientation) else (y0, x0, y1, x1)


def turned(pixels: NDArray[np.uint8], orientation: int, room: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A picture as displayed.

    Args:
        pixels: (h, w, 3) as stored, the pixels of a row packed.
        orientation: EXIF's, 1 to 8.
        room: memory of as many bytes, where the result is written, packed.

    Returns:
        (h, w, 3), or (w, h, 3) where the orientation swaps the axes: a view of `room`.
    """
    height, width, _ = pixels.shape
    library.cuaug_apply_orientation(address(pixels), pixels.strides[0], height, width, orientation, address(room))
    return room.reshape((width, height, 3) if swaps_axes(orientation) else (height, width, 3))
