"""The pixels that libavif decodes are bounded, for any size that an AVIF file claims."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, features

from cuaug.codec import read_header
from cuaug.codec.formats.avif import _coded_pixels, as_still_avif
from cuaug.errors import DecodeError
from tests.codec.test_found_by_fuzzing import assert_refused_at_once
from tests.support.codec.avifs import av1, avif, with_claimed_size
from tests.support.codec.encoded_images import FORMATS, RGB, H, W, as_pillow, encode, with_alpha

needs_avif = pytest.mark.skipif(not features.check("avif"), reason="Pillow reads AVIF from 11.3 on")
LIMIT = 1 << 20  # pixels that every image may cost


@pytest.fixture(scope="module")
def streams() -> dict[int, tuple[bytes, bytes]]:
    """{side: an AV1 stream of a square image, its av1C box}."""
    return {side: av1(side, side) for side in (256, 2048)}


@needs_avif
def test_a_frame_larger_than_the_claimed_size_is_counted(decoder, streams):
    """libavif decodes the frame and scales it down."""
    data = avif(*streams[2048], (10, 10))
    assert decoder.decode(read_header(data)).shape == (10, 10, 3)
    with pytest.raises(DecodeError, match="4194304 pixels together, above the limit of 2097152, which max_pixels sets"):
        read_header(data, max_pixels=LIMIT)
    patched = with_claimed_size(encode(Image.new("L", (2048, 2048)), "AVIF", speed=10), 10, 10)
    with pytest.raises(DecodeError, match="4194304 pixels together"):
        read_header(patched, max_pixels=LIMIT)


@needs_avif
@pytest.mark.parametrize("options", [{"extents": 7}, {"in_idat": True}, {"in_idat": True, "extents": 3}], ids=str)
def test_items_in_any_place_are_counted(decoder, streams, options):
    assert (decoder.decode(read_header(avif(*streams[256], (256, 256), **options))) == 77).all()
    with pytest.raises(DecodeError, match="4194304 pixels together"):
        read_header(avif(*streams[2048], (10, 10), **options), max_pixels=LIMIT)


@needs_avif
def test_all_cells_of_a_grid_are_counted(decoder, streams):
    def grid(cells: int) -> bytes:
        return avif(*streams[256], (64, 64), cells=list(range(2, 2 + cells)), grid=(1, cells), output=(64, 64 * cells))

    many = avif(*streams[256], (64, 64), cells=list(range(2, 5002)), grid=(50, 100), output=(3200, 6400))
    assert (decoder.decode(read_header(grid(32), max_pixels=LIMIT)) == 77).all()
    with pytest.raises(DecodeError, match=f"{33 << 16} pixels together"):
        read_header(grid(33), max_pixels=LIMIT)
    assert_refused_at_once(decoder, many, "structure of the AVIF file is damaged, or not one")


@needs_avif
@pytest.mark.parametrize("options", [{}, {"extents": 3}, {"in_idat": True}], ids=str)
def test_items_may_share_their_bytes(decoder, streams, options):
    """Encoders store equal cells once. Each is decoded, and counts."""

    def grid(cells: int, **more) -> bytes:
        layout = {"cells": list(range(2, 2 + cells)), "grid": (1, cells), "output": (64, 64 * cells)}
        return avif(stream, streams[256][1], (64, 64), shared=True, **layout, **options, **more)

    stream = b"\x12\0" * 100 + streams[256][0]  # temporal delimiters first
    assert len(grid(32)) < 32 * len(stream)
    assert (decoder.decode(read_header(grid(32), max_pixels=LIMIT)) == 77).all()
    with pytest.raises(DecodeError, match=f"{33 << 16} pixels together"):
        read_header(grid(33), max_pixels=LIMIT)
    if not options:  # other overlaps would let a small file be read many times
        with pytest.raises(DecodeError, match="structure of the AVIF file"):
            read_header(grid(32, shift=2))


@needs_avif
def test_extents_without_fields_are_refused_at_once(decoder, streams):
    """4,000 items of 65,535 extents, each of which takes no byte of the file."""
    data = avif(*streams[256], (64, 64), cells=list(range(2, 4002)), grid=(40, 100), output=(2560, 6400))
    at = data.index(b"iloc") + 4
    iloc = b"\x01\0\0\0\0\0" + (b"\x0f\xa0" + (b"\0\1\0\0\0\0\xff\xff" * 4000))
    hostile = data[:at] + iloc + data[at + len(iloc) :]
    assert_refused_at_once(decoder, hostile, "structure of the AVIF file is damaged, or not one")


@needs_avif
def test_a_cell_without_a_sequence_header_is_refused(streams):
    """libavif decodes it, with another cell's header."""
    data = avif(*streams[256], (256, 256), cells=[2, 3], grid=(1, 2), output=(256, 512), without_header=(3,))
    with pytest.raises(DecodeError, match="structure of the AVIF file"):
        read_header(data)


