"""cuda/decode_jpeg.cu emulated on a CPU: the CPU build's bits and entry points, whichever lane and warp runs first.

The threads of a block run one after the other, each up to the next barrier, so a missing barrier gives wrong bits.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kernels.test_decode_jpeg import jpegs
from tests.kernels.test_scan_jpeg import textured
from tests.support.builds import compile_emulation, copy_patched
from tests.support.codec.encoded_images import encode_jpeg
from tests.support.device_jpegs import Outcome, decode
from tests.support.jpeg_writer import FACTORS, LONG, JpegWriter, every_kind
from tests.support.scanned_jpegs import FirstVisit, records_of, visit

SOURCE = Path(__file__).parents[1] / "support" / "emulate_jpeg.cpp"
KINDS = every_kind()
UNINTERRUPTED = {name: data for name, data in KINDS.items() if "restarts" not in name}


class Emulation:
    """Has the functions of the CPU build; each checks that the emulation reports no error."""

    def __init__(self, path: Path | str) -> None:
        self._library = ctypes.CDLL(str(path))
        self._is_backward = ctypes.c_int.in_dll(self._library, "is_backward")

    def run_backward(self, value: bool) -> None:
        self._is_backward.value = value

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._library, name)
        counts = [0, 1, 0] if name in ("cuaug_build_lookups", "cuaug_scan_jpegs") else [0, 0, 1]
        function.argtypes = [ctypes.c_int64 if is_count else ctypes.c_void_p for is_count in counts]

        def call(*arguments: int) -> None:
            error = function(*arguments)
            assert error != -2, "threads of a warp are at different barriers"
            assert error != -3, "a misaligned load or store"
            assert error == 0

        return call


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Emulation:
    return Emulation(compile_emulation(SOURCE, tmp_path_factory.mktemp("emulated")))


def assert_same_outcomes(found: list[Outcome], wanted: list[Outcome], pixels_of_damaged: bool = True) -> None:
    for got, want in zip(found, wanted, strict=True):
        assert got.is_damaged == want.is_damaged and (got.pixels is None) == (want.pixels is None)
        if want.pixels is not None and (pixels_of_damaged or not want.is_damaged):
            np.testing.assert_array_equal(got.pixels, want.pixels)


def compare(emulated: Emulation, files: list[bytes], **options: Any) -> None:
    """Compares with the CPU build, forward and backward."""
    expected = decode(files, **options)
    for backward in (False, True):
        emulated.run_backward(backward)
        assert_same_outcomes(decode(files, kernels=emulated, **options), expected)


def compare_kinds(emulated: Emulation) -> None:
    """One batch: several sets of Huffman tables, more segments than a warp and than a block of threads has."""
    many = JpegWriter(FACTORS["4:2:0"], interval=1).write(17, 1100, 0, 0.1)
    wide = JpegWriter([(1, 1)], tables=LONG).write(30, 400, 1)
    compare(emulated, [KINDS["4:2:2"], many, KINDS["4:4:4"], KINDS["subsampled luma"], wide])


def test_every_kind(emulated):
    compare_kinds(emulated)
    compare(emulated, list(KINDS.values()))


def test_orientations_and_regions(emulated):
    files = [KINDS["4:2:0"]] * 16
    regions = [None, (3, 5, 30, 31)] * 8
    compare(emulated, files, orientations=[value for value in range(1, 9) for _ in range(2)], regions=regions)


def test_damage(emulated):
    """The status and all pixels are the CPU build's, and the warp's other lanes go on."""
    files = [KINDS["4:2:0"], KINDS["restarts after 5"]]
    for data in list(files):
        middle = (data.index(b"\xff\xda") + len(data)) // 2
        files.append(data[:middle] + b"\x55\x12\x7f\x9a" + data[middle + 4 :])
    assert decode(files)[-1].is_damaged
    compare(emulated, files)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files=st.lists(jpegs, min_size=1, max_size=2))
def test_drawn_jpegs(emulated, files):
    compare(emulated, files)


# --- first visits: `scan_jpeg` finds the entry points ----------------------------------------------------------------


def compare_visits(emulated: Emulation, files: list[bytes], may_be_damaged: bool = False) -> None:
    """Compares pixels with the CPU build's first visit, and the index with EntryPoints::build's."""
    wanted = visit(files).outcomes
    assert may_be_damaged or not any(outcome.is_damaged for outcome in wanted)
    expected = records_of(lambda index: decode(files, index=index), files[0])
    for backward in (False, True):
        emulated.run_backward(backward)
        visits: list[FirstVisit] = []
        found = records_of(lambda index: visits.append(visit(files, index=index, kernels=emulated)), files[0])  # noqa: B023
        assert_same_outcomes(visits[0].outcomes, wanted, pixels_of_damaged=False)
        assert found == expected


def photos() -> list[bytes]:
    """Of one run, of more runs than the emulated block has threads, and of several cells a run; RGB and gray."""
    small, large = textured(40, 70, 0, 20), textured(220, 300, 1, 20)
    files = [
        encode_jpeg(small, subsampling=2),
        encode_jpeg(large, subsampling=2, quality=92),
        encode_jpeg(large, keep_rgb=True),
    ]
    files += [
        encode_jpeg(large.convert("L"), optimize=True),
        encode_jpeg(textured(600, 700, 2, 60), quality=97, subsampling=1),
    ]
    assert len(files[-1]) > 512 * 512
    return files


def compare_photos(emulated: Emulation) -> None:
    compare_visits(emulated, photos())


def test_first_visits_of_photos(emulated):
    compare_photos(emulated)


def test_first_visits_of_every_kind(emulated):
    compare_visits(emulated, list(UNINTERRUPTED.values()))


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files=st.lists(jpegs, min_size=1, max_size=2))
def test_first_visits_of_drawn_jpegs(emulated, files):
    compare_visits(emulated, files, may_be_damaged=True)


@pytest.mark.parametrize(
    ("check", "file", "right", "wrong"),
    [
        pytest.param("compare_kinds", "decode_jpeg.h", "warp.sync();  // before columns", "", marks=pytest.mark.slow),
        pytest.param("compare_kinds", "decode_jpeg.h", "STRIDE = 72;", "STRIDE = 68;", marks=pytest.mark.long),
        pytest.param(
            "compare_photos", "scan_jpeg.h", "block.sync();  // before blocks are summed", "", marks=pytest.mark.slow
        ),
    ],
)
def test_missing_barriers_and_misaligned_memory_show(tmp_path, check, file, right, wrong):
    """The check fails. It runs in a process of its own: a mistake may write anywhere."""
    library = compile_emulation(SOURCE, tmp_path, copy_patched(tmp_path / "kernels", f"core/{file}", right, wrong))
    program = f"import sys; from {__name__} import Emulation, {check}; {check}(Emulation(sys.argv[1]))"
    command = [sys.executable, "-c", program, str(library)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode < 0 or (done.returncode and "AssertionError" in done.stderr), done.stderr
