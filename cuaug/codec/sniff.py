"""What encoded bytes say within microseconds: format, EXIF orientation, a JPEG's size, and whether they are sound.

nvImageCodec applies the orientation but does not tell it, and the size of the picture depends on it. This parser
accepts only what every reader understands alike: one EXIF block, whose first directory holds the tag once, as one
SHORT. For anything odder `orientation` says None, and such an image is left to Pillow altogether: nvImageCodec 0.9.0
turns a JPEG with two EXIF blocks wrongly, and ignores a big-endian LONG that Pillow obeys. So is a file whose markers
or chunks are not as an encoder writes them: what nvImageCodec makes of those may be gray, black or left unwritten, as a
success, or take gigabytes. Each rule here has a file in tests/codec/test_found_by_fuzzing.py or test_bad_input.py.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from struct import Struct
from struct import error as StructError

import numpy as np

from cuaug._runtime.native import BYTES_DATA_OFFSET, address, library

__all__ = [
    "MAX_FULL_SCANS",
    "MAX_SCANS",
    "count_scans",
    "file_format",
    "jpeg_headers",
    "orientation",
    "swaps_axes",
    "webp_size",
]

_BYTE_ORDERS = (b"II*\0", b"MM\0*")
_BE32, _LE32 = Struct(">I"), Struct("<I")
_PNG_TEXT = (b"tEXt", b"zTXt", b"iTXt")
_MAX_COMPRESSED_TEXT = 1 << 16
"""Bytes of a PNG's compressed text: nvImageCodec inflates all of it, a thousandfold, where Pillow has a limit."""
_ANIMATED = 0x02

MAX_SCANS = 500
"""Each scan of a progressive JPEG, even of a few bytes, passes over the whole picture: 4,000 of them in 140 kB took 14
seconds at 4000 x 4000 pixels. Encoders write about ten."""

MAX_FULL_SCANS = 24
"""Scans of a picture that has `max_pixels`, more of a smaller one: 500 at 13,000 x 13,000 pixels took 74 seconds."""


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


def orientation(data: bytes, form: str) -> int | None:
    """The EXIF orientation, 1 to 8, of a file whose `file_format` is `form`.

    1 also where there is no tag, or its value means nothing. None where this parser does not know: the format is not
    JPEG, PNG or WebP, or the metadata is damaged, repeated, or of a type that readers disagree on. Never raises.
    """
    reader = _READERS.get(form)
    if reader is None:
        return None
    try:
        return reader(data)
    except (IndexError, StructError):
        return None


def swaps_axes(value: int) -> bool:
    """Whether this orientation makes the stored height the displayed width."""
    return value >= 5


def webp_size(data: bytes) -> tuple[int, int] | None:
    """(height, width) as the first chunk of a WebP claims them; None where it is no chunk that has them."""
    kind, head = data[12:16], data[20:30]
    if len(head) == 10 and kind == b"VP8X":
        return int.from_bytes(head[7:], "little") + 1, int.from_bytes(head[4:7], "little") + 1
    if len(head) == 10 and kind == b"VP8 ":
        return (head[8] | head[9] << 8) & 0x3FFF, (head[6] | head[7] << 8) & 0x3FFF
    if len(head) >= 5 and kind == b"VP8L":
        bits = int.from_bytes(head[1:5], "little")
        return (bits >> 14 & 0x3FFF) + 1, (bits & 0x3FFF) + 1
    return None


def jpeg_headers(
    files: Sequence[bytes], max_pixels: int = 1 << 48
) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
    """The heights, widths, numbers of components, orientations and restart intervals of some files.

    The sizes are as stored, the intervals in MCUs and 0 without restart markers. The orientation is 0 where it is no
    JPEG, or its EXIF or its markers, up to the last, are not as an encoder writes them: one that has no business in a
    scan makes nvImageCodec 0.9.0 return the picture with the rest gray, as a success, where Pillow refuses the file.
    It is 0 too where there are more than MAX_SCANS, or scans times pixels exceed MAX_FULL_SCANS times `max_pixels`.
    Other threads run meanwhile.
    """
    n = len(files)
    # An array of ctypes would note each of them as held, which takes half a microsecond; they are held anyway.
    data, sizes = (np.fromiter(map(told, files), np.int64, n) for told in (id, len))
    data += BYTES_DATA_OFFSET
    headers = np.empty((n, 5), dtype=np.int32)
    most_pixels = min(MAX_FULL_SCANS * max_pixels, sys.maxsize)
    library.cuaug_jpeg_headers(address(data), address(sizes), n, MAX_SCANS, most_pixels, address(headers))
    heights, widths, components, turns, restarts = headers.T.tolist()
    return heights, widths, components, turns, restarts


def count_scans(data: bytes) -> int:
    """Counts the scans that a decoder reads, up to the end of the image."""
    scans: int = library.cuaug_count_scans(data, len(data))
    return scans


def _jpeg(data: bytes) -> int | None:
    return jpeg_headers([data])[3][0] or None


def _upright(block: bytes | None) -> int | None:
    """1 where the EXIF block of a PNG or WebP turns nothing. Turned ones are left to Pillow: of those whose chunks
    libpng or libwebp finds the slightest fault with, nvImageCodec leaves a part unwritten, as a success."""
    return 1 if block is None or library.cuaug_tiff_orientation(block, len(block)) == 1 else None


def _png(data: bytes) -> int | None:
    block = None
    pixels = False
    text = 0
    at = 8
    while True:
        (length,) = _BE32.unpack_from(data, at)
        name = data[at + 4 : at + 8]
        if name == b"IDAT":
            pixels = True
        elif name == b"eXIf":  # may also follow the pixels
            if block is not None:
                return None
            block = data[at + 8 : at + 8 + length]
        # An animation, whose damaged pixels come back from nvImageCodec as whatever was in memory; EXIF as ImageMagick
        # hides it.
        elif name == b"acTL" or (name in _PNG_TEXT and data.startswith(b"Raw profile type ", at + 8)):
            return None
        elif name == b"zTXt" or (name == b"iTXt" and data[data.find(b"\0", at + 8, at + 88) + 1]):
            text += length
            if text > _MAX_COMPRESSED_TEXT:
                return None
        elif name == b"IEND":
            if not pixels:  # they may follow, and nvImageCodec takes as much memory as their length claims
                return None
            return _upright(block)
        at += 12 + length


def _webp(data: bytes) -> int | None:
    """Walks all chunks: nvImageCodec takes memory for an EXIF chunk before it looks whether the file is as long as the
    chunk claims."""
    (length,) = _LE32.unpack_from(data, 4)
    end = 8 + length
    if end > len(data):
        return None
    chunks: dict[bytes, bytes] = {}
    at = 12
    while at < end:
        name = data[at : at + 4]
        (length,) = _LE32.unpack_from(data, at + 4)
        if name in chunks or at + 8 + length > end:
            return None
        chunks[name] = data[at + 8 : at + 8 + length] if name in (b"VP8X", b"EXIF") else b""
        at += 8 + length + (length & 1)
    if b"VP8X" in chunks and chunks[b"VP8X"][0] & _ANIMATED:  # what the first frame covers is for Pillow to say
        return None
    return _upright(chunks.get(b"EXIF"))


_READERS = {"jpeg": _jpeg, "png": _png, "webp": _webp}
