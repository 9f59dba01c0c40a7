"""TIFF: counts pages and bands, bounds tiles, and reads samples that Pillow does not keep by tifffile.

libtiff and tifffile allocate and decode whole tiles, however small the image is.

Sections are those of TIFF 6.0 (Adobe, 1992); BigTIFF is libtiff's extension.

    header     byte order (2 bytes), 42 (2), offset of the first directory (4)                   section 2
               BigTIFF: byte order (2), 43 (2), 8 (2), 0 (2), offset (8)
    directory  number of entries (2; BigTIFF: 8), entries                                        section 2
    entry      tag (2), type (2), count (4; BigTIFF: 8), value or its offset (4; BigTIFF: 8)     section 2
"""

from __future__ import annotations

import io
from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.extras import require_module
from cuaug._runtime.limits import check_pixels, check_sample_bytes
from cuaug.codec.sniff import orient_array
from cuaug.errors import DecodeError

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

_COMPRESSION, _ORIENTATION, _PREDICTOR = 259, 274, 317
_SAMPLE_TAGS = (256, 257, 258, 259, 262, 273, 277, 278, 279, 284, 317, 322, 323, 324, 325, 339)
_COMPRESSIONS = (1, 5, 8, 32773, 32946, 34925, 50000)
"""None, LZW, Deflate, PackBits, Deflate, LZMA, Zstandard: imagecodecs expands them to the size of a strip or tile."""
_DTYPES: dict[Any, np.dtype[Any]] = {
    (_UNSIGNED, 8): np.dtype("u1"),
    (_UNSIGNED, 16): np.dtype("u2"),
    (3, 32): np.dtype("f4"),
}
_FORMATS = {1: "uint", 2: "int", 3: "float"}
_MAX_SEGMENTS = 1 << 16
_MIN_TILE_LIMIT = 1 << 20


class _TiffDirectory(NamedTuple):
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
    _check_tiles(height, width, tile_height, tile_width, max_pixels)


