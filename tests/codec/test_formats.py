"""Every format decodes to Pillow's pixels."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from PIL import Image

from cuaug.codec import read_header
from tests.support.codec.encoded_images import FORMATS, RGB, H, W, as_pillow, encode, photo, png16, tiff_block


@pytest.mark.parametrize("name", FORMATS)
def test_equals_pillow(name, decoder):
    data = FORMATS[name]
    expected = as_pillow(data)
    header = read_header(data, lossy=True)  # the first page or frame of several
    assert (header.height, header.width) == expected.shape[:2]
    pixels = decoder.decode(header)
    assert pixels.dtype == np.uint8 and pixels.flags.c_contiguous
    np.testing.assert_array_equal(pixels, expected)
    np.testing.assert_array_equal(decoder.decode(header, (3, 5, 30, 41)), expected[3:30, 5:41])


def test_which_formats_are_left_to_pillow():
    """The speed rests on nvImageCodec; but it crashes on damaged JPEG 2000 files, and takes damaged TIFFs for sound."""
    for name in ("jpeg 4:20", "jpeg gray", "png rgba", "png p", "webp rgb"):
        assert not read_header(FORMATS[name]).for_pillow, name
    for name in ("jpeg2000 rgb", "jpeg2000 codestream", "tiff rgb", "tiff jpeg", "bigtiff"):
        assert read_header(FORMATS[name]).for_pillow, name
    upright = b"Exif\0\0" + tiff_block(1) + b"\0"  # odd length: a padding byte follows
    assert len(upright) % 2 and read_header(encode(RGB, "WEBP", exif=upright, xmp=b"<x/>")).for_pillow is False


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_sixteen_bits_are_scaled(channels, decoder):
    """Pillow clips I;16 at 255, to a white image, and scales 16-bit color, as we do."""
    deep = (photo(H, W).astype(np.uint16) * 257 + np.arange(W, dtype=np.uint16)[None, :, None]).clip(0, 65535)
    deep = np.concatenate([deep, deep[:, :, :1]], axis=2).astype(np.uint16)[:, :, :channels]
    expected = (deep[:, :, :1].repeat(3, 2) if channels < 3 else deep[:, :, :3]) / 257
    files = [png16(deep)]
    if channels == 1:
        files += [encode(Image.fromarray(deep[:, :, 0]), form) for form in ("TIFF", "JPEG2000", "PPM")]
    if channels == 3:
        files += [cv2.imencode(form, deep[:, :, ::-1])[1].tobytes() for form in (".tiff", ".ppm")]
        np.testing.assert_allclose(
            decoder.decode(read_header(files[0], lossy=True)).astype(int), as_pillow(files[0]), atol=1
        )
    for data in files:
        region = decoder.decode(read_header(data, lossy=True), (3, 5, 20, 30)).copy()
        pixels = decoder.decode(read_header(data, lossy=True))
        np.testing.assert_array_equal(region, pixels[3:20, 5:30])
        assert np.abs(pixels - expected).max() <= 1
