"""cuda/decode_jpeg.cu emulated on a CPU: the CPU build's bits, whichever lane and warp runs first.

The threads of a block run one after the other, each up to the next barrier, so a missing barrier gives wrong bits.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cuaug._runtime.native import KERNEL_DIRECTORY
from cuaug.devices import nvrtc
from tests.kernels.test_decode_jpeg import jpegs
from tests.kernels.test_nvrtc import ARCHITECTURES, usage
from tests.support.builds import copy_patched
from tests.support.device_jpegs import decode
from tests.support.jpeg_writer import FACTORS, LONG, JpegWriter, every_kind

SOURCE = Path(__file__).parents[1] / "support" / "emulate_jpeg.cpp"
KINDS = every_kind()


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


def build(folder: Path, kernels: Path = KERNEL_DIRECTORY) -> Path:
    """Compiles the emulation."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        pytest.skip(f"no compiler: {compiler}")
    target = folder / "emulated.so"
    flags = ["-std=c++17", "-O1", "-fno-strict-aliasing", "-fPIC", "-w", "-fsanitize=alignment"]
    subprocess.run([compiler, *flags, f"-I{kernels}", "-c", str(SOURCE), "-o", f"{target}.o"], check=True)
    subprocess.run([compiler, "-shared", f"{target}.o", "-o", str(target)], check=True)
    return target


def assert_shows(module: str, check: str, library: Path) -> None:
    """Asserts that a function of a module of tests/kernels fails with this library.

    It runs in a process of its own: a mistake may write anywhere.
    """
    program = f"import sys; from tests.kernels import {module} as its; its.{check}(its.Emulation(sys.argv[1]))"
    command = [sys.executable, "-c", program, str(library)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode < 0 or (done.returncode and "AssertionError" in done.stderr), done.stderr


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Emulation:
    return Emulation(build(tmp_path_factory.mktemp("emulated")))


def compare(emulated: Emulation, files: list[bytes], **options: Any) -> None:
    """Compares with the CPU build, forward and backward."""
    expected = decode(files, **options)
    for backward in (False, True):
        emulated.run_backward(backward)
        for got, want in zip(decode(files, kernels=emulated, **options), expected, strict=True):
            assert got.is_damaged == want.is_damaged and (got.pixels is None) == (want.pixels is None)
            if want.pixels is not None:
                np.testing.assert_array_equal(got.pixels, want.pixels)


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


@pytest.mark.parametrize(
    ("file", "right", "wrong"),
    [
        pytest.param("core/decode_jpeg.h", "warp.sync();  // before columns", "", marks=pytest.mark.slow),
        pytest.param("core/decode_jpeg.h", "BLOCK_STRIDE = 72;", "BLOCK_STRIDE = 68;", marks=pytest.mark.long),
    ],
)
def test_missing_barriers_and_misaligned_memory_show(tmp_path, file, right, wrong):
    library = build(tmp_path, copy_patched(tmp_path / "kernels", file, right, wrong))
    assert_shows("test_emulated_jpeg", "compare_kinds", library)


@pytest.mark.parametrize("arch", [pytest.param(a, marks=[] if a == 90 else [pytest.mark.long]) for a in ARCHITECTURES])
def test_compiles_without_spills(arch, record_property):
    pytest.importorskip("cupy")
    _, log = nvrtc.compile(arch, "decode_jpeg")
    kernels = usage(log)
    record_property("usage", str(kernels))
    limits = {"decode_jpeg": 64, "color_jpeg": 64, "build_lookups": 64, "scan_jpeg": 64}  # with 512 threads
    assert kernels.keys() == limits.keys(), log
    for name, used in kernels.items():
        assert used.registers <= limits[name] and used.spilled == 0, log
        assert used.stack == 0, log
