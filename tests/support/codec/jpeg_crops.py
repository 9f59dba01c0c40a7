"""JPEGs to crop, and checks of a crop, for test_restarts.py and test_index.py."""

from __future__ import annotations

import io

import cv2
import numpy as np
from hypothesis import strategies as st
from PIL import Image

from cuaug.codec import JpegIndex, read_header
from cuaug.codec.image import EncodedImage
from cuaug.codec.jpeg_index import crop_jpeg
from cuaug.codec.sniff import Region
from tests.support.codec.encoded_images import app1, as_pillow, photo, tiff_block

MIN_CROP_SIDE = 8
"""Of kernels/jpeg/decode_region.h, in pixels."""
MCU = {0x111111: (8, 8), 0x211111: (8, 16), 0x221111: (16, 16), 0x121111: (16, 8), 0x411111: (8, 32), 0: (8, 8)}
"""(height, width) of an MCU in pixels, by OpenCV's name of the sampling factors; 0 is gray."""


def jpeg(
    height: int,
    width: int,
    sampling: int = 0x221111,
    quality: int = 85,
    *,
    noise: int = 64,
    optimize: int = 0,
    interval: int = 0,
    orientation: int = 1,
) -> bytes:
    """A JPEG with `noise` / 256 of noise, and a restart marker after every `interval` MCUs; 0: none."""
    rng = np.random.default_rng(height * 200 + width).integers(0, 256, (height, width, 3))
    pixels = ((photo(height, width).astype(int) * (256 - noise) + rng * noise) // 256).astype(np.uint8)
    options = [cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_OPTIMIZE, optimize]
    options += [cv2.IMWRITE_JPEG_RST_INTERVAL, interval]
    if sampling:
        options += [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, sampling]
    else:
        pixels = pixels[..., 0]
    done, data = cv2.imencode(".jpg", pixels, options)
    assert done
    return with_orientation(data.tobytes(), orientation)


def with_orientation(data: bytes, orientation: int) -> bytes:
    return data[:2] + app1(tiff_block(orientation)) + data[2:]


def displayed(stored: np.ndarray, orientation: int) -> np.ndarray:
    """Apply an EXIF orientation with NumPy."""
    if orientation in (5, 6, 7, 8):
        stored = stored.T
    if orientation in (2, 3, 6, 7):
        stored = stored[:, ::-1]
    return stored[::-1] if orientation in (3, 4, 7, 8) else stored


def size(header: EncodedImage) -> tuple[int, int]:
    return header.height, header.width


def slice_region(pixels: np.ndarray, region: Region) -> np.ndarray:
    y0, x0, y1, x1 = region
    return pixels[y0:y1, x0:x1]


def ends(low: int, high: int) -> st.SearchStrategy[int]:
    """Coordinates, half of them at block boundaries."""
    return st.integers(low, high) | st.integers(low, high).map(lambda at: max(low, at // 8 * 8))


@st.composite
def draw_region(draw, height: int, width: int) -> Region:
    y0, x0 = draw(ends(0, height - 1)), draw(ends(0, width - 1))
    return y0, x0, draw(ends(y0 + 1, height)), draw(ends(x0 + 1, width))


def crop(data: bytes, region: Region, index: JpegIndex | None = None) -> tuple[bytes, Region] | None:
    """Crop a JPEG: the crop, and the region within it."""
    header = read_header(data)
    found = crop_jpeg(data, region, size(header), header._orientation, index)
    return None if found is None else (found[0].tobytes(), found[2])


def assert_has_the_pixels(found: tuple[bytes, Region], file: bytes, region: Region) -> None:
    """Asserts that a crop decodes to the file's own pixels, by Pillow."""
    cropped, inner = found
    np.testing.assert_array_equal(slice_region(as_pillow(cropped), inner), slice_region(as_pillow(file), region))


def expected_crop(
    stored: tuple[int, int], sampling: int, orientation: int, region: Region, tile: tuple[int, int]
) -> Region:
    """The stored rectangle of tiles that holds a displayed region and one chroma sample around it.

    It is never so narrow that libjpeg would not smooth the chroma.
    """
    height, width = stored
    (mcu_height, mcu_width), (tile_height, tile_width) = MCU[sampling], tile
    numbers = slice_region(displayed(np.arange(height * width).reshape(stored), orientation), region)
    top, left = divmod(int(numbers.min()), width)
    bottom, right = divmod(int(numbers.max()), width)
    top = max(top - mcu_height // 8, 0) // tile_height * tile_height
    left = max(left - mcu_width // 8, 0) // tile_width * tile_width
    bottom = min(height, ((bottom + mcu_height // 8) // tile_height + 1) * tile_height)
    right = min(width, ((right + mcu_width // 8) // tile_width + 1) * tile_width)
    if right - left < MIN_CROP_SIDE:
        left = max(0, left - tile_width)
    return top, left, bottom, right


def assert_is_crop(
    cropped: bytes, inner: Region, rectangle: Region, stored: tuple[int, int], orientation: int, region: Region
) -> None:
    """Assert that a crop is this stored rectangle, with the same orientation and the region at `inner`."""
    top, left, bottom, right = rectangle
    assert Image.open(io.BytesIO(cropped)).size == (right - left, bottom - top)
    numbers = np.arange(stored[0] * stored[1]).reshape(stored)
    expected = slice_region(displayed(numbers, orientation), region)
    np.testing.assert_array_equal(
        slice_region(displayed(slice_region(numbers, rectangle), orientation), inner), expected
    )
    assert read_header(cropped)._orientation == orientation
