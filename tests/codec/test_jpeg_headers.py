"""The JPEG marker and EXIF parser against a reference in plain Python."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cuaug._runtime.native import library
from cuaug.codec import CpuDecoder, nv, read_header
from cuaug.codec.sniff import MAX_SCANS, jpeg_headers
from tests.fuzz.mutations import join, split
from tests.support.codec.encoded_images import FORMATS, app1, as_pillow, jpeg_with, tiff_block

TABLES = {0xC4, 0xCC, 0xDA, 0xDB, 0xDC, 0xDD, 0xFE, *range(0xE0, 0xF0)}
FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
REJECTED = [0, 0, 0, 0, 0]
REASONS = ("", "DAMAGED_MARKERS", "WITHOUT_END", "MAY_BE_RGB", "UNUSUAL_EXIF", "TOO_MANY_SCANS")


def reference_header(data: bytes) -> list[int]:
    """[height, width, components, orientation, restart interval]; zeros if markers, EXIF or colors are unusual."""
    frame, rotation, interval, exif_blocks, scans, missing, at = [0, 0, 0], 1, 0, 0, 0, None, 2
    ids: list[int] = []  # components of a progressive frame
    may_be_rgb = False
    inexact: list[set[int]] = []  # their coefficients that no scan has coded to the last bit
    if data[:3] != b"\xff\xd8\xff":
        return REJECTED
    try:
        while data[at] == 0xFF:
            marker = data[at + 1]
            if marker == 0xFF:
                at += 1
                continue
            if marker == 0xD9:
                is_whole = scans and not missing and not any(inexact)
                return [*frame, rotation, interval] if is_whole and not (may_be_rgb and frame[2] == 3) else REJECTED
            if marker < 0xC0 or 0xD0 <= marker <= 0xD8 or (scans and marker not in TABLES):
                return REJECTED
            length = data[at + 2] << 8 | data[at + 3]
            end = at + 2 + length
            if marker == 0xDA:
                scans += 1
                missing = None if missing is None else missing - data[at + 4]
                if scans > MAX_SCANS or (missing is not None and missing < 0):
                    return REJECTED
                if inexact:
                    count = data[at + 4]
                    first, last, bits = data[at + 5 + 2 * count : at + 8 + 2 * count]
                    if length != 6 + 2 * count or not first <= last <= 63 or end > len(data):
                        return REJECTED
                    for component in data[at + 5 : at + 5 + 2 * count : 2]:
                        remaining = inexact[ids.index(component)]
                        (remaining.update if bits & 15 else remaining.difference_update)(range(first, last + 1))
                while data[end] != 0xFF or data[end + 1] in (0x00, 0xFF, *range(0xD0, 0xD8)):
                    end += 1
            elif marker in FRAMES:
                if frame[2] or length < 8 + 3 * data[at + 9]:
                    return REJECTED
                frame = [data[at + 5] << 8 | data[at + 6], data[at + 7] << 8 | data[at + 8], data[at + 9]]
                may_be_rgb |= frame[2] == 3 and end <= len(data) and data[at + 10 : at + 19 : 3] == b"RGB"
                if marker in (0xC0, 0xC1, 0xC9):
                    missing = data[at + 9]
                if marker in (0xC2, 0xCA):
                    if data[at + 9] > 4 or end > len(data):
                        return REJECTED
                    ids = [*data[at + 10 : at + 10 + 3 * data[at + 9] : 3]]
                    inexact = [set(range(64)) for _ in ids]
            elif marker == 0xDD and not scans and length == 4:
                interval = data[at + 4] << 8 | data[at + 5]
            elif marker == 0xE1 and data[at + 4 : at + 10] == b"Exif\0\0":
                exif_blocks += 1
                rotation = orientation(data[at + 10 : end]) if end <= len(data) else 0
                if exif_blocks > 1 or scans or not rotation:
                    return REJECTED
            elif marker == 0xEE and data[at + 4 : at + 9] == b"Adobe" and length >= 14 and end <= len(data):
                may_be_rgb |= data[at + 15] != 1
            at = end
    except (IndexError, ValueError):  # the data ends early, or a scan names an unknown component
        pass
    return REJECTED


def orientation(tiff: bytes) -> int:
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(tiff[:4])
    if order is None:
        return 0
    try:
        (start,) = struct.unpack_from(order + "I", tiff, 4)
        (count,) = struct.unpack_from(order + "H", tiff, start)
        entries = [struct.unpack_from(order + "HHIH2x", tiff, start + 2 + 12 * i) for i in range(count)]
    except struct.error:
        return 0
    values = [(kind, length, value) for tag, kind, length, value in entries if tag == 0x0112]
    if len(values) > 1 or any(value[:2] != (3, 1) for value in values):
        return 0
    return values[0][2] if values and 1 <= values[0][2] <= 8 else 1


def library_header(data: bytes) -> list[int]:
    """As `reference_header`, which names no reason."""
    header = jpeg_headers([data])[0].tolist()
    return header if header[3] > 0 else [*header[:3], 0, header[4]]


def reason(data: bytes) -> str:
    """Why a JPEG is left to Pillow; "" if it is not."""
    return REASONS[-min(jpeg_headers([data])[0, 3], 0)]


def test_a_subclass_of_bytes_is_read():
    class Named(bytes):
        name = ""

    data = Named(encoded())
    data.name = "its own attributes come after its bytes"
    assert library_header(data) == library_header(bytes(data)) == [16, 24, 3, 1, 0]


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
    found = reference_header(data)
    assert (
        found == [16, 24, 3, 6 if b"Exif" in data else 1, 1 if b"\xff\xdd" in data else 0]
        and library_header(data) == found
    )
    # A truncated file has no end; bytes after the end do not matter.
    assert [*map(reason, (data[:n] for n in range(3, len(data))))] == ["WITHOUT_END"] * (len(data) - 3)
    assert library_header(data + b"\xff\xff\xe1") == found


def test_markers_anywhere_in_a_scan():
    """The parser scans 16 bytes at a time, and the rest byte by byte."""
    scan = FILES[0].index(b"\xff\xda")
    head = FILES[0][: scan + 2 + int.from_bytes(FILES[0][scan + 2 : scan + 4], "big")]
    pieces = [b"\xff\x00", b"\xff\xff", b"\xff\xd0", b"\xff\xd7", b"\xff\xd8", b"\xff\xd9", b"\xff\xcf", b"\x00\xff"]
    files = [
        head + b"a" * before + piece + b"b" * after + end
        for before in range(35)
        for after in range(20)
        for piece in pieces
        for end in (b"\xff\xd9", b"\xff", b"")
    ]
    found = [library_header(file) for file in files]
    assert found == [reference_header(file) for file in files]
    assert len({tuple(header) for header in found}) == 2


def damage(data: st.DataObject, file: bytes) -> bytes:
    marked = [i for i, byte in enumerate(file) if byte == 0xFF]
    damaged = bytearray(file)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.sampled_from(marked)) + data.draw(st.integers(0, 10))
        damaged[min(at, len(file) - 1)] = data.draw(BYTES)
    return bytes(damaged[: data.draw(st.just(len(file)) | st.integers(0, len(file)))])


@given(st.data(), st.sampled_from(FILES))
def test_damaged_files_equal_the_reference(data, file):
    damaged = damage(data, file)
    assert library_header(damaged) == reference_header(damaged)


@given(st.lists(BYTES | st.just(0xFF), max_size=60))
def test_random_markers_equal_the_reference(rest):
    data = bytes([0xFF, 0xD8, *rest])
    assert library_header(data) == reference_header(data)


@settings(max_examples=300)
@given(st.data(), st.sampled_from([tiff_block(6), tiff_block(3, ">"), tiff_block(6, copies=2)]))
def test_damaged_exif_equals_the_reference(data, block):
    damaged = bytearray(block)
    for at, value in data.draw(st.lists(st.tuples(st.integers(0, len(block) - 1), st.integers(0, 255)), max_size=3)):
        damaged[at] = value
    exif = bytes(damaged[: data.draw(st.just(len(block)) | st.integers(0, len(block)))])
    assert library.cuaug_tiff_orientation(exif, len(exif)) == orientation(exif)
    file = jpeg_with(app1(exif))
    assert library_header(file) == reference_header(file)
    assert library_header(file)[3] == orientation(exif)


@given(st.data(), st.sampled_from(FILES))
def test_nvimagecodec_reads_the_same_size(data, file):
    """For accepted files; cuaug never asks nvImageCodec for their size."""
    damaged = damage(data, file)
    height, width, components, rotation, _ = library_header(damaged)
    if rotation and height * width:
        try:
            stream = nv().CodeStream(damaged)
            size = [stream.height, stream.width, stream.num_channels]
        except RuntimeError:
            return
        assert size == [height, width, components]


def adobe(transform: int) -> bytes:
    return b"\xff\xee\x00\x0eAdobe\x00d\x00\x00\x00\x00" + bytes([transform])


def named(ids: bytes) -> bytes:
    """The first file with other names of its components."""
    names = dict(zip(b"\x01\x02\x03", ids, strict=True))
    file = bytearray(FILES[0])
    frame, scan = file.index(b"\xff\xc0"), file.index(b"\xff\xda")
    for at in (*range(frame + 10, frame + 19, 3), *range(scan + 5, scan + 11, 2)):
        file[at] = names[file[at]]
    return bytes(file)


@pytest.mark.parametrize(
    ("name", "file", "is_ycbcr"),
    [
        ("Pillow's RGB", encoded(keep_rgb=True), False),
        ("components R, G, B", named(b"RGB"), False),
        ("components r, g, b", named(b"rgb"), True),
        ("Adobe RGB", jpeg_with(adobe(0)), False),
        ("Adobe YCbCr", jpeg_with(adobe(1)), True),
        ("Adobe YCCK", jpeg_with(adobe(2)), False),
        ("Adobe RGB, gray", FORMATS["jpeg gray"][:2] + adobe(0) + FORMATS["jpeg gray"][2:], True),
    ],
)
def test_colors_that_may_be_rgb(name, file, is_ycbcr):
    """The GPU's decoder takes three components for YCbCr without a word, so Pillow decodes these."""
    assert reason(file) == ("" if is_ycbcr else "MAY_BE_RGB")
    assert library_header(file) == reference_header(file)
    image = read_header(file)
    assert (image.for_gpu, image.for_pillow) == (is_ycbcr, not is_ycbcr)
    assert (CpuDecoder().decode(image) == as_pillow(file)).all()


