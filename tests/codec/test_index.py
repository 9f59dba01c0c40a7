"""Regions of JPEGs without restart markers: once a file is indexed a part is decoded, and gives the same pixels."""

from __future__ import annotations

import copy
import ctypes
import itertools
import os
import pickle
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cuaug._runtime.native import library
from cuaug.codec import CpuDecoder, JpegIndex, read_header
from cuaug.codec.jpeg_crop import cut_out, worth_cutting
from tests.codec.jpeg_crops import MCU, a_region, assert_holds, cut, jpeg, size, smallest, within
from tests.codec.memory import allocated
from tests.codec.pictures import FORMATS, as_pillow, encode, photo

DECODER = CpuDecoder()


def known(data: bytes, limit: int = 1 << 20, files: int = 1) -> JpegIndex:
    """An index that has seen the file twice."""
    index, header = JpegIndex(limit, files), read_header(data)
    corner = (0, 0, 1, 1) if header._orientation == 1 else (header.height - 1, header.width - 1, *size(header))
    for _ in range(2):
        cut_out(data, corner, size(header), header._orientation, index)
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
    """What is cut out decodes to the picture's own pixels, and what the index cannot do is done without."""
    file = jpeg(height, width, sampling, quality, noise=noise, optimize=optimize, orientation=orientation)
    header, index = read_header(file), JpegIndex(1 << 20)
    expected = as_pillow(file)
    for _ in range(4):
        region = data.draw(a_region(header.height, header.width))
        found = cut_out(file, region, size(header), header._orientation, index)
        if found is not None:
            part = found[0].tobytes()
            np.testing.assert_array_equal(within(as_pillow(part), found[2]), within(expected, region))


@settings(deadline=None)
@given(
    st.data(),
    st.sampled_from(list(MCU)),
    st.integers(1, 8),
    st.integers(90, 140),
    st.integers(200, 320),
    st.sampled_from([16, 32, 64]),
)
def test_what_is_cut_out(data, sampling, orientation, height, width, apart):
    """The smallest rectangle of units, from entry point to entry point, as close together as a file's share allows."""
    stored = height, width
    file = jpeg(*stored, sampling, orientation=orientation)
    header = read_header(file)
    region = data.draw(a_region(header.height, header.width))
    limit, files = {16: (1 << 20, 1), 32: (1000 * room(stored, sampling, 32), 1000), 64: (1 << 20, 1 << 20)}[apart]
    rectangle = smallest(stored, sampling, orientation, region, (MCU[sampling][0], max(MCU[sampling][1], apart)))
    found = cut(file, region, known(file, limit, files))
    if rectangle == (0, 0, *stored):
        assert found is None
        return
    part, inner = found
    assert_holds(part, inner, rectangle, stored, orientation, region)


@settings(deadline=None, max_examples=50)
@given(st.data(), st.sampled_from(list(MCU)), st.integers(1, 8), st.booleans())
def test_a_decoder_with_an_index(data, sampling, orientation, fancy):
    """It decodes what it would without, and from the second visit on a part of the file."""
    file = jpeg(300, 500, sampling, 95, orientation=orientation)
    header, index, decoder = read_header(file), JpegIndex(1 << 20), CpuDecoder(fancy_upsampling=fancy)
    whole = decoder.decode(header).copy()
    for visit in range(4):
        y0, x0 = data.draw(st.integers(100, 150)), data.draw(st.integers(100, 150))
        region = (y0, x0, y0 + data.draw(st.integers(8, 99)), x0 + data.draw(st.integers(8, 99)))
        np.testing.assert_array_equal(decoder.decode(header, region, index=index), within(whole, region))
        assert decoder.decoded_by == "cpu" and (decoder.in_part or visit == 0)


