"""Small files that would take much memory or time are refused before anything is decoded."""

from __future__ import annotations

import pytest
from PIL import Image

from cuaug.codec import read_header
from cuaug.errors import DecodeError
from tests.codec.pictures import RGB, encode
from tests.codec.test_found_by_fuzzing import assert_refused_at_once

# --- formats ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["ICO", "ICNS", "PCX", "DIB", "DDS", "SGI"])
def test_other_formats_are_refused(form):
    """Pillow opens all of these."""
    with pytest.raises(
        DecodeError, match=f"starts like a file of the format {form}, and cuaug does not read"
    ) as caught:
        read_header(encode(RGB.resize((64, 64)), form))
    assert "JPEG, PNG, WEBP, TIFF, BMP, PPM, JPEG2000, GIF and AVIF" in str(caught.value)


def test_a_large_png_within_an_icon(decoder):
    """The icon's directory claims 16 x 16 pixels."""
    png = encode(Image.new("L", (9000, 9000)), "PNG")
    entry = bytes([16, 16, 0, 0, 1, 0, 32, 0]) + len(png).to_bytes(4, "little") + (22).to_bytes(4, "little")
    assert_refused_at_once(decoder, b"\0\0\1\0\1\0" + entry + png, "format ICO")
    icns = b"ic04" + (8 + len(png)).to_bytes(4, "big") + png
    assert_refused_at_once(decoder, b"icns" + (8 + len(icns)).to_bytes(4, "big") + icns, "format ICNS")