def _check_tiles(height: int, width: int, tile_height: int, tile_width: int, max_pixels: int) -> None:
    if tile_width < 1 or tile_height < 1:
        raise DecodeError(f"the TIFF claims tiles or strips of {tile_height} x {tile_width} pixels (height x width)")
    decoded = -(-height // tile_height) * tile_height * -(-width // tile_width) * tile_width
    if decoded > 2 * max_pixels:
        raise DecodeError(
            f"the TIFF's tiles of {tile_height} x {tile_width} pixels (height x width) have {decoded} pixels together, "
            f"above the limit of {2 * max_pixels}, which max_pixels sets"
        )


def read_tiff(data: bytes, *, apply_exif: bool, max_pixels: int) -> NDArray[Any] | None:
    """Read the first page with its samples as stored, by tifffile.

    Args:
        apply_exif: rotate and flip the image by its tag Orientation.
        max_pixels: limit on height x width, an eighth of the limit on bytes.

    Returns:
        (H, W, C) uint8, uint16 or float32, gray with 0 for black; None for a page that Pillow reads exactly.

    Raises:
        DecodeError: another dtype, more than 16 bands, an unknown compression, too large, or damaged.
        LoaderError: tifffile or imagecodecs is missing.
    """
    try:
        tags = _read_directory(data)
        if _is_kept_by_pillow(tags):
            return None
        orientation = tags.value(_ORIENTATION, 1) if apply_exif else 1
    except (StructError, OverflowError) as error:
        raise DecodeError("the TIFF is cut short: a tag or its values lie beyond the file") from error
    require_module("imagecodecs", "tiff", "this TIFF")  # else tifffile's own codecs expand without a limit
    tifffile = require_module("tifffile", "tiff", "this TIFF")
    page = tifffile.TiffFile(io.BytesIO(_with_sample_tags(tags))).pages[0]
    _check_page(page, max_pixels)
    try:
        planes = page.asarray(squeeze=False, maxworkers=1)[:, 0]  # (planes, H, W, bands of each)
    except Exception as error:  # each codec raises errors of its own
        cause = " ".join(f"{type(error).__name__}: {error}".split())
        raise DecodeError(f"a strip or tile of the TIFF is damaged, or larger than its pixels: {cause}") from error
    pixels = np.moveaxis(planes.astype(page.dtype), 0, 2).reshape(
        page.imagelength, page.imagewidth, page.samplesperpixel
    )
    return orient_array(~pixels if page.photometric == 0 else pixels, orientation)


def _is_kept_by_pillow(tags: _TiffDirectory) -> bool:
    """Whether Pillow has every band as stored: up to 8 bits of known meaning, 16-bit gray, lossy compression."""
    bits, formats = set(tags.values(_BITS, 1, 64)), set(tags.values(_SAMPLE_FORMAT, 1, 64))
    bands, photometric = tags.value(_SAMPLES, 1), tags.value(_PHOTOMETRIC)
    color_bands = _COLOR_BANDS.get(photometric)
    if tags.data[:4] == _BIG_ENDIAN_BIGTIFF:
        return False
    if max(bits) > 8 or formats != {_UNSIGNED}:
        return bands == photometric == 1 and bits == {16} and formats == {_UNSIGNED}
    is_known = bands == color_bands or (bands - 1 == color_bands and tags.value(_EXTRA_SAMPLES, 0) == 2)
    return is_known or (bands <= 4 and (bits != {8} or tags.value(_COMPRESSION, 1) not in _COMPRESSIONS))


def _with_sample_tags(tags: _TiffDirectory) -> bytes:
    """The file with a directory of one page, of the tags that say where its samples are.

    tifffile acts on tags of forty programs, some of which change pixels, and loads the values of repeated tags.

    Raises:
        DecodeError: more strips or tiles than the limit.
    """
    data, order, is_big = tags.data, _order(tags.data), _is_big(tags.data)
    kept = {tag: tags.entries[tag] for tag in _SAMPLE_TAGS if tag in tags.entries}
    if tags.value(_COMPRESSION, 1) in (1, 32773):
        kept.pop(_PREDICTOR, None)  # as libtiff: nothing, or PackBits, has no predictor
    segments = max(count for _, count, _ in kept.values())
    if segments > _MAX_SEGMENTS:
        raise DecodeError(f"the TIFF has {segments} strips or tiles, more than {_MAX_SEGMENTS}: store larger ones")
    head, count, entry = ("HHHQ", "Q", "HHQ8s") if is_big else ("HI", "H", "HHI4s")
    version = (43, 8, 0) if is_big else (42,)
    header = data[:2] + Struct(order + head).pack(*version, len(data))
    entries = b"".join(Struct(order + entry).pack(tag, *values) for tag, values in kept.items())
    return header + data[len(header) :] + Struct(order + count).pack(len(kept)) + entries + bytes(8)


def _check_page(page: Any, max_pixels: int) -> None:
    """Refuse what is too large, not read, or has not all its strips or tiles."""
    height, width, bands, photometric = page.imagelength, page.imagewidth, page.samplesperpixel, page.photometric
    dtype, limit = _DTYPES.get((page.sampleformat, page.bitspersample)), max(max_pixels, _MIN_TILE_LIMIT)
    check_pixels(height, width, max_pixels)
    # tifffile leaves pixels of an unknown layout unset.
    layout = {
        "photometric interpretation": (photometric, (0, 1, 2, 5)),
        "planar configuration": (page.planarconfig, (1, 2)),
    }
    layout |= {"compression": (page.compression, _COMPRESSIONS), "predictor": (page.predictor, (1, 2, 3))}
    for name, (value, known) in layout.items():
        if value not in known:
            raise DecodeError(
                f"the TIFF has the {name} {value:d}, which cuaug does not read with {page.bitspersample}-bit samples: "
                "convert it to gray or RGB, stored as LZW or Deflate"
            )
    if dtype is None:
        name = f"{_FORMATS.get(page.sampleformat, 'unknown')}{page.bitspersample}"
        raise DecodeError(f"the TIFF has {name} samples: uint8, uint16 and float32 are read, so convert it to one")
    if not 1 <= bands <= MAX_BANDS:
        raise DecodeError(f"the TIFF has {bands} bands: 1 to {MAX_BANDS} are read")
    if photometric == 0 and dtype.kind == "f":
        raise DecodeError("the TIFF's float samples count from white, which has no fixed value: store black as 0")
    check_sample_bytes(height, width, bands, dtype.itemsize, max_pixels)
    tile = (page.tilelength, page.tilewidth) if page.is_tiled else (page.rowsperstrip, width)
    _check_tiles(height, width, *tile, limit)
    check_sample_bytes(*tile, bands, dtype.itemsize, 2 * limit)
    offsets, sizes, count = page.dataoffsets, page.databytecounts, int(np.prod(page.chunked))
    is_whole = len(offsets) == len(sizes) == count and min(*offsets, *sizes) > 0
    if not is_whole or sum(sizes) > page.parent.filehandle.size:
        raise DecodeError(f"the TIFF must have {count} strips or tiles that do not overlap, not {len(offsets)}")


def count_pages(data: bytes) -> int:
    """Count the pages, up to 100; smaller copies and transparency masks of a page are none."""
    pages, seen, at = 0, set[int](), None
    try:
        while at != 0 and at not in seen and pages < _MAX_PAGES:
            if at is not None:
                seen.add(at)
            directory = _read_directory(data, at)
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
        directory = _read_directory(data)
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


def _read_directory(data: bytes, at: int | None = None) -> _TiffDirectory:
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
    return _TiffDirectory(data, tags, following)


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
