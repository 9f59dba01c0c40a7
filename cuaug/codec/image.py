"""Encoded and decoded images, the input of the decoders.

`read_header` makes an `EncodedImage` of a file's bytes: it decodes nothing and allocates nothing for pixels.
`DecodedImage` wraps pixels of arrays, data sets and caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.c_headers import read_struct, struct_dtype
from cuaug._runtime.limits import DEFAULT_MAX_PIXELS, check_pixels
from cuaug._runtime.native import data_address
from cuaug.codec._nvimgcodec import open_streams
from cuaug.codec._nvimgcodec_c import stored_size
from cuaug.codec.formats.avif import AVIF_BRANDS, as_still_avif
from cuaug.codec.formats.jpeg2000 import CODESTREAM, check_jpeg2000
from cuaug.codec.formats.loss import check_frames, check_pages, check_samples, log_alpha
from cuaug.codec.formats.pillow import pillow_decode, pillow_open, pillow_orientation
from cuaug.codec.formats.tiff import TIFF_SIGNATURES, check_tiff
from cuaug.codec.messages import capture_stderr
from cuaug.codec.sniff import (
    MAX_FULL_SCANS,
    MAX_SCANS,
    Region,
    count_scans,
    exif_orientation,
    file_format,
    jpeg_headers,
    swaps_axes,
    webp_size,
)
from cuaug.errors import DecodeError

IMAGE = struct_dtype(read_struct("jpeg/decode_region.h", "EncodedRegion"))
"""A file with one image, its size, and the region to decode."""

_UNOPENED = object()
"""Stands for a CodeStream that `_stream` opens on first access."""

_MIN_TILE_LIMIT = 1 << 20
"""Pixels that tiles and frames may have, however small `max_pixels` is: a tile may be larger than its image."""


class FileView(NamedTuple):
    """File `number` of a `FileReads`: one that native code has read, or of which it knows what it needs."""

    reads: Any
    number: int

    def read(self) -> Any:
        """The bytes, as `FileReads.read`: raises if the file cannot be read, or has changed meanwhile."""
        return self.reads.read(self.number)


class EncodedImage:
    """An encoded image with a known size. `read_header` makes it; the decoders take it.

    Attributes:
        height, width: displayed size in pixels: after the EXIF orientation, if that is applied.
        for_gpu: whether nvImageCodec decodes it on the GPU, which it does for JPEGs alone.
        restart_interval: MCUs between restart markers; 0 if there are none, or if the image is a JPEG crop.
    """

    __slots__ = ("_data", "_opened", "_orientation", "height", "restart_interval", "width")

    for_gpu = False

    def __init__(
        self, height: int, width: int, data: Any, stream: Any, orientation: int, restart_interval: int = 0
    ) -> None:
        self.height = height
        self.width = width
        self._data = data
        self._opened = stream
        self.restart_interval = restart_interval
        self._orientation = orientation  # for the decoder to apply; 1 if the user ignores EXIF

    @property
    def for_pillow(self) -> bool:
        """Whether Pillow decodes it, without a trial by nvImageCodec."""
        return self._opened is None

    @property
    def orientation(self) -> int:
        """The EXIF orientation that a decoder applies."""
        return self._orientation

    @property
    def data(self) -> Any:
        """The file: bytes, or (n,) uint8; raises as `FileView.read`."""
        if type(self._data) is FileView:
            self._data = self._data.read()
        return self._data

    @property
    def _stream(self) -> Any:
        """nvImageCodec's CodeStream for the GPU decoders, or None where Pillow decodes."""
        if self._opened is _UNOPENED:
            (self._opened,) = open_streams([self.data])
        return self._opened

    def file_row(self) -> tuple[int, ...]:
        """The fields of an `IMAGE` before its region.

        Keep the image while they are used.
        """
        data = self.data
        return (
            data_address(data), len(data), self.height, self.width, self._orientation, self.restart_interval,
            self.for_gpu,
        )  # fmt: skip

    def region_row(self, region: Region) -> NDArray[Any]:
        """(1,) `IMAGE`: a displayed region."""
        return np.array([(*self.file_row(), *region)], dtype=IMAGE)

    def decode_with_pillow(self, region: Region | None = None) -> tuple[NDArray[np.uint8] | DecodeError, list[str]]:
        """Decode a region, or all, with Pillow: (pixels or the error, lines that the libraries printed)."""
        outcome: NDArray[np.uint8] | DecodeError
        data = self.data if isinstance(self.data, bytes) else bytes(self.data)
        with capture_stderr() as lines:
            try:
                outcome = pillow_decode(data, (self.height, self.width), self._orientation, region)
            except DecodeError as error:
                outcome = error
        return outcome, lines

    def __repr__(self) -> str:
        return f"EncodedImage(height={self.height}, width={self.width})"


