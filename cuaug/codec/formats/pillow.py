"""Decoding with Pillow: formats that nvImageCodec does not decode exactly, and the cause of every failure."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from struct import error as StructError
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from cuaug.codec.formats.sample_format import check_exact
from cuaug.errors import DecodeError

FORMATS = ("JPEG", "PNG", "WEBP", "TIFF", "BMP", "PPM", "JPEG2000", "GIF", "AVIF")
"""Formats that Pillow may open, by its names; JPEG includes MPO.

Other formats have no limits here: an ICO may hold a larger PNG than it claims, and Ghostscript runs an EPS as a
program."""

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"

_ORIENTATIONS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_INVERSES = {**_ORIENTATIONS, 6: _ORIENTATIONS[8], 8: _ORIENTATIONS[6]}


def pillow_open(data: bytes) -> Any:
    """Open one of `FORMATS`; a DecodeError names the cause of a failure."""
    Image.init()
    if data[:8] == _PNG_SIGNATURE and b"iCCP" in data:
        data = _without_profile(data)
    try:
        return Image.open(io.BytesIO(data), formats=[name for name in FORMATS if name in Image.OPEN])
    except UnidentifiedImageError as error:  # its own message names a BytesIO object
        raise DecodeError(_describe_unknown(data)) from error
    except Exception as error:  # Pillow's parsers raise any exception type on a damaged file
        raise DecodeError(error_message(error)) from error


def _without_profile(data: bytes) -> bytes:
    """A PNG without its ICC profile, which changes no pixel here; Pillow refuses profiles above 1 MiB."""
    kept, at = [data[:8]], 8
    while at < len(data):  # ISO/IEC 15948, 5.3: length (4), type (4), data, CRC (4)
        end = at + 12 + int.from_bytes(data[at : at + 4], "big")
        if data[at + 4 : at + 8] != b"iCCP":
            kept.append(data[at:end])
        at = end
    return b"".join(kept)


def pillow_orientation(image: Any) -> int:
    """Read the EXIF orientation, 1 to 8; 1 if it is missing, unknown or damaged."""
    for key in ("XML:com.adobe.xmp", "xmp"):  # Pillow would read an orientation from XMP; nvImageCodec does not
        image.info.pop(key, None)
    try:
        value = image.getexif().get(0x0112, 1)
    except Exception:  # damaged EXIF must not cost the image
        return 1
    return value if value in _ORIENTATIONS else 1


def pillow_decode(
    data: Any,
    size: tuple[int, int],
    orientation: int,
    region: tuple[int, int, int, int] | None = None,
    convert: Callable[[Any], NDArray[Any]] | None = None,
) -> NDArray[Any]:
    """Decode a displayed region, or the whole image.

    Args:
        data: the whole file.
        size: the displayed (height, width) that the header claims.
        orientation: the EXIF orientation to apply, 1 to 8.
        region: (y0, x0, y1, x1) in displayed pixels; None: all.
        convert: makes the array of the PIL image; None: `to_rgb8`.

    Returns:
        A new array, (h, w, 3) uint8 RGB unless `convert` is given.

    Raises:
        DecodeError: with Pillow's reason.
    """
    image = pillow_open(data)
    form = image.format
    try:
        check_exact(data, image)
        if form == "TIFF":
            tagged = pillow_orientation(image)
            image.load()  # applies the orientation, for TIFF alone
            if orientation != tagged:
                image = image.transpose(_INVERSES[tagged])
        elif orientation != 1:
            image = image.transpose(_ORIENTATIONS[orientation])
        if (image.height, image.width) != size:
            raise DecodeError(
                f"the header claims {size[0]} x {size[1]} pixels (height x width), "
                f"the image holds {image.height} x {image.width}"
            )
        if region is not None:
            y0, x0, y1, x1 = region
            image = image.crop((x0, y0, x1, y1))
        image.format = form  # a transposed or cropped image forgets it
        return (convert or to_rgb8)(image)
    except DecodeError:
        raise
    except Exception as error:
        raise DecodeError(error_message(error)) from error


def to_rgb8(image: Any) -> NDArray[np.uint8]:
    """Convert a PIL image to a new array (h, w, 3) uint8 RGB.

    Raises:
        DecodeError: the samples have 32 bits.
    """
    mode = image.mode
    if mode.startswith("I;16") or (mode == "I" and image.format in ("PNG", "PPM")):  # older Pillow: 16-bit gray
        gray = (np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8)
        return np.repeat(gray[:, :, None], 3, axis=2)
    if mode in ("I", "F"):  # convert("RGB") would clip them to a white image
        raise DecodeError(
            "32-bit samples have no fixed range: store 8 or 16 bits; float samples are read by "
            'decode=cuaug.DecodeOptions(mode="unchanged")'
        )
    return np.array(image if mode == "RGB" else image.convert("RGB"))


def _describe_unknown(data: bytes) -> str:
    """Describe, in one line, bytes that Pillow does not open as one of `FORMATS`."""
    head = data[:16]
    if head.strip(b"\0") == b"":
        return f"not an image: it starts with zeros ({len(data)} bytes)"
    name = _guess_format(head)
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


def _guess_format(head: bytes) -> str | None:
    """The first Pillow format that accepts these bytes; some formats check only one or two."""
    for name, (_, accept) in Image.OPEN.items():
        with contextlib.suppress(IndexError, StructError):  # too few bytes
            if accept and accept(head) is True:
                return name
    return None


def error_message(error: Exception) -> str:
    """Pillow's reason, in one line."""
    text = " ".join(str(error).split())
    if isinstance(error, Image.DecompressionBombError):
        text += "; Pillow opens this file, and PIL.Image.MAX_IMAGE_PIXELS is its limit, beside max_pixels"
    if text and isinstance(error, (OSError, SyntaxError)):  # Pillow's own words; other messages need their type
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
