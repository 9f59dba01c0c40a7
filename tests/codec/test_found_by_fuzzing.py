"""One small file for each bug that tests/fuzz/fuzz_images.py found; each failed before its fix."""

from __future__ import annotations

import struct
import time
from dataclasses import replace

import numpy as np
import pytest

from cuaug.codec import read_header, read_multichannel
from cuaug.codec.sniff import webp_size
from cuaug.errors import DecodeError
from tests.fuzz.mutations import Part, join, split
from tests.support.codec.encoded_images import GRAY, JPEG, app1, as_pillow, encode, tiff_block
from tests.support.codec.memory import fill_fresh_memory, forget_peak, peak_bytes
from tests.support.codec.originals import ORIGINALS, PICTURES

ROTATED = ORIGINALS["webp rotated 6"]
FAILED = "failed"


def outcome(decoder, data: bytes, before: int) -> np.ndarray | str:
    """The pixels or FAILED, decoded into memory that was filled with the byte `before`."""
    decoder._memory.array.fill(before)
    try:
        return decoder.decode(read_header(data, lossy=True)).copy()
    except DecodeError:
        return FAILED


def assert_as_pillow(decoder, data: bytes) -> None:
    """Assert Pillow's pixels, or a DecodeError where Pillow fails, for any previous memory content."""
    try:
        expected: np.ndarray | str = as_pillow(data)
    except Exception:  # Pillow may raise anything on a damaged file
        expected = FAILED
    for before in (0, 255):
        np.testing.assert_array_equal(outcome(decoder, data, before), expected)


def assert_refused_at_once(decoder, data: bytes, cause: str) -> None:
    """Assert a DecodeError that takes little time and memory."""
    decoder.decode(read_header(JPEG))
    fill_fresh_memory(1)
    before, start = forget_peak(), time.process_time()
    with pytest.raises(DecodeError, match=cause):
        decoder.decode(read_header(data))
    fill_fresh_memory(0)
    assert time.process_time() - start < 0.5
    assert peak_bytes() - before < 50 << 20


def test_a_webp_whose_exif_claims_two_gigabytes(decoder):
    """nvImageCodec 0.9.0 took 2 GB and two seconds for it."""
    *others, exif = split(ROTATED)
    assert_refused_at_once(decoder, join(ROTATED, [*others, replace(exif, lie=0x7FFFFFFF)]), "could not create decoder")


def test_a_png_with_idat_after_iend(decoder):
    """nvImageCodec allocated the 2 GB that the chunk claims."""
    png = ORIGINALS["png palette of 1 bits"]
    head, palette, pixels, end = split(png)
    assert_refused_at_once(decoder, join(png, [head, palette, end, replace(pixels, lie=-(2**31))]), "cannot load")


@pytest.mark.parametrize("name", ["webp rotated 6", "webp lossless photo with exif"])
def test_repeated_missing_and_misplaced_webp_chunks(decoder, name):
    """nvImageCodec left half of a rotated image unwritten."""
    data = ORIGINALS[name]
    parts = split(data)
    for i in range(len(parts)):
        assert_as_pillow(decoder, join(data, parts[: i + 1] + parts[i:]))
        assert_as_pillow(decoder, join(data, parts[:i] + [Part(b"ANIM", b"\0" * 6)] + parts[i:]))
        assert_as_pillow(decoder, join(data, parts[:i] + parts[i + 1 :]))


@pytest.mark.parametrize("bit", [0x01, 0x40, 0x80])
def test_reserved_webp_flags(decoder, bit):
    head, *others = split(ROTATED)
    assert_as_pillow(decoder, join(ROTATED, [replace(head, body=bytes([head.body[0] | bit]) + head.body[1:]), *others]))


