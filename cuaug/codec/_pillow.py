"""Decoding by Pillow: the formats nvImageCodec does not decode alike, and the cause of every failure."""

from __future__ import annotations

import contextlib
import io
from struct import error as StructError
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from cuaug.errors import DecodeError

if TYPE_CHECKING:
    from cuaug.codec.image import EncodedImage

__all__ = ["FORMATS", "to_rgb8", "pillow_decode", "pillow_open", "pillow_orientation"]

FORMATS = ("JPEG", "PNG", "WEBP", "TIFF", "BMP", "PPM", "JPEG2000", "GIF", "AVIF")
"""All that Pillow is asked to open, by its names; JPEG includes MPO. Other formats have no limits here: an ICO may hold
a large PNG behind the size that it claims, and an EPS is a program that Ghostscript runs."""

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_UNDO = {**_TURNS, 6: _TURNS[8], 8: _TURNS[6]}


def pillow_open(data: bytes) -> Any:
    Image.init()
    try:
        return Image.open(io.BytesIO(data), formats=[name for name in FORMATS if name in Image.OPEN])
    except UnidentifiedImageError as error:  # its own message names a BytesIO object
        raise DecodeError(_describe_unknown(data)) from error
    except Exception as error:  # its parsers raise whatever a damaged file leads them to
        raise DecodeError(_message(error)) from error


def pillow_orientation(image: Any) -> int:
    for key in ("XML:com.adobe.xmp", "xmp"):  # Pillow would look for an orientation there; nvImageCodec does not
        image.info.pop(key, None)
    try:
        value = image.getexif().get(0x0112, 1)
    except Exception:  # damaged EXIF is no reason to lose the picture
        return 1
    return value if value in _TURNS else 1


def pillow_decode(header: EncodedImage, region: tuple[int, int, int, int] | None = None) -> np.ndarray:
    """The pixels of `region` (y0, x0, y1, x1), or all; a new array (h, w, 3) uint8.

    Raises:
        DecodeError: Pillow's reason, where it cannot decode the file either.
    """
    image = pillow_open(header._data)
    try:
        if image.format == "TIFF":
            tagged = pillow_orientation(image)
            image.load()  # this turns it, for TIFF alone
            if header._orientation != tagged:
                image = image.transpose(_UNDO[tagged])
        elif header._orientation != 1:
            image = image.transpose(_TURNS[header._orientation])
        if image.size != (header.width, header.height):
            raise DecodeError(
                f"the header claims {header.height} x {header.width} pixels (height x width), "
                f"the picture holds {image.height} x {image.width}"
            )
        if region is not None:
            y0, x0, y1, x1 = region
            image = image.crop((x0, y0, x1, y1))
        return to_rgb8(image)
    except DecodeError:
        raise
    except Exception as error:
        raise DecodeError(_message(error)) from error


def to_rgb8(image: Any) -> np.ndarray:
    """The pixels of a PIL image; a new array (h, w, 3) uint8.

    Raises:
        DecodeError: its samples have 32 bits.
    """
    mode = image.mode
    if mode.startswith("I;16") or (mode == "I" and image.format in ("PNG", "PPM")):  # "I" was Pillow's 16-bit gray once
        gray = (np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8)
        return np.repeat(gray[:, :, None], 3, axis=2)
    if mode in ("I", "F"):  # convert("RGB") would clip these to a white picture
        raise DecodeError("32-bit samples have no fixed range; store the picture with 8 or 16 bits")
    return np.array(image if mode == "RGB" else image.convert("RGB"))


def _describe_unknown(data: bytes) -> str:
    """One line about bytes that Pillow does not open as one of `FORMATS`."""
    head = data[:16]
    if head.strip(b"\0") == b"":
        return f"not an image: it starts with zeros ({len(data)} bytes)"
    name = _format_like(head)
    known = f"{', '.join(FORMATS[:-1])} and {FORMATS[-1]}"
    if name in FORMATS:
        return (
            f"it starts as a {name} file, but its header is damaged or cut short, or it is of a kind that Pillow does "
            f"not read ({len(data)} bytes)"
        )
    if name is not None:
        return (
            f"it starts like a file of the format {name}, and cuaug does not read those: convert it to one of {known}"
        )
    if all(byte in b"\t\n\r" or 32 <= byte < 127 for byte in head):
        return f"not an image: it looks like text, starting with {head.decode('ascii')!r}"
    return f"not an image format known here: it starts with {head!r}; cuaug reads {known}"


def _format_like(head: bytes) -> str | None:
    """The first of Pillow's formats whose files start so; some look at one or two bytes alone."""
    for name, (_, accept) in Image.OPEN.items():
        with contextlib.suppress(IndexError, StructError):  # there are too few bytes
            if accept and accept(head) is True:
                return name
    return None


def _message(error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, Image.DecompressionBombError):
        text += "; Pillow opens this file, and PIL.Image.MAX_IMAGE_PIXELS is its limit, beside max_pixels"
    if text and isinstance(error, (OSError, SyntaxError)):  # Pillow's own words; of others the type is half the message
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
