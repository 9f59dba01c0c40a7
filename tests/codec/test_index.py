"""JPEGs without restart markers, cropped by an index: crops decode to the same pixels."""

from __future__ import annotations

import copy
import itertools
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cuaug.codec import CpuDecoder, JpegIndex, read_header
from cuaug.codec.jpeg_index import crop_jpeg
from tests.support.codec.encoded_images import FORMATS, as_pillow, encode
from tests.support.codec.jpeg_crops import (
    MCU,
    assert_has_the_pixels,
    assert_is_crop,
    crop,
    draw_region,
    expected_crop,
    jpeg,
    size,
    slice_region,
)
from tests.support.codec.memory import allocated

DECODER = CpuDecoder()


def make_index(data: bytes, limit: int = 1 << 20, files: int = 1) -> JpegIndex:
    """An index that has seen the file."""
    index, header = JpegIndex(limit, files), read_header(data)
    corner = (0, 0, 1, 1) if header._orientation == 1 else (header.height - 1, header.width - 1, *size(header))
    crop_jpeg(data, corner, size(header), header._orientation, index)
    return index


@settings(deadline=None)
@given(
    st.data(),
    st.integers(1, 200),
    st.integers(1, 300),
    st.sampled_from(list(MCU)),
    st.sampled_from([5, 50, 85, 98, 100]),
    st.integers(0, 1),
    st.integers(1, 8),
    st.sampled_from([0, 64, 256]),
)
def test_any_region(data, height, width, sampling, quality, optimize, orientation, noise):
    """Any crop decodes to the image's own pixels."""
    file = jpeg(height, width, sampling, quality, noise=noise, optimize=optimize, orientation=orientation)
    header, index = read_header(file), JpegIndex(1 << 20)
    for _ in range(4):
        region = data.draw(draw_region(header.height, header.width))
        if (found := crop(file, region, index)) is not None:
            assert_has_the_pixels(found, file, region)


@settings(deadline=None)
@given(
    st.data(),
    st.sampled_from(list(MCU)),
    st.integers(1, 8),
    st.integers(90, 140),
    st.integers(200, 320),
    st.sampled_from([16, 32, 64]),
)
def test_a_crop_is_the_smallest_rectangle_between_entry_points(data, sampling, orientation, height, width, distance):
    """Entry points are as close together as a file's share of the budget allows."""
    stored = height, width
    file = jpeg(*stored, sampling, orientation=orientation)
    header = read_header(file)
    region = data.draw(draw_region(header.height, header.width))
    limit, files = {16: (1 << 20, 1), 32: (1000 * budget(stored, sampling, 32), 1000), 64: (1 << 20, 1 << 20)}[distance]
    rectangle = expected_crop(
        stored, sampling, orientation, region, (MCU[sampling][0], max(MCU[sampling][1], distance))
    )
    found = crop(file, region, make_index(file, limit, files))
    if rectangle == (0, 0, *stored):
        assert found is None
        return
    cropped, inner = found
    assert_is_crop(cropped, inner, rectangle, stored, orientation, region)


