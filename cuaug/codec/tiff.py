"""TIFF: bounds the tiles, which libtiff allocates and decodes in full, however small the picture is."""

from __future__ import annotations

from struct import Struct
from struct import error as StructError

from cuaug.errors import DecodeError

__all__ = ["TIFF_SIGNATURES", "check_tiff"]

_BIG_ENDIAN_BIGTIFF = b"MM\0+"

TIFF_SIGNATURES = (b"II*\0", b"MM\0*", b"II+\0", _BIG_ENDIAN_BIGTIFF, b"II\0*", b"MM*\0")
"""The last two are wrong, and Pillow reads them."""

_TAGS = {256: "ImageWidth", 257: "ImageLength", 322: "TileWidth", 323: "TileLength", 277: "SamplesPerPixel"}
_MAX_SAMPLES = 6  # Pillow reads no more
_TYPES = {3: 2, 4: 4, 16: 8}
"""SHORT, LONG and LONG8, by their bytes."""

_MAX_ENTRIES = 4096
"""Of a BigTIFF's directory, as libtiff has it; Pillow reads as many as the file has room for."""


def check_tiff(data: bytes, max_pixels: int) -> None:
    """Refuses tiles with more pixels than the limit, together and so each.

    Each tag that matters must occur once, as one SHORT, LONG or LONG8: libtiff and Pillow differ on others.

    Raises:
        DecodeError: more than 2 * `max_pixels`, a size of zero, too many samples, a tag that is not as it must be, or
            a big-endian BigTIFF, which Pillow takes for a TIFF with its directory elsewhere.
    """
    if data[:4] == _BIG_ENDIAN_BIGTIFF:
        raise DecodeError("a big-endian BigTIFF is not read: convert it to a little-endian one, or a TIFF")
    sizes: dict[int, int] = {}
    try:
        for tag, kind, count, value in _directory(data):
            if tag in _TAGS:
                size = _TYPES.get(kind, 9)
                if tag in sizes or count != 1 or size > len(value):
                    raise DecodeError(f"the TIFF's tag {_TAGS[tag]} must occur once, as one SHORT or LONG")
                sizes[tag] = int.from_bytes(value[:size], "little" if data[:1] == b"I" else "big")
    except StructError:  # Pillow says what is missing
        return
    width, height, tile_width, tile_height, samples = (sizes.get(tag, 0) for tag in _TAGS)
    if samples > _MAX_SAMPLES:
        raise DecodeError(f"the TIFF has {samples} samples per pixel, and Pillow reads up to {_MAX_SAMPLES}")
    if 322 not in sizes and 323 not in sizes:
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
    """(tag, type, count, value or offset) of the first directory's entries."""
    big = data[2:4] == b"+\0"
    order = "<" if data[:1] == b"I" else ">"
    offset, count, entry = (Struct(order + form) for form in (("Q", "Q", "HHQ8s") if big else ("I", "H", "HHI4s")))
    (at,) = offset.unpack_from(data, 8 if big else 4)
    (entries,) = count.unpack_from(data, at)
    if big and entries > _MAX_ENTRIES:
        raise DecodeError(f"the BigTIFF's first directory has {entries} entries, more than {_MAX_ENTRIES}")
    at += count.size
    return [entry.unpack_from(data, at + i * entry.size) for i in range(entries)]
