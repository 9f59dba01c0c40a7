"""Reads TIFF pixels as stored: any number of bands, 8-bit, 16-bit and float samples.

Pillow reduces 16-bit color to 8 bits, and reads neither more than 4 bands as they are nor float color. Sections are
those of TIFF 6.0 (Adobe, 1992).

    strips, tiles   sections 3 and 15; decoded whole, then cut to the image
    planes          section 14, PlanarConfiguration 2: each band has strips or tiles of its own
    compression     none and Deflate here; libtiff, through Pillow, expands LZW, PackBits, LZMA and Zstandard
    predictor       section 14: differences of neighbors; for float samples Adobe's Technical Note 3
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from struct import error as StructError
from struct import pack
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.limits import check_pixels, check_sample_bytes
from cuaug.codec.formats.pillow import error_message, pillow_open
from cuaug.codec.formats.tiff import MAX_BANDS, TiffDirectory, read_directory
from cuaug.codec.sniff import orient_array
from cuaug.errors import DecodeError

__all__ = ["read_tiff"]

_MAX_SEGMENTS = 1 << 16
"""Strips and tiles: libtiff takes 0.1 ms to open each."""

_RAW, _PACKBITS, _DEFLATE = 1, 32773, (8, 32946)
_BY_LIBTIFF = (5, _PACKBITS, 34925, 50000)
_DTYPES: dict[tuple[int, int], np.dtype[Any]] = {
    (8, 1): np.dtype("u1"),
    (16, 1): np.dtype("u2"),
    (32, 3): np.dtype("f4"),
}
_FORMATS = {1: "uint", 2: "int", 3: "float"}
_NO_PREDICTOR, _DIFFERENCES, _FLOAT_DIFFERENCES = 1, 2, 3


def read_tiff(data: bytes, *, apply_exif: bool, max_pixels: int) -> NDArray[Any] | None:
    """Read the first page with its samples as stored.

    Args:
        apply_exif: rotate and flip the image by its tag Orientation.
        max_pixels: limit on height x width, an eighth of the limit on bytes.

    Returns:
        (H, W, C) uint8, uint16 or float32, gray with 0 for black; None for a page that Pillow reads exactly: palettes,
        YCbCr, JPEG, less than 8 bits.

    Raises:
        DecodeError: another dtype, more than 16 bands, an unknown compression, too large, or damaged.
    """
    try:
        tags = read_directory(data)
        page = _read_page(tags, max_pixels)
        if page is None:
            return None
        return orient_array(page.decode(), tags.value(274, 1) if apply_exif else 1)
    except (StructError, OverflowError) as error:
        raise DecodeError("the TIFF is cut short: a tag or its values lie beyond the file") from error


def _read_page(tags: TiffDirectory, max_pixels: int) -> _Page | None:
    width, height = tags.value(256), tags.value(257)
    check_pixels(height, width, max_pixels)
    bands, photometric, compression = tags.value(277, 1), tags.value(262), tags.value(259, _RAW)
    bits, formats = set(tags.values(258, 1, 64)), set(tags.values(339, 1, 64))
    is_common = photometric in (0, 1, 2, 5) and tags.value(266, 1) == 1  # FillOrder
    if max(bits) <= 8 and bands <= 4 and formats == {1}:
        known = compression in (_RAW, *_DEFLATE, *_BY_LIBTIFF)
        if bits != {8} or not is_common or not known:
            return None
    if not is_common:
        raise DecodeError(
            f"the TIFF's samples have the photometric interpretation {photometric} and {max(bits)} bits, which cuaug "
            "does not read: convert it to gray or RGB"
        )
    dtype = _DTYPES.get((max(bits), max(formats))) if len(bits) == len(formats) == 1 else None
    if dtype is None:
        name = f"{_FORMATS.get(max(formats), 'unknown')}{max(bits)}"
        raise DecodeError(f"the TIFF has {name} samples: uint8, uint16 and float32 are read, so convert it to one")
    if not 1 <= bands <= MAX_BANDS:
        raise DecodeError(f"the TIFF has {bands} bands: 1 to {MAX_BANDS} are read")
    if photometric == 0 and dtype.kind == "f":
        raise DecodeError("the TIFF's float samples count from white, which has no fixed value: store black as 0")
    check_sample_bytes(height, width, bands, dtype.itemsize, max_pixels)
    is_tiled = 322 in tags.entries or 323 in tags.entries
    tile = (tags.value(323), tags.value(322)) if is_tiled else (min(tags.value(278, height), height), width)
    check_pixels(*tile, 2 * max(max_pixels, 1 << 20), "the TIFF claims tiles or strips of")
    padded = -(-height // tile[0]) * tile[0] * -(-width // tile[1]) * tile[1]
    if is_tiled and padded > 2 * max(max_pixels, 1 << 20):
        raise DecodeError(
            f"the TIFF's tiles of {tile[0]} x {tile[1]} pixels (height x width) have {padded} pixels together, above "
            f"the limit of {2 * max(max_pixels, 1 << 20)}, which max_pixels sets"
        )
    page = _Page(
        data=tags.data,
        shape=(height, width, bands),
        dtype=dtype,
        order="<" if tags.data[:1] == b"I" else ">",
        tile=tile,
        is_planar=tags.value(284, 1) == 2,
        compression=compression,
        # libtiff ignores the tag where nothing, or PackBits, compresses.
        predictor=_NO_PREDICTOR if compression in (_RAW, _PACKBITS) else tags.value(317, _NO_PREDICTOR),
        is_inverted=photometric == 0,
        segments=[],
    )
    count = len(page.corners)
    if count > _MAX_SEGMENTS:
        raise DecodeError(f"the TIFF has {count} strips or tiles, more than {_MAX_SEGMENTS}: store larger ones")
    offsets, sizes = (tags.values(tag) for tag in ((324, 325) if is_tiled else (273, 279)))
    if len(offsets) != count or len(sizes) != count or sum(sizes) > len(tags.data):
        raise DecodeError(f"the TIFF must have {count} strips or tiles that do not overlap, not {len(offsets)}")
    page.segments.extend(zip(offsets, sizes, strict=True))
    return page


@dataclass(frozen=True)
class _Page:
    """How the pixels of a page are stored.

    Attributes:
        shape: (height, width, bands).
        tile: (height, width) of each tile or strip; the last strip ends with the image.
        segments: (offset, bytes) of each tile or strip, plane after plane.
    """

    data: bytes
    shape: tuple[int, int, int]
    dtype: np.dtype[Any]
    order: Literal["<", ">"]
    tile: tuple[int, int]
    is_planar: bool
    compression: int
    predictor: int
    is_inverted: bool
    segments: list[tuple[int, int]]

    @property
    def corners(self) -> range:
        """One number per tile or strip."""
        height, width, bands = self.shape
        per_plane = -(-height // self.tile[0]) * -(-width // self.tile[1])
        return range(per_plane * (bands if self.is_planar else 1))

    def decode(self) -> NDArray[Any]:
        height, width, bands = self.shape
        tile_height, tile_width = self.tile
        rows, columns = -(-height // tile_height), -(-width // tile_width)
        out = np.empty(self.shape, self.dtype)
        channels = 1 if self.is_planar else bands
        for number, (offset, size) in enumerate(self.segments):
            plane, place = divmod(number, rows * columns)
            y, x = place // columns * tile_height, place % columns * tile_width
            is_strip = columns == 1 and tile_width == width
            stored_height = min(tile_height, height - y) if is_strip else tile_height
            pixels = self._segment(self.data[offset : offset + size], (stored_height, tile_width, channels))
            pixels = pixels[: height - y, : width - x]
            part = out[y : y + tile_height, x : x + tile_width]
            part[:, :, plane : plane + channels] = pixels
        return np.subtract(np.iinfo(self.dtype).max, out, dtype=self.dtype) if self.is_inverted else out

    def _segment(self, data: bytes, shape: tuple[int, int, int]) -> NDArray[Any]:
        """Decode a strip or tile, (height, width, channels) in native byte order."""
        height, width, channels = shape
        row_bytes = width * channels * self.dtype.itemsize
        stored = _expand(data, self.compression, height, row_bytes)
        if self.predictor == _FLOAT_DIFFERENCES and self.dtype.kind == "f":
            summed = np.cumsum(stored.reshape(height, -1, channels), axis=1, dtype=np.uint8)
            planes = summed.reshape(height, self.dtype.itemsize, width * channels)
            big_endian = np.ascontiguousarray(planes.transpose(0, 2, 1)).view(self.dtype.newbyteorder(">"))
            return big_endian.astype(self.dtype).reshape(shape)
        samples = stored.view(self.dtype.newbyteorder(self.order)).astype(self.dtype).reshape(shape)
        if self.predictor == _DIFFERENCES:
            integers = samples.view(f"u{self.dtype.itemsize}")
            return np.cumsum(integers, axis=1, dtype=integers.dtype).view(self.dtype)
        if self.predictor != _NO_PREDICTOR:
            raise DecodeError(f"the TIFF's predictor {self.predictor} does not fit its {self.dtype} samples")
        return samples


def _expand(data: bytes, compression: int, rows: int, row_bytes: int) -> NDArray[np.uint8]:
    """The bytes of a strip or tile, (rows, row_bytes)."""
    size = rows * row_bytes
    if compression == _RAW:
        expanded = data[:size]
    elif compression in _DEFLATE:
        try:
            expanded = zlib.decompressobj().decompress(data, size)
        except zlib.error as error:
            raise DecodeError(f"the TIFF's Deflate data are damaged: {error}") from error
    elif compression in _BY_LIBTIFF:
        return _expand_by_libtiff(data, compression, rows, row_bytes)
    else:
        raise DecodeError(
            f"the TIFF's compression {compression} is read for up to 4 bands of 8 bits: store it as LZW or Deflate"
        )
    if len(expanded) < size:
        raise DecodeError(f"the TIFF is cut short or damaged: a strip or tile has {len(expanded)} of {size} bytes")
    return np.frombuffer(expanded, np.uint8).reshape(rows, row_bytes)


def _expand_by_libtiff(data: bytes, compression: int, rows: int, row_bytes: int) -> NDArray[np.uint8]:
    """Expand by a TIFF of one strip, whose 8-bit gray pixels are the bytes: libtiff bounds them by its size."""
    tags = {256: row_bytes, 257: rows, 258: 8, 259: compression, 262: 1, 273: 122, 277: 1, 278: rows, 279: len(data)}
    entries = b"".join(pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    file = b"II*\0" + pack("<IH", 8, len(tags)) + entries + b"\0" * 4 + data
    try:
        return np.array(pillow_open(file))
    except DecodeError:
        raise
    except Exception as error:  # Pillow's parsers raise any exception type on a damaged file
        raise DecodeError(f"a strip or tile of the TIFF: {error_message(error)}") from error
