"""Regions of JPEGs: the part of the file that holds one, as a JPEG of its own.

Decoders read entropy-coded data from its first byte on, so a region costs them all that is above it and beside it,
which is most of what decoding costs. A part costs what it holds, and its pixels are the same, bit for bit.

What lies between two restart markers can be decoded alone. Some cameras write such files; `cuaug prepare` makes them of
the others, without loss. Files without markers are cut by an index of where their rows begin, which is made in
memory when they come again.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.native import address, library
from cuaug.codec.exif import Region, turned_region
from cuaug.codec.sniff import swaps_axes

__all__ = ["JpegIndex", "cut_out", "worth_cutting"]

# Bytes by which a part may be larger than its file: codes that lie otherwise in their bytes can take more of them.
_SPARE = 64


class JpegIndex:
    """Where in JPEGs the rows of their coded blocks begin, and places along them.

    Learnt when a file comes for the second time, or at once where a region leaves out more than half of it.

    A file is known by a checksum of its bytes. Threads may share one. In a forked child its parent's finds nothing: it
    makes its own.

    Args:
        limit_bytes: the most memory that it may take; beyond that no files are added.
        files: among how many it is divided. The places are 16, 32 or 64 pixels apart, whichever is the least that all
            files of this size have room for: a part reaches to the next place on either side.
    """

    def __init__(self, limit_bytes: int, files: int = 1) -> None:
        self.handle = library.cuaug_indexes_new(min(limit_bytes, sys.maxsize), files)
        weakref.finalize(self, library.cuaug_indexes_delete, self.handle).atexit = False  # threads may use it at exit

    def __reduce__(self) -> NoReturn:
        raise TypeError("a JpegIndex is memory of this process: it can be neither copied nor pickled")


def worth_cutting(region: Region, size: tuple[int, int], length: int, least: int) -> bool:
    """Whether about so many of a JPEG's bytes need not be decoded for a region where it is cut out.

    Args:
        region, size: in pixels as stored; (height, width).
        length: of the file, in bytes.
    """
    y0, x0, y1, x1 = region
    height, width = size
    until = y1 * width  # what a decoder would go through
    return (until - (y1 - y0) * (x1 - x0)) * length >= least * height * width


def cut_out(
    data: bytes,
    region: Region,
    size: tuple[int, int],
    orientation: int,
    index: JpegIndex | None = None,
) -> tuple[NDArray[np.uint8], tuple[int, int], Region] | None:
    """The smallest part of a JPEG that decodes to the same pixels of a region, as a JPEG.

    Args:
        region, size: in pixels as displayed, that is after the orientation was applied; (height, width).
        orientation: EXIF's, which applies to the part too.
        index: for files without restart markers.

    Returns:
        the part's bytes, its picture's height and width as displayed, and where the region lies in that. None where the
        file has no restart markers at the right places and is not in the index, or nearly all of it is needed.
    """
    stored = turned_region(region, size, orientation, back=True)
    out, shows = np.empty(len(data) + _SPARE, dtype=np.uint8), (ctypes.c_int64 * 4)()
    corners, handle = (ctypes.c_int64 * 4)(*stored), None if index is None else index.handle
    written = library.cuaug_cut_jpeg(data, len(data), corners, handle, address(out), len(out), shows)
    if not written:
        return None
    y0, x0, y1, x1 = stored
    top, left, bottom, right = shows
    height, width = bottom - top, right - left
    within = turned_region((y0 - top, x0 - left, y1 - top, x1 - left), (height, width), orientation)
    return out[:written], (width, height) if swaps_axes(orientation) else (height, width), within
