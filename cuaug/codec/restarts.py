"""Regions of JPEGs with restart markers: the part of the file that holds one, as a JPEG of its own.

Decoders read entropy-coded data from its first byte on, so a region costs them all that is above it and beside it,
which is most of what decoding costs. What lies between two restart markers can be decoded alone: such a region costs
what it holds. The pixels are the same, bit for bit. Some cameras write such files; `cuaug prepare` makes them of the
others, without loss.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cuaug._native import address, library
from cuaug.codec.exif import swaps_axes
from cuaug.codec.turns import Region, turned_region

__all__ = ["cut_out"]


def cut_out(
    data: bytes, region: Region, size: tuple[int, int], orientation: int
) -> tuple[NDArray[np.uint8], tuple[int, int], Region] | None:
    """The smallest part of a JPEG that decodes to the same pixels of a region, as a JPEG.

    Args:
        data: the JPEG.
        region: in pixels as displayed, that is after the orientation was applied.
        size: (height, width) as displayed.
        orientation: EXIF's, which applies to the part too.

    Returns:
        the part's bytes, its picture's height and width as displayed, and where the region lies in that; None where the
        file has no restart markers at the right places, or all of it is needed.
    """
    stored = np.array(turned_region(region, size, orientation, back=True), dtype=np.int64)
    room, cut = np.empty(len(data), dtype=np.uint8), np.empty(4, dtype=np.int64)
    written = library.cuaug_cut_jpeg(data, len(data), address(stored), address(room), address(cut))
    if not written:
        return None
    top, left, bottom, right = cut.tolist()
    y0, x0, y1, x1 = stored.tolist()
    height, width = bottom - top, right - left
    within = turned_region((y0 - top, x0 - left, y1 - top, x1 - left), (height, width), orientation)
    return room[:written], (width, height) if swaps_axes(orientation) else (height, width), within
