"""The library's walk over a JPEG's markers, against the same in plain Python."""

from __future__ import annotations

import ctypes
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from cuaug._native import library
from cuaug.codec.exif import MAX_SCANS

TABLES = {0xC4, 0xCC, 0xDA, 0xDB, 0xDC, 0xDD, 0xFE, *range(0xE0, 0xF0)}


def walked(data: bytes) -> tuple[int, int] | None:
    """Where the EXIF block lies, (0, 0) where there is none; None where the markers are not as they should be."""
    block, scans, missing, at = (0, 0), 0, None, 2
    try:
        while data[at] == 0xFF:
            marker = data[at + 1]
            if marker == 0xFF:
                at += 1
                continue
            if marker == 0xD9:
                return block if scans and not missing else None
            if marker < 0xC0 or 0xD0 <= marker <= 0xD8 or (scans and marker not in TABLES):
                return None
            end = at + 2 + (data[at + 2] << 8 | data[at + 3])
            if marker == 0xDA:
                scans += 1
                missing = None if missing is None else missing - data[at + 4]
                if scans > MAX_SCANS or (missing is not None and missing < 0):
                    return None
                while data[end] != 0xFF or data[end + 1] in (0x00, 0xFF, *range(0xD0, 0xD8)):
                    end += 1
            elif marker in (0xC0, 0xC1, 0xC9):
                missing = data[at + 9]
            elif marker == 0xE1 and data[at + 4 : at + 10] == b"Exif\0\0":
                if block != (0, 0) or scans:
                    return None
                block = at + 10, end
            at = end
    except IndexError:
        pass
    return None


def library_walked(data: bytes) -> tuple[int, int] | None:
    block = (ctypes.c_int64 * 2)()
    return tuple(block) if library.cuaug_walk_jpeg(data, len(data), MAX_SCANS, block) else None  # type: ignore


def encoded(**options) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (16, 24, 3), dtype=np.uint8)).save(out, "JPEG", **options)
    return out.getvalue()


EXIF = Image.Exif()
EXIF[0x0112] = 6
FILES = [
    encoded(),
    encoded(exif=EXIF),
    encoded(progressive=True, exif=EXIF),
    encoded(subsampling="4:2:0", restart_marker_blocks=1, comment=b"a comment"),
]
BYTES = st.sampled_from(
    [0x00, 0x01, 0x03, 0x0C, 0xC0, 0xC2, 0xC4, 0xD0, 0xD8, 0xD9, 0xDA, 0xDD, 0xE1, 0xEF, 0xF0, 0xFE, 0xFF]
)


@pytest.mark.parametrize("data", FILES)
def test_encoders_files_are_sound(data):
    found = walked(data)
    assert found is not None and library_walked(data) == found
    assert (found != (0, 0)) == (b"Exif" in data)
    # From every place on it is cut, it has no end; what follows the end is nobody's business.
    assert all(library_walked(data[:n]) is None for n in range(len(data)))
    assert library_walked(data + b"\xff\xff\xe1") == found


@given(st.data(), st.sampled_from(FILES))
def test_of_damaged_files_both_think_the_same(data, file):
    marked = [i for i, byte in enumerate(file) if byte == 0xFF]
    damaged = bytearray(file)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.sampled_from(marked)) + data.draw(st.integers(0, 10))
        damaged[min(at, len(file) - 1)] = data.draw(BYTES)
    cut = bytes(damaged[: data.draw(st.just(len(file)) | st.integers(0, len(file)))])
    assert library_walked(cut) == walked(cut)


@given(st.lists(BYTES | st.just(0xFF), max_size=60))
def test_of_what_is_no_jpeg_too(rest):
    data = bytes([0xFF, 0xD8, *rest])
    assert library_walked(data) == walked(data)


def test_as_many_scans_as_are_allowed():
    head = bytes([0xFF, 0xD8, 0xFF, 0xC2, 0, 11, 8, 0, 1, 0, 1, 1, 1, 0x11, 0])
    for scans, sound in ((MAX_SCANS, True), (MAX_SCANS + 1, False)):
        data = head + bytes([0xFF, 0xDA, 0, 8, 1, 1, 0, 0, 63, 0, 7]) * scans + b"\xff\xd9"
        assert (library_walked(data) is not None) == sound == (walked(data) is not None)
