"""cuda/augment.cu and resample.cu emulated on a CPU: the CPU build's bits, within the scratch of the launch.

The threads of a block run one after the other, each up to the next barrier, so a missing barrier gives wrong bits. Some
tests need more threads than a warp, others fewer threads than values.

A kernel does not know how much shared memory its launch asked for. Here a pattern follows every block's scratch, and a
write on the pattern fails the test.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cuaug import transforms as T
from cuaug.devices import cuda, nvrtc
from cuaug.plan import Border, Filter, Layout, PackingFormat, Type, operations
from cuaug.sampling.rng import SampleRNG
from tests.kernels.test_cuda_executor import assert_equal_to_the_cpu, run
from tests.support import run_plans
from tests.support.builds import compile_emulation, copy_patched
from tests.support.fake_cuda import replace_cuda
from tests.support.run_plans import assert_same, plan_for
from tests.support.strategies import RESIZES, chains, images, sizes, write

pytest.importorskip("cupy")
SOURCE = Path(__file__).parents[1] / "support" / "emulate_cuda.cpp"
FLOATS = [Type.FLOAT16, Type.BFLOAT16, Type.FLOAT32]
PLAIN = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def compiled_passes(folder: Path, **options: Any) -> Any:
    library = ctypes.CDLL(str(compile_emulation(SOURCE, folder, **options)))
    library.emulate.argtypes = [ctypes.c_int] * 2 + [ctypes.c_void_p] * 4 + [ctypes.c_int] * 5 + [ctypes.c_int64]
    library.emulate.restype = ctypes.c_int64
    library.divide.argtypes, library.divide.restype = [ctypes.c_double] * 2, ctypes.c_float
    return library


@pytest.fixture(scope="session")
def emulate(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return compiled_passes(tmp_path_factory.mktemp("emulated"))


class EmulatedKernel:
    """Runs every block of a launch.

    Args:
        simple: the entry point is `resample` instead of `augment`.

    Attributes:
        unused: for each launch, bytes of shared memory that no block used.
        loaded: for each block, (begin, end) of the source addresses that it loaded, if any.
    """

    def __init__(self, emulate: Any, simple: bool) -> None:
        self._emulate, self._simple = emulate, simple
        self.unused: list[int] = []
        self.loaded: list[tuple[int, int]] = []

    def __call__(self, grid: Any, block: Any, arguments: Any, *, shared_mem: int, stream: Any) -> None:
        max_used, loaded = 0, (ctypes.c_uint64 * 2).in_dll(self._emulate, "loaded")
        for sample in range(grid[2]):
            for y in range(grid[0]):
                for x in range(grid[1]):
                    place = y, x, sample
                    used = self._emulate.emulate(self._simple, block[0], *map(int, arguments), *place, shared_mem // 4)
                    assert used != -1, f"{shared_mem} bytes or {block[0]} threads are more than the emulation has"
                    assert used != -2, "not all threads reach a barrier"
                    assert used != -3, "a misaligned load or store"
                    if loaded[1]:
                        self.loaded.append((loaded[0], loaded[1]))
                    assert 4 * used <= shared_mem, f"a block has used {4 * used} bytes of {shared_mem}"
                    max_used = max(max_used, 4 * used)
        self.unused.append(shared_mem - max_used)


def install(emulate: Any, threads: int, monkeypatch: pytest.MonkeyPatch) -> nvrtc.Kernels:
    replace_cuda(monkeypatch.setattr)
    monkeypatch.setattr(cuda, "THREADS", threads)
    kernels = nvrtc.Kernels(augment=EmulatedKernel(emulate, False), resample=EmulatedKernel(emulate, True))
    monkeypatch.setattr(cuda, "kernels", lambda index: kernels)
    return kernels


@pytest.fixture(params=[5, pytest.param(40, marks=pytest.mark.slow)], ids=["5 threads", "40 threads"])
def emulated(emulate: Any, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> nvrtc.Kernels:
    return install(emulate, request.param, monkeypatch)


def compare(tables: Any, batch: list[np.ndarray], channels: int, tile: tuple[int, int] | None) -> None:
    """Compares with the CPU build's bits; in a single pass, no block may load a word without image bytes."""
    batch = [np.ascontiguousarray(image) for image in batch]
    kernels = cuda.kernels(0)
    for kernel in kernels:
        kernel.loaded.clear()
    launches, outputs = run(tables, batch, channels, tile=tile)
    words = [(image.ctypes.data & -4, image.ctypes.data + image.nbytes + 3 & -4) for image in batch]
    for low, high in (*kernels.augment.loaded, *kernels.resample.loaded) if launches == 1 else ():
        assert any(first <= low < high <= end for first, end in words), "loads beside the image"
    assert_equal_to_the_cpu(tables, batch, outputs, channels)