class EncodedJpeg(EncodedImage):
    """A JPEG that nvImageCodec decodes."""

    __slots__ = ()

    for_gpu = True

    def staging_row(self) -> tuple[int, ...]:
        """As `file_row`, but a file that was not read has the address 0; then the address of the `FileRow`, or 0."""
        data = self._data
        if type(data) is FileView:
            file = data.reads.files[data.number]
            address, size, row = int(file["data"]), int(file["size"]), int(data.reads.addresses[data.number])
        else:
            address, size, row = data_address(data), len(data), 0
        return address, size, self.height, self.width, self._orientation, self.restart_interval, 1, row


class DecodedImage:
    """A decoded image in host memory, which the decoders take like an `EncodedImage`.

    Args:
        array: (H, W, 3), (H, W, 1) or (H, W) uint8; gray is repeated.
        max_pixels: refuse more pixels than this, if given.

    Attributes:
        height, width: in pixels.
        array: (H, W, 3) uint8 RGB, read-only; the pixels of a row are packed.

    Raises:
        DecodeError: another dtype or shape, no pixels, or too many. It has no path and no index; add them with `.at()`.
    """

    __slots__ = ("array", "height", "width")

    def __init__(self, array: NDArray[Any], *, max_pixels: int | None = None) -> None:
        if array.dtype != np.uint8 or array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 3)):
            raise DecodeError(
                f"a decoded image must be a uint8 array (H, W, 3), (H, W, 1) or (H, W), not {array.dtype} {array.shape}"
            )
        self._take_size(array, max_pixels)
        if array.ndim == 2:
            array = array[:, :, None]
        if array.shape[2] == 1:
            array = np.repeat(array, 3, axis=2)
        packed = array.strides[2] == 1 and (array.strides[1] == 3 or self.width == 1)
        self.array: NDArray[np.uint8] = array if packed and array.strides[0] >= 0 else np.ascontiguousarray(array)

    def _take_size(self, array: NDArray[Any], max_pixels: int | None) -> None:
        if array.size == 0:
            raise DecodeError(f"an array of shape {array.shape} holds no pixels")
        self.height, self.width = array.shape[:2]
        if max_pixels is not None:
            check_pixels(self.height, self.width, max_pixels, "the array has")

    def __repr__(self) -> str:
        return f"DecodedImage(height={self.height}, width={self.width})"


def read_header(
    data: bytes, *, apply_exif: bool = True, max_pixels: int = DEFAULT_MAX_PIXELS, lossy: bool = False
) -> EncodedImage:
    """Read the size of an encoded image, without decoding or allocating pixels.

    Args:
        data: the whole file.
        apply_exif: rotate and flip the image by its EXIF orientation. Orientation in XMP is not read.
        max_pixels: refuse a header that claims more pixels.
        lossy: accept files that lose depth, bands, pages or frames as 8-bit RGB (`loss.py`).

    Raises:
        DecodeError: an empty file, no image, a size of zero or above `max_pixels`, a JPEG that takes minutes to
            decode, or a file that loses something. The error has no path and no index; add them with `.at()`.
    """
    if not isinstance(data, bytes):
        data = bytes(data)
    (image,) = read_jpeg_headers([data], apply_exif=apply_exif, max_pixels=max_pixels)
    if image is None:
        image = read_other_header(data, apply_exif=apply_exif, max_pixels=max_pixels, lossy=lossy)
    return image