def budget(stored: tuple[int, int], sampling: int, distance: int) -> int:
    """Bytes that suffice for entry points at this distance in pixels, but not at half of it."""
    points = -(-stored[0] // MCU[sampling][0]) * -(-stored[1] // max(MCU[sampling][1], distance))
    return 200 + int(1.3 * points * (10 if sampling else 6))


FILE = jpeg(200, 300)
REGION = (90, 130, 120, 180)


@pytest.mark.parametrize("width", range(17, 24))
def test_a_crop_at_the_right_edge_is_never_too_narrow(width):
    """libjpeg does not smooth the chroma of an image that is a few pixels wide."""
    file = jpeg(20, width)
    for left in range(width - 3, width):
        region = (2, left, 5, width)
        if (found := crop(file, region, make_index(file))) is not None:
            assert_has_the_pixels(found, file, region)


def test_the_first_visit_makes_the_index():
    for region in (REGION, (20, 70, 180, 300)):
        index = JpegIndex(1 << 20)
        assert crop(FILE, region, index) == crop(FILE, region, index) is not None
        assert index.stats()._replace(bytes=0) == (1, 0, 1, 0)


def test_a_crop_that_saves_too_little_is_not_made():
    """The file is not even parsed then."""
    large = read_header(encode(Image.effect_noise((600, 400), 90).convert("RGB"), "JPEG", quality=95))
    decoder = CpuDecoder()
    for region, is_cropped in (
        ((300, 400, 350, 450), True),
        ((0, 0, 10, 590), False),  # little lies beside it
        ((0, 0, 100, 600), False),  # rows below a region are not decoded anyway
        ((300, 400, 307, 450), False),  # narrow regions come from the whole image
    ):
        index = JpegIndex(1 << 20)
        decoder.decode(large, region, index=index)
        assert decoder.cropped == is_cropped == bool(index.stats().made)
    decoder.decode(large, (300, 400, 350, 450))
    assert not decoder.cropped, "neither an index nor restart markers"


def test_a_budget_beyond_64_bits():
    assert crop(FILE, REGION, make_index(FILE, 1 << 70)) is not None


def test_a_file_that_cannot_be_indexed_takes_no_budget():
    index = make_index(ends_early(), 1000)
    crop(FILE, REGION, index)
    assert crop(FILE, REGION, index) is not None


def test_memory_stays_within_the_budget_and_is_freed():
    """The files would take three times as much."""
    large, limit = encode(Image.new("RGB", (2000, 2000)), "JPEG"), 4 << 20
    files, before, index = open_files(), allocated(), JpegIndex(limit)
    for number in range(300):  # 40 kB each
        other = large[:2] + b"\xff\xfe\0\6" + number.to_bytes(4, "little") + large[2:]  # a comment of its own
        crop_jpeg(other, REGION, (2000, 2000), 1, index)
    (file,) = open_files() - files
    assert 0.9 * limit < os.stat(f"/proc/self/fd/{file}").st_size == index.stats().bytes <= limit
    assert allocated() - before < 0.1 * limit
    del index
    assert not is_open(file)


def open_files() -> set[str]:
    return set(filter(is_open, os.listdir("/proc/self/fd")))  # not that of the listing


def is_open(file: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{file}")


def test_a_changed_file_is_another_file():
    index = make_index(FILE)
    at = FILE.index(b"\xff\xdb") + 6  # a quantization step: the same codes decode to other pixels
    changed = FILE[:at] + bytes([2 * FILE[at]]) + FILE[at + 1 :]
    found = crop(changed, REGION, index)
    assert_has_the_pixels(found, changed, REGION)
    assert crop(FILE, REGION, index)[0] != found[0]


def test_two_bits_that_once_collided_in_the_checksum():
    """An earlier checksum did not change with these two bits, so a file was cropped by another one's index."""
    index = make_index(FILE)
    for at in range(800, len(FILE) - 40, 64):
        changed = bytearray(FILE)
        changed[at + 4] ^= 0x04
        changed[at + 39] ^= 0x80
        old = crop_jpeg(bytes(changed), REGION, (200, 300), 1, index)
        fresh = crop_jpeg(bytes(changed), REGION, (200, 300), 1, JpegIndex(1 << 20))
        np.testing.assert_equal(old, fresh)


@pytest.mark.parametrize("where", ["above", "in", "below"])
def test_damaged_codes_decode_as_without_an_index(where):
    rng = np.random.default_rng(5)
    begin = FILE.index(b"\xff\xda") + 14
    length = (len(FILE) - 2 - begin) // 10
    first = begin + {"above": 2, "in": 5, "below": 8}[where] * length
    for _ in range(40):
        damaged = bytearray(FILE)
        damaged[first : first + 8] = rng.integers(0, 255, 8, dtype=np.uint8).tobytes()
        file = bytes(damaged)
        header, index = read_header(file), JpegIndex(1 << 20)
        expected = DECODER.decode(header, REGION).copy()
        for _ in range(3):
            np.testing.assert_array_equal(DECODER.decode(header, REGION, index=index), expected)
            found = crop(file, REGION, index)
        if found is not None:
            cropped, inner = found
            np.testing.assert_array_equal(slice_region(DECODER.decode(read_header(cropped)), inner), expected)


@pytest.mark.parametrize("fancy", [True, False])
def test_damage_after_the_codes_decodes_as_without_an_index(fancy):
    """A decoder of a region at the bottom reads it and may fail; the next decoder's chroma differs."""
    bad_codes = b"\xff\xc4\x00\x16\x00" + 16 * b"\x09" + 3 * b"\x00"
    file = FILE[:-2] + bad_codes + FILE[-2:]
    header, index, decoder = read_header(file), JpegIndex(1 << 20), CpuDecoder(fancy_upsampling=fancy)
    region = (150, 130, 200, 180)
    expected = decoder.decode(header, region).copy()
    for _ in range(3):
        np.testing.assert_array_equal(decoder.decode(header, region, index=index), expected)


def ends_early() -> bytes:
    """Without the last rows, which a decoder makes gray."""
    return FILE[: len(FILE) // 3] + b"\xff\xd9"


def missing_table() -> bytes:
    """With a scan header that names undefined Huffman tables."""
    at = FILE.index(b"\xff\xda") + 6
    return FILE[:at] + b"\x33" + FILE[at + 1 :]


def invalid_symbol() -> bytes:
    """With a symbol for too large a value in the first Huffman table."""
    at = FILE.index(b"\xff\xc4") + 4 + 17
    return FILE[:at] + b"\x0f" + FILE[at + 1 :]


def stray_restart_marker() -> bytes:
    """With a restart marker but no restart interval."""
    at = FILE.index(b"\xff\xda") + 700
    return FILE[:at] + b"\xff\xd0" + FILE[at + 2 :]


@pytest.mark.parametrize("damage", [ends_early, missing_table, invalid_symbol, stray_restart_marker])
def test_files_that_cannot_be_indexed(damage):
    file = damage()
    index = make_index(file)
    for _ in range(2):
        assert crop_jpeg(file, (0, 0, 9, 9), (200, 300), 1, index) is None


@pytest.mark.parametrize("name", [n for n in FORMATS if "progressive" in n or not n.startswith(("jpeg", "mpo"))])
def test_other_formats_are_not_cropped(name):
    index = JpegIndex(1 << 20)
    for _ in range(3):
        assert crop_jpeg(FORMATS[name], (0, 0, 9, 9), (37, 53), 1, index) is None


def test_an_image_beyond_libjpegs_limit_is_not_cropped():
    """Else the file would fail at its first visits alone."""
    file = encode(Image.new("L", (65_500, 40)), "JPEG")
    wider = file.replace((65_500).to_bytes(2, "big"), (65_504).to_bytes(2, "big"), 1)
    region = (8, 8, 24, 24)
    assert crop(file, region, make_index(file)) is not None and crop(wider, region, make_index(wider)) is None


def test_a_crop_without_a_code_for_its_dc_difference_is_not_made():
    """The optimized Huffman table of a ramp has no code for a step from one edge to the other."""
    ramp = np.repeat(np.linspace(0, 255, 512)[None], 64, axis=0).astype(np.uint8)
    file = encode(Image.fromarray(ramp), "JPEG", optimize=True, quality=100)
    index = make_index(file)
    regions = [(10, x, 50, x + 40) for x in range(64, 448, 64)]
    found = {region: crop(file, region, index) for region in regions}
    assert None in found.values()
    for region, result in found.items():
        if result is not None:
            assert_has_the_pixels(result, file, region)


def test_threads_share_an_index():
    files = [jpeg(150, 260 + i) for i in range(20)]
    expected = [crop(file, REGION, make_index(file))[0] for file in files]
    for _ in range(5):
        index = JpegIndex(1 << 20)
        with ThreadPoolExecutor(8) as pool:
            order = [i for _ in range(6) for i in range(20)]
            found = list(pool.map(lambda i, index=index: (i, crop(files[i], REGION, index)), order))
        assert all(result is None or result[0] == expected[i] for i, result in found)
        assert all(crop(file, REGION, index)[0] == cropped for file, cropped in zip(files, expected, strict=True))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_gives_the_right_pixels():
    """It is forked while threads hold the mutex, and must not deadlock."""
    index, stop = make_index(FILE), threading.Event()
    expected = slice_region(as_pillow(FILE), REGION)

    def crop_repeatedly() -> None:
        for region in itertools.cycle([REGION, (0, 0, 40, 40)]):
            if stop.is_set():
                return
            crop_jpeg(FILE, region, (200, 300), 1, index)

    threads = [threading.Thread(target=crop_repeatedly) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                found = crop_jpeg(FILE, REGION, (200, 300), 1, index)
                is_right = found is None or (slice_region(as_pillow(found[0].tobytes()), found[2]) == expected).all()
                os._exit(0 if is_right else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_an_index_cannot_be_copied():
    """A copy would free the same memory twice."""
    for make in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="JpegIndex"):
            make(JpegIndex(1 << 10))
