"""Copied rows of video frames convert to the same pixels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuaug.codec.video.yuv import PlaneRows, convert_frames, describe_frames
from cuaug.devices.workspace import converted_bytes
from tests.support.run_plans import assert_same
from tests.support.video.frames import RandomFrame, convert
from tests.video.test_yuv import names, seeds, sizes

pytest.importorskip("cupy")


@given(names, sizes, st.booleans(), st.integers(1, 8), seeds, st.data())
def test_copied_rows_convert_to_the_same_pixels(name, size, cosited, orientation, seed, data):
    """Without the rest of the planes: the copy ends where the allocation does."""
    frame = RandomFrame.make(name, *size, "bt709", False, np.random.default_rng(seed), False).described(cosited)
    height, width = size[::-1] if orientation > 4 else size
    y0, x0 = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
    region = y0, x0, data.draw(st.integers(y0 + 1, height)), data.draw(st.integers(x0 + 1, width))
    want = convert(frame, region, orientation)
    got = np.zeros((2, *want.shape), np.uint8)
    addresses = [image.ctypes.data for image in got]
    images = describe_frames([frame] * 2, region, addresses, got.strides[1], orientation=orientation)
    rows = PlaneRows(images)
    memory = np.full(rows.bytes + 64, 0xAB, np.uint8)
    images = rows.copy(memory.ctypes.data)
    assert (memory[rows.bytes :] == 0xAB).all(), "written beyond the size"
    convert_frames(images)
    for image in got:
        assert_same(image, want)


def test_bytes_of_converted_frames_do_not_overflow():
    images = np.zeros(2, dtype=describe_frames([], (0, 0, 1, 1), [], 3).dtype)
    images["rows"], images["columns"] = 1 << 15, 1 << 15
    assert converted_bytes(images).tolist() == [3 << 30] * 2
