"""Crops JPEGs without decoding: the MCUs around a region, as a smaller JPEG that decodes to the same pixels.

A decoder reads an entropy-coded segment from its first byte, so a region costs everything above it and to its left.
Cropping the bitstream first leaves that work out, and the pixels stay the same, bit for bit.

- Restart markers: the data between two of them decodes alone (ITU-T T.81, E.1.4). Some cameras write them, and
  `cuaug prepare` adds them without loss.
- Files without them are cropped by a `JpegIndex`, which records where their MCU rows begin.
"""

from __future__ import annotations

import ctypes

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.native import address, data_address, library
from cuaug.codec.exif import Region, orient_region
from cuaug.codec.jpeg_index import JpegIndex
from cuaug.codec.sniff import swaps_axes

__all__ = ["SPARE_BYTES", "crop_jpeg"]

SPARE_BYTES = 64
"""A cropped JPEG may be larger than its file by this much: its codes are aligned differently and may need stuffing."""


def crop_jpeg(
    data: bytes | NDArray[np.uint8],
    region: Region,
    size: tuple[int, int],
    orientation: int,
    index: JpegIndex | None = None,
    out: NDArray[np.uint8] | None = None,
) -> tuple[NDArray[np.uint8], tuple[int, int], Region] | None:
    """Crop a JPEG to the smallest one that decodes to the same pixels of a region.

    Args:
        data: the whole file; an array must be contiguous.
        region, size: as displayed, in pixels; size is (height, width).
        orientation: the EXIF orientation, which applies to the crop too.
        index: for files without restart markers.
        out: memory for the crop, of `SPARE_BYTES` more than the file; None allocates.

    Returns:
        (n,) bytes of the crop, in `out`; its displayed (height, width); the region within it. None if the file has no
        suitable restart markers and no index entry, or if the crop would be the whole file.
    """
    stored = orient_region(region, size, orientation, inverse=True)
    out = np.empty(len(data) + SPARE_BYTES, dtype=np.uint8) if out is None else out
    crop = (ctypes.c_int64 * 4)()
    corners, handle = (ctypes.c_int64 * 4)(*stored), None if index is None else index.handle
    written = library.cuaug_crop_jpeg(data_address(data), len(data), corners, handle, address(out), len(out), crop)
    if not written:
        return None
    y0, x0, y1, x1 = stored
    top, left, bottom, right = crop
    height, width = bottom - top, right - left
    inner = orient_region((y0 - top, x0 - left, y1 - top, x1 - left), (height, width), orientation)
    return out[:written], (width, height) if swaps_axes(orientation) else (height, width), inner
