"""EXIF orientation: all eight values, ignored on request, and unusual EXIF that must not cost the image."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuaug.codec import read_header
from cuaug.codec.sniff import exif_orientation
from tests.support.codec.encoded_images import (
    FORMATS,
    JPEG,
    PHOTO,
    H,
    W,
    adobe_cmyk,
    app1,
    as_pillow,
    jpeg_with,
    png_with,
    tagged_files,
    tiff_block,
)


@pytest.mark.parametrize("value", range(1, 9))
def test_orientations(value, decoder):
    for name, data in tagged_files(value).items():
        expected = as_pillow(data)
        header = read_header(data)
        assert (header.height, header.width) == expected.shape[:2] == ((W, H) if value >= 5 else (H, W)), name
        np.testing.assert_array_equal(decoder.decode(header), expected, name)
        for y0, x0, y1, x1 in ((0, 0, 10, 10), (3, 5, 20, 30), (header.height - 3, 2, header.height, header.width)):
            region = decoder.decode(header, (y0, x0, y1, x1))
            np.testing.assert_array_equal(region, expected[y0:y1, x0:x1], f"{name} {y0, x0, y1, x1}")


@pytest.mark.parametrize("value", [1, 2, 6, 8])
def test_orientation_can_be_ignored(value, decoder):
    for name, data in tagged_files(value).items():
        plain = next(v for k, v in tagged_files(1).items() if k == name)
        header = read_header(data, apply_exif=False)
        assert (header.height, header.width) == (H, W)
        expected = as_pillow(plain) if name != "jpeg, two blocks" else as_pillow(JPEG)
        np.testing.assert_array_equal(decoder.decode(header), expected, name)
        np.testing.assert_array_equal(decoder.decode(header, (3, 5, 20, 30)), expected[3:20, 5:30], name)


UNUSUAL_BLOCKS = {
    "empty": b"",
    "short": b"II",
    "no such byte order": b"XX" + tiff_block(6)[2:],
    "cut in the entry": tiff_block(6)[:14],
    "cut in the value": tiff_block(6)[:20],
    "directory at 0": b"II*\0\0\0\0\0" + tiff_block(6)[8:],
    "directory far away": b"II*\0\xff\xff\xff\xff" + tiff_block(6)[8:],
    "too many entries": tiff_block(6)[:8] + b"\xff\xff" + tiff_block(6)[10:],
    "value 0": tiff_block(0),
    "value 9": tiff_block(9),
    "as BYTE": tiff_block(6, kind=1),
    "count 0": tiff_block(6, count=0),
    "twice": tiff_block(6, copies=2),
}


@pytest.mark.parametrize("name", UNUSUAL_BLOCKS)
def test_unusual_exif_never_costs_the_image(name, decoder):
    """Pillow's orientation if it reads the EXIF; else the stored image."""
    block = UNUSUAL_BLOCKS[name]
    for data, stored in ((jpeg_with(app1(block)), as_pillow(JPEG)), (png_with(block), PHOTO)):
        try:
            expected = as_pillow(data)
        except Exception:
            expected = stored
        np.testing.assert_array_equal(decoder.decode(read_header(data)), expected)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_the_parser_survives_anything(data):
    base = data.draw(st.sampled_from([jpeg_with(app1(tiff_block(6))), png_with(tiff_block(6)), FORMATS["webp rgba"]]))
    form = {0xFF: "jpeg", 0x89: "png", 0x52: "webp"}[base[0]]
    damaged = bytearray(base[: data.draw(st.integers(0, 400))])
    for at, value in data.draw(st.lists(st.tuples(st.integers(2, 120), st.integers(0, 255)), max_size=4)):
        if at < len(damaged):
            damaged[at] = value
    assert exif_orientation(bytes(damaged), form) in (None, 1, 2, 3, 4, 5, 6, 7, 8)


def test_orientation_in_xmp_is_not_read(decoder):
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><r tiff:Orientation="6"/></x:xmpmeta>'
    cmyk = adobe_cmyk()[0]
    for data in (JPEG, cmyk):
        tagged = data[:2] + app1(xmp, b"http://ns.adobe.com/xap/1.0/\0") + data[2:]
        np.testing.assert_array_equal(decoder.decode(read_header(tagged)), as_pillow(data))