@pytest.mark.slow
@PLAIN
@given(st.data(), st.sampled_from([np.uint8, np.float32]), st.sampled_from(list(Type)), st.sampled_from(list(Layout)))
def test_no_block_leaves_its_scratch(emulated, data, source, dtype, layout):
    batch = data.draw(st.lists(images(sizes(3000), source), min_size=1, max_size=3))
    plan = plan_for(*batch)
    for i, image in enumerate(batch):
        write(plan, data.draw(chains(image.shape[:2], turns=True)).steps, np.arange(len(batch)) == i)
    tile = data.draw(st.none() | st.tuples(st.integers(1, 9), st.integers(1, 30)))
    compare(plan.compile(dtype, layout), batch, plan.channels, tile)


@pytest.mark.parametrize("border", list(Border))
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("size", [(9, 7), (40, 300), (300, 40)])
def test_resizing(emulated, border, antialias, size):
    """Large shrinks and enlargements under each border, with tiles that divide no size evenly."""
    batch = [np.random.default_rng(0).integers(0, 256, (61, 83, 3), dtype=np.uint8)]
    for tile in (None, (3, 17)):
        plan = plan_for(*batch)
        plan.resize(*size, antialias=antialias)
        plan.pad(5, 4, 3, 2, border=border)
        compare(plan.compile(Type.UINT8, Layout.HWC), batch, 3, tile)


@PLAIN
@given(st.data(), st.sampled_from(FLOATS), st.sampled_from(list(Layout)), st.sampled_from(list(Border)))
def test_pillow_resizes(emulated, data, dtype, layout, border):
    """In both orders, of uint8 at any address, padded before and after, and of what an earlier pass made."""
    image = data.draw(images(sizes(3000)))
    plan, widths, size = plan_for(image), st.tuples(*[st.integers(0, 9)] * 4), st.integers(1, 60)
    plan.pillow = data.draw(st.sampled_from([12, 13]))
    if data.draw(st.booleans()):
        plan.pad(*data.draw(widths), border=border, fill=40)
    for _ in range(data.draw(st.integers(1, 2))):
        plan.resize(data.draw(size), data.draw(size), filter=data.draw(st.sampled_from(list(Filter))))
    plan.rot90(data.draw(st.integers(0, 3)))
    plan.pad(*data.draw(widths), border=data.draw(st.sampled_from(list(Border))), fill=9.5)
    plan.normalize([0.5, 0.4, 0.3], [0.2, 0.3, 0.4])
    plan.append(operations.erase(1, data.draw(st.tuples(*[st.integers(0, 40)] * 4)), 0.5))
    tile = data.draw(st.none() | st.tuples(st.integers(1, 9), st.integers(1, 30)))
    compare(plan.compile(dtype, layout), [image], 3, tile)


