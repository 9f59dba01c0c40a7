"""Reads format, EXIF orientation and JPEG markers from encoded bytes, and applies orientations.

nvImageCodec applies the EXIF orientation but does not report it, and the displayed size depends on it. This parser
accepts only metadata that all readers interpret alike: one EXIF block whose first directory holds the tag once, as one
SHORT. `exif_orientation` returns None for anything else, and Pillow decodes such a file. nvImageCodec 0.9.0 rotates a
JPEG with two EXIF blocks wrongly, and ignores a big-endian LONG that Pillow obeys.

Pillow also decodes files whose markers or chunks no encoder writes. nvImageCodec may return those gray, black or
unwritten, as a success, or take gigabytes. Each rule has a file in tests/codec/test_found_by_fuzzing.py or
test_bad_input.py.

    JPEG  ITU-T T.81, annex B                     kernels/jpeg/headers.h
    EXIF  EXIF 2.3, 4.6.4, tag 274; TIFF 6.0, 2   kernels/jpeg/headers.h
    PNG   ISO/IEC 15948, 5.2 and 5.3              8-byte signature; chunks: length (4), type (4), data, CRC (4)
    WebP  RFC 9649, 2.3 and 2.4                   "RIFF", size (4), "WEBP"; chunks: FourCC (4), size (4), data, padding
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.native import BYTES_DATA_OFFSET, address, library

_BYTE_ORDERS = (b"II*\0", b"MM\0*")
_BE32, _LE32 = Struct(">I"), Struct("<I")
_PNG_TEXT = (b"tEXt", b"zTXt", b"iTXt")
_MAX_COMPRESSED_TEXT = 1 << 16
"""Bytes of a PNG's compressed text: nvImageCodec inflates all of it, a thousandfold; Pillow has a limit."""
_ANIMATION = 0x02  # flag A of VP8X (RFC 9649, 2.7)

MAX_SCANS = 500
"""Each scan of a progressive JPEG, even of a few bytes, passes over the whole image: 4,000 of them in 140 kB took 14
seconds at 4000 x 4000 pixels. Encoders write about ten."""

MAX_FULL_SCANS = 24
"""Scans allowed at `max_pixels` pixels; smaller images may have more. 500 at 13,000 x 13,000 pixels took 74 seconds."""


def file_format(data: bytes) -> str:
    """'jpeg', 'png', 'webp' or 'tiff' by the first bytes, '' for anything else."""
    if data[:3] == b"\xff\xd8\xff":
        return "jpeg"
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        return "png"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    if data[:4] in _BYTE_ORDERS:
        return "tiff"
    return ""


def exif_orientation(data: bytes, form: str) -> int | None:
    """Read the EXIF orientation of a file whose `file_format` is `form`. Never raises.

    Returns:
        1 to 8; 1 if the tag is missing or its value undefined. None if this parser cannot say: another format, or
        metadata that is damaged, repeated, or of a type on which readers disagree.
    """
    reader = _READERS.get(form)
    if reader is None:
        return None
    try:
        return reader(data)
    except (IndexError, StructError):
        return None


def swaps_axes(orientation: Any) -> Any:
    """Whether the stored height becomes the displayed width; of a number, or of each of an array."""
    return orientation >= 5


def webp_size(data: bytes) -> tuple[int, int] | None:
    """(height, width) that the first chunk of a WebP claims; None if that chunk holds no size."""
    fourcc, payload = data[12:16], data[20:30]
    if len(payload) == 10 and fourcc == b"VP8X":  # RFC 9649, 2.7: flags (4), width - 1 (3), height - 1 (3)
        return int.from_bytes(payload[7:], "little") + 1, int.from_bytes(payload[4:7], "little") + 1
    if len(payload) == 10 and fourcc == b"VP8 ":  # RFC 6386, 9.1: tag (3), start code (3), width (14 bits), height (14)
        return (payload[8] | payload[9] << 8) & 0x3FFF, (payload[6] | payload[7] << 8) & 0x3FFF
    if len(payload) >= 5 and fourcc == b"VP8L":  # RFC 9649, 3.4: signature (1), width - 1 (14 bits), height - 1 (14)
        bits = int.from_bytes(payload[1:5], "little")
        return (bits >> 14 & 0x3FFF) + 1, (bits & 0x3FFF) + 1
    return None


