"""Regions of JPEGs with restart markers: a part of the file is decoded, and gives the same pixels."""

from __future__ import annotations

import io
import itertools

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cuaug.codec import HostDecoder, read_header
from cuaug.codec.header import NARROW
from cuaug.codec.parts import cut_out
from tests.codec.pictures import FORMATS, app1, as_pillow, encode, photo, tiff_block

MCU = {0x111111: (8, 8), 0x211111: (8, 16), 0x221111: (16, 16), 0x121111: (16, 8), 0x411111: (8, 32), 0: (8, 8)}
"""Height and width in pixels of a minimum coded unit, by OpenCV's name for the sampling factors; 0 is gray."""
WHOLE = HostDecoder()


def turned(data: bytes, orientation: int) -> bytes:
    return data[:2] + app1(tiff_block(orientation)) + data[2:]


def restarted(height: int, width: int, sampling: int, interval: int, orientation: int = 1) -> bytes:
    """A JPEG with a restart marker after every `interval` MCUs."""
    noise = np.random.default_rng(height * 200 + width).integers(0, 256, (height, width, 3), dtype=np.uint8)
    pixels = noise // 4 + photo(height, width) // 4 * 3
    options = [cv2.IMWRITE_JPEG_RST_INTERVAL, interval]
    if sampling:
        options += [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, sampling]
    else:
        pixels = pixels[..., 0]
    done, data = cv2.imencode(".jpg", pixels, options)
    assert done
    return turned(data.tobytes(), orientation)


def cut(data: bytes, region: tuple[int, int, int, int]) -> tuple[bytes, tuple[int, int, int, int]] | None:
    header = read_header(data)
    found = cut_out(data, region, (header.height, header.width), header._orientation)
    return None if found is None else (found[0].tobytes(), found[2])


def within(pixels: np.ndarray, region: tuple[int, int, int, int]) -> np.ndarray:
    y0, x0, y1, x1 = region
    return pixels[y0:y1, x0:x1]


