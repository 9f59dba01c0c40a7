"""How a pass is divided into launches, and where images lie between passes.

Models count blocks, threads and bytes for large images; small images show that the pixels do not change.
"""

from __future__ import annotations

import ctypes
import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cuaug import transforms as T
from cuaug.devices import cuda, workspace
from cuaug.errors import DeviceError
from cuaug.plan import Layout, Plan, Type
from cuaug.plan.layout import SAMPLE
from cuaug.sampling.rng import SampleRNG
from tests.kernels.test_cuda_executor import assert_equal_to_the_cpu
from tests.support import run_plans
from tests.support.fake_cuda import FakeTorch, replace_cuda
from tests.support.run_plans import plan_for

cupy = pytest.importorskip("cupy")

PHOTO, GIANT = (375, 500), (4000, 6000)


class Allocations(FakeTorch):
    """Counts memory on the device without taking it."""

    def empty(self, shape: Any, **options: Any) -> torch.Tensor:
        if options.get("pin_memory") or shape < 1 << 24:
            return super().empty(shape, **options)
        self.allocations.append(("device", shape))
        return torch.empty_strided((shape,), (0,), dtype=torch.uint8)


class Launched:
    """One launch, with the rows that it was given."""

    def __init__(self, grid: Any, arguments: Any, shared_mem: int) -> None:
        rows_at, *_, tile_rows, tile_columns = arguments
        memory = (ctypes.c_char * (grid[2] * SAMPLE.itemsize)).from_address(int(rows_at))
        self.rows = np.frombuffer(memory, dtype=SAMPLE).copy()
        self.tile, self.shared_mem = (int(tile_rows), int(tile_columns)), shared_mem

    @property
    def blocks(self) -> int:
        """Number of blocks that have pixels to compute."""
        down, across = (-(-self.rows[axis]["out"] // side) for axis, side in zip("yx", self.tile, strict=True))
        return int((down * across).sum())


@pytest.fixture
def fake(monkeypatch):
    return replace_cuda(monkeypatch.setattr)


@pytest.fixture
def launched(monkeypatch):
    """Records launches instead of running them; `fake` has the allocations."""
    fake = replace_cuda(monkeypatch.setattr, Allocations())
    fake.launched = []

    def kernel(grid: Any, block: Any, arguments: Any, *, shared_mem: int, stream: Any) -> None:
        fake.launched.append(Launched(grid, arguments, shared_mem))

    fake.kernel = kernel
    return fake


def compiled(sizes: list[tuple[int, int]], *transforms: Any, dtype: Type = Type.FLOAT16) -> Any:
    plan = Plan([height for height, _ in sizes], [width for _, width in sizes])
    T.Compose(list(transforms)).plan(plan, SampleRNG(0, 0, np.arange(len(sizes))))
    return plan.compile(dtype, Layout.CHW)


def launch(fake: Any, sizes: list[tuple[int, int]], *transforms: Any, skip: Any = None) -> list[Launched]:
    """The launches for images of these sizes, which stand nowhere in memory."""
    fake.launched.clear()
    executor = cuda.CudaExecutor(compiled(sizes, *transforms))
    launches = executor.run(np.zeros(len(sizes), np.uint64), torch.empty(len(sizes), 1, dtype=torch.float16), skip=skip)
    assert launches == len(fake.launched)
    return list(fake.launched)


def run_and_compare(tables: Any, batch: list[np.ndarray], work: cuda.Workspace | None = None) -> int:
    """Runs a plan with outputs of one size on the fake device. Returns the number of launches."""
    heights, widths = tables.sizes()
    size = int(heights[0] * widths[0]) * 3 * np.dtype(run_plans.DTYPES[tables.target_type]).itemsize
    target = torch.full((len(batch), size), 0xA5, dtype=torch.uint8)
    addresses = np.array([image.ctypes.data for image in batch], dtype=np.uint64)
    launches = cuda.CudaExecutor(tables).run(addresses, target, workspace=work)
    assert_equal_to_the_cpu(tables, batch, target)
    return launches


def noise(*sizes: tuple[int, int]) -> list[np.ndarray]:
    return [np.random.default_rng(i).integers(0, 256, (*size, 3), dtype=np.uint8) for i, size in enumerate(sizes)]


# --- samples of very different scale ---------------------------------------------------------------------------------

CROP = T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.Normalize(0.5, 0.2)


def active_threads(launches: list[Launched]) -> float:
    """Mean number of threads of a block that compute pixels, one thread a column."""
    blocks = [launch.blocks for launch in launches]
    return float(np.average([min(launch.tile[1], cuda.THREADS) for launch in launches], weights=blocks))


def test_a_giant_image_leaves_the_tiles_of_the_others(launched):
    """In one launch all would have its tiles. With 48 KB, they would be 4 x 56: 16 times as many blocks."""
    photos, giant = launch(launched, [PHOTO] * 100 + [GIANT] + [PHOTO] * 155, *CROP)
    (alone,) = launch(launched, [PHOTO] * 255, *CROP)
    assert photos.tile == alone.tile and photos.blocks == alone.blocks == 255 * 7 * 2
    assert len(giant.rows) == 1 and giant.rows["y"]["scale"] > 7.5
    assert giant.tile == (8, 112) and giant.shared_mem > 48 << 10 and giant.blocks == 28 * 2
    assert active_threads([photos, giant]) == 112
    photos, giant = launch(launched, [PHOTO] * 255 + [GIANT], T.Resize((224, 224)))
    assert giant.tile == (8, 56) and photos.blocks + giant.blocks == 3682
    assert 110 < active_threads([photos, giant]) < 111


def test_classes_do_not_change_pixels(fake):
    """Of two passes: the first in three launches, with samples sorted; the second in one."""
    batch = noise((9, 200), (9, 30), (9, 16_000), (9, 1500), (9, 4000), (9, 2700), (9, 31))
    plan = plan_for(*batch)
    T.Compose([T.Resize((9, 128)), T.GaussianBlur(3), T.Normalize(0.5, 0.2)]).plan(plan, SampleRNG(0, 0, np.arange(7)))
    tables = plan.compile(Type.FLOAT16, Layout.CHW)
    assert run_and_compare(tables, batch) == 4
    assert [grid[2] for grid in fake.kernel.launches] == [3, 1, 3, 7]


# --- images between passes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("device_bytes", "limit"), [(80 << 30, 4 << 30), (16 << 30, 2 << 30)])
@pytest.mark.parametrize(("first", "images"), [(T.GaussianBlur(5), 1), (T.ColorJitter(contrast=(0.5, 0.5)), 2)])
def test_memory_of_256_large_images_before_a_resize(launched, first, images, device_bytes, limit):
    """All of them together would take 37 GB for each image between passes; contrast has two."""
    launched.torch.cuda.get_device_properties = lambda device: SimpleNamespace(total_memory=device_bytes)
    launches = launch(launched, [(3000, 4000)] * 256, first, T.Resize((224, 224)), T.Normalize(0.5, 0.2))
    (held,) = [size for where, size in launched.torch.allocations if where == "device" and size >= 1 << 24]
    assert limit * 0.8 < held <= limit
    chunk, passes = held // (images * 12 * 3000 * 4000), images + 1
    assert [len(each.rows) for each in launches[:passes]] == [chunk] * passes
    assert len(launches) == passes * -(-256 // chunk)


def test_the_budget_is_set_by_a_variable(launched, monkeypatch):
    monkeypatch.setenv("CUAUG_WORKSPACE_BYTES", str(1 << 30))
    launch(launched, [(3000, 4000)] * 16, T.GaussianBlur(5), T.Resize(224))
    assert [size for _, size in launched.torch.allocations if size >= 1 << 24] == [6 * 144_000_000]
    for text in ("4GiB", "-1", "0", "1e9"):
        monkeypatch.setenv("CUAUG_WORKSPACE_BYTES", text)
        with pytest.raises(DeviceError, match=f"^CUAUG_WORKSPACE_BYTES: '{text}' is not a positive number of bytes"):
            launch(launched, [(30, 40)], T.GaussianBlur(5), T.Resize(224))
        launch(launched, [(30, 40)], T.Resize(9))  # one pass asks for no workspace


STAGES = T.GaussianBlur(3), T.RandomEqualize(p=0.7), T.MedianBlur(3, p=0.5), T.GaussianBlur(5), T.Resize((12, 10))


@pytest.mark.parametrize("budget", [1, 9_000, 40_000, 10**9])
def test_chunks_do_not_change_pixels(fake, monkeypatch, budget):
    """Programs of up to five passes, with samples that end earlier; the same workspace for several batches."""
    monkeypatch.setenv("CUAUG_WORKSPACE_BYTES", str(budget))
    work = cuda.Workspace(torch.device("cpu"))
    counts = []
    for n in (9, 4, 9):
        batch = noise(*[(13 + 2 * i, 11 + i) for i in range(n)])
        plan = plan_for(*batch)
        T.Compose(list(STAGES)).plan(plan, SampleRNG(0, 0, np.arange(n)))
        tables = plan.compile(Type.UINT8, Layout.HWC)
        counts.append(run_and_compare(tables, batch, work))
    passes = tables.launches
    assert passes >= 4
    if budget == 10**9:
        assert counts[0] == passes
    else:
        assert counts[0] > (2 * passes if budget < 40_000 else passes)
    kept = work._intermediates._memory
    largest = 256 * -(-(13 + 16) * (11 + 8) * 12 // 256)
    assert kept is not None and kept.nelement() <= max(budget, 2 * largest) * 9 // 8


SIZES = st.integers(1, 5).flatmap(
    lambda passes: st.lists(
        st.lists(st.sampled_from([0, 256, 512, 2560]), min_size=passes, max_size=passes), min_size=1, max_size=9
    )
)


@given(SIZES, st.integers(1, 9000), st.integers(1, 9))
def test_images_that_are_read_or_written_by_one_pass_do_not_overlap(sizes_by_sample, budget, max_samples):
    sizes = np.array(sizes_by_sample, dtype=np.int64).T
    sizes *= np.cumprod(sizes > 0, axis=0)  # a program that has ended stays ended
    bounds = workspace.chunk_bounds(sizes, budget, max_samples)
    assert [begin for begin, _ in bounds] == [0, *(end for _, end in bounds[:-1])] and bounds[-1][1] == sizes.shape[1]
    for begin, end in bounds:
        part = sizes[:, begin:end]
        offsets, total = workspace.place(part)
        assert 0 < end - begin <= max_samples and (total <= budget or end - begin == 1)
        for number in range(len(part)):
            touched = slice(max(number - 1, 0), number + 1)  # what this pass reads, and what it writes
            low, size = offsets[touched].reshape(-1).astype(int), part[touched].reshape(-1)
            used = sorted((a, a + b) for a, b in zip(low.tolist(), size.tolist(), strict=True) if b)
            assert all(0 <= begin < end <= total for begin, end in used)
            assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(used))
    for (begin, middle), _ in itertools.pairwise(bounds):  # no chunk could have taken one sample more
        assert middle % max_samples == 0 or workspace.place(sizes[:, begin : middle + 1])[1] > budget