@needs_avif
def test_hidden_frames_are_counted(streams):
    """Each takes as long as an image."""
    stream, config = streams[256]
    frame = stream[4 + stream[3] :]
    assert stream[2] >> 3 == 1 and frame[0] >> 3 == 6
    read_header(avif(stream + 31 * frame, config, (256, 256)), max_pixels=LIMIT)
    with pytest.raises(DecodeError, match=f"{33 << 16} pixels together"):
        read_header(avif(stream + 32 * frame, config, (256, 256)), max_pixels=LIMIT)


@needs_avif
def test_the_first_frame_of_a_sequence_is_decoded(decoder):
    """It is the primary item; the other frames are never decoded."""
    frames = [RGB, RGB.rotate(180), RGB.rotate(90).resize(RGB.size)]
    data = encode(frames[0], "AVIF", save_all=True, append_images=frames[1:])
    assert data[8:12] == b"avis"
    with pytest.raises(DecodeError, match="animation"):
        read_header(data)
    np.testing.assert_array_equal(decoder.decode(read_header(data, lossy=True)), as_pillow(data))


@needs_avif
def test_an_image_may_have_alpha_at_the_limit(decoder):
    image = with_alpha(RGB)
    data = encode(image, "AVIF")
    np.testing.assert_array_equal(decoder.decode(read_header(data, max_pixels=H * W)), as_pillow(data))


@needs_avif
def test_a_heic_file_is_refused():
    data = avif(*av1(16, 16), (16, 16)).replace(b"av01", b"hvc1").replace(b"ftypavif", b"ftypmif1")
    with pytest.raises(DecodeError, match="HEIC is not read"):
        read_header(data)


class BitWriter:
    def __init__(self) -> None:
        self.bits = ""

    def put(self, value: int, bits: int) -> None:
        self.bits += f"{value:0{bits}b}"[:bits] if bits else ""

    def bytes(self) -> bytes:
        padded = self.bits.ljust(-(-len(self.bits) // 8) * 8, "1")
        return int(padded, 2).to_bytes(len(padded) // 8, "big")


@given(st.data())
def test_sequence_headers_with_any_fields_are_parsed(data):
    """AV1 specification, 5.5.1."""
    writer, draw = BitWriter(), lambda upper: data.draw(st.integers(0, upper))
    writer.put(draw(15), 4)
    reduced, model, delays = draw(1), 0, 0
    writer.put(reduced, 1)
    if reduced:
        writer.put(draw(31), 5)
    else:
        timing = draw(1)
        writer.put(timing, 1)
        if timing:
            writer.put(draw(2**64 - 1), 64)
            equal = draw(1)
            writer.put(equal, 1)
            if equal:
                zeros = draw(20)
                writer.put(1, zeros + 1)
                writer.put(draw(2**zeros - 1), zeros)
            model = draw(1) * (1 + draw(31))
            writer.put(bool(model), 1)
            if model:
                writer.put(model - 1, 5)
                writer.put(draw(2**42 - 1), 42)
        delays = draw(1)
        writer.put(delays, 1)
        points = 1 + draw(31)
        writer.put(points - 1, 5)
        for _ in range(points):
            writer.put(draw(4095), 12)
            level = draw(31)
            writer.put(level, 5)
            if level > 7:
                writer.put(draw(1), 1)
            for present, bits in ((model, 2 * model + 1), (delays, 4)):
                if present:
                    is_set = draw(1)
                    writer.put(is_set, 1)
                    if is_set:
                        writer.put(draw(2**bits - 1), bits)
    width_bits, height_bits = 1 + draw(15), 1 + draw(15)
    width, height = 1 + draw(2**width_bits - 1), 1 + draw(2**height_bits - 1)
    for value, bits in ((width_bits - 1, 4), (height_bits - 1, 4), (width - 1, width_bits), (height - 1, height_bits)):
        writer.put(value, bits)
    header = writer.bytes()
    item = bytes([1 << 3 | 2, len(header) & 127 | 128, len(header) >> 7]) + header + bytes([6 << 3])
    assert _coded_pixels(item) == (width * height if reduced else 1 << width_bits + height_bits)


@needs_avif
@given(st.data())
def test_damaged_avifs_raise_no_other_error(data):
    damaged = bytearray(FORMATS["avif"])
    for at, value in data.draw(st.lists(st.tuples(st.integers(4, 400), st.integers(0, 255)), max_size=4)):
        damaged[at] = value
    with contextlib.suppress(DecodeError):
        as_still_avif(bytes(damaged[: data.draw(st.integers(12, len(damaged)))]), 1 << 20)