@PLAIN
@given(st.data(), st.sampled_from(list(Type)), st.sampled_from(list(Layout)), st.sampled_from([1, 3]), st.booleans())
def test_patches(emulated, data, dtype, order, channels, simple):
    """By both entry points, turned, repeated in time; a target of the size of all its patches."""
    size, merge, temporal = (data.draw(st.integers(1, most)) for most in (9, 3, 3))
    image, across = data.draw(images(sizes(2000))), st.integers(1, max(1, 50 // (size * merge)))
    plan = plan_for(image, channels=channels)
    plan.resize(*(size * merge * data.draw(across) for _ in range(2)))
    plan.rot90(data.draw(st.integers(0, 3)))
    plan.append(operations.scale(1, 0.9, 3.0) if simple else operations.solarize(1, plan.limit, 99.0))
    plan.packing = PackingFormat(size, merge, temporal, order)
    tables, augmented = plan.compile(dtype, Layout.CHW), len(emulated.augment.unused)
    compare(tables, [image], channels * temporal, data.draw(st.none() | st.just((3, 7))))
    assert len(emulated.augment.unused) > augmented, "`resample` runs no packed targets"


@PLAIN
@given(st.lists(images(sizes(900)), min_size=2, max_size=3), st.sampled_from(list(Type)), st.sampled_from(list(Layout)))
def test_images_in_larger_memory(emulated, batch, dtype, layout):
    plan = plan_for(*batch)
    plan.rot90(np.arange(len(batch)))
    plan.packing = PackingFormat()
    tables = plan.compile(dtype, layout)
    height, width = (int(side) for side in tables.sizes().max(axis=1))
    shape = (len(batch), height * width * 3 * np.dtype(run_plans.DTYPES[dtype]).itemsize)
    got, want = torch.full(shape, 0xA5, dtype=torch.uint8), np.full(shape, 0xA5, dtype=np.uint8)
    addresses = np.array([image.ctypes.data for image in batch], dtype=np.uint64)
    cuda.CudaExecutor(tables).run(addresses, got)
    for i, image in enumerate(batch):
        run_plans.CpuExecutor(tables).run(i, image, want[i].ctypes.data)
    assert_same(got.numpy(), want)


@PLAIN
@given(st.data(), st.sampled_from(list(Type)), st.sampled_from(list(Layout)), st.sampled_from(list(Border)))
def test_passes_of_the_entry_point_resample(emulated, data, dtype, layout, border):
    """uint8 at any address, padded before and after a copy, resize or blur, then scaled and erased."""
    image = data.draw(images(sizes(3000)))
    offset = data.draw(st.integers(0, 3))
    memory = np.zeros(image.size + 3, np.uint8)
    memory[offset : offset + image.size] = image.reshape(-1)
    plan = plan_for(image)
    widths = st.tuples(*[st.integers(0, 9)] * 4)
    kind = data.draw(st.sampled_from(["copied", "resized", "blurred"]))
    if kind == "blurred":
        plan.convolve([0.2, 0.5, 0.3], [0.1, 0.2, 0.4, 0.2, 0.1], border=border)
    elif kind == "resized":
        plan.pad(*data.draw(widths), border=border, fill=40)
        size = data.draw(st.tuples(st.integers(1, 60), st.integers(1, 60)))
        plan.resize(*size, **data.draw(RESIZES))
    plan.rot90(data.draw(st.integers(0, 3)))
    plan.pad(*data.draw(widths), border=data.draw(st.sampled_from(list(Border))), fill=9)
    plan.append(operations.scale(1, [0.9, 1.3, 0.5], [7.0, -20.0, 3.0]))
    plan.append(operations.erase(1, data.draw(st.tuples(*[st.integers(0, 40)] * 4)), 77.0))
    tables = plan.compile(dtype, layout)
    augmented = len(emulated.augment.unused)
    tile = data.draw(st.none() | st.tuples(st.integers(1, 9), st.integers(1, 30)))
    compare(tables, [memory[offset : offset + image.size].reshape(image.shape)], plan.channels, tile)
    assert len(emulated.augment.unused) == augmented


def test_quotients_have_the_bits_of_a_division(emulate):
    """Next to the middle between two floats, where the product with a reciprocal may round to the other one."""
    rng = np.random.default_rng(0)
    below = rng.uniform(-4, 4, 20_000).astype(np.float32)
    middle = (below.astype(np.float64) + np.nextafter(below, np.float32(9))) / 2
    b = rng.uniform(1, 60, below.size)
    differing = 0
    for step in range(-3, 4):
        a = middle * b + step * np.spacing(middle * b)
        want = (a / b).astype(np.float32)
        assert_same(np.array([emulate.divide(*pair) for pair in zip(a, b, strict=True)], np.float32), want)
        differing += ((a * (1 / b)).astype(np.float32) != want).sum()
    assert differing > 100, "the product alone would do"


@pytest.mark.parametrize("offset", range(4))
def test_every_alignment_and_width(emulated, offset):
    for width in range(1, 14):
        memory = np.random.default_rng(width).integers(0, 256, 256, dtype=np.uint8)
        begin = -memory.ctypes.data % 4 + offset
        image = memory[begin : begin + 5 * width * 3].reshape(5, width, 3)
        plan = plan_for(image)
        plan.resize(3, width)
        compare(plan.compile(Type.UINT8, Layout.HWC), [image], 3, None)
        assert emulated.resample.loaded or width < 3


@pytest.mark.slow
def test_a_missing_barrier_shows(tmp_path, monkeypatch):
    kernels = copy_patched(
        tmp_path / "kernels", "core/resample.h", "columns, lines);\n        block.sync();", "columns, lines);"
    )
    install(compiled_passes(tmp_path, kernels=kernels), 5, monkeypatch)
    batch = [np.random.default_rng(0).integers(0, 256, (31, 43, 3), dtype=np.uint8)]
    plan = plan_for(*batch)
    plan.resize(17, 43)
    with pytest.raises(AssertionError):
        compare(plan.compile(Type.FLOAT32, Layout.HWC), batch, 3, None)


WITH_SCRATCH = [T.RandomEqualize(p=1), T.CLAHE(p=1), T.RandomAutocontrast(p=1), T.JPEG(quality=50)]
WITH_SCRATCH += [T.MedianBlur(5, p=1), T.Rot90(1)]


@pytest.mark.slow
@pytest.mark.parametrize("transform", WITH_SCRATCH, ids=lambda transform: type(transform).__name__)
@pytest.mark.parametrize("size", [(1, 1), (17, 40), (130, 90)])
def test_operations_with_their_own_scratch(emulated, transform, size):
    batch = [np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)]
    for tile in (None, (7, 33)) if size == (130, 90) else (None, (7, 33), (1, 1)):  # (1, 1) would be 11,700 blocks
        plan = plan_for(*batch)
        T.Compose([T.RandomRot90(), transform, T.RandomEqualize(p=1)]).plan(plan, SampleRNG(0, 0, np.arange(1)))
        compare(plan.compile(Type.UINT8, Layout.HWC), batch, 3, tile)
