"""Every bad file raises a DecodeError with a useful cause, costs no memory, and does not harm the next image."""

from __future__ import annotations

import io
import pickle
import resource
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cuaug.codec import CpuDecoder, read_header
from cuaug.errors import DecodeError
from tests.support.codec.encoded_images import encode

PICTURE = Image.radial_gradient("L").resize((61, 47)).convert("RGB")
FILES = {form: encode(PICTURE, form) for form in ("JPEG", "PNG", "WEBP", "TIFF", "JPEG2000", "GIF", "BMP")}
JPEG, PNG = FILES["JPEG"], FILES["PNG"]
SIZE_AT = JPEG.index(b"\xff\xc0") + 5


def jpeg_claiming(height: int, width: int) -> bytes:
    return JPEG[:SIZE_AT] + struct.pack(">HH", height, width) + JPEG[SIZE_AT + 4 :]


def png_claiming(height: int, width: int) -> bytes:
    return PNG[:16] + struct.pack(">II", width, height) + PNG[24:]


def bmp_claiming(height: int, width: int) -> bytes:
    data = FILES["BMP"]
    return data[:18] + struct.pack("<ii", width, height) + data[26:]


def load(data: bytes, **options) -> np.ndarray:
    return CpuDecoder().decode(read_header(data, **options))


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"", "the file is empty"),
        (b"hello, I am a label file", "looks like text, starting with 'hello, I am a la'"),
        (b"<!DOCTYPE html><html>404</html>", "looks like text, starting with '<!DOCTYPE"),
        (b"\0" * 4096, "starts with zeros"),
        (b"\x93NUMPY\x01\x00" + b"\x80" * 99, r"not an image format known here: it starts with b'\\x93NUMPY"),
        (JPEG[:40], "(?i)truncated"),
        (PNG[:20], "(?i)truncated"),
        (PNG[:20] + b"\xff" * 40, "starts as a PNG file, but its header is damaged or cut short"),
        (JPEG[: len(JPEG) * 2 // 3], "(?i)truncated"),
        (JPEG[:-40], "image file is truncated"),
        (PNG[: len(PNG) // 2], "truncated"),
        (FILES["WEBP"][:200], "could not create decoder"),
        (FILES["TIFF"][:2000], "."),
        (FILES["JPEG2000"][:900], "."),
        (FILES["GIF"][:900], "truncated"),
        (FILES["BMP"][:900], "truncated"),
        (jpeg_claiming(0, 61), "."),
        (encode(PICTURE.convert("F"), "TIFF"), "32-bit samples have no fixed range"),
        (encode(PICTURE.convert("I"), "TIFF"), "32-bit samples have no fixed range"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else None,
)
def test_the_error_names_the_cause(data, cause):
    with pytest.raises(DecodeError, match=cause) as caught:
        load(data)
    error = caught.value
    assert error.path is None and error.index is None and "BytesIO" not in str(error) and "\n" not in error.cause
    located = pickle.loads(pickle.dumps(error.at("a/b.jpg", 7)))
    assert "'a/b.jpg' (sample 7)" in str(located)


@pytest.mark.parametrize("bomb", [jpeg_claiming(65_500, 65_500), png_claiming(65_500, 65_500)], ids=["jpeg", "png"])
def test_a_header_bomb_is_refused_before_anything_is_allocated(bomb):
    read_header(JPEG)  # import the codec first
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DecodeError, match=r"65500 x 65500 = 4290250000 pixels.*max_pixels=178956970"):
        read_header(bomb)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 20_000  # KiB


def test_header_bombs_in_pillows_formats_are_refused_too():
    with pytest.raises(DecodeError, match="pixels"):
        read_header(bmp_claiming(30_000, 30_000))
    with pytest.raises(DecodeError, match=r"9000 x 9001 = 81009000 pixels.*max_pixels=1000000"):
        read_header(bmp_claiming(9_000, 9_001), max_pixels=1_000_000)


def test_the_limit_is_inclusive():
    for data in (JPEG, PNG, FILES["BMP"], FILES["TIFF"], FILES["WEBP"]):
        header = read_header(data, max_pixels=61 * 47)
        assert type(header) is type(read_header(data)) and header.width == 61
        with pytest.raises(DecodeError, match=r"47 x 61 = 2867 pixels.*max_pixels=2866"):
            read_header(data, max_pixels=61 * 47 - 1)


@pytest.mark.parametrize("form", ["BMP", "TIFF", "JPEG2000"])
def test_pillows_own_limit_is_named(form, monkeypatch):
    """A loader does not lift this limit of the process."""
    data = FILES[form]
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(DecodeError, match=r"PIL\.Image\.MAX_IMAGE_PIXELS is its limit, beside max_pixels"):
        read_header(data, max_pixels=10**9)


def test_a_header_with_a_wrong_height_decodes_as_in_pillow():
    """More or fewer rows than the data holds: the header's shape, filled like Pillow. No decoder can detect it."""
    for height, width in ((400, 400), (16, 61)):
        data = jpeg_claiming(height, width)
        np.testing.assert_array_equal(load(data), np.asarray(Image.open(io.BytesIO(data))))


def test_a_stray_marker_is_not_filled_with_gray():
    """nvImageCodec returns this image gray from the middle on, as a success."""
    at = JPEG.index(b"\xff\xda") + 300
    damaged = JPEG[:at] + b"\xff\xc5" + JPEG[at + 2 :]
    with pytest.raises(DecodeError, match="broken data stream"):
        load(damaged)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damage_gives_pillows_picture_or_an_error(data):
    """A truncated or changed JPEG gives Pillow's pixels, or a DecodeError where Pillow fails."""
    damaged = bytearray(JPEG[: data.draw(st.integers(2, len(JPEG)))] if data.draw(st.booleans()) else JPEG)
    for at, value in data.draw(st.lists(st.tuples(st.integers(0, len(JPEG) - 1), st.integers(0, 255)), max_size=3)):
        if at < len(damaged) and not SIZE_AT <= at < SIZE_AT + 4:
            damaged[at] = value
    try:
        expected = np.asarray(Image.open(io.BytesIO(bytes(damaged))).convert("RGB"))
    except Exception:
        expected = None
    try:
        pixels = load(bytes(damaged))
    except DecodeError:
        assert expected is None
        return
    if expected is not None:
        np.testing.assert_array_equal(pixels, expected)


def test_bytes_like_input_is_accepted():
    for kind in (bytearray, memoryview):
        np.testing.assert_array_equal(load(kind(JPEG)), load(JPEG))
