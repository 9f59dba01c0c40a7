"""EXIF orientation of pixels and regions, from the stored image to the displayed one and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.native import address, library
from cuaug.codec.sniff import swaps_axes

__all__ = ["Region", "apply_orientation", "orient_array", "orient_region"]

Region = tuple[int, int, int, int]
"""y0, x0, y1, x1 in pixels; the ends are excluded."""

# Orientations (EXIF 2.3, 4.6.4, tag 274) that reverse the stored rows, or the stored columns, before axes are swapped.
_FLIPS_ROWS, _FLIPS_COLUMNS = {3, 4, 6, 7}, {2, 3, 7, 8}


def orient_region(region: Region, size: tuple[int, int], orientation: int, *, inverse: bool = False) -> Region:
    """Map a region of the stored image to the displayed image.

    Args:
        size: (height, width) of the image that `region` belongs to.
        orientation: the EXIF orientation, 1 to 8.
        inverse: map from the displayed image to the stored one.
    """
    y0, x0, y1, x1 = region
    height, width = size
    if inverse and swaps_axes(orientation):
        y0, x0, y1, x1 = x0, y0, x1, y1
        height, width = width, height
    if orientation in _FLIPS_ROWS:
        y0, y1 = height - y1, height - y0
    if orientation in _FLIPS_COLUMNS:
        x0, x1 = width - x1, width - x0
    return (x0, y0, x1, y1) if not inverse and swaps_axes(orientation) else (y0, x0, y1, x1)


def apply_orientation(pixels: NDArray[np.uint8], orientation: int, out: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Rotate and flip stored pixels to the displayed image.

    Args:
        pixels: (h, w, 3) as stored; the pixels of a row are packed.
        orientation: the EXIF orientation, 1 to 8.
        out: (h * w * 3,) memory for the result.

    Returns:
        (h, w, 3), or (w, h, 3) where the orientation swaps the axes: a packed view of `out`.
    """
    height, width, _ = pixels.shape
    library.cuaug_apply_orientation(address(pixels), pixels.strides[0], height, width, orientation, address(out))
    return out.reshape((width, height, 3) if swaps_axes(orientation) else (height, width, 3))


def orient_array(array: NDArray[Any], orientation: int) -> NDArray[Any]:
    """Rotate and flip (H, W, C) of any dtype to the displayed image: a view."""
    array = array[:: -1 if orientation in _FLIPS_ROWS else 1, :: -1 if orientation in _FLIPS_COLUMNS else 1]
    return array.swapaxes(0, 1) if swaps_axes(orientation) else array
