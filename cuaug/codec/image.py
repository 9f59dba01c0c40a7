"""What an encoded image says of itself before it is decoded: its size, and who is to decode it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any

from cuaug.codec._nvimgcodec import open_streams
from cuaug.codec._nvimgcodec_c import stored_size
from cuaug.codec._pillow import pillow_open, pillow_orientation
from cuaug.codec.avif import AVIF_BRANDS, as_still_avif
from cuaug.codec.exif import Region, turned_region
from cuaug.codec.jpeg2000 import CODESTREAM, check_jpeg2000
from cuaug.codec.jpeg_crop import JpegIndex, cut_out, worth_cutting
from cuaug.codec.sniff import (
    MAX_FULL_SCANS,
    MAX_SCANS,
    count_scans,
    file_format,
    jpeg_headers,
    orientation,
    swaps_axes,
    webp_size,
)
from cuaug.codec.tiff import TIFF_SIGNATURES, check_tiff
from cuaug.errors import DecodeError
from cuaug.limits import DEFAULT_MAX_PIXELS, check_pixels

__all__ = [
    "NARROW",
    "EncodedImage",
    "EncodedJpeg",
    "read_header",
    "read_jpeg_headers",
    "read_other_header",
]

NARROW = 8
"""Regions of fewer pixels across are cut from the whole picture: libjpeg leaves out the smoothing of chroma when a
picture, or a cropped row of it, is a few pixels wide, so the region would differ from the picture by some levels."""

_LATER = object()
"""In place of a stream that is opened when it is asked for."""

_SMALL_PIXELS = 1 << 20
"""Tiles and frames may have so many, whatever `max_pixels` is: a tile may be larger than its picture."""

_LEAST_LEFT_OUT = 8192
"""Bytes of a JPEG that a part must leave out to pay for its checksum and for being copied; else no index is asked."""


class EncodedImage:
    """What is known of an encoded image before its pixels: made by `read_header`, taken by the decoders.

    Attributes:
        height, width: the size in pixels as displayed, that is after the EXIF orientation when it is applied.
        for_gpu: whether nvImageCodec decodes it on a GPU, where it has one: of what it is given here, JPEG alone.
        restarts: MCUs from one restart marker to the next; 0 where there are none, and of what is a part already.
    """

    __slots__ = ("_data", "_opened", "_orientation", "height", "restarts", "width")

    for_gpu = False

    def __init__(self, height: int, width: int, data: Any, stream: Any, applied: int, restarts: int = 0) -> None:
        self.height = height
        self.width = width
        self._data = data
        self._opened = stream
        self.restarts = restarts
        self._orientation = applied  # what the decoder is to undo; 1 where the user asked to ignore EXIF

    @property
    def for_pillow(self) -> bool:
        """Whether nvImageCodec is not asked at all."""
        return self._opened is None

    @property
    def stored_size(self) -> tuple[int, int]:
        """Height and width as stored."""
        return (self.width, self.height) if swaps_axes(self._orientation) else (self.height, self.width)

    @property
    def _stream(self) -> Any:
        """nvImageCodec's CodeStream, or None where Pillow decodes: for the decoders of a GPU."""
        if self._opened is _LATER:
            (self._opened,) = open_streams([self._data])
        return self._opened

    def stored(self, region: Region) -> Region:
        """Where a region lies in the picture as it is stored."""
        if self._orientation == 1:
            return region
        return turned_region(region, (self.height, self.width), self._orientation, back=True)

    def worth_cutting(self, stored: Region, index: JpegIndex | None = None) -> bool:
        """Whether a region, as stored, may be cut out of a JPEG, and so much be left out that it pays."""
        y0, x0, y1, x1 = stored
        if not (self.restarts or (index and self.for_gpu)) or min(y1 - y0, x1 - x0) < NARROW:
            return False
        return worth_cutting(stored, self.stored_size, len(self._data), 0 if self.restarts else _LEAST_LEFT_OUT)

    def part(self, region: Region) -> tuple[EncodedJpeg, Region] | None:
        """The part of a JPEG that holds a region, as a JPEG of its own, and where the region lies in its picture.

        None where restart markers do not let it be cut out, all of the file is needed, or the region is narrow.
        """
        if not self.worth_cutting(self.stored(region)):
            return None
        cut = cut_out(self._data, region, (self.height, self.width), self._orientation)
        if cut is None:
            return None
        data, (height, width), within = cut
        (stream,) = open_streams([data])
        if stream is None:
            return None
        return EncodedJpeg(height, width, data.data, stream, self._orientation), within

    def __repr__(self) -> str:
        return f"EncodedImage(height={self.height}, width={self.width})"


class EncodedJpeg(EncodedImage):
    """The header of a JPEG that nvImageCodec decodes."""

    __slots__ = ()

    for_gpu = True


