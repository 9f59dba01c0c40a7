"""kernels/cuda/convert_yuv.cu emulated on a CPU: NumPy's bits, whatever the grid and the block; and copied rows."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cuaug.codec.sniff import orient_array
from cuaug.codec.video.yuv import FORMATS, PlaneRows, convert_frames, describe_frames
from cuaug.devices.workspace import converted_bytes
from tests.support.builds import compile_emulation
from tests.support.codec.jpeg_crops import draw_region
from tests.support.run_plans import assert_same
from tests.support.video.frames import RandomFrame, convert
from tests.video.test_yuv import matrices, names, reference, seeds
from tests.video.test_yuv import sizes as yuv_sizes

SOURCE = Path(__file__).parents[1] / "support" / "emulate_convert_yuv.cpp"
sizes = st.tuples(st.integers(1, 12), st.integers(1, 40))


@pytest.fixture(scope="session")
def emulate(tmp_path_factory: pytest.TempPathFactory) -> Any:
    library = ctypes.CDLL(str(compile_emulation(SOURCE, tmp_path_factory.mktemp("emulated"))))
    library.emulate_conversion.argtypes = [ctypes.c_void_p] + [ctypes.c_int] * 3
    return library


def compare(
    emulate: Any,
    frames: list[RandomFrame],
    region: tuple[int, int, int, int] | None = None,
    *,
    cosited: bool,
    orientation: int = 1,
    rows: int,
    threads: int,
) -> None:
    """Compares the displayed region of each frame with NumPy's, on a grid of `rows` and blocks of `threads`."""
    wanted = np.stack([orient_array(reference(frame, cosited), orientation) for frame in frames])
    y0, x0, y1, x1 = region or (0, 0, *wanted.shape[1:3])
    got = np.full((len(frames), y1 - y0 + 2, x1 - x0 + 2, 3), 77, np.uint8)
    inner = got[:, 1:-1, 1:-1]
    described = [frame.described(cosited) for frame in frames]
    addresses = [image.ctypes.data for image in inner]
    images = describe_frames(described, (y0, x0, y1, x1), addresses, got.strides[1], orientation=orientation)
    status = emulate.emulate_conversion(images.ctypes.data, len(images), rows, threads)
    assert status == 0, "a misaligned access"
    np.testing.assert_array_equal(inner, wanted[:, y0:y1, x0:x1])
    inner[:] = 77
    assert (got == 77).all(), "pixels outside the region were written"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), names, sizes, matrices, st.booleans(), st.booleans(), st.integers(1, 8), seeds)
def test_any_region_has_the_bits_of_the_reference(
    emulate, data, name, size, matrix, full_range, cosited, orientation, seed
):
    rng, count = np.random.default_rng(seed), data.draw(st.integers(1, 3))
    frames = [RandomFrame.make(name, *size, matrix, full_range, rng, False) for _ in range(count)]
    height, width = size[::-1] if orientation > 4 else size
    region = data.draw(draw_region(height, width))
    rows, threads = data.draw(st.integers(1, 14)), data.draw(st.integers(1, 50))
    compare(emulate, frames, region, cosited=cosited, orientation=orientation, rows=rows, threads=threads)


def test_every_format(emulate):
    rng = np.random.default_rng(0)
    for name in FORMATS:
        for cosited in (False, True):
            frames = [RandomFrame.make(name, 11, 37, "bt709", False, rng, False) for _ in range(2)]
            compare(emulate, frames, cosited=cosited, rows=3, threads=5)


# --- rows of planes that are copied before their upload --------------------------------------------------------------


@given(names, yuv_sizes, st.booleans(), st.integers(1, 8), seeds, st.data())
def test_copied_rows_convert_to_the_same_pixels(name, size, cosited, orientation, seed, data):
    """Without the rest of the planes: the copy ends where the allocation does."""
    frame = RandomFrame.make(name, *size, "bt709", False, np.random.default_rng(seed), False).described(cosited)
    height, width = size[::-1] if orientation > 4 else size
    region = data.draw(draw_region(height, width))
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
