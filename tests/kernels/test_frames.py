"""`CudaExecutor.run` with video frames: copies of planes, the conversion to RGB in chunks, and the passes after it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cuaug import transforms as T
from cuaug.codec.video.yuv import PlaneRows, convert_frames, describe_frames
from cuaug.devices import CpuExecutor, cuda, fuse_luts
from cuaug.devices.workspace import Workspace, converted_bytes
from cuaug.plan import Layout, Type
from cuaug.sampling.rng import SampleRNG
from tests.support.fake_cuda import replace_cuda
from tests.support.run_plans import assert_same, plan_for
from tests.support.video.frames import RandomFrame, convert
from tests.video.test_yuv import names, seeds, sizes

pytest.importorskip("cupy")
H, W, FRAMES, VIEWS = 20, 30, 6, 2
#: A blur is a barrier: it needs an image in between.
CHAINS = {
    "one pass": [T.RandomCrop((11, 17)), T.Normalize(0.5, 0.2)],
    "three passes": [T.RandomCrop((11, 17)), T.ColorJitter(0.4, contrast=0.4), T.GaussianBlur(3)],
}


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


@pytest.fixture
def fake(monkeypatch):
    return replace_cuda(monkeypatch.setattr)


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("budget", [None, 1, 25_000])
def test_frames_are_converted_before_their_passes(fake, monkeypatch, chain, budget):
    """Of the region alone; in chunks of whole frames if the workspace is small. A frame left out is not converted."""
    if budget is not None:
        monkeypatch.setenv("CUAUG_WORKSPACE_BYTES", str(budget))
    requested: list[int] = []
    get = Workspace.intermediate_memory
    monkeypatch.setattr(Workspace, "intermediate_memory", lambda self, size: requested.append(size) or get(self, size))
    rng = np.random.default_rng(0)
    frames = [RandomFrame.make("yuv420p", H, W, "bt601", False, rng, False).described() for _ in range(FRAMES)]
    rgb = [convert(frame) for frame in frames]
    plan = plan_for(*np.repeat(rgb, VIEWS, axis=0))
    T.Compose(CHAINS[chain]).plan(plan, SampleRNG(0, 0, np.arange(FRAMES * VIEWS)))
    tables = fuse_luts(plan.compile(Type.FLOAT32, Layout.CHW))
    regions = tables.regions()
    y0, x0, y1, x1 = (*regions[:, :2].min(axis=0), *regions[:, 2:].max(axis=0))
    pitch = 3 * int(x1 - x0)
    images = describe_frames(frames, (y0, x0, y1, x1), [0] * FRAMES, pitch)
    rows = PlaneRows(images)
    memory = fake.torch.empty(rows.bytes, dtype=torch.uint8)
    images = rows.copy(memory.data_ptr())
    images[2] = 0
    skip = np.repeat(np.arange(FRAMES) == 2, VIEWS)
    before = np.uint64(-int(y0) * pitch - 3 * int(x0) & 2**64 - 1)
    target = torch.full((FRAMES * VIEWS, 3, 11, 17), 7.0)
    launches = cuda.CudaExecutor(tables).run(
        np.full(FRAMES * VIEWS, before), target, pitches=np.full(FRAMES * VIEWS, pitch), skip=skip, frames=images
    )
    for i, image in enumerate(np.repeat(rgb, VIEWS, axis=0)):
        want = np.full((3, 11, 17), 7.0, np.float32)
        if not skip[i]:
            CpuExecutor(tables).run(i, image, want.ctypes.data)
        assert_same(target[i].numpy(), want)
    grids = fake.conversion.launches
    assert launches == len(fake.kernel.launches) + len(grids)
    chunks = {"one pass": {None: 1, 1: 5, 25_000: 1}, "three passes": {None: 1, 1: 5, 25_000: 3}}[chain][budget]
    assert len(grids) == chunks and max(rows for _, rows, _ in grids) == y1 - y0
    assert budget in (None, 1) or max(requested) <= budget


def test_bytes_of_converted_frames_do_not_overflow():
    images = np.zeros(2, dtype=describe_frames([], (0, 0, 1, 1), [], 3).dtype)
    images["rows"], images["columns"] = 1 << 15, 1 << 15
    assert converted_bytes(images).tolist() == [3 << 30] * 2
