"""augment.cu as CUDA compiles it, run on the host a thread a block: the host build's bits, in the memory it is given.

The kernel does not know how much shared memory a launch asked for. `scratch_bytes` reckons it far from the headers that
use it; here every block's scratch lies before a pattern, and who writes on it is found out.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cuaug import transforms as T
from cuaug._native import KERNEL_DIRECTORY
from cuaug.devices import cuda
from cuaug.plan import Border, Layout, Type
from cuaug.random import Draws
from tests import helpers
from tests.fake_cuda import replace_cuda
from tests.helpers import assert_same, plan_for
from tests.strategies import chains, images, sizes, write
from tests.test_cuda_program import run

pytest.importorskip("cupy")
SOURCE = Path(__file__).parent / "emulate_cuda.cpp"
PLAIN = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="session")
def emulate(tmp_path_factory: pytest.TempPathFactory) -> Any:
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        pytest.skip(f"no compiler: {compiler}")
    target = tmp_path_factory.mktemp("emulated") / "emulated.so"
    flags = ["-std=c++17", "-O1", "-ffp-contract=off", "-fno-strict-aliasing", "-fPIC", "-shared", "-w"]
    subprocess.run([compiler, *flags, f"-I{KERNEL_DIRECTORY}", str(SOURCE), "-o", str(target)], check=True)
    function = ctypes.CDLL(str(target)).emulate
    function.argtypes = [ctypes.c_int] + [ctypes.c_void_p] * 4 + [ctypes.c_int] * 5 + [ctypes.c_int64]
    function.restype = ctypes.c_int64
    return function


class EmulatedKernel:
    """Runs every block of a launch.

    Args:
        simple: by `resample` instead of `augment`.

    Attributes:
        unused: bytes of shared memory that no block of a launch has used, for each launch.
    """

    ptr = 0

    def __init__(self, emulate: Any, simple: bool) -> None:
        self._emulate, self._simple = emulate, simple
        self.unused: list[int] = []

    def __call__(self, grid: Any, block: Any, arguments: Any, *, shared_mem: int, stream: Any) -> None:
        most = 0
        for sample in range(grid[2]):
            for y in range(grid[0]):
                for x in range(grid[1]):
                    used = self._emulate(self._simple, *map(int, arguments), y, x, sample, shared_mem // 4)
                    assert used >= 0, f"{shared_mem} bytes are more than the emulation has"
                    assert 4 * used <= shared_mem, f"a block has used {4 * used} bytes of {shared_mem}"
                    most = max(most, 4 * used)
        self.unused.append(shared_mem - most)


@pytest.fixture
def emulated(emulate: Any, monkeypatch: pytest.MonkeyPatch) -> cuda.Kernels:
    replace_cuda(monkeypatch.setattr)
    kernels = cuda.Kernels(augment=EmulatedKernel(emulate, False), resample=EmulatedKernel(emulate, True))
    monkeypatch.setattr(cuda, "kernels", lambda index: kernels)
    return kernels


def compare(tables: Any, batch: list[np.ndarray], channels: int, tile: tuple[int, int] | None) -> None:
    _, got = run(tables, batch, channels, tile=tile)
    program = helpers.HostProgram(tables)
    for i, (image, h, w) in enumerate(zip(batch, *tables.sizes(), strict=True)):
        want = np.empty(int(h * w) * channels * np.dtype(helpers.DTYPES[tables.target_type]).itemsize, np.uint8)
        program.run(i, image, want.ctypes.data)
        assert_same(got[i].numpy()[: want.size], want)


@pytest.mark.slow
@PLAIN
@given(st.data(), st.sampled_from([np.uint8, np.float32]), st.sampled_from(list(Type)), st.sampled_from(list(Layout)))
def test_no_block_leaves_its_scratch(emulated, data, source, dtype, layout):
    batch = data.draw(st.lists(images(sizes(3000), source), min_size=1, max_size=3))
    plan = plan_for(*batch)
    for i, image in enumerate(batch):
        write(plan, data.draw(chains(image.shape[:2], turns=True)).steps, np.arange(len(batch)) == i)
    tile = data.draw(st.none() | st.tuples(st.integers(1, 9), st.integers(1, 30)))
    compare(plan.tables(dtype, layout), batch, plan.channels, tile)


@pytest.mark.parametrize("border", list(Border))
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("size", [(9, 7), (40, 300), (300, 40)])
def test_resizing(emulated, border, antialias, size):
    """Down and up by much, under each border, with tiles that divide nothing evenly."""
    batch = [np.random.default_rng(0).integers(0, 256, (61, 83, 3), dtype=np.uint8)]
    for tile in (None, (3, 17)):
        plan = plan_for(*batch)
        plan.resize(*size, antialias=antialias)
        plan.pad(5, 4, 3, 2, border=border)
        compare(plan.tables(Type.UINT8, Layout.HWC), batch, 3, tile)


@pytest.mark.slow
@pytest.mark.parametrize(
    "transform",
    [
        T.RandomEqualize(p=1),
        T.CLAHE(p=1),
        T.RandomAutocontrast(p=1),
        T.JPEG(quality=50),
        T.MedianBlur(5, p=1),
        T.Rot90(1),
    ],
    ids=lambda transform: type(transform).__name__,
)
@pytest.mark.parametrize("size", [(1, 1), (17, 40), (130, 90)])
def test_what_takes_scratch_of_its_own(emulated, transform, size):
    batch = [np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)]
    for tile in (None, (1, 1), (7, 33)):
        plan = plan_for(*batch)
        T.Compose([T.RandomRot90(), transform, T.RandomEqualize(p=1)]).plan(plan, Draws(0, 0, np.arange(1)))
        compare(plan.tables(Type.UINT8, Layout.HWC), batch, 3, tile)


def test_it_would_be_noticed(emulated, monkeypatch):
    """A row of whole tiles uses all of it: with a few bytes less, somebody writes where nobody may."""
    batch = [np.random.default_rng(0).integers(0, 256, (8, 128, 3), dtype=np.uint8)]
    plan = plan_for(*batch)
    plan.resize(4, 128)
    tables = plan.tables(Type.UINT8, Layout.HWC)
    compare(tables, batch, 3, None)
    assert emulated.resample.unused == [0] and not emulated.augment.unused
    exact = cuda.scratch_bytes
    monkeypatch.setattr(cuda, "scratch_bytes", lambda *arguments: exact(*arguments) - 8)
    with pytest.raises(AssertionError, match="a block has used"):
        compare(tables, batch, 3, None)
