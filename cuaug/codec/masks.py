"""Decodes mask files: gray or palette images whose values are class numbers, not colors."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.limits import check_pixels
from cuaug.codec.formats.pillow import error_message, pillow_open
from cuaug.codec.formats.sample_format import Samples, stored_samples
from cuaug.codec.image import pillow_header
from cuaug.errors import DecodeError

log = logging.getLogger("cuaug")

_MODES = ("1", "L", "P", "I", "F", "I;16", "I;16L", "I;16B")
# Pillow's decoders for PGM as text, and for a maxval other than 255 and 65535: they scale the values up.
_PPM_DECODERS = ("ppm", "ppm_plain")
_warned = set[str]()


def decode_mask(data: bytes, max_pixels: int, name: str) -> NDArray[Any]:
    """Decode a mask to (H, W): bool, uint8, uint16, int32 or float32, as stored.

    Values are the stored ones: indices into a palette, unscaled gray, and for one bit True where it shows white. EXIF
    orientation is ignored.

    Args:
        max_pixels: limit on height x width.
        name: the file, for the warning that a JPEG has no exact values.

    Raises:
        DecodeError: the file is damaged, too large or in color, holds several frames, or stores values that would
            change: white as zero, or depths that Pillow converts.
    """
    # Reading the header first also refuses files that are small but costly to decode.
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
    samples = stored_samples(data, image)
    _check_samples(samples, image)
    try:
        frames = getattr(image, "n_frames", 1)
        array = _stored_values(samples, image)
    except DecodeError:
        raise
    except Exception as error:  # Pillow's parsers raise any exception type on a damaged file
        raise DecodeError(error_message(error)) from error
    if frames > 1:
        raise DecodeError(f"a mask must be one image, but the file has {frames} frames")
    return array


def _check_samples(samples: Samples, image: Any) -> None:
    reason = ""
    if image.format == "AVIF":
        reason = "an AVIF, which converts values as colors"
    elif image.format == "TIFF" and image.tag_v2.get(277, 1) > 1:
        reason = "a TIFF of several bands"
    elif image.format == "TIFF" and image.mode != "1" and (samples.is_white_zero or 262 not in image.tag_v2):
        reason = "a TIFF that counts from white, or does not say so (PhotometricInterpretation)"
    elif samples.is_signed and image.mode != "I":
        reason = f"of signed {samples.bits}-bit samples"
    elif image.mode in ("L", "P") and samples.bits > 8:
        reason = f"of {samples.bits}-bit samples, of which Pillow reads 8"
    if reason:
        raise DecodeError(f"the mask is {reason}: its class numbers would change, so store it as a gray or palette PNG")


def _stored_values(samples: Samples, image: Any) -> NDArray[Any]:
    """The mask's values, without the factor by which Pillow stretches few bits."""
    if image.format == "PPM" and image.tile[0][0] in _PPM_DECODERS:
        return _ppm_values(samples.white, image)
    array = mask_array(image)
    if image.format == "JPEG2000":  # Pillow shifts them to 8 or 16 bits
        return array >> (8 * array.itemsize - samples.bits)
    if image.mode == "L" and samples.white < 255:
        return array // (255 // samples.white)
    if array.dtype == np.int32 and not samples.is_signed and array.min() < 0:
        raise DecodeError("the mask has class numbers above 2147483647: int32 holds smaller ones")
    return array


def _ppm_values(maxval: int, image: Any) -> NDArray[Any]:
    is_deep = maxval > 255
    if image.tile[0][0] == "ppm":
        decoder, options = "raw", "I;16B" if is_deep else image.mode
    else:
        decoder, options = "ppm_plain", (image.mode, 65535 if is_deep else 255)
    image.tile = [image.tile[0]._replace(codec_name=decoder, args=options)]
    array = mask_array(image)
    if array.max() > maxval:
        raise DecodeError(f"the mask has the class number {array.max()}, above the maxval {maxval} of its header")
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
