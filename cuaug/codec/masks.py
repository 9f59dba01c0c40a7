"""Decodes mask files: gray or palette images whose values are class numbers, not colors."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.codec._pillow import error_message, pillow_open
from cuaug.codec.image import pillow_header
from cuaug.errors import DecodeError
from cuaug.limits import check_pixels

__all__ = ["decode_mask", "mask_array"]

log = logging.getLogger("cuaug")

_MODES = ("1", "L", "P", "I", "F", "I;16", "I;16L", "I;16B")
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PNG_GRAY = 0
# Pillow scales gray PNGs of 2 and 4 bits to 8 bits, by these factors.
_PNG_FACTORS = {2: 85, 4: 17}
_warned = set[str]()


def decode_mask(data: bytes, max_pixels: int, name: str) -> NDArray[Any]:
    """Decode a mask to (H, W): bool, uint8, uint16, int32 or float32, as stored.

    Values are the file's own: the entries of a palette, and unscaled gray. EXIF orientation does not apply.

    Args:
        max_pixels: limit on height x width.
        name: the file, for the warning that a JPEG has no exact values.

    Raises:
        DecodeError: no mask, damaged, too large, or of several frames or color channels.
    """
    # It also bounds work that a small size hides.
    pillow_header(data, apply_exif=False, max_pixels=max_pixels, lossy=True, drops_alpha=False)
    image = pillow_open(data)
    check_pixels(image.height, image.width, max_pixels)
    if image.mode not in _MODES:
        raise DecodeError(
            f"a mask must be a gray or palette image, whose values are class numbers, not of mode {image.mode!r}"
        )
    if image.format in ("JPEG", "MPO") and "JPEG" not in _warned:
        _warned.add("JPEG")
        log.warning("%s: a JPEG changes the class numbers of a mask near edges; PNG keeps them", name)
    try:
        frames = getattr(image, "n_frames", 1)
        array = mask_array(image)
    except Exception as error:  # Pillow's parsers raise any exception type on a damaged file
        raise DecodeError(error_message(error)) from error
    if frames > 1:
        raise DecodeError(f"a mask must be one image, but the file has {frames} frames")
    if data.startswith(_PNG_SIGNATURE) and data[25] == _PNG_GRAY and data[24] in _PNG_FACTORS:
        array //= _PNG_FACTORS[data[24]]
    return array


def mask_array(image: Any) -> NDArray[Any]:
    """The values of a PIL mask, a new array (H, W).

    Raises:
        ValueError: its mode has several channels.
    """
    if image.mode not in _MODES:
        raise ValueError(f"a PIL image of mode {image.mode!r}")
    array = np.array(image)
    return array.astype(array.dtype.newbyteorder("="), copy=False)