@pytest.mark.parametrize(
    ("name", "at", "size"),
    [
        ("webp animated", 4, struct.pack("<HBHB", 19_999, 0, 19_999, 0)),
        ("webp rgb", 6, struct.pack("<HH", 16_000, 16_000)),
        ("webp lossless rgb", 1, struct.pack("<I", 15_999 << 14 | 15_999)),
    ],
)
def test_a_webp_of_a_giant_canvas(decoder, name, at, size):
    """Pillow, which decodes animations and unusual files, allocates two canvases before it returns the size."""
    data = ORIGINALS[name]
    head, *others = split(data)
    giant = replace(head, body=head.body[:at] + size + head.body[at + len(size) :])
    chunks = [*others, Part(b"odd ", b""), Part(b"odd ", b"")]
    assert_refused_at_once(decoder, join(data, [giant, *chunks]), r"(16|20)000 = [0-9]+ pixels.*max_pixels=178956970")


def test_an_animated_png_with_damaged_pixels(decoder):
    """nvImageCodec returned uninitialized memory, or black, as a success."""
    data = ORIGINALS["apng"]
    parts = split(data)
    at = next(i for i, part in enumerate(parts) if part.name == b"IDAT")
    for bad in (b"\x3c", b"\x78\x9c\x00", b"\x12\x34"):
        damaged = replace(parts[at], body=bad + parts[at].body[len(bad) :])
        assert_as_pillow(decoder, join(data, parts[:at] + [damaged] + parts[at + 1 :]))
        assert outcome(decoder, join(data, parts[:at] + [damaged] + parts[at + 1 :]), 0) is FAILED


def test_a_repeated_scan_of_a_sequential_jpeg(decoder):
    """libjpeg reports an error; nvImageCodec returned the image, gray at its end."""
    *head, scan = split(JPEG)
    cut = replace(scan, rest=scan.rest[:100])
    for scans in ([scan, scan], [cut, scan]):
        assert outcome(decoder, join(JPEG, head + scans), 0) is FAILED


def test_exif_after_the_scan_of_a_jpeg(decoder):
    """Pillow does not read it."""
    assert_as_pillow(decoder, JPEG[:-2] + app1(tiff_block(6)) + JPEG[-2:])


@pytest.mark.parametrize("odd", [b"", app1(tiff_block(3)) * 2], ids=["sound", "odd"])
def test_a_jpeg_of_very_many_scans(decoder, odd):
    """Each passes over the whole image: 50 kB could keep a worker thread busy for minutes."""
    data = encode(GRAY.resize((3000, 3000)), "JPEG", progressive=True)
    parts = split(data)
    last = replace(parts[-1], rest=parts[-1].rest[:2])
    bomb = join(data, parts[:-1] + [last] * 4000)
    assert_refused_at_once(decoder, bomb[:2] + odd + bomb[2:], "scans")
    few = join(data, parts[:-1] + [last] * 20)
    assert outcome(decoder, few, 0) is not FAILED


@pytest.mark.parametrize("size", [(1, 1), (37, 53), (300, 2), (5, 4097)])
@pytest.mark.parametrize("options", [{}, {"lossless": True}, {"exif": b"Exif\0\0" + tiff_block(1)}], ids=str)
def test_the_size_that_a_webp_claims(size, options):
    data = encode(GRAY.resize(size[::-1]), "WEBP", **options)
    assert webp_size(data) == size
    for length in range(12, 30):
        assert webp_size(data[:length]) in (None, size)


@pytest.mark.parametrize("name", ["png rotated 6", "png, after the pixels rotated 6"])
def test_a_rotated_png_whose_exif_has_a_wrong_checksum(decoder, name):
    """nvImageCodec swapped the size without rotating the pixels, and left the rest unwritten."""
    data = ORIGINALS[name]
    at = data.index(b"eXIf")
    for bit in range(8):
        assert_as_pillow(decoder, data[: at + 31] + bytes([data[at + 31] ^ 1 << bit]) + data[at + 32 :])


def test_an_npy_header_that_python_cannot_evaluate():
    """The message held the address of an object, which differs from run to run."""
    data = PICTURES["npy 5 bands"].replace(b"False", b"Falre")
    with pytest.raises(DecodeError, match=r"its header is damaged") as caught:
        read_multichannel(data, "RGBA")
    assert " at 0x" not in str(caught.value)
