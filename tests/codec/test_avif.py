"""AVIF: the primary image is read, and the size and the items that a file claims are bounded."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import features

from cuaug.codec import read_header
from cuaug.errors import DecodeError
from tests.codec.test_found_by_fuzzing import assert_refused_at_once
from tests.support.codec.avifs import av1, avif
from tests.support.codec.encoded_images import RGB, H, W, as_pillow, encode, with_alpha

needs_avif = pytest.mark.skipif(not features.check("avif"), reason="Pillow reads AVIF from 11.3 on")


@pytest.fixture(scope="module")
def stream() -> tuple[bytes, bytes]:
    """An AV1 stream of 256 x 256 pixels, and its av1C box."""
    return av1(256, 256)


@needs_avif
@pytest.mark.parametrize("options", [{"extents": 7}, {"in_idat": True}, {"shared": True, "extents": 3}], ids=str)
def test_grids_are_read_and_their_size_and_cells_are_bounded(decoder, stream, options):
    def grid(rows: int, columns: int) -> bytes:
        layout = {"cells": list(range(2, 2 + rows * columns)), "grid": (rows, columns)}
        return avif(*stream, (64, 64), output=(64 * rows, 64 * columns), **layout, **options)

    assert (decoder.decode(read_header(grid(1, 32))) == 77).all()
    with pytest.raises(DecodeError, match=r"claims 64 x 2048 = 131072 pixels .* above the limit max_pixels=131071"):
        read_header(grid(1, 32), max_pixels=131071)
    assert_refused_at_once(decoder, grid(41, 100), "has 4101 items, more than 4096")


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
    data = encode(with_alpha(RGB), "AVIF")
    np.testing.assert_array_equal(decoder.decode(read_header(data, max_pixels=H * W)), as_pillow(data))


@needs_avif
def test_a_heic_file_is_refused():
    data = avif(*av1(16, 16), (16, 16)).replace(b"av01", b"hvc1").replace(b"ftypavif", b"ftypmif1")
    with pytest.raises(DecodeError, match="HEIC is not read"):
        read_header(data)