def ends(low: int, high: int) -> st.SearchStrategy[int]:
    """Half of them where blocks meet."""
    return st.integers(low, high) | st.integers(low, high).map(lambda at: max(low, at // 8 * 8))


@st.composite
def a_region(draw, height: int, width: int) -> tuple[int, int, int, int]:
    y0, x0 = draw(ends(0, height - 1)), draw(ends(0, width - 1))
    return y0, x0, draw(ends(y0 + 1, height)), draw(ends(x0 + 1, width))


@settings(deadline=None)
@given(
    st.data(),
    st.integers(1, 150),
    st.integers(1, 150),
    st.sampled_from(list(MCU)),
    st.integers(1, 8),
    st.integers(1, 8) | st.sampled_from(["row", "two rows"]),
    st.booleans(),
)
def test_any_region(data, height, width, sampling, orientation, interval, fancy):
    if not isinstance(interval, int):
        interval = -(-width // MCU[sampling][1]) * (1 if interval == "row" else 2)
    file = restarted(height, width, sampling, interval, orientation)
    decoder = HostDecoder(fancy_upsampling=fancy)
    header = read_header(file)
    region = data.draw(a_region(header.height, header.width))
    pixels = decoder.decode(header, region).copy()
    assert decoder.decoded_by == "cpu"
    np.testing.assert_array_equal(pixels, within(decoder.decode(header), region))
    if fancy:
        np.testing.assert_array_equal(pixels, within(as_pillow(file), region))


@settings(deadline=None)
@given(st.data(), st.sampled_from(list(MCU)), st.integers(1, 8), st.sampled_from([1, 2, 3, 4, 6, 12, 24, 5]))
def test_what_is_cut_out(data, sampling, orientation, interval):
    """Twelve MCUs in a row: a rectangle of intervals that holds the region and a sample of chroma around it."""
    high, wide = MCU[sampling]
    height, width = 6 * high - 3, 12 * wide - 5
    file = restarted(height, width, sampling, interval, orientation)
    header = read_header(file)
    region = data.draw(a_region(header.height, header.width))
    found = cut(file, region)
    stored = np.arange(height * width).reshape(height, width)
    wanted = within(displayed(stored, orientation), region)
    top, left = divmod(int(wanted.min()), width)
    bottom, right = divmod(int(wanted.max()), width)
    tile_high, tile_wide = high * max(1, interval // 12), wide * min(12, interval)
    top, bottom = max(top - high // 8, 0) // tile_high * tile_high, bottom + high // 8
    left, right = max(left - wide // 8, 0) // tile_wide * tile_wide, right + wide // 8
    bottom = min(height, (bottom // tile_high + 1) * tile_high)
    right = min(width, (right // tile_wide + 1) * tile_wide)
    if interval == 5 or (bottom - top, right - left) == (height, width):
        assert found is None
        return
    part, inner = found
    assert Image.open(io.BytesIO(part)).size == (right - left, bottom - top)
    np.testing.assert_array_equal(within(displayed(stored[top:bottom, left:right], orientation), inner), wanted)
    assert read_header(part)._orientation == orientation
    if min(region[2] - region[0], region[3] - region[1]) < NARROW:
        assert header.part(region) is None  # at the right edge it may be too narrow for libjpeg to smooth chroma
        return
    np.testing.assert_array_equal(within(as_pillow(part), inner), within(as_pillow(file), region))


def displayed(stored: np.ndarray, orientation: int) -> np.ndarray:
    """An array turned as EXIF says, in NumPy's words."""
    if orientation in (5, 6, 7, 8):
        stored = stored.T
    if orientation in (2, 3, 6, 7):
        stored = stored[:, ::-1]
    return stored[::-1] if orientation in (3, 4, 7, 8) else stored


FILE = restarted(96, 128, 0x221111, 2)
REGION = (40, 70, 60, 90)


def test_nothing_else_is_decoded():
    """The pixels are the same, whatever the intervals outside hold."""
    expected = WHOLE.decode(read_header(FILE), REGION).copy()
    starts = [i for i in range(len(FILE) - 1) if FILE[i] == 0xFF and 0xD0 <= FILE[i + 1] <= 0xD7]
    damaged = bytearray(FILE)
    for number, (begin, end) in enumerate(itertools.pairwise(starts), 1):
        row, column = divmod(number, 4)
        if row not in (2, 3) or column != 2:
            damaged[begin + 2 : end] = bytes(end - begin - 2)
    header = read_header(bytes(damaged))
    np.testing.assert_array_equal(WHOLE.decode(header, REGION), expected)
    assert WHOLE.decoded_by == "cpu" and WHOLE.in_part
    assert (WHOLE.decode(header)[:30].copy() != WHOLE.decode(read_header(FILE))[:30]).any()


def marker(number: int) -> int:
    at = -1
    for _ in range(number):
        at = next(i for i in range(at + 1, len(FILE)) if FILE[i] == 0xFF and 0xD0 <= FILE[i + 1] <= 0xD7)
    return at


@pytest.mark.parametrize(
    "damaged",
    [
        FILE[: marker(3)] + FILE[marker(3) + 2 :],
        FILE[: marker(3)] + FILE[marker(4) :],
        FILE[: marker(3) + 1] + b"\xd7" + FILE[marker(3) + 2 :],
        FILE[: marker(5)] + FILE[marker(5) : marker(5) + 2] + FILE[marker(5) :],
        FILE[: marker(23)] + b"\xff\xd9",
        FILE[:-2] + b"\xff\xd7\xff\xd9",
        FILE[:-2],
    ],
    ids=["a marker is missing", "an interval", "another number", "twice", "the last interval", "one too many", "end"],
)
def test_markers_that_are_not_all_there(damaged):
    """Such a file is decoded from its beginning, as any other."""
    assert cut(FILE, REGION) is not None
    assert cut_out(damaged, REGION, (96, 128), 1) is None


@pytest.mark.parametrize(
    "data",
    [*(data for name, data in FORMATS.items() if name != "jpeg restarts"), b"", b"\xff\xd8\xff"],
    ids=[*(name for name in FORMATS if name != "jpeg restarts"), "nothing", "a start"],
)
def test_files_without_restarts(data):
    assert cut_out(data, (0, 0, 9, 9), (37, 53), 1) is None


def test_a_progressive_file_has_its_restarts_in_every_scan():
    file = encode(Image.fromarray(photo(64, 64)), "JPEG", progressive=True, restart_marker_blocks=1)
    assert cut(file, (0, 0, 20, 20)) is None
    np.testing.assert_array_equal(WHOLE.decode(read_header(file), (3, 5, 20, 30)), as_pillow(file)[3:20, 5:30])


def test_a_picture_of_many_intervals():
    """Their numbers are those of the part's own."""
    file = restarted(400, 400, 0x111111, 1)
    for region in ((0, 0, 8, 9), (90, 200, 300, 210), (391, 391, 400, 400), (9, 0, 400, 400)):
        part, inner = cut(file, region)
        np.testing.assert_array_equal(within(as_pillow(part), inner), within(as_pillow(file), region))
