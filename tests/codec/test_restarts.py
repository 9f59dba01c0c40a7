"""JPEGs with restart markers: crops decode to the same pixels."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cuaug.codec import CpuDecoder, read_header
from cuaug.codec.jpeg_index import crop_jpeg
from tests.support.codec.encoded_images import FORMATS, as_pillow, encode, photo
from tests.support.codec.jpeg_crops import (
    MCU,
    assert_has_the_pixels,
    assert_is_crop,
    crop,
    draw_region,
    expected_crop,
    jpeg,
    slice_region,
)

WHOLE = CpuDecoder()


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
    file = jpeg(height, width, sampling, interval=interval, orientation=orientation)
    decoder = CpuDecoder(fancy_upsampling=fancy)
    header = read_header(file)
    region = data.draw(draw_region(header.height, header.width))
    pixels = decoder.decode(header, region).copy()
    assert decoder.decoded_by == "cpu"
    np.testing.assert_array_equal(pixels, slice_region(decoder.decode(header), region))
    if fancy:
        np.testing.assert_array_equal(pixels, slice_region(as_pillow(file), region))


@settings(deadline=None)
@given(st.data(), st.sampled_from(list(MCU)), st.integers(1, 8), st.sampled_from([1, 2, 3, 4, 6, 12, 24, 5]))
def test_a_crop_is_the_smallest_rectangle_of_intervals(data, sampling, orientation, interval):
    """A row has twelve MCUs."""
    mcu_height, mcu_width = MCU[sampling]
    stored = 6 * mcu_height - 3, 12 * mcu_width - 5
    file = jpeg(*stored, sampling, interval=interval, orientation=orientation)
    header = read_header(file)
    region = data.draw(draw_region(header.height, header.width))
    found = crop(file, region)
    tile = mcu_height * max(1, interval // 12), mcu_width * min(12, interval)
    rectangle = expected_crop(stored, sampling, orientation, region, tile)
    if interval == 5 or rectangle == (0, 0, *stored):
        assert found is None
        return
    cropped, inner = found
    assert_is_crop(cropped, inner, rectangle, stored, orientation, region)
    assert_has_the_pixels(found, file, region)


FILE = jpeg(96, 128, interval=2)
REGION = (40, 70, 60, 90)


def test_nothing_outside_the_crop_is_decoded():
    """Damaged intervals outside do not change the pixels."""
    expected = WHOLE.decode(read_header(FILE), REGION).copy()
    starts = [i for i in range(len(FILE) - 1) if FILE[i] == 0xFF and 0xD0 <= FILE[i + 1] <= 0xD7]
    damaged = bytearray(FILE)
    for number, (begin, end) in enumerate(itertools.pairwise(starts), 1):
        row, column = divmod(number, 4)
        if row not in (2, 3) or column != 2:
            damaged[begin + 2 : end] = bytes(end - begin - 2)
    header = read_header(bytes(damaged))
    np.testing.assert_array_equal(WHOLE.decode(header, REGION), expected)
    assert WHOLE.decoded_by == "cpu" and WHOLE.cropped
    assert (WHOLE.decode(header)[:30].copy() != WHOLE.decode(read_header(FILE))[:30]).any()


def marker(number: int) -> int:
    """The offset of this restart marker of FILE."""
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
def test_files_with_wrong_restart_markers_are_not_cropped(damaged):
    assert crop(FILE, REGION) is not None
    assert crop_jpeg(damaged, REGION, (96, 128), 1) is None


@pytest.mark.parametrize(
    "data",
    [*(data for name, data in FORMATS.items() if name != "jpeg restarts"), b"", b"\xff\xd8\xff"],
    ids=[*(name for name in FORMATS if name != "jpeg restarts"), "nothing", "a start"],
)
def test_files_without_restart_markers_are_not_cropped(data):
    assert crop_jpeg(data, (0, 0, 9, 9), (37, 53), 1) is None


def test_a_progressive_file_is_not_cropped():
    """It has restart markers in every scan."""
    file = encode(Image.fromarray(photo(64, 64)), "JPEG", progressive=True, restart_marker_blocks=1)
    assert crop(file, (0, 0, 20, 20)) is None
    np.testing.assert_array_equal(WHOLE.decode(read_header(file), (3, 5, 20, 30)), as_pillow(file)[3:20, 5:30])


def test_an_image_of_many_intervals():
    """The crop numbers its restart markers anew."""
    file = jpeg(400, 400, 0x111111, interval=1)
    for region in ((0, 0, 8, 9), (90, 200, 300, 210), (391, 391, 400, 400), (9, 0, 400, 400)):
        assert_has_the_pixels(crop(file, region), file, region)