def room(stored: tuple[int, int], sampling: int, apart: int) -> int:
    """Bytes that do for entry points so many pixels apart, but not for twice as many."""
    points = -(-stored[0] // MCU[sampling][0]) * -(-stored[1] // max(MCU[sampling][1], apart))
    return 200 + int(1.3 * points * (10 if sampling else 6))


FILE = jpeg(200, 300)
REGION = (90, 130, 120, 180)


@pytest.mark.parametrize("width", range(17, 24))
def test_what_is_left_of_a_row(width):
    """Of a picture of a few pixels across libjpeg does not smooth chroma: a part is not so narrow."""
    file = jpeg(20, width)
    for left in range(width - 3, width):
        found = cut(file, (2, left, 5, width), known(file))
        if found is not None:
            part, inner = found
            np.testing.assert_array_equal(within(as_pillow(part), inner), within(as_pillow(file), (2, left, 5, width)))


def test_the_second_visit_makes_the_index():
    most = (20, 70, 180, 300)
    index = JpegIndex(1 << 20)
    assert cut(FILE, most, index) is None
    assert cut(FILE, most, index) == cut(FILE, most, index) is not None


def test_a_small_region_makes_it_at_once():
    assert cut(FILE, REGION, JpegIndex(1 << 20)) == cut(FILE, REGION, known(FILE)) is not None


def test_too_little_to_leave_out():
    """Then the file is not even looked at."""
    assert not worth_cutting(REGION, (200, 300), len(FILE), len(FILE))
    assert worth_cutting(REGION, (200, 300), len(FILE), len(FILE) // 4)
    wide = (0, 0, 100, 300)  # what is below needs no decoding anyway
    assert not worth_cutting(wide, (200, 300), len(FILE), 1)


def test_the_limit():
    """Files that no longer fit are decoded whole; those that are in it stay."""
    index = known(FILE, 1200)
    other = jpeg(201, 300)
    for _ in range(3):
        assert cut(other, REGION, index) is None
    assert cut(FILE, REGION, index) is not None
    assert cut(FILE, REGION, known(FILE, 500)) is None


def test_so_many_files_fit():
    """As far apart as the places have to be for all of them to be in it, where fewer would have more."""
    region = (90, 150, 120, 170)
    files = [jpeg(200 + i, 300) for i in range(12)]
    limit = 12 * room((212, 300), 0x221111, 64)
    parts = {}
    for count in (1, 12):
        index = JpegIndex(limit, count)
        for file in files + files:
            cut(file, region, index)
        parts[count] = [cut(file, region, index) for file in files]
    assert None not in parts[12] and 2 < parts[1].count(None) < 10
    both = [(near[0], far[0]) for near, far in zip(parts[1], parts[12], strict=True) if near]
    assert all(len(near) < len(far) for near, far in both)


def test_a_limit_beyond_what_there_is():
    assert cut(FILE, REGION, known(FILE, 1 << 70)) is not None


def test_a_file_that_cannot_be_indexed_leaves_its_room_to_others():
    index = known(ends_early(), 1000)
    cut(FILE, REGION, index)
    assert cut(FILE, REGION, index) is not None


def test_memory_up_to_the_limit_which_is_given_back():
    """Of files that would take three times as much."""
    large, limit = encode(Image.new("RGB", (2000, 2000)), "JPEG"), 4 << 20
    before, index = allocated(), JpegIndex(limit)
    for number in range(300):  # 40 kB each
        other = large[:2] + b"\xff\xfe\0\6" + number.to_bytes(4, "little") + large[2:]  # a comment of its own
        for _ in range(2):
            cut_out(other, REGION, (2000, 2000), 1, index)
    assert 0.9 * limit < allocated() - before < 1.05 * limit
    del index
    assert allocated() - before < 0.05 * limit


def test_files_that_come_once_leave_room():
    """For the indexes of those that come again, however many they are."""
    index = JpegIndex(2000)
    cut(FILE, REGION, index)
    for i in range(40):
        cut(FILE + bytes([i]), REGION, index)
    assert cut(FILE, REGION, index) is not None


def test_a_file_that_changes_is_another_file():
    index = known(FILE)
    at = FILE.index(b"\xff\xdb") + 6  # a step of the quantiser: the same codes mean other pixels
    changed = FILE[:at] + bytes([2 * FILE[at]]) + FILE[at + 1 :]
    part, inner = cut(changed, REGION, index)
    np.testing.assert_array_equal(within(as_pillow(part), inner), within(as_pillow(changed), REGION))
    assert cut(FILE, REGION, index)[0] != part


def test_two_changes_that_make_up_for_each_other():
    """Two such bits did so in the checksum of any file, which then was cut where the rows of the other one begin."""
    index = known(FILE)
    for at in range(800, len(FILE) - 40, 64):
        changed = bytearray(FILE)
        changed[at + 4] ^= 0x04
        changed[at + 39] ^= 0x80
        ours, own = (cut_out(bytes(changed), REGION, (200, 300), 1, each) for each in (index, JpegIndex(1 << 20)))
        np.testing.assert_equal(ours, own)


@pytest.mark.parametrize("where", ["above", "in", "below"])
def test_damaged_codes(where):
    """Whatever the damage is, the pixels are those that decoding from the file's beginning gives."""
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
            found = cut(file, REGION, index)
        if found is not None:
            part, inner = found
            np.testing.assert_array_equal(within(DECODER.decode(read_header(part)), inner), expected)


@pytest.mark.parametrize("fancy", [True, False])
def test_damage_behind_the_codes(fancy):
    """Of a region at the bottom a decoder sees it, and may leave the file to another one, whose chroma differs."""
    bad_codes = b"\xff\xc4\x00\x16\x00" + 16 * b"\x09" + 3 * b"\x00"
    file = FILE[:-2] + bad_codes + FILE[-2:]
    header, index, decoder = read_header(file), JpegIndex(1 << 20), CpuDecoder(fancy_upsampling=fancy)
    region = (150, 130, 200, 180)
    expected = decoder.decode(header, region).copy()
    for _ in range(3):
        np.testing.assert_array_equal(decoder.decode(header, region, index=index), expected)


def ends_early() -> bytes:
    """The last rows are missing, which a decoder makes gray."""
    return FILE[: len(FILE) // 3] + b"\xff\xd9"


def other_table() -> bytes:
    """It names codes that are defined nowhere."""
    at = FILE.index(b"\xff\xda") + 6
    return FILE[:at] + b"\x33" + FILE[at + 1 :]


def lost_code() -> bytes:
    """Its first table has the symbols of values that are too large."""
    at = FILE.index(b"\xff\xc4") + 4 + 17
    return FILE[:at] + b"\x0f" + FILE[at + 1 :]


def in_a_marker() -> bytes:
    """A restart marker where the header announces none."""
    at = FILE.index(b"\xff\xda") + 700
    return FILE[:at] + b"\xff\xd0" + FILE[at + 2 :]


@pytest.mark.parametrize("damage", [ends_early, other_table, lost_code, in_a_marker])
def test_files_that_cannot_be_indexed(damage):
    """They are decoded, or refused, as they are without an index."""
    file = damage()
    index = known(file)
    for _ in range(2):
        assert cut_out(file, (0, 0, 9, 9), (200, 300), 1, index) is None


@pytest.mark.parametrize("name", [name for name in FORMATS if not name.startswith(("jpeg", "mpo"))])
def test_other_files(name):
    index = JpegIndex(1 << 20)
    for _ in range(3):
        assert cut_out(FORMATS[name], (0, 0, 9, 9), (37, 53), 1, index) is None


def test_what_no_decoder_takes_whole():
    """It has no parts either, or it would be refused on the first visits alone."""
    file = encode(Image.new("L", (65_500, 40)), "JPEG")
    wider = file.replace((65_500).to_bytes(2, "big"), (65_504).to_bytes(2, "big"), 1)
    region = (8, 8, 24, 24)
    assert cut(file, region, known(file)) is not None and cut(wider, region, known(wider)) is None


def test_progressive_files():
    file = encode(Image.fromarray(photo(200, 300)), "JPEG", progressive=True)
    assert cut(file, REGION, known(file)) is None


def test_codes_that_the_part_lacks():
    """A picture whose code has none for a step from one edge to the other is decoded whole: never with another step."""
    ramp = np.repeat(np.linspace(0, 255, 512)[None], 64, axis=0).astype(np.uint8)
    file = encode(Image.fromarray(ramp), "JPEG", optimize=True, quality=100)
    index, whole, found = known(file), as_pillow(file), []
    for x in range(64, 448, 64):
        found.append(cut_out(file, (10, x, 50, x + 40), (64, 512), 1, index))
        if found[-1] is not None:
            np.testing.assert_array_equal(
                within(as_pillow(found[-1][0].tobytes()), found[-1][2]), whole[10:50, x : x + 40]
            )
    assert any(one is None for one in found)


def test_many_threads():
    """They share an index, and what it knows is right whoever asks first."""
    files = [jpeg(150, 260 + i) for i in range(20)]
    expected = [cut(file, REGION, known(file))[0] for file in files]
    for _ in range(5):
        index = JpegIndex(1 << 20)
        with ThreadPoolExecutor(8) as pool:
            order = [i for _ in range(6) for i in range(20)]
            found = list(pool.map(lambda i, index=index: (i, cut(files[i], REGION, index)), order))
        assert all(one is None or one[0] == expected[i] for i, one in found)
        assert all(cut(file, REGION, index)[0] == part for file, part in zip(files, expected, strict=True))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child():
    """Forked while threads hold the lock again and again, it ends, with the pixels that it should have."""
    index, stop = known(FILE), threading.Event()
    expected = within(as_pillow(FILE), REGION)

    def ask() -> None:
        for region in itertools.cycle([REGION, (0, 0, 40, 40)]):
            if stop.is_set():
                return
            cut_out(FILE, region, (200, 300), 1, index)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                found = cut_out(FILE, REGION, (200, 300), 1, index)
                right = found is None or (within(as_pillow(found[0].tobytes()), found[2]) == expected).all()
                os._exit(0 if right else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_forked_child_frees_nothing():
    """What a thread was changing at the fork is half changed in the child, and may be freed twice."""
    index = known(FILE)
    lock = ctypes.c_void_p(index.handle)  # what it begins with
    ctypes.CDLL(None).pthread_mutex_lock(lock)
    before, pid = allocated(), os.fork()
    if pid == 0:
        signal.alarm(10)
        library.cuaug_indexes_delete(index.handle)
        os._exit(0 if cut(FILE, REGION, index) is None and allocated() >= before else 1)
    ctypes.CDLL(None).pthread_mutex_unlock(lock)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert cut(FILE, REGION, index) is not None


def test_no_copies():
    """A copy would free the same memory again."""
    for make in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="JpegIndex"):
            make(JpegIndex(1 << 10))
