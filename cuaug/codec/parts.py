"""Regions of JPEGs: the part of the file that holds one, as a JPEG of its own.

Decoders read entropy-coded data from its first byte on, so a region costs them all that is above it and beside it,
which is most of what decoding costs. A part costs what it holds, and its pixels are the same, bit for bit.

What lies between two restart markers can be decoded alone. Some cameras write such files; `cuaug prepare` makes them of
the others, without loss. Files without markers are cut by an index of where their rows begin, which is made in
memory when they come again.
"""

from __future__ import annotations

import sys
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from cuaug._native import address, library
from cuaug.codec.probe import swaps_axes
from cuaug.codec.turns import Region, turned_region
from cuaug.gone import when_gone

__all__ = ["JpegIndex", "cut_out"]

_SPARE = 64
"""Bytes by which a part may be larger than its file: codes that lie otherwise in their bytes can take more of them."""


class JpegIndex:
    """Where in JPEGs the rows of their coded blocks begin, and places along them.

    Learnt when a file comes for the second time, or at once where a region leaves out more than half of it.

    A file is known by a checksum of its bytes. Its index takes one to four hundredths of its size. Threads may share
    one. In a forked child its parent's finds nothing: it makes its own.

    Args:
        limit_bytes: the most memory that it may take; beyond that no files are added.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.handle = library.cuaug_indexes_new(min(limit_bytes, sys.maxsize))
        when_gone(self, library.cuaug_indexes_delete, self.handle)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a JpegIndex is memory of this process: it can be neither copied nor pickled")


def cut_out(
    data: bytes,
    region: Region,
    size: tuple[int, int],
    orientation: int,
    index: JpegIndex | None = None,
    *,
    least: int = 0,
) -> tuple[NDArray[np.uint8], tuple[int, int], Region] | None:
    """The smallest part of a JPEG that decodes to the same pixels of a region, as a JPEG.

    Args:
        data: the JPEG.
        region: in pixels as displayed, that is after the orientation was applied.
        size: (height, width) as displayed.
        orientation: EXIF's, which applies to the part too.
        index: for files without restart markers.
        least: leave the file as it is unless about so many bytes of it need not be decoded then.

    Returns:
        the part's bytes, its picture's height and width as displayed, and where the region lies in that; None where the
        file has no restart markers at the right places and is not in the index, or nearly all of it is needed.
    """
    y0, x0, y1, x1 = turned_region(region, size, orientation, back=True)
    across = size[0] if swaps_axes(orientation) else size[1]
    until = y1 * across  # what a decoder would go through
    if (until - (y1 - y0) * (x1 - x0)) * len(data) < least * size[0] * size[1]:
        return None
    stored = np.array((y0, x0, y1, x1), dtype=np.int64)
    room, cut = np.empty(len(data) + _SPARE, dtype=np.uint8), np.empty(4, dtype=np.int64)
    handle = None if index is None else index.handle
    written = library.cuaug_cut_jpeg(data, len(data), address(stored), handle, address(room), len(room), address(cut))
    if not written:
        return None
    top, left, bottom, right = cut.tolist()
    height, width = bottom - top, right - left
    within = turned_region((y0 - top, x0 - left, y1 - top, x1 - left), (height, width), orientation)
    return room[:written], (width, height) if swaps_axes(orientation) else (height, width), within
