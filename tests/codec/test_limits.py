"""Small files that would take much memory or time are refused before decoding."""

from __future__ import annotations

import contextlib
import io
import struct
import zlib

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import EpsImagePlugin, Image

from cuaug.codec import read_header
from cuaug.codec.formats.avif import as_still_avif
from cuaug.codec.formats.jpeg2000 import check_jpeg2000
from cuaug.codec.formats.tiff import check_tiff
from cuaug.codec.sniff import count_scans
from cuaug.errors import DecodeError
from tests.codec.test_found_by_fuzzing import assert_refused_at_once
from tests.support.codec.encoded_images import FORMATS, JPEG, PNG, RGB, SCAN, app1, as_pillow, chunk, encode, tiff_block
from tests.support.codec.memory import forget_peak, peak_bytes
from tests.support.codec.tiffs import tiff

# --- formats ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["ICO", "ICNS", "PCX", "DIB", "DDS", "SGI"])
def test_other_formats_are_refused(form):
    """Pillow opens all of these."""
    with pytest.raises(
        DecodeError, match=f"starts like a file of the format {form}, and cuaug does not read"
    ) as caught:
        read_header(encode(RGB.resize((64, 64)), form))
    assert "JPEG, PNG, WEBP, TIFF, BMP, PPM, JPEG2000, GIF and AVIF" in str(caught.value)


def test_a_sound_tiff_of_a_kind_that_pillow_does_not_read():
    done, data = cv2.imencode(".tiff", np.zeros((4, 5, 3), np.float32))
    assert done
    with pytest.raises(
        DecodeError, match=r"starts as a TIFF file, but .*, or it is of a kind that Pillow does not read"
    ):
        read_header(data.tobytes())


def test_no_program_is_run_to_decode(decoder, tmp_path, monkeypatch):
    """Pillow lets Ghostscript run PostScript, and an endless program would block the thread forever."""
    ghostscript = tmp_path / "gs"
    ghostscript.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    ghostscript.chmod(0o755)
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", str(ghostscript))
    data = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 50 50\n%%EndComments\n{ } loop\n%%EOF\n"
    with pytest.raises(DecodeError, match="format EPS, and cuaug does not read"):
        decoder.decode(read_header(data))
    assert not (tmp_path / "ran").exists()


# --- TIFF ------------------------------------------------------------------------------------------------------------


LZW = encode(Image.new("L", (64, 64)), "TIFF", compression="tiff_lzw")
STRIP = Image.open(io.BytesIO(LZW)).tag_v2
PIXELS = LZW[STRIP[273][0] :][: STRIP[279][0]]
GRAY_LZW = [(256, 4, 64), (257, 4, 64), (258, 3, 8), (259, 3, 5), (262, 3, 1), (277, 3, 1)]


def tiled(width: int, height: int, *others: tuple[int, int, int], size: tuple[int, int] = (64, 64), **options) -> bytes:
    tiles = [(322, 4, width), (323, 4, height), (324, 4, -1), (325, 4, len(PIXELS)), *others]
    return tiff((256, 4, size[1]), (257, 4, size[0]), *GRAY_LZW[2:], *tiles, pixels=PIXELS, **options)


@pytest.mark.parametrize("options", [{}, {"order": ">"}, {"big": True}], ids=str)
def test_large_tiles_of_a_small_tiff(decoder, options):
    """libtiff allocated and decoded 2 GB for 558 bytes."""
    assert decoder.decode(read_header(tiled(64, 64, **options))).shape == (64, 64, 3)
    assert_refused_at_once(
        decoder, tiled(46320, 46320, **options), "tiles of 46320 x 46320 pixels .* 2145542400 pixels"
    )
    many = tiled(16, 16, size=(3, 9), **options)
    assert read_header(many, max_pixels=27).width == 9


def test_many_large_tiles_with_few_visible_pixels(decoder):
    """libtiff decodes each tile in full, for one column of the image."""
    assert_refused_at_once(
        decoder, tiled(16, 65_520, size=(1, 60_000)), "above the limit of 357913940, which max_pixels"
    )


@pytest.mark.parametrize("kind", [1, 5, 9, 13, 16, 99])
def test_repeated_tags_are_refused(decoder, kind):
    """libtiff takes the first of two tags, some versions of Pillow the last."""
    for other in [(322, kind, 46320), (323, kind, 46320), (256, kind, 10**8)]:
        assert_refused_at_once(decoder, tiled(64, 64, other), "must occur once, as one SHORT or LONG")


def test_a_big_endian_bigtiff_is_refused():
    """Pillow and libtiff look for its directory at different offsets."""
    with pytest.raises(DecodeError, match="a big-endian BigTIFF is not read"):
        read_header(tiled(64, 64, big=True, order=">"))


@pytest.mark.parametrize("size", [(0, 64), (64, 0)])
def test_tiles_of_size_zero_are_refused(size):
    with pytest.raises(DecodeError, match=r"tiles or strips of \d+ x \d+ pixels"):
        read_header(tiled(*size))


@pytest.mark.parametrize(("tag", "cause"), [(277, "65535 samples per pixel, and Pillow reads up to 6"), (258, "TIFF")])
def test_too_many_samples_or_bits_are_refused(decoder, tag, cause):
    entries = [entry for entry in GRAY_LZW if entry[0] != tag] + [(tag, 3, 65_535)]
    strip = [(273, 4, -1), (278, 4, 64), (279, 4, len(PIXELS))]
    assert_refused_at_once(decoder, tiff(*entries, *strip, pixels=PIXELS), cause)


