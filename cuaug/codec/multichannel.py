"""Reads images that are not 8-bit RGB: gray, RGBA, or channels and depth as stored.

    mode          result
    "L"           (H, W, 1) uint8; color becomes Pillow's luma, (19595 R + 38470 G + 7471 B + 32768) >> 16, BT.601
    "RGBA"        (H, W, 4) uint8; opaque images have alpha 255
    "unchanged"   (H, W, C) uint8, uint16 or float32, C from 1 to 16

"unchanged" keeps: gray as 1 channel, gray with alpha as 2, CMYK as 4 (0 for no ink, as Pillow). Palettes become RGB,
or RGBA where an entry is transparent; one bit becomes 0 and 255; YCbCr becomes RGB. The transparent color of a gray or
RGB PNG is no channel. Alpha that was multiplied into the colors of a TIFF stays so.

16-bit and float samples come from PNG, TIFF (`formats/tiff_pixels.py`), NPY, and from 16-bit gray PGM and JPEG 2000;
other formats and depths are refused where they hold more than 8 bits (`formats/sample_format.py`). The limits of the
other decoders hold; also, an image takes at most 8 * `max_pixels` bytes.

`MultiChannelImage` is such an image in the form that the kernels read.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cuaug._runtime.arguments import one_of
from cuaug._runtime.limits import DEFAULT_MAX_PIXELS, check_pixels, check_sample_bytes
from cuaug._runtime.npy import NPY_SIGNATURE, decode_npy
from cuaug.codec.formats.loss import check_frames, check_pages, check_samples, check_white, is_deep_png
from cuaug.codec.formats.pillow import error_message, pillow_decode, pillow_open, to_rgb8
from cuaug.codec.formats.tiff import MAX_BANDS, TIFF_SIGNATURES, read_tiff
from cuaug.codec.image import DecodedImage, EncodedImage, pillow_header
from cuaug.codec.messages import MessageLog, capture_stderr
from cuaug.codec.sniff import orient_array
from cuaug.errors import DecodeError, LoaderError

_MAX_CHANNELS = 16
_WHITE = {np.dtype(np.uint8): None, np.dtype(np.uint16): np.float32(65535.0), np.dtype(np.float32): None}


class MultiChannelImage(DecodedImage):
    """A decoded image of 1 to 16 channels in host memory, as images of three channels.

    Args:
        array: (H, W, C) or (H, W), uint8, uint16 or float32.
        mode: the loader's mode: "L" and "RGBA" want uint8 of 1 and 4 channels, "unchanged" takes all.
        max_pixels: refuse more pixels than this, if given.

    Attributes:
        channels: C.
        depth: the array's dtype.
        groups: (G, H, W, 3) uint8, or float32 where uint16 is scaled to [0, 1]. The last group repeats its last
            channel to have three.
        array: the first group.

    Raises:
        DecodeError: another dtype or shape, no pixels, or too many. It has no path and no index; add them with `.at()`.
    """

    __slots__ = ("channels", "depth", "groups")

    def __init__(self, array: NDArray[Any], mode: str = "unchanged", *, max_pixels: int | None = None) -> None:
        channels = array.shape[2] if array.ndim == 3 else 1
        if array.ndim not in (2, 3) or not 0 < channels <= _MAX_CHANNELS or array.dtype not in _WHITE:
            raise DecodeError(
                f"a decoded image must be uint8, uint16 or float32, (H, W) or (H, W, C) of 1 to {_MAX_CHANNELS} "
                f"channels, not {array.dtype} {array.shape}"
            )
        wanted = {"L": 1, "RGBA": 4}.get(mode)
        if wanted is not None and (channels != wanted or array.dtype != np.uint8):
            raise DecodeError(
                f"with mode={mode!r} an array must be uint8 of {wanted} channel{'s' * (wanted > 1)}, not {array.dtype} "
                f"{array.shape}: convert it, or use mode='unchanged'"
            )
        self._take_size(array, max_pixels)
        self.channels, self.depth = channels, array.dtype
        count = 1 if channels == 1 else -(-channels // 3)
        channel = np.minimum(np.arange(3 * count), channels - 1)
        pixels = array.reshape(self.height, self.width, channels)
        white = _WHITE[array.dtype]
        if white is not None:
            pixels = pixels.astype(np.float32) / white
        groups = pixels[None] if channels == 3 else np.moveaxis(pixels[..., channel.reshape(count, 3)], 2, 0)
        self.groups: NDArray[Any] = np.ascontiguousarray(groups)
        self.array = self.groups[0]

    @property
    def group_bytes(self) -> int:
        """Bytes from a pixel of one group to that of the next."""
        return self.groups.strides[0]

    def __repr__(self) -> str:
        return f"MultiChannelImage(height={self.height}, width={self.width}, channels={self.channels}, {self.depth})"


MULTICHANNEL_MODES = ("L", "RGBA", "unchanged")

_DTYPES = ("uint8", "uint16", "float32")
_KEPT = ("L", "LA", "RGB", "RGBA", "RGBX", "CMYK", "F")
_PIL_MODES = (1, 2, 3, 4)  # channels of L, LA, RGB, RGBA
_BECOME = {"1": "L", "P": "RGB", "PA": "RGBA", "La": "LA", "RGBa": "RGBA", "YCbCr": "RGB"}

_messages = MessageLog()


def read_multichannel(
    data: bytes, mode: str, *, apply_exif: bool = True, max_pixels: int = DEFAULT_MAX_PIXELS, lossy: bool = False
) -> NDArray[Any]:
    """Decode a file, or an array that `np.save` wrote.

    Args:
        data: the whole file.
        mode: "L", "RGBA" or "unchanged"; `CpuDecoder` decodes RGB.
        apply_exif: rotate and flip the image by its EXIF orientation, or by the tag of a TIFF.
        max_pixels: limit on height x width; an eighth of the limit on bytes.
        lossy: take the first page or frame of several, and 8 bits of more where `mode` or the format demands it.

    Returns:
        (H, W, C), contiguous, in native byte order, a new array.

    Raises:
        DecodeError: damaged, too large, unknown, or with more than the mode can hold while `lossy` is False.
        LoaderError: an unknown mode; a TIFF that needs tifffile, which is missing.
    """
    one_of("mode", mode, MULTICHANNEL_MODES)
    if not isinstance(data, bytes):
        data = bytes(data)
    with capture_stderr() as lines:
        try:
            array = _read(data, mode, apply_exif, max_pixels, lossy)
        except (DecodeError, LoaderError):
            raise
        except MemoryError as error:
            raise DecodeError(f"not enough memory: {error}") from error
        except Exception as error:  # Pillow's parsers raise any exception type on a damaged file
            raise DecodeError(error_message(error)) from error
    _messages.warn("an image", lines)
    return np.ascontiguousarray(array)


def _read(data: bytes, mode: str, apply_exif: bool, max_pixels: int, lossy: bool) -> NDArray[Any]:
    if data.startswith(NPY_SIGNATURE):
        array = _read_npy(data, max_pixels)
        return array if mode == "unchanged" else _convert(_to_pil(array, lossy), mode)
    if mode == "unchanged":
        return _read_unchanged(data, apply_exif, max_pixels, lossy)
    header = pillow_header(data, apply_exif=apply_exif, max_pixels=max_pixels, lossy=lossy, drops_alpha=mode == "L")
    return _decode(header, lambda image: _convert(_to_8_bits(image), mode))


def _read_unchanged(data: bytes, apply_exif: bool, max_pixels: int, lossy: bool) -> NDArray[Any]:
    if data[:4] in TIFF_SIGNATURES:
        if not lossy:
            check_pages(data)
        pixels = read_tiff(data, apply_exif=apply_exif, max_pixels=max_pixels)
        if pixels is not None:
            return pixels
    header = pillow_header(data, apply_exif=apply_exif, max_pixels=max_pixels, lossy=True, drops_alpha=False)
    image = pillow_open(header._data)
    if not lossy:
        check_frames(data, image)
        if _is_deep_gray(image) and image.format in ("PPM", "JPEG2000"):
            check_white(data, image, 65535)
        elif image.format in ("PPM", "JPEG2000", "AVIF"):
            check_samples(data, image, can_keep=False)
    if is_deep_png(data) and not _is_deep_gray(image):
        return orient_array(_read_deep_png(data, image), header._orientation)
    return _decode(header, _as_stored)


def _decode(header: EncodedImage, convert: Callable[[Any], NDArray[Any]]) -> NDArray[Any]:
    return pillow_decode(header._data, (header.height, header.width), header._orientation, convert=convert)


def _read_deep_png(data: bytes, image: Any) -> NDArray[np.uint16]:
    """Read 16-bit color, or gray with alpha, without orientation; Pillow keeps the upper bytes of it alone."""
    if data[25] == 4:  # gray with alpha: 4 bytes per pixel, which an 8-bit RGBA PNG has too
        head = data[12:24] + b"\x08\x06" + data[26:29]
        image = pillow_open(data[:12] + head + zlib.crc32(head).to_bytes(4, "big") + data[33:])
        return np.asarray(image).view(">u2").astype(np.uint16)
    # Read as little-endian samples, the upper bytes are the file's lower ones.
    upper, lower = (np.asarray(_with_raw_mode(data, f"{image.mode};16{order}")) for order in "BL")
    pixels: NDArray[np.uint16] = np.stack([lower, upper], axis=-1).view("<u2")[..., 0]
    return pixels.astype(np.uint16, copy=False)


def _with_raw_mode(data: bytes, raw_mode: str) -> Any:
    image = pillow_open(data)
    image.tile = [tile._replace(args=raw_mode) for tile in image.tile]
    return image


def _read_npy(data: bytes, max_pixels: int) -> NDArray[Any]:
    try:
        array = decode_npy(data)
    except ValueError as error:
        raise DecodeError(f"no array that is read: {error}") from error
    if array.dtype.newbyteorder("=").name not in _DTYPES:
        raise DecodeError(f"the array is of {array.dtype}: {', '.join(_DTYPES)} are read, so convert it to one")
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3 or not 1 <= array.shape[2] <= MAX_BANDS:
        raise DecodeError(f"the array has the shape {array.shape}: an image is (H, W) or (H, W, 1 to {MAX_BANDS})")
    height, width, channels = array.shape
    check_pixels(height, width, max_pixels, "the array has")
    check_sample_bytes(height, width, channels, array.dtype.itemsize, max_pixels)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _to_pil(array: NDArray[Any], lossy: bool) -> Any:
    if array.dtype == np.uint16 and lossy:
        array = (array >> 8).astype(np.uint8)
    if array.dtype != np.uint8 or array.shape[2] not in _PIL_MODES:
        remedy = "; DecodeOptions(lossy=True) takes the upper 8 bits" if array.dtype == np.uint16 else ""
        raise DecodeError(
            f"the array is of {array.dtype} with {array.shape[2]} channels, which only "
            f'cuaug.DecodeOptions(mode="unchanged") keeps{remedy}'
        )
    return Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else np.ascontiguousarray(array))


def _is_deep_gray(image: Any) -> bool:
    return image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM"))


def _to_8_bits(image: Any) -> Any:
    """A PIL image of 8-bit samples; 16-bit gray keeps the upper byte."""
    if _is_deep_gray(image):
        return Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        to_rgb8(image)  # raises: they have no fixed range
    return image


def _convert(image: Any, mode: str) -> NDArray[np.uint8]:
    if image.mode not in ("1", "L", "LA", "P", "PA", "RGB", "RGBA"):
        image = image.convert("RGBA" if image.mode in ("La", "RGBa") else "RGB")
    array = np.array(image if image.mode == mode else image.convert(mode))
    return array[:, :, None] if array.ndim == 2 else array


def _as_stored(image: Any) -> NDArray[Any]:
    mode = image.mode
    if _is_deep_gray(image):
        array = np.asarray(image).astype(np.uint16)
    else:
        if mode not in _KEPT:
            if mode not in _BECOME:
                raise DecodeError(f"samples of Pillow's mode {mode!r} are not read: convert the image to gray or RGB")
            has_alpha = mode in ("P", "PA") and image.has_transparency_data
            image = image.convert("RGBA" if has_alpha else _BECOME[mode])
        array = np.array(image)
    return array[:, :, None] if array.ndim == 2 else array