def read_jpeg_headers(files: Sequence[bytes], *, apply_exif: bool, max_pixels: int) -> list[EncodedImage | None]:
    """Read the headers of well-formed JPEGs together; None for every other file.

    `read_other_header` reads the files that give None. We parse JPEG markers ourselves: every nvImageCodec property
    access takes the GIL.

    Args:
        files: whole files.
        apply_exif, max_pixels: as for `read_header`.
    """
    return jpegs_of(files, jpeg_headers(files, max_pixels), apply_exif=apply_exif, max_pixels=max_pixels)


def jpegs_of(
    files: Sequence[Any], headers: NDArray[np.int32], *, apply_exif: bool, max_pixels: int
) -> list[EncodedImage | None]:
    """The images of well-formed JPEGs, by their headers from `jpeg_headers`; None for every other file.

    Args:
        files: whole files, bytes or (n,) uint8.
        apply_exif, max_pixels: as for `read_header`.
    """
    found = find_jpegs(*headers[:, :4].T, apply_exif=apply_exif, max_pixels=max_pixels)
    columns = (column.tolist() for column in (*found, headers[:, -1]))
    return [
        EncodedJpeg(height, width, data, _UNOPENED, orientation, interval) if is_jpeg else None
        for data, is_jpeg, height, width, orientation, interval in zip(files, *columns, strict=True)
    ]


class FoundJpegs(NamedTuple):
    """Which of n files are well-formed JPEGs, their displayed sizes, and the EXIF orientations to apply; (n,) each."""

    is_jpeg: NDArray[np.bool_]
    heights: NDArray[np.int32]
    widths: NDArray[np.int32]
    orientations: NDArray[np.int32]


def find_jpegs(
    heights: NDArray[np.int32],
    widths: NDArray[np.int32],
    components: NDArray[np.int32],
    orientations: NDArray[np.int32],
    *,
    apply_exif: bool,
    max_pixels: int,
) -> FoundJpegs:
    """The well-formed JPEGs among n files, by the columns of their headers from `jpeg_headers`.

    Args:
        apply_exif, max_pixels: as for `read_header`.
    """
    pixels = heights.astype(np.int64) * widths
    # Pillow decodes CMYK: some such JPEGs are inverted, by a rule on which decoders disagree.
    is_jpeg = (orientations > 0) & ((components == 3) | (components == 1)) & (pixels > 0) & (pixels <= max_pixels)
    if not apply_exif:
        return FoundJpegs(is_jpeg, heights, widths, np.ones_like(orientations))
    swaps = swaps_axes(orientations)
    return FoundJpegs(is_jpeg, np.where(swaps, widths, heights), np.where(swaps, heights, widths), orientations)


def jpeg_in_table(row: Any, view: FileView) -> EncodedJpeg:
    """The JPEG of a row of an `ImageTable`, whose file is `view`."""
    height, width, orientation, interval = (
        int(row[name]) for name in ("height", "width", "orientation", "restart_interval")
    )
    return EncodedJpeg(height, width, view, _UNOPENED, orientation, interval)


def open_jpegs(images: Sequence[EncodedJpeg], memories: Sequence[NDArray[np.uint8]]) -> None:
    """Open nvImageCodec's streams of JPEGs together, and take the files from the caller's copies from now on.

    Args:
        memories: (n,) each, a copy of the file; the caller keeps it unchanged until the image is decoded.
    """
    for image, memory, stream in zip(images, memories, open_streams(memories), strict=True):
        image._data, image._opened = memory, stream


