"""Finds the depth, bands, pages and frames that a file loses in 8 bits; logs dropped alpha once.

Not counted: the second picture of an MPO, a preview; smaller copies and transparency masks in a TIFF; the colours of
CMYK. A file that is damaged where we look loses nothing: its decoder names the damage.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.codec._pillow import to_rgb8
from cuaug.codec.jpeg2000 import sample_bits
from cuaug.codec.tiff import TIFF_SIGNATURES, count_pages, tiff_loss
from cuaug.errors import DecodeError

__all__ = ["check_frames", "check_pages", "check_samples", "is_deep_png", "log_alpha", "pil_to_rgb8"]

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
        # Pillow reads deep gray of these formats whole, but deep color in 8 bits.
        if image is not None and image.format in ("AVIF", "JPEG2000", "PPM") and not image.mode.startswith("I"):
            can_keep = False
        keeps = 'decode=cuaug.DecodeOptions(mode="unchanged") keeps them' if can_keep else "PNG and TIFF can keep them"
        # Pillow reads few files of further bands.
        lossy = "" if loss.endswith("bands") else ", and DecodeOptions(lossy=True) takes 8 bits of them"
        raise DecodeError(f"the file has {loss}, and 8-bit images would lose a part: {keeps}{lossy}")


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
    if image.format == "JPEG2000" and (bits := sample_bits(data)) > 8:
        return f"{bits}-bit samples"
    # AV1 Codec ISO Media File Format Binding 2.3, high_bitdepth of av1C
    if image.format == "AVIF" and (at := data.find(b"av1C")) >= 0 and data[at + 6 : at + 7] >= b"\x40":
        return _avif_bits(data[at + 6])
    is_ppm = image.format == "PPM" and image.tile and image.tile[0][0] == "ppm"
    if image.mode.startswith("I;16") or image.mode == "I" or (is_ppm and image.tile[0][3][1] > 255):
        return "16-bit samples"
    return ""


def _avif_bits(flags: int) -> str:
    """The third byte of av1C: seq_tier_0, high_bitdepth, twelve_bit, ..."""
    return f"{12 if flags & 0x20 else 10}-bit samples" if flags & 0x40 else ""
