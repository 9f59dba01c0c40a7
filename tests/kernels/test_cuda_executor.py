"""CudaExecutor with CUDA replaced: launches, passes, tiles, addresses, memory.

`tests/dry_run/` tests the pipeline around it, `tests/cuda/` the parts that need a GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cuaug import transforms as T
from cuaug.devices import cuda, nvrtc
from cuaug.errors import DeviceError
from cuaug.plan import Layout, Type
from cuaug.sampling.rng import SampleRNG
from tests.sanitize import sanitize_driver
from tests.support import run_plans
from tests.support.fake_cuda import replace_cuda
from tests.support.run_plans import assert_same, plan_for
from tests.support.strategies import chains, images, sizes, write

cupy = pytest.importorskip("cupy")
runtime = cupy.cuda.runtime


@pytest.fixture
def fake(monkeypatch):
    return replace_cuda(monkeypatch.setattr)


def run(tables: Any, batch: list[np.ndarray], channels: int, **options: Any) -> tuple[int, torch.Tensor]:
    """The number of launches, and the finished images in one tensor."""
    heights, widths = tables.sizes()
    size = int((heights * widths).max()) * channels * 4
    target = torch.full((len(batch), size), 0xA5, dtype=torch.uint8)
    sources = [np.ascontiguousarray(image) for image in batch]
    addresses = np.array([source.ctypes.data for source in sources], dtype=np.uint64)
    return cuda.CudaExecutor(tables, **options).run(addresses, target), target


def assert_equal_to_the_cpu(tables: Any, batch: list[np.ndarray], got: torch.Tensor, channels: int = 3) -> None:
    """Asserts that each row of `got`, in bytes, begins with an image as the CPU finishes it, and holds nothing else."""
    program, pixel = run_plans.CpuExecutor(tables), channels * np.dtype(run_plans.DTYPES[tables.target_type]).itemsize
    for i, (image, h, w) in enumerate(zip(batch, *tables.sizes(), strict=True)):
        want = np.empty(int(h * w) * pixel, np.uint8)
        program.run(i, image, want.ctypes.data)
        assert_same(got[i].numpy()[: want.size], want)
        assert (got[i].numpy()[want.size :] == 0xA5).all()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), st.sampled_from(list(Type)), st.sampled_from(list(Layout)))
def test_passes_tiles_and_addresses(fake, data, dtype, layout):
    fake.kernel.launches.clear()
    batch = data.draw(st.lists(images(sizes(3000)), min_size=1, max_size=4))
    plan = plan_for(*batch)
    for i, image in enumerate(batch):
        chain = data.draw(chains(image.shape[:2], turns=True))
        write(plan, chain.steps, np.arange(len(batch)) == i)
    tables = plan.compile(dtype, layout)
    tile = data.draw(st.none() | st.tuples(st.integers(1, 9), st.integers(1, 30)))
    launches, got = run(tables, batch, plan.channels, tile=tile)
    assert launches == len(fake.kernel.launches)
    assert tables.launches <= launches <= 3 * tables.launches  # up to three classes of scale
    assert_equal_to_the_cpu(tables, batch, got, plan.channels)


def test_a_sample_left_out_is_not_touched(fake):
    batch = [np.full((5, 5, 3), 50 * i, np.uint8) for i in range(3)]
    plan = plan_for(*batch)
    plan.resize(3, 3)
    tables = plan.compile(Type.UINT8, Layout.HWC)
    target = torch.full((3, 3, 3, 3), 0xA5, dtype=torch.uint8)
    addresses = np.array([image.ctypes.data for image in batch], dtype=np.uint64)
    assert cuda.CudaExecutor(tables).run(addresses, target, skip=np.array([False, True, False])) == 1
    assert target.flatten(1).float().mean(1).tolist() == [0.0, 0xA5, 100.0]
    assert cuda.CudaExecutor(tables).run(addresses, target, skip=np.ones(3, dtype=bool)) == 0


def test_batches_larger_than_the_grid(fake, monkeypatch):
    monkeypatch.setattr(cuda, "_MAX_SAMPLES", 4)
    image = np.arange(9 * 9 * 3, dtype=np.uint8).reshape(9, 9, 3)
    plan = plan_for(*[image] * 10)
    plan.crop(np.arange(10) % 5, 0, 3, 3)
    launches, got = run(plan.compile(Type.UINT8, Layout.HWC), [image] * 10, 3)
    assert launches == 3 and [grid[2] for grid in fake.kernel.launches] == [4, 4, 2]
    for i in range(10):
        assert_same(got[i].numpy()[:27], image[i % 5 : i % 5 + 3, :3].reshape(-1))


def test_outputs_taller_than_two_sides_of_the_grid_have_tiles(fake):
    image = np.arange(2_100_000 * 3, dtype=np.uint32).astype(np.uint8).reshape(2_100_000, 1, 3)
    tables = plan_for(image).compile(Type.UINT8, Layout.HWC)
    launches, got = run(tables, [image], 3)
    assert launches == 1 and max(fake.kernel.launches[0]) > 65535
    assert_same(got[0].numpy()[: image.size], image.reshape(-1))


@pytest.mark.parametrize("most", [0, 10**6], ids=["filled", "uploaded"])
def test_statistics_begin_at_zero(fake, monkeypatch, most):
    """Few zeros are uploaded with the tables, many take a separate fill; old memory contents do not matter."""
    monkeypatch.setattr(cuda, "_MAX_ZEROS_BYTES", most)
    batch = [np.random.default_rng(i).integers(0, 256, (9, 11, 3), dtype=np.uint8) for i in range(3)]
    plan = plan_for(*batch)
    T.Compose([T.ColorJitter(contrast=0.5), T.RandomEqualize(p=1)]).plan(plan, SampleRNG(0, 0, np.arange(3)))
    tables = plan.compile(Type.UINT8, Layout.HWC)
    assert tables.statistics and cuda.count_fills(tables) == (most == 0)
    workspace = cuda.Workspace(torch.device("cpu"))
    addresses = np.array([image.ctypes.data for image in batch], dtype=np.uint64)
    for _ in range(2):
        target = torch.zeros((3, 9, 11, 3), dtype=torch.uint8)
        cuda.CudaExecutor(tables).run(addresses, target, workspace=workspace)
        assert_equal_to_the_cpu(tables, batch, target.flatten(1))
        for kept in (workspace._tables, workspace._statistics, workspace._intermediates, workspace._pinned):
            kept.get(0 if kept._memory is None else kept._memory.nelement()).fill_(0xA5)


def test_a_shrink_that_needs_more_shared_memory(fake, monkeypatch):
    """The last tile gets the maximum of the GPU, or a clear error."""
    image = np.random.default_rng(0).integers(0, 256, (2, 10_000, 3), dtype=np.uint8)
    plan = plan_for(image)
    plan.resize(1, 40)
    tables = plan.compile(Type.UINT8, Layout.HWC)
    _, got = run(tables, [image], 3)
    assert_equal_to_the_cpu(tables, [image], got)
    monkeypatch.setattr(runtime, "deviceGetAttribute", lambda attribute, device: 56 << 10)
    with pytest.raises(DeviceError, match=r"one output pixel needs .* bytes of shared memory"):
        run(tables, [image], 3)


@pytest.mark.parametrize("mistake", [None, "bounds", "race"])
def test_the_compute_sanitizer_plans_run_and_their_mistakes_are_planted(fake, monkeypatch, capsys, mistake):
    """The plans run to the end, and each deliberate mistake is in the sources."""
    sources = nvrtc.sources()
    ran: list[int] = []

    def run(*arguments: Any, short: int) -> bool:
        ran.append(short)
        return short == 0

    monkeypatch.setattr(sanitize_driver, "DEVICE", "cpu")
    monkeypatch.setattr(sanitize_driver.torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(nvrtc, "sources", lambda *_: sources)
    monkeypatch.setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "")
    monkeypatch.setattr("sys.argv", ["", "--every", "40", *(["--mistake", mistake] if mistake else [])])
    if mistake == "bounds":
        monkeypatch.setattr(sanitize_driver, "run", run)  # without a GPU it would write past the end
    with pytest.raises(SystemExit) as ended:
        sanitize_driver.main()
    assert not ended.value.code and "plans, " in capsys.readouterr().out
    assert (nvrtc.sources() != sources) == (mistake == "race") and all(ran)


@pytest.mark.parametrize(("program", "header"), [("augment", "core/resample.h"), ("decode_jpeg", "core/color_jpeg.h")])
def test_a_planted_race_lacks_barriers_alone(monkeypatch, program, header):
    text, headers = nvrtc.sources(program)
    monkeypatch.setattr(nvrtc, "sources", nvrtc.sources)  # restored afterwards
    sanitize_driver.plant_race(header)
    wrong_text, wrong_headers = nvrtc.sources(program)
    assert wrong_text == text and [name for name in headers if headers[name] != wrong_headers[name]] == [header]
    assert "sync" in headers[header] and "sync" not in wrong_headers[header]
