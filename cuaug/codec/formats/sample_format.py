"""Depth, sign and order of a file's samples, as the file states them.

Pillow stretches, shifts or wraps some of them without an error: gray of 9 to 15 bits, signed samples, deep WhiteIsZero.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from cuaug.codec.formats.jpeg2000 import sample_depths
from cuaug.errors import DecodeError

# AV1 Codec ISO Media File Format Binding 2.3: the flags seq_tier_0, high_bitdepth, twelve_bit, ... of each av1C.
_AVIF_FLAGS = re.compile(rb"\0\0..av1C\x81.(.)", re.DOTALL)


class Samples(NamedTuple):
    """The samples of a file.

    Attributes:
        depths: bits of the samples of each kind; several where channels differ.
        white: the largest value that a sample may have.
        is_white_zero: whether 0 is white: WhiteIsZero of TIFF.
    """

    depths: frozenset[int]
    white: int
    is_signed: bool = False
    is_white_zero: bool = False

    @property
    def bits(self) -> int:
        return max(self.depths)


def stored_samples(data: bytes, image: Any) -> Samples:
    """The samples of a file that Pillow opened as `image`; formats that have 8 bits alone give 8."""
    form = image.format
    if form == "PNG":
        return _unsigned(data[24])
    if form == "PPM":
        return _ppm_samples(image)
    if form == "AVIF":
        return _unsigned(max([_avif_bits(flags[0]) for flags in _AVIF_FLAGS.findall(data)], default=8))
    if form == "JPEG2000":
        sizes = sample_depths(data)
        return _unsigned(*(size & 127 for size in sizes))._replace(is_signed=max(sizes) > 127)
    if form == "TIFF":
        tags = image.tag_v2  # Pillow's own reading: a repeated tag must not give us another one
        is_signed = 2 in tags.get(339, ())
        return _unsigned(*tags.get(258, (1,)))._replace(is_signed=is_signed, is_white_zero=tags.get(262) == 0)
    return _unsigned(8)


def check_exact(data: bytes, image: Any) -> None:
    """Refuse samples that Pillow would shift, wrap or invert, in every mode.

    Raises:
        DecodeError: which samples, and how to store them.
    """
    samples, deep_gray = stored_samples(data, image), image.mode.startswith("I;16")
    reason = ""
    if image.format == "TIFF" and 262 not in image.tag_v2:
        reason = "no tag PhotometricInterpretation, which says whether 0 is black"
    elif samples.is_signed and samples.bits < 32:  # wider ones have no fixed range: `to_rgb8` says so
        reason = "signed samples"
    elif image.format == "TIFF" and (8 < samples.bits < 16 or (samples.is_white_zero and samples.bits == 16)):
        reason = f"{samples.bits}-bit samples" + " that count from white" * samples.is_white_zero
    elif image.format == "JPEG2000" and (
        len(samples.depths) > 1 or samples.bits < 8 or (samples.bits > 8 and not deep_gray)
    ):
        reason = f"channels of {', '.join(map(str, sorted(samples.depths)))}-bit samples"
    if reason:
        raise DecodeError(
            f"the file has {reason}, and Pillow would change its values: convert it to a PNG or TIFF of unsigned "
            "samples of 8 or 16 bits, with 0 for black"
        )


def _unsigned(*depths: int) -> Samples:
    return Samples(frozenset(depths), (1 << max(depths)) - 1)


def _ppm_samples(image: Any) -> Samples:
    decoder, _, _, options = image.tile[0]
    if decoder in ("ppm", "ppm_plain") and isinstance(options, tuple):  # (mode, maxval)
        return Samples(frozenset([options[1].bit_length()]), options[1])
    return _unsigned({"1": 1, "I": 16}.get(image.mode, 8))


def _avif_bits(flags: int) -> int:
    return (12 if flags & 0x20 else 10) if flags & 0x40 else 8
