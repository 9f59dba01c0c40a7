"""AVIF: bounds the items of a file; `pillow_header` bounds the size that it claims.

libavif refuses the cells of a grid beyond the claimed size, and frames beyond 16,384 x 16,384 pixels. It scales a frame
of another size than the claimed one: such a frame is decoded before it is scaled, and `max_pixels` does not count it.
"""

from __future__ import annotations

from cuaug.codec.formats.jpeg2000 import file_boxes
from cuaug.errors import DecodeError

AVIF_BRANDS = (b"avif", b"avis", b"mif1", b"msf1")
"""Brands that Pillow opens as AVIF; a file with one of the last two may hold HEVC."""
_MAX_ITEMS = 4096  # libavif searches all items for each item: 65,536 would take it seconds


def as_still_avif(data: bytes) -> bytes:
    """Check the items, and return the file with the brand of a still image.

    That brand makes libavif decode the primary item, which is the first frame of an image sequence.

    Raises:
        DecodeError: the file has no AV1 item, too many items, or is damaged.
    """
    try:
        begin, end = next((begin, end) for name, begin, end in file_boxes(memoryview(data)) if name == b"meta")
    except (StopIteration, ValueError) as error:
        raise DecodeError("the AVIF file is damaged: it has no box of metadata") from error
    if data.find(b"av01", begin, end) < 0:
        raise DecodeError("the file holds no AV1 image; HEIC is not read: convert it to AVIF")
    items = data.count(b"infe", begin, end)
    if items > _MAX_ITEMS:
        raise DecodeError(f"the AVIF file has {items} items, more than {_MAX_ITEMS}: store it with fewer cells")
    return data if data[8:12] == b"avif" else data[:8] + b"avif" + data[12:]
