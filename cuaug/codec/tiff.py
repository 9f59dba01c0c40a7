"""TIFF: bounds the tiles. libtiff allocates and decodes whole tiles, however small the image is.

Sections are those of TIFF 6.0 (Adobe, 1992); BigTIFF is libtiff's extension.

    header     byte order (2 bytes), 42 (2), offset of the first directory (4)                   section 2
               BigTIFF: byte order (2), 43 (2), 8 (2), 0 (2), offset (8)
    directory  number of entries (2; BigTIFF: 8), entries                                        section 2
    entry      tag (2), type (2), count (4; BigTIFF: 8), value or its offset (4; BigTIFF: 8)     section 2
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError

from cuaug.errors import DecodeError

__all__ = ["TIFF_SIGNATURES", "check_tiff"]

_BIG_ENDIAN_BIGTIFF = b"MM\0+"

TIFF_SIGNATURES = (b"II*\0", b"MM\0*", b"II+\0", _BIG_ENDIAN_BIGTIFF, b"II\0*", b"MM*\0")
"""The last two are invalid, yet Pillow reads them."""

_TAGS = {
    256: "ImageWidth",  # section 8
    257: "ImageLength",  # section 8: the height
    322: "TileWidth",  # section 15
    323: "TileLength",  # section 15: the height
    277: "SamplesPerPixel",  # section 8
}
_TYPE_BYTES = {3: 2, 4: 4, 16: 8}
"""Bytes of SHORT, LONG (section 2) and LONG8 (BigTIFF)."""

_MAX_SAMPLES = 6
"""Pillow reads no more samples per pixel."""

_MAX_ENTRIES = 4096
"""libtiff's limit for a BigTIFF directory; Pillow reads as many entries as the file has room for."""


def check_tiff(data: bytes, max_pixels: int) -> None:
    """Refuse tiles that hold more than 2 * `max_pixels` pixels together.

    Each tag above must occur once, with one SHORT, LONG or LONG8 value: libtiff and Pillow disagree on anything else.

    Raises:
        DecodeError: too many pixels in tiles; a tile size of zero; too many samples; a malformed tag; or a big-endian
            BigTIFF, for which Pillow looks for the directory elsewhere.
    """
    if data[:4] == _BIG_ENDIAN_BIGTIFF:
        raise DecodeError("a big-endian BigTIFF is not read: convert it to a little-endian one, or to a TIFF")
    values: dict[int, int] = {}
    try:
        for tag, kind, count, value in _directory(data):
            if tag in _TAGS:
                size = _TYPE_BYTES.get(kind, 9)
                if tag in values or count != 1 or size > len(value):
                    raise DecodeError(f"the TIFF's tag {_TAGS[tag]} must occur once, as one SHORT or LONG")
                values[tag] = int.from_bytes(value[:size], "little" if data[:1] == b"I" else "big")
    except (StructError, OverflowError):  # an offset beyond the file; Pillow names the missing bytes
        return
    width, height, tile_width, tile_height, samples = (values.get(tag, 0) for tag in _TAGS)
    if samples > _MAX_SAMPLES:
        raise DecodeError(f"the TIFF has {samples} samples per pixel, and Pillow reads up to {_MAX_SAMPLES}")
    if 322 not in values and 323 not in values:
        return
    if not tile_width or not tile_height:
        raise DecodeError(f"the TIFF claims tiles of {tile_height} x {tile_width} pixels (height x width)")
    decoded = -(-height // tile_height) * tile_height * -(-width // tile_width) * tile_width
    if decoded > 2 * max_pixels:
        raise DecodeError(
            f"the TIFF's tiles of {tile_height} x {tile_width} pixels (height x width) have {decoded} pixels together, "
            f"above the limit of {2 * max_pixels}, which max_pixels sets"
        )


def _directory(data: bytes) -> list[tuple[int, int, int, bytes]]:
    """Read (tag, type, count, value or offset) of the first directory's entries."""
    big = data[2:4] == b"+\0"
    order = "<" if data[:1] == b"I" else ">"
    offset, count, entry = (Struct(order + form) for form in (("Q", "Q", "HHQ8s") if big else ("I", "H", "HHI4s")))
    (at,) = offset.unpack_from(data, 8 if big else 4)
    (entries,) = count.unpack_from(data, at)
    if big and entries > _MAX_ENTRIES:
        raise DecodeError(f"the BigTIFF's first directory has {entries} entries, more than {_MAX_ENTRIES}")
    at += count.size
    return [entry.unpack_from(data, at + i * entry.size) for i in range(entries)]
