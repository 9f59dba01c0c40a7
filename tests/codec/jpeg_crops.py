"""JPEGs of which parts are cut out, and what a part has to hold: for test_restarts.py and test_index.py."""

from __future__ import annotations

import io

import cv2
import numpy as np
from hypothesis import strategies as st
from PIL import Image

from cuaug.codec import JpegIndex, read_header
from cuaug.codec.exif import Region
from cuaug.codec.image import MIN_CROP_SIDE, EncodedImage
from cuaug.codec.jpeg_crop import crop_jpeg
from tests.codec.images import app1, photo, tiff_block

MCU = {0x111111: (8, 8), 0x211111: (8, 16), 0x221111: (16, 16), 0x121111: (16, 8), 0x411111: (8, 32), 0: (8, 8)}
"""Height and width in pixels of a minimum coded unit, by OpenCV's name for the sampling factors; 0 is gray."""


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
    """A picture with so many 256ths of noise as a JPEG, with a restart marker after every `interval` MCUs; 0: none."""
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
    return turned(data.tobytes(), orientation)


def turned(data: bytes, orientation: int) -> bytes:
    return data[:2] + app1(tiff_block(orientation)) + data[2:]


def displayed(stored: np.ndarray, orientation: int) -> np.ndarray:
    """An array turned as EXIF says, in NumPy's words."""
    if orientation in (5, 6, 7, 8):
        stored = stored.T
    if orientation in (2, 3, 6, 7):
        stored = stored[:, ::-1]
    return stored[::-1] if orientation in (3, 4, 7, 8) else stored


def size(header: EncodedImage) -> tuple[int, int]:
    return header.height, header.width


def within(pixels: np.ndarray, region: Region) -> np.ndarray:
    y0, x0, y1, x1 = region
    return pixels[y0:y1, x0:x1]


def ends(low: int, high: int) -> st.SearchStrategy[int]:
    """Half of them where blocks meet."""
    return st.integers(low, high) | st.integers(low, high).map(lambda at: max(low, at // 8 * 8))


@st.composite
def a_region(draw, height: int, width: int) -> Region:
    y0, x0 = draw(ends(0, height - 1)), draw(ends(0, width - 1))
    return y0, x0, draw(ends(y0 + 1, height)), draw(ends(x0 + 1, width))


def cut(data: bytes, region: Region, index: JpegIndex | None = None) -> tuple[bytes, Region] | None:
    """A part of a file, and where the region lies in it."""
    header = read_header(data)
    found = crop_jpeg(data, region, size(header), header._orientation, index)
    return None if found is None else (found[0].tobytes(), found[2])


def smallest(stored: tuple[int, int], sampling: int, orientation: int, region: Region, tile: tuple[int, int]) -> Region:
    """The rectangle of tiles, as stored, that holds a region as displayed and a sample of chroma around it.

    It is not so narrow that libjpeg would leave out the smoothing of chroma.
    """
    height, width = stored
    (high, wide), (tile_high, tile_wide) = MCU[sampling], tile
    wanted = within(displayed(np.arange(height * width).reshape(stored), orientation), region)
    top, left = divmod(int(wanted.min()), width)
    bottom, right = divmod(int(wanted.max()), width)
    top, left = max(top - high // 8, 0) // tile_high * tile_high, max(left - wide // 8, 0) // tile_wide * tile_wide
    bottom = min(height, ((bottom + high // 8) // tile_high + 1) * tile_high)
    right = min(width, ((right + wide // 8) // tile_wide + 1) * tile_wide)
    if right - left < MIN_CROP_SIDE:
        left = max(0, left - tile_wide)
    return top, left, bottom, right


def assert_holds(
    part: bytes, inner: Region, rectangle: Region, stored: tuple[int, int], orientation: int, region: Region
) -> None:
    """That a part is this rectangle of the picture as stored, turned as that is, and has the region where it says."""
    top, left, bottom, right = rectangle
    assert Image.open(io.BytesIO(part)).size == (right - left, bottom - top)
    places = np.arange(stored[0] * stored[1]).reshape(stored)
    wanted = within(displayed(places, orientation), region)
    np.testing.assert_array_equal(within(displayed(within(places, rectangle), orientation), inner), wanted)
    assert read_header(part)._orientation == orientation
