"""The pixels that libavif decodes are bounded, whatever size an AVIF file claims."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, features

from cuaug.codec import read_header
from cuaug.codec.avif import _coded_pixels, as_still_avif
from cuaug.errors import DecodeError
from tests.codec.avifs import av1, avif, with_claimed_size
from tests.codec.images import (
    FORMATS,
    RGB,
    H,
    W,
    as_pillow,
    encode,
    with_alpha,
)
from tests.codec.test_found_by_fuzzing import assert_refused_at_once

needs_avif = pytest.mark.skipif(not features.check("avif"), reason="Pillow reads AVIF from 11.3 on")
LIMIT = 1 << 20  # which any picture may cost


@pytest.fixture(scope="module")
def streams() -> dict[int, tuple[bytes, bytes]]:
    """AV1 streams, by the side of their pictures."""
    return {side: av1(side, side) for side in (256, 2048)}


@needs_avif
def test_a_large_frame_behind_a_small_claim(decoder, streams):
    """libavif decodes the frame and scales it."""
    data = avif(*streams[2048], (10, 10))
    assert decoder.decode(read_header(data)).shape == (10, 10, 3)
    with pytest.raises(DecodeError, match="4194304 pixels together, above the limit of 2097152, which max_pixels sets"):
        read_header(data, max_pixels=LIMIT)
    patched = with_claimed_size(encode(Image.new("L", (2048, 2048)), "AVIF", speed=10), 10, 10)
    with pytest.raises(DecodeError, match="4194304 pixels together"):
        read_header(patched, max_pixels=LIMIT)


@needs_avif
@pytest.mark.parametrize("options", [{"extents": 7}, {"in_idat": True}, {"in_idat": True, "extents": 3}], ids=str)
def test_wherever_an_items_data_lies(decoder, streams, options):
    assert (decoder.decode(read_header(avif(*streams[256], (256, 256), **options))) == 77).all()
    with pytest.raises(DecodeError, match="4194304 pixels together"):
        read_header(avif(*streams[2048], (10, 10), **options), max_pixels=LIMIT)


@needs_avif
def test_all_cells_of_a_grid_count(decoder, streams):
    def grid(cells: int) -> bytes:
        return avif(*streams[256], (64, 64), cells=list(range(2, 2 + cells)), grid=(1, cells), output=(64, 64 * cells))

    many = avif(*streams[256], (64, 64), cells=list(range(2, 5002)), grid=(50, 100), output=(3200, 6400))
    assert (decoder.decode(read_header(grid(32), max_pixels=LIMIT)) == 77).all()
    with pytest.raises(DecodeError, match=f"{33 << 16} pixels together"):
        read_header(grid(33), max_pixels=LIMIT)
    assert_refused_at_once(decoder, many, "structure of the AVIF file is damaged, or not one")


@needs_avif
def test_a_cell_that_uses_the_sequence_header_of_another(streams):
    """libavif decodes it, but which header it uses is the decoder's business."""
    data = avif(*streams[256], (256, 256), cells=[2, 3], grid=(1, 2), output=(256, 512), without_header=(3,))
    with pytest.raises(DecodeError, match="structure of the AVIF file"):
        read_header(data)


@needs_avif
def test_frames_that_are_not_shown(streams):
    """Each takes as long as a picture."""
    stream, config = streams[256]
    frame = stream[4 + stream[3] :]
    assert stream[2] >> 3 == 1 and frame[0] >> 3 == 6
    read_header(avif(stream + 31 * frame, config, (256, 256)), max_pixels=LIMIT)
    with pytest.raises(DecodeError, match=f"{33 << 16} pixels together"):
        read_header(avif(stream + 32 * frame, config, (256, 256)), max_pixels=LIMIT)


@needs_avif
def test_the_first_frame_of_a_sequence(decoder):
    """It is the primary item; the file's other frames are never decoded."""
    frames = [RGB, RGB.rotate(180), RGB.rotate(90).resize(RGB.size)]
    data = encode(frames[0], "AVIF", save_all=True, append_images=frames[1:])
    assert data[8:12] == b"avis"
    np.testing.assert_array_equal(decoder.decode(read_header(data)), as_pillow(data))


@needs_avif
def test_alpha_counts_beside_the_picture(decoder):
    image = with_alpha(RGB)
    data = encode(image, "AVIF")
    np.testing.assert_array_equal(decoder.decode(read_header(data, max_pixels=H * W)), as_pillow(data))


@needs_avif
def test_a_file_of_the_brand_that_heic_has_too():
    data = avif(*av1(16, 16), (16, 16)).replace(b"av01", b"hvc1").replace(b"ftypavif", b"ftypmif1")
    with pytest.raises(DecodeError, match="HEIC is not read"):
        read_header(data)


class Writer:
    def __init__(self) -> None:
        self.bits = ""

    def put(self, value: int, bits: int) -> None:
        self.bits += f"{value:0{bits}b}"[:bits] if bits else ""

    def bytes(self) -> bytes:
        padded = self.bits.ljust(-(-len(self.bits) // 8) * 8, "1")
        return int(padded, 2).to_bytes(len(padded) // 8, "big")


@given(st.data())
def test_sequence_headers(data):
    """With all that may be in them (AV1 specification, 5.5.1)."""
    to, draw = Writer(), lambda most: data.draw(st.integers(0, most))
    to.put(draw(15), 4)
    reduced, model, delays = draw(1), 0, 0
    to.put(reduced, 1)
    if reduced:
        to.put(draw(31), 5)
    else:
        timing = draw(1)
        to.put(timing, 1)
        if timing:
            to.put(draw(2**64 - 1), 64)
            equal = draw(1)
            to.put(equal, 1)
            if equal:
                zeros = draw(20)
                to.put(1, zeros + 1)
                to.put(draw(2**zeros - 1), zeros)
            model = draw(1) * (1 + draw(31))
            to.put(bool(model), 1)
            if model:
                to.put(model - 1, 5)
                to.put(draw(2**42 - 1), 42)
        delays = draw(1)
        to.put(delays, 1)
        points = 1 + draw(31)
        to.put(points - 1, 5)
        for _ in range(points):
            to.put(draw(4095), 12)
            level = draw(31)
            to.put(level, 5)
            if level > 7:
                to.put(draw(1), 1)
            for present, bits in ((model, 2 * model + 1), (delays, 4)):
                if present:
                    here = draw(1)
                    to.put(here, 1)
                    if here:
                        to.put(draw(2**bits - 1), bits)
    width_bits, height_bits = 1 + draw(15), 1 + draw(15)
    width, height = 1 + draw(2**width_bits - 1), 1 + draw(2**height_bits - 1)
    for value, bits in ((width_bits - 1, 4), (height_bits - 1, 4), (width - 1, width_bits), (height - 1, height_bits)):
        to.put(value, bits)
    header = to.bytes()
    item = bytes([1 << 3 | 2, len(header) & 127 | 128, len(header) >> 7]) + header + bytes([6 << 3])
    assert _coded_pixels(item) == (width * height if reduced else 1 << width_bits + height_bits)


@needs_avif
@given(st.data())
def test_damaged_avifs_are_no_other_error(data):
    damaged = bytearray(FORMATS["avif"])
    for at, value in data.draw(st.lists(st.tuples(st.integers(4, 400), st.integers(0, 255)), max_size=4)):
        damaged[at] = value
    with contextlib.suppress(DecodeError):
        as_still_avif(bytes(damaged[: data.draw(st.integers(12, len(damaged)))]), 1 << 20)