@pytest.mark.parametrize("rows", [0, 64, 65, 1 << 20, 2**32 - 1])
def test_a_strip_with_more_rows_than_the_image_takes_little_memory(decoder, rows):
    strip = [(273, 4, -1), (278, 4, rows), (279, 4, len(PIXELS))]
    before = forget_peak()
    with contextlib.suppress(DecodeError):
        decoder.decode(read_header(tiff(*GRAY_LZW, *strip, pixels=PIXELS)))
    assert peak_bytes() - before < 20 << 20


def test_a_bigtiff_of_very_many_tags_is_refused(decoder):
    """Pillow reads all of them."""
    data = tiled(64, 64, big=True)
    many = data[:16] + struct.pack("<Q", 10**5) + data[24:44] * 10**5
    assert_refused_at_once(decoder, many, "first directory has 100000 entries")


def test_a_bigtiff_with_an_offset_beyond_63_bits_is_refused():
    data = tiled(64, 64, big=True)
    with pytest.raises(DecodeError):
        read_header(data[:15] + b"\x80" + data[16:])


# --- structures whose cost is checked before decoding -----------------------------------------------------------------

CHECKED = {
    "tiff": (tiled(64, 64), lambda data: check_tiff(data, 1 << 20)),
    "bigtiff": (tiled(64, 64, big=True), lambda data: check_tiff(data, 1 << 20)),
    "jpeg 2000": (encode(Image.new("L", (16, 16), 7), "JPEG2000"), lambda data: check_jpeg2000(data, 1 << 20)),
}
if "avif" in FORMATS:
    CHECKED["avif"] = FORMATS["avif"], as_still_avif


@pytest.mark.parametrize("name", CHECKED)
@given(st.data())
def test_damaged_structures_raise_no_other_error(name, data):
    file, check = CHECKED[name]
    places = st.integers(4, min(len(file), 400) - 1)
    damaged = bytearray(file)
    for at, value in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=4)):
        damaged[at] = value
    with contextlib.suppress(DecodeError):
        check(bytes(damaged[: data.draw(st.integers(12, len(damaged)))]))


# --- JPEG and PNG ----------------------------------------------------------------------------------------------------

PROGRESSIVE = encode(RGB.resize((160, 100)), "JPEG", progressive=True)
LAST_SCAN = PROGRESSIVE[PROGRESSIVE.rindex(b"\xff\xda") : -2]


def with_scans(count: int) -> bytes:
    return PROGRESSIVE[:-2] + LAST_SCAN * (count - count_scans(PROGRESSIVE)) + PROGRESSIVE[-2:]


@pytest.mark.parametrize("exif", [b"", app1(tiff_block(3)) * 2], ids=["nvImageCodec", "Pillow"])
def test_scans_times_pixels_are_limited(decoder, exif):
    """500 scans at 13,000 x 13,000 pixels took 74 seconds; nvImageCodec and Pillow decode these."""
    data = with_scans(30)
    data = data[:2] + exif + data[2:]
    pixels = 160 * 100
    assert count_scans(data) == 30
    min_limit = -(-30 * pixels // 24)
    assert decoder.decode(read_header(data, max_pixels=min_limit)).size == 3 * pixels
    with pytest.raises(DecodeError, match=f"a JPEG of 30 scans .* {30 * pixels} pixels together: above the limit of"):
        read_header(data, max_pixels=min_limit - 1)
    read_header(with_scans(24), max_pixels=pixels)


def test_scans_that_no_decoder_reaches_do_not_count(decoder):
    """Scans of thumbnails, in comments, in other images and after the end."""
    scans = b"\xff\xda\0\x08\1\1\0\0\x3f\0" * 600
    for segment in (b"\xff\xfe", b"\xff\xec"):
        data = with_two_exif_blocks(JPEG[:2] + segment + struct.pack(">H", 2 + len(scans)) + scans + JPEG[2:])
        assert count_scans(data) == 1
        np.testing.assert_array_equal(decoder.decode(read_header(data)), as_pillow(data))
    for data in (
        with_two_exif_blocks(JPEG) + scans,
        encode(RGB, "MPO", save_all=True, append_images=[RGB] * 3) + scans,
    ):
        assert data.count(b"\xff\xda") > 600 and count_scans(data) == 1
        np.testing.assert_array_equal(decoder.decode(read_header(data)), as_pillow(data))


def with_two_exif_blocks(data: bytes) -> bytes:
    """A JPEG that Pillow decodes."""
    return data[:2] + app1(tiff_block(1)) * 2 + data[2:]


def test_scans_count_despite_bytes_between_them():
    """libjpeg skips fill bytes and bytes between segments."""
    for between in (b"\xff\xff\xff", b"junk", b"\xff\xd3", b"\xff\x01", b"\xff\xfe\0\0", b"\0\xff\0"):
        data = PROGRESSIVE[:-2] + (between + LAST_SCAN) * 5 + PROGRESSIVE[-2:]
        assert count_scans(data) == count_scans(PROGRESSIVE) + 5, between
    for length in range(len(JPEG)):
        assert count_scans(JPEG[:length]) == (length >= SCAN + 2)


@pytest.mark.parametrize("name", [b"zTXt", b"iTXt"])
def test_much_compressed_text_in_a_png_is_refused(decoder, name):
    """nvImageCodec took 12 seconds to inflate 3 MB of it."""
    text = zlib.compress(bytes(7_900_000), 9)
    head = b"key\0\0" if name == b"zTXt" else b"key\0\1\0\0\0"
    data = PNG[:33] + chunk(name, head + text) * 100 + PNG[33:]
    assert_refused_at_once(decoder, data, "MAX_TEXT_CHUNK")
    plain = PNG[:33] + chunk(b"iTXt", b"key\0\0\0\0\0" + b"text " * 50_000) + PNG[33:]
    assert not read_header(plain).for_pillow
