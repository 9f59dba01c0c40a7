"""TIFF: reads directories, counts pages and bands, and bounds tiles.

libtiff allocates and decodes whole tiles, however small the image is.

Sections are those of TIFF 6.0 (Adobe, 1992); BigTIFF is libtiff's extension.

    header     byte order (2 bytes), 42 (2), offset of the first directory (4)                   section 2
               BigTIFF: byte order (2), 43 (2), 8 (2), 0 (2), offset (8)
    directory  number of entries (2; BigTIFF: 8), entries                                        section 2
    entry      tag (2), type (2), count (4; BigTIFF: 8), value or its offset (4; BigTIFF: 8)     section 2
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from cuaug.errors import DecodeError

__all__ = ["MAX_BANDS", "TIFF_SIGNATURES", "TiffDirectory", "check_tiff", "count_pages", "read_directory", "tiff_loss"]

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

MAX_BANDS = 16
"""Bands that mode="unchanged" reads."""

_MAX_ENTRIES = 4096
"""libtiff's limit for a BigTIFF directory; Pillow reads as many entries as the file has room for."""

_MAX_PAGES = 100
"""Pages are counted up to this number."""

_BITS, _PHOTOMETRIC, _SAMPLES, _EXTRA_SAMPLES, _SAMPLE_FORMAT = 258, 262, 277, 338, 339  # section 8, 18, 19
_SUBFILE_TYPE = 254  # section 8: 1 a smaller copy of another page, 4 its transparency mask
_UNSIGNED = 1
_COLOR_BANDS = {0: 1, 1: 1, 2: 3, 3: 1, 5: 4, 6: 3, 8: 3}
"""Bands of each photometric interpretation, without alpha: gray, RGB, palette, CMYK, YCbCr, Lab."""


class TiffDirectory(NamedTuple):
    """A directory of a TIFF: its tags, and the offset of the next one, 0 for none."""

    data: bytes
    entries: dict[int, tuple[int, int, bytes]]  # tag: type, count, value or offset
    next: int

    def values(self, tag: int, default: int | None = None, limit: int = 1 << 20) -> list[int]:
        """The integers of a tag, at most `limit` of them.

        Raises:
            DecodeError: the tag is missing and has no default, or is of another type.
            struct.error: its values lie beyond the file.
        """
        if tag not in self.entries:
            if default is None:
                raise DecodeError(f"the TIFF has no tag {tag}")
            return [default]
        kind, count, value = self.entries[tag]
        letter = {1: "B", 3: "H", 4: "I", 16: "Q"}.get(kind)
        if letter is None or not count:
            raise DecodeError(f"the TIFF's tag {tag} holds no integers")
        order = _order(self.data)
        layout = Struct(f"{order}{min(count, limit)}{letter}")
        if count * Struct(order + letter).size <= len(value):
            return list(layout.unpack_from(value))
        (offset,) = Struct(order + ("Q" if len(value) == 8 else "I")).unpack(value)
        return list(layout.unpack_from(self.data, offset))

    def value(self, tag: int, default: int | None = None) -> int:
        return self.values(tag, default, 1)[0]


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
        for tag, kind, count, value in _entries(data, _first_offset(data))[0]:
            if tag in _TAGS:
                size = _TYPE_BYTES.get(kind, 9)
                if tag in values or count != 1 or size > len(value):
                    raise DecodeError(f"the TIFF's tag {_TAGS[tag]} must occur once, as one SHORT or LONG")
                values[tag] = int.from_bytes(value[:size], "little" if data[:1] == b"I" else "big")
    except (StructError, OverflowError):  # an offset beyond the file; Pillow names the missing bytes
        return
    width, height, tile_width, tile_height, samples = (values.get(tag, 0) for tag in _TAGS)
    if samples > _MAX_SAMPLES:
        raise DecodeError(
            f"the TIFF has {samples} samples per pixel, and Pillow reads up to {_MAX_SAMPLES}; "
            'decode=cuaug.DecodeOptions(mode="unchanged") reads up to 16'
        )
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


def count_pages(data: bytes) -> int:
    """Count the pages, up to 100; smaller copies and transparency masks of a page are none."""
    pages, seen, at = 0, set[int](), None
    try:
        while at != 0 and at not in seen and pages < _MAX_PAGES:
            if at is not None:
                seen.add(at)
            directory = read_directory(data, at)
            if not directory.entries:
                break
            is_page = not directory.value(_SUBFILE_TYPE, 0) & 5
            pages, at = pages + (is_page or not pages), directory.next
    except (DecodeError, StructError, OverflowError):  # no directory follows
        pass
    return pages


def tiff_loss(data: bytes) -> str:
    """The loss of the first page's samples in 8-bit RGB, such as "16-bit samples"; "" without a loss.

    Damaged tags lose nothing: Pillow names the damage. Signed, float and wider samples are refused when they are
    decoded: no 8 bits can be chosen of them.
    """
    try:
        directory = read_directory(data)
        bits, bands = max(directory.values(_BITS, 1, 64)), directory.value(_SAMPLES, 1)
        formats = directory.values(_SAMPLE_FORMAT, 1, 64)
        extra = directory.values(_EXTRA_SAMPLES, 2, 64)
        color_bands = _COLOR_BANDS.get(directory.value(_PHOTOMETRIC, 1), bands)
    except (DecodeError, StructError, OverflowError):
        return ""
    # Section 18: 0 is a band of unknown meaning; 1 and 2 are alpha.
    is_lost = bands > color_bands + 1 or (bands == color_bands + 1 and extra[0] not in (1, 2))
    if is_lost and bands <= MAX_BANDS:
        return f"{bands} bands"
    return "16-bit samples" if bits == 16 and formats[0] == _UNSIGNED else ""


def read_directory(data: bytes, at: int | None = None) -> TiffDirectory:
    """Read the directory at an offset; None: the first one. A repeated tag keeps its first value.

    Raises:
        struct.error, OverflowError: it lies beyond the file.
        DecodeError: it has too many entries.
    """
    begin = _first_offset(data) if at is None else at
    entries, end = _entries(data, begin, bounded=at is not None)
    tags: dict[int, tuple[int, int, bytes]] = {}
    for tag, kind, count, value in entries:
        tags.setdefault(tag, (kind, count, value))
    (following,) = Struct(_order(data) + ("Q" if _is_big(data) else "I")).unpack_from(data, end)
    return TiffDirectory(data, tags, following)


def _order(data: bytes) -> str:
    return "<" if data[:1] == b"I" else ">"


def _is_big(data: bytes) -> bool:
    return data[2:4] in (b"+\0", b"\0+")


def _first_offset(data: bytes) -> int:
    big = _is_big(data)
    offset: int = Struct(_order(data) + ("Q" if big else "I")).unpack_from(data, 8 if big else 4)[0]
    return offset


def _entries(data: bytes, at: int, *, bounded: bool = False) -> tuple[list[tuple[int, int, int, bytes]], int]:
    """(tag, type, count, value or offset) of a directory's entries, and the offset behind them."""
    big = _is_big(data)
    count, entry = (Struct(_order(data) + form) for form in (("Q", "HHQ8s") if big else ("H", "HHI4s")))
    (entries,) = count.unpack_from(data, at)
    if (big or bounded) and entries > _MAX_ENTRIES:
        kind = "TIFF's next" if bounded else "BigTIFF's first"
        raise DecodeError(f"the {kind} directory has {entries} entries, more than {_MAX_ENTRIES}")
    at += count.size
    return [entry.unpack_from(data, at + i * entry.size) for i in range(entries)], at + entries * entry.size