def read_header(data: bytes, *, apply_exif: bool = True, max_pixels: int = DEFAULT_MAX_PIXELS) -> EncodedImage:
    """Read an encoded image's size, without decoding it and without allocating for it.

    Args:
        data: the whole file.
        apply_exif: turn the picture as its EXIF orientation says. Orientation in XMP is not read.
        max_pixels: refuse a header that claims more than this many pixels.

    Raises:
        DecodeError: nothing there, not an image, a size that is zero or above `max_pixels`, or a JPEG that would take
            minutes to decode. It carries no path or index; add them with `.at()`.
    """
    if not isinstance(data, bytes):
        data = bytes(data)
    (header,) = read_jpeg_headers([data], apply_exif=apply_exif, max_pixels=max_pixels)
    return read_other_header(data, apply_exif=apply_exif, max_pixels=max_pixels) if header is None else header


def read_jpeg_headers(
    files: Sequence[bytes], *, apply_exif: bool, max_pixels: int, opened: bool = True
) -> list[EncodedImage | None]:
    """The headers of JPEGs as encoders write them, read together, and None for everything else: `read_other_header`
    tells.

    nvImageCodec, to which each property is a turn at the interpreter, is not asked for what the markers say. Unless it
    is to have `opened` them it opens a file when that is decoded, and none of which a part will do.
    """
    heights, widths, components, turns, restarts = jpeg_headers(files, max_pixels)
    # Of CMYK JPEGs some are inverted, by a rule on which decoders differ: those are Pillow's.
    common = [
        turn and (count == 3 or count == 1) and 0 < height * width <= max_pixels
        for height, width, count, turn in zip(heights, widths, components, turns, strict=True)
    ]
    all_common = all(common)
    if not all_common:
        files = list(compress(files, common))
        heights, widths, turns, restarts = (list(compress(each, common)) for each in (heights, widths, turns, restarts))
    for i in [i for i, turn in enumerate(turns) if turn != 1]:
        heights[i], widths[i], turns[i] = _displayed(heights[i], widths[i], turns[i], apply_exif)
    streams = open_streams(files) if opened else [_LATER] * len(files)
    headers = map(EncodedJpeg, heights, widths, files, streams, turns, restarts)
    return list(headers) if all_common else [next(headers) if one else None for one in common]


def _displayed(height: int, width: int, turn: int, apply_exif: bool) -> tuple[int, int, int]:
    """The size of a picture that is stored with this size and orientation, and the orientation to undo."""
    if not apply_exif:
        return height, width, 1
    return (width, height, turn) if swaps_axes(turn) else (height, width, turn)


def read_other_header(data: bytes, *, apply_exif: bool, max_pixels: int) -> EncodedImage:
    """The header of what `read_jpeg_headers` has given None for; raises as `read_header` does."""
    form = file_format(data)
    turn = orientation(data, form)
    if form == "jpeg":
        (height,), (width,), (components,), _, _ = jpeg_headers([data])
        if components:
            check_pixels(height, width, max_pixels)
    elif turn is not None:
        size = stored_size(data)
        if size is not None:  # else Pillow reads this header, or says what is wrong
            check_pixels(*size, max_pixels)
            height, width, turn = _displayed(*size, turn, apply_exif)
            return EncodedImage(height, width, data, _LATER, turn)
    return _pillow_header(data, form, turn, apply_exif, max_pixels)


def _pillow_header(data: bytes, form: str, turn: int | None, apply_exif: bool, max_pixels: int) -> EncodedImage:
    if not data:
        raise DecodeError("there are no bytes: the file is empty")
    scans = count_scans(data) if form == "jpeg" else 0
    if scans > MAX_SCANS:
        raise DecodeError(f"a JPEG of {scans} scans: more than {MAX_SCANS} would keep a decoder busy for minutes")
    claimed = webp_size(data) if form == "webp" else None
    if claimed is not None:  # Pillow allocates for it while it opens the file
        check_pixels(*claimed, max_pixels)
    data = _with_bounded_structure(data, max(max_pixels, _SMALL_PIXELS))
    image = pillow_open(data)
    # Pillow gives a TIFF's size as displayed since version 11, as stored before; the tags are always as stored.
    width, height = (image.tag_v2[256], image.tag_v2[257]) if image.format == "TIFF" else image.size
    check_pixels(height, width, max_pixels)  # before the EXIF, which a PNG may keep behind its pixels
    if scans * height * width > MAX_FULL_SCANS * max_pixels:
        raise DecodeError(
            f"a JPEG of {scans} scans of {height} x {width} pixels (height x width), {scans * height * width} pixels "
            f"together: above the limit of {MAX_FULL_SCANS * max_pixels}, which max_pixels sets"
        )
    if turn is None:
        turn = pillow_orientation(image) if apply_exif else 1
    height, width, turn = _displayed(height, width, turn, apply_exif)
    return EncodedImage(height, width, data, None, turn)


def _with_bounded_structure(data: bytes, max_pixels: int) -> bytes:
    """Checks that the file's inner structure costs no more than `max_pixels` allow; the file to decode."""
    if data[:4] in TIFF_SIGNATURES:
        check_tiff(data, max_pixels)
    elif data[4:8] == b"ftyp" and data[8:12] in AVIF_BRANDS:
        return as_still_avif(data, max_pixels)
    elif data[:4] == CODESTREAM or data[4:8] == b"jP  ":
        check_jpeg2000(data, max_pixels)
    return data