def jpeg_headers(files: Sequence[bytes], max_pixels: int = 1 << 48) -> NDArray[np.int32]:
    """Parse the markers of JPEGs, all in one call without the GIL.

    A marker that is not allowed in a scan makes nvImageCodec 0.9.0 return an image that is gray from there on, as a
    success; Pillow refuses the file. So the parser follows the markers up to the last one.

    Returns:
        (n, 5): heights, widths, component counts, orientations and restart intervals. Sizes are as stored; intervals
        are in MCUs, 0 without restart markers. Zeros for a file that is left to Pillow, with the reason in place of its
        orientation: a negative number, `ForPillow` in kernels/jpeg/headers.h. TOO_MANY_SCANS are more than `MAX_SCANS`,
        or scans * pixels > `MAX_FULL_SCANS` * `max_pixels`.
    """
    n = len(files)
    # A ctypes array would also hold a reference to each file, which takes half a microsecond; `files` holds them.
    data, sizes = (np.fromiter(map(function, files), np.int64, n) for function in (id, len))
    data += BYTES_DATA_OFFSET
    headers = np.empty((n, 5), dtype=np.int32)
    max_work = min(MAX_FULL_SCANS * max_pixels, sys.maxsize)
    library.cuaug_jpeg_headers(address(data), address(sizes), n, MAX_SCANS, max_work, address(headers))
    return headers


def count_scans(data: bytes) -> int:
    """Count the scans of a JPEG that a decoder reads, up to the end of the image."""
    scans: int = library.cuaug_count_scans(data, len(data))
    return scans


def _jpeg(data: bytes) -> int | None:
    orientation = int(jpeg_headers([data])[0, 3])
    return orientation if orientation > 0 else None


def _only_upright(exif: bytes | None) -> int | None:
    """1 for a PNG or WebP without EXIF rotation, else None.

    nvImageCodec leaves a part of a rotated image unwritten, as a success, if libpng or libwebp finds a slight fault."""
    return 1 if exif is None or library.cuaug_tiff_orientation(exif, len(exif)) == 1 else None


def _png(data: bytes) -> int | None:
    exif = None
    has_pixels = False
    text_bytes = 0
    at = 8
    while True:
        (length,) = _BE32.unpack_from(data, at)
        kind = data[at + 4 : at + 8]
        if kind == b"IDAT":
            has_pixels = True
        elif kind == b"eXIf":  # it may also follow the pixels
            if exif is not None:
                return None
            exif = data[at + 8 : at + 8 + length]
        # acTL starts an animation: nvImageCodec returns its damaged pixels as uninitialized memory. The text chunk is
        # how ImageMagick stores EXIF.
        elif kind == b"acTL" or (kind in _PNG_TEXT and data.startswith(b"Raw profile type ", at + 8)):
            return None
        elif kind == b"zTXt" or (kind == b"iTXt" and data[data.find(b"\0", at + 8, at + 88) + 1]):
            text_bytes += length
            if text_bytes > _MAX_COMPRESSED_TEXT:
                return None
        elif kind == b"IEND":
            if not has_pixels:  # an IDAT may follow, and nvImageCodec allocates as much as its length claims
                return None
            return _only_upright(exif)
        at += 12 + length


def _webp(data: bytes) -> int | None:
    """Walk all chunks: nvImageCodec allocates an EXIF chunk before it checks that the file is that long."""
    (length,) = _LE32.unpack_from(data, 4)
    end = 8 + length
    if end > len(data):
        return None
    chunks: dict[bytes, bytes] = {}
    at = 12
    while at < end:
        fourcc = data[at : at + 4]
        (length,) = _LE32.unpack_from(data, at + 4)
        if fourcc in chunks or at + 8 + length > end:
            return None
        chunks[fourcc] = data[at + 8 : at + 8 + length] if fourcc in (b"VP8X", b"EXIF") else b""
        at += 8 + length + (length & 1)
    if b"VP8X" in chunks and chunks[b"VP8X"][0] & _ANIMATION:  # the first frame may cover a part of the canvas
        return None
    return _only_upright(chunks.get(b"EXIF"))


_READERS = {"jpeg": _jpeg, "png": _png, "webp": _webp}


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


def orient_array(array: NDArray[Any], orientation: int) -> NDArray[Any]:
    """Rotate and flip (H, W, C) of any dtype to the displayed image: a view."""
    array = array[:: -1 if orientation in _FLIPS_ROWS else 1, :: -1 if orientation in _FLIPS_COLUMNS else 1]
    return array.swapaxes(0, 1) if swaps_axes(orientation) else array