def _displayed_size(height: int, width: int, orientation: int, apply_exif: bool) -> tuple[int, int, int]:
    """The displayed (height, width) of a stored size, and the orientation to apply."""
    if not apply_exif:
        return height, width, 1
    return (width, height, orientation) if swaps_axes(orientation) else (height, width, orientation)


def read_other_header(data: bytes, *, apply_exif: bool, max_pixels: int, lossy: bool = False) -> EncodedImage:
    """Read the header of a file for which `read_jpeg_headers` gave None; raises like `read_header`."""
    form = file_format(data)
    if form == "jpeg":
        ((height, width, components, _, _),) = jpeg_headers([data]).tolist()
        if components:
            check_pixels(height, width, max_pixels)
    elif (orientation := exif_orientation(data, form)) is not None:
        size = stored_size(data)
        if size is not None:  # else Pillow reads this header, or names the damage
            check_pixels(*size, max_pixels)
            if not lossy:
                check_samples(data)
            log_alpha(data)
            height, width, orientation = _displayed_size(*size, orientation, apply_exif)
            return EncodedImage(height, width, data, _UNOPENED, orientation)
    return pillow_header(data, apply_exif=apply_exif, max_pixels=max_pixels, lossy=lossy)


def pillow_header(
    data: bytes, *, apply_exif: bool, max_pixels: int, lossy: bool, drops_alpha: bool = True
) -> EncodedImage:
    """Read the header of any file for Pillow to decode; raises like `read_header`."""
    if not data:
        raise DecodeError("the file is empty: it holds no bytes")
    form = file_format(data)
    orientation = exif_orientation(data, form)
    scans = count_scans(data) if form == "jpeg" else 0
    if scans > MAX_SCANS:
        raise DecodeError(f"a JPEG of {scans} scans: more than {MAX_SCANS} would keep a decoder busy for minutes")
    claimed = webp_size(data) if form == "webp" else None
    if claimed is not None:  # Pillow allocates a canvas while it opens the file
        check_pixels(*claimed, max_pixels)
    if not lossy and data[:4] in TIFF_SIGNATURES:  # first: Pillow does not open each of these
        check_pages(data)
        check_samples(data)
    file, data = data, _check_structure(data, max(max_pixels, _MIN_TILE_LIMIT))
    image = pillow_open(data)
    # Pillow 11 and later give a TIFF's displayed size, earlier versions the stored one; the tags hold the stored size.
    width, height = (image.tag_v2[256], image.tag_v2[257]) if image.format == "TIFF" else image.size
    check_pixels(height, width, max_pixels)  # before the EXIF, which may follow the pixels of a PNG
    if scans * height * width > MAX_FULL_SCANS * max_pixels:
        raise DecodeError(
            f"a JPEG of {scans} scans of {height} x {width} pixels (height x width), {scans * height * width} pixels "
            f"together: above the limit of {MAX_FULL_SCANS * max_pixels}, which max_pixels sets"
        )
    if not lossy and image.format != "TIFF":
        check_frames(file, image)
        check_samples(file, image)
    if drops_alpha:
        log_alpha(file, image)
    if orientation is None:
        orientation = pillow_orientation(image) if apply_exif else 1
    height, width, orientation = _displayed_size(height, width, orientation, apply_exif)
    return EncodedImage(height, width, data, None, orientation)


def _check_structure(data: bytes, max_pixels: int) -> bytes:
    """Check that the file's inner structure costs no more than `max_pixels` allow; return the file to decode."""
    if data[:4] in TIFF_SIGNATURES:
        check_tiff(data, max_pixels)
    elif data[4:8] == b"ftyp" and data[8:12] in AVIF_BRANDS:
        return as_still_avif(data)
    elif data[:4] == CODESTREAM or data[4:8] == b"jP  ":
        check_jpeg2000(data, max_pixels)
    return data
