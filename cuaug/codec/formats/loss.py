"""Finds the depth, bands, pages and frames that a file loses in 8 bits; logs dropped alpha once.

Not counted: the second picture of an MPO, a preview; smaller copies and transparency masks in a TIFF; the colors of
CMYK. A file that is damaged where we look loses nothing: its decoder names the damage.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.codec.formats.pillow import to_rgb8
from cuaug.codec.formats.sample_format import stored_samples
from cuaug.codec.formats.tiff import TIFF_SIGNATURES, count_pages, tiff_loss
from cuaug.errors import DecodeError

log = logging.getLogger("cuaug")

_logged_alpha = False


def is_deep_png(data: bytes) -> bool:
    """Whether a PNG has 16-bit samples (ISO/IEC 15948, 11.2.2)."""
    return data[1:4] == b"PNG" and data[12:16] == b"IHDR" and data[24:25] == b"\x10"


def check_frames(data: bytes, image: Any) -> None:
    """Refuse an animation.

    Args:
        data: the file.
        image: the same, opened by Pillow.
    """
    if data[8:12] == b"avis" or (image.format in ("GIF", "PNG", "WEBP") and _is_animated(image)):
        raise DecodeError(
            "the file is an animation, and one image is read: extract its frames, or take the first with "
            "decode=cuaug.DecodeOptions(lossy=True)"
        )


def check_pages(data: bytes) -> None:
    """Refuse a TIFF of several pages."""
    pages = count_pages(data)
    if pages > 1:
        number = f"{pages} pages" if pages < 100 else "100 pages or more"
        raise DecodeError(
            f"the TIFF has {number}, and one image is read: split it, or take its first page with "
            "decode=cuaug.DecodeOptions(lossy=True)"
        )


def check_samples(data: bytes, image: Any = None, *, can_keep: bool = True) -> None:
    """Refuse samples and bands that 8-bit RGB or RGBA cannot hold.

    Args:
        data: the file.
        image: the same, opened by Pillow; None for a TIFF, or a PNG that nvImageCodec decodes.
        can_keep: whether mode="unchanged" reads them all; else the error suggests another format.
    """
    loss = _sample_loss(data, image)
    if loss:
        # Pillow reads 16-bit gray of these formats whole, but deep color in 8 bits.
        is_color = image is not None and not image.mode.startswith("I")
        if image is not None and image.format != "PNG" and (is_color or loss != "16-bit samples"):
            can_keep = False
        keeps = 'decode=cuaug.DecodeOptions(mode="unchanged") keeps them' if can_keep else "PNG and TIFF can keep them"
        # Pillow reads few files of further bands, and deep color of JPEG 2000 wrongly.
        is_lost = loss.endswith("bands") or (is_color and image.format == "JPEG2000")
        lossy = "" if is_lost else ", and DecodeOptions(lossy=True) takes 8 bits of them"
        raise DecodeError(f"the file has {loss}, and 8-bit images would lose a part: {keeps}{lossy}")
    if image is not None and image.format == "PPM":
        check_white(data, image, 255)


def check_white(data: bytes, image: Any, white: int) -> None:
    """Refuse a file whose levels become 0 to `white`, 255 or 65535, only by rounding."""
    samples = stored_samples(data, image)
    if white % samples.white:
        raise DecodeError(
            f"the file's samples end at {samples.white}, and pixels at {white}: store 8 or 16 bits, or stretch them "
            "with decode=cuaug.DecodeOptions(lossy=True)"
        )


def log_alpha(data: bytes, image: Any = None) -> None:
    """Log, once per process, that alpha is dropped; `image` as for `check_samples`, else a PNG or WebP."""
    global _logged_alpha
    if not _logged_alpha and (_has_alpha(data) if image is None else image.has_transparency_data):
        _logged_alpha = True
        log.warning(
            'an image has alpha, which modes "RGB" and "L" drop, and cuaug.DecodeOptions(mode="RGBA") keeps; '
            "further images with alpha are not reported"
        )


def pil_to_rgb8(image: Any) -> NDArray[np.uint8]:
    """Convert a user's PIL image to a new array (h, w, 3) uint8 RGB.

    Raises:
        DecodeError: its samples have 16 or 32 bits.
    """
    if image.mode.startswith("I;16"):
        raise DecodeError(
            "the PIL image has 16-bit samples, and 8-bit images would lose a part: convert it to 8 bits, or keep them "
            'with cuaug.sources.FromDataset(dataset, mode="unchanged") and cuaug.DecodeOptions(mode="unchanged")'
        )
    log_alpha(b"", image)
    return to_rgb8(image)


def _is_animated(image: Any) -> bool:
    try:
        return bool(getattr(image, "is_animated", False))
    except Exception:  # Pillow looks for a second frame, whose damage does not concern the first
        return False


def _has_alpha(data: bytes) -> bool:
    if data[:4] == b"RIFF":  # RFC 9649, 2.7 and 3.4: the alpha flags of VP8X and VP8L
        return bool(data[20] & 0x10 if data[12:16] == b"VP8X" else data[12:16] == b"VP8L" and data[24] & 0x10)
    has_transparent_color = data.find(b"tRNS", 33, max(data.find(b"IDAT"), 33)) >= 0
    return data[25] in (4, 6) or has_transparent_color  # ISO/IEC 15948, 11.2.2 and 11.3.2


def _sample_loss(data: bytes, image: Any) -> str:
    if is_deep_png(data):
        return "16-bit samples"
    if data[:4] in TIFF_SIGNATURES:
        return tiff_loss(data)
    if image is None:
        return ""
    bits = stored_samples(data, image).bits
    return f"{bits}-bit samples" if bits > 8 else ""