def test_many_files_at_once():
    files = [*FILES, b"", b"\xff\xd8", *FORMATS.values(), FILES[0][:-1]] * 3
    headers = jpeg_headers(files)
    headers[:, 3] = headers[:, 3].clip(0)
    assert headers.tolist() == [reference_header(data) for data in files]
    assert jpeg_headers([]).shape == (0, 5)


@given(st.data())
def test_the_scans_of_a_progressive_file(data):
    """Scans in any order, repeated or missing: accepted if each coefficient's last scan codes its last bit."""
    parts = split(FILES[2])
    scans = [part for part in parts if part.name == b"\xda"]
    chosen = data.draw(st.permutations(scans)) if data.draw(st.booleans()) else list(scans)
    for _ in range(data.draw(st.integers(0, 2))):
        chosen.insert(data.draw(st.integers(0, len(chosen))), data.draw(st.sampled_from(scans)))
    file = join(FILES[2], [part for part in parts if part.name != b"\xda"] + chosen[data.draw(st.integers(0, 2)) :])
    assert library_header(file) == reference_header(file)


def test_the_limit_of_scans():
    head = bytes([0xFF, 0xD8, 0xFF, 0xC2, 0, 11, 8, 0, 1, 0, 1, 1, 1, 0x11, 0])
    for scans, found in ((MAX_SCANS, [1, 1, 1, 1, 0]), (MAX_SCANS + 1, REJECTED)):
        data = head + bytes([0xFF, 0xDA, 0, 8, 1, 1, 0, 0, 63, 0, 7]) * scans + b"\xff\xd9"
        assert library_header(data) == found == reference_header(data)
    assert reason(data) == "TOO_MANY_SCANS"


def test_reasons_why_a_jpeg_is_left_to_pillow():
    scan = FILES[0].index(b"\xff\xda")
    restart = FILES[0][:scan] + b"\xff\xd0" + FILES[0][scan:]
    assert {reason(file) for file in (b"", b"\xff\xd8\x00", restart)} == {"DAMAGED_MARKERS"}
    twice = jpeg_with(app1(tiff_block(6)) + app1(tiff_block(6)))
    assert {reason(file) for file in (twice, jpeg_with(app1(tiff_block(6, copies=2))))} == {"UNUSUAL_EXIF"}


@pytest.mark.parametrize(
    "frame",
    [[0xFF, 0xC0, 0, 11, 8, 0, 9, 0, 9, 1, 1, 0x11, 0], [0xFF, 0xC0, 0, 7, 8, 0, 9, 0, 9]],
    ids=["a second frame", "a truncated frame header"],
)
def test_an_ambiguous_size_is_rejected(frame):
    at = FILES[0].index(b"\xff\xc0")
    before, after = FILES[0][:at], FILES[0][at:]
    assert library_header(before + bytes(frame) + after) == REJECTED == reference_header(before + bytes(frame) + after)
