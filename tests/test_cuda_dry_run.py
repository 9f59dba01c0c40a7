"""The CUDA device and pipeline with all of CUDA replaced: host memory, one stream, kernels run by the host build.

This shows that the Python around the kernels is right: addresses, passes, tiles, slots, who is told of which stream.
What a GPU adds, `tests/cuda/` tests.
"""

from __future__ import annotations

import contextlib
import ctypes
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

import cuaug
from cuaug import transforms as T
from cuaug._native import BEST_ISA, library
from cuaug.codec import HostDecoder, Pixels
from cuaug.devices import cuda
from cuaug.errors import DecodeError, DeviceError
from cuaug.pipeline import cuda as pipeline
from cuaug.plan import Layout, Type
from cuaug.plan.layout import SAMPLE
from tests import helpers
from tests.helpers import assert_same, plan_for
from tests.strategies import chains, images, sizes, write

cupy = pytest.importorskip("cupy")
driver, runtime = cupy.cuda.driver, cupy.cuda.runtime


class FakeEvent:
    def __init__(self, blocking: bool = False) -> None:
        self.recorded_on: Any = None

    def record(self, stream: Any = None) -> None:
        self.recorded_on = stream

    def synchronize(self) -> None: ...


class FakeStream:
    cuda_stream = 7

    def __init__(self, device: Any = None, priority: int = 0) -> None:
        self.waited: list[Any] = []

    def wait_event(self, event: Any) -> None:
        self.waited.append(event)

    def synchronize(self) -> None: ...


class FakeTorch:
    """torch, with the parts of torch.cuda that cuaug uses."""

    def __init__(self) -> None:
        self.consumer = FakeStream()
        self.cuda = SimpleNamespace(
            Event=FakeEvent,
            Stream=FakeStream,
            current_stream=lambda device: self.consumer,
            device=lambda device: contextlib.nullcontext(),
            set_device=lambda device: None,
            stream=lambda stream: contextlib.nullcontext(),
            _is_in_bad_fork=lambda: False,
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def zeros(shape: Any, *, dtype: Any, device: Any = None) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype)

    @staticmethod
    def empty(shape: Any, *, dtype: Any, device: Any = None, pin_memory: bool = False) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype)


class FakeKernel:
    """Runs each block's tile with the host build, and counts the launches."""

    ptr = 0

    def __init__(self) -> None:
        self.launches: list[tuple[int, int, int]] = []

    def __call__(self, grid: Any, block: Any, arguments: Any, *, shared_mem: int, stream: Any) -> None:
        rows_at, ops_at, luts_at, statistics_at, high, wide = arguments
        assert [type(a) for a in arguments] == [np.uint64] * 4 + [np.int32] * 2
        assert stream.ptr == FakeStream.cuda_stream and block == (cuda.THREADS, 1, 1)
        assert statistics_at
        self.launches.append(grid)
        memory = (ctypes.c_char * (grid[2] * SAMPLE.itemsize)).from_address(int(rows_at))
        rows = np.frombuffer(memory, dtype=SAMPLE)
        assert shared_mem >= cuda.scratch_bytes(rows, int(high), int(wide))
        for i, row in enumerate(rows):
            if not row["active"]:
                continue
            assert grid[0] * wide >= row["x"]["out"] and grid[1] * high >= row["y"]["out"]
            tables = int(rows_at) + i * SAMPLE.itemsize, 1, 1, int(ops_at), int(luts_at), int(statistics_at)
            source, target = (int(row["source"]), int(row["pitch"]), 0, 0), int(row["target"])
            assert not library.cuaug_run(BEST_ISA, *tables, *source, target, int(high), int(wide))


class FakeDecoder:
    """As `CudaDecoder`, into host memory."""

    def __init__(self, device_id: Any, *, fancy_upsampling: bool, threads: int) -> None:
        self.host = HostDecoder(fancy_upsampling=fancy_upsampling)
        self.wrapped = 0

    def wrap(self, array: torch.Tensor, stream: int) -> torch.Tensor:
        assert stream == FakeStream.cuda_stream and array.shape[::2] == (1, 3)
        self.wrapped += 1
        return array

    def decode(self, headers: Any, slots: Any, stream: int) -> list[Any]:
        assert len({slot.data_ptr() for slot in slots}) == len(slots) == len(headers)
        outcomes: list[Any] = []
        for header, slot in zip(headers, slots, strict=True):
            try:
                pixels = self.host.decode(header).copy()
            except DecodeError as error:
                outcomes.append(error)
                continue
            if isinstance(header, Pixels) or header._stream is None:
                outcomes.append(pixels)
            else:
                slot.view(-1)[: pixels.size] = torch.from_numpy(pixels.reshape(-1))
                outcomes.append(None)
        return outcomes


@pytest.fixture
def fake(monkeypatch):
    torch_, kernel = FakeTorch(), FakeKernel()
    monkeypatch.setattr(cuda, "torch", torch_)
    monkeypatch.setattr(cuda, "kernel", lambda index: kernel)
    monkeypatch.setattr(pipeline, "torch", torch_)
    monkeypatch.setattr(pipeline, "CudaDecoder", FakeDecoder)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: None)
    granted: list[int] = []
    monkeypatch.setattr(driver, "funcSetAttribute", lambda function, attribute, value: granted.append(value))
    monkeypatch.setattr(runtime, "deviceGetAttribute", lambda attribute, device: 227 << 10)
    return SimpleNamespace(kernel=kernel, torch=torch_, granted=granted)


def run(tables: Any, batch: list[np.ndarray], channels: int, **options: Any) -> tuple[int, torch.Tensor]:
    """The launches and the finished images, one after the other in memory."""
    heights, widths = tables.sizes()
    size = int((heights * widths).max()) * channels * 4
    target = torch.full((len(batch), size), 0xA5, dtype=torch.uint8)
    sources = [np.ascontiguousarray(image) for image in batch]
    addresses = np.array([source.ctypes.data for source in sources], dtype=np.uint64)
    return cuda.CudaProgram(tables, **options).run(addresses, target), target


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), st.sampled_from(list(Type)), st.sampled_from(list(Layout)))
def test_passes_tiles_and_addresses(fake, data, dtype, layout):
    fake.kernel.launches.clear()
    batch = data.draw(st.lists(images(sizes(3000)), min_size=1, max_size=4))
    plan = plan_for(*batch)
    for i, image in enumerate(batch):
        chain = data.draw(chains(image.shape[:2], turns=True))
        write(plan, chain.steps, np.arange(len(batch)) == i)
    tables = plan.tables(dtype, layout)
    tile = data.draw(st.none() | st.tuples(st.integers(1, 9), st.integers(1, 30)))
    launches, got = run(tables, batch, plan.channels, tile=tile)
    assert launches == len(fake.kernel.launches) == tables.launches
    program = helpers.HostProgram(tables)
    for i, (image, h, w) in enumerate(zip(batch, *tables.sizes(), strict=True)):
        want = np.empty(int(h * w) * plan.channels * np.dtype(helpers.DTYPES[dtype]).itemsize, np.uint8)
        program.run(i, image, want.ctypes.data)
        assert_same(got[i].numpy()[: want.size], want)
        assert (got[i].numpy()[want.size :] == 0xA5).all()


def test_a_sample_left_out_is_not_touched(fake):
    batch = [np.full((5, 5, 3), 50 * i, np.uint8) for i in range(3)]
    plan = plan_for(*batch)
    plan.resize(3, 3)
    tables = plan.tables(Type.UINT8, Layout.HWC)
    target = torch.full((3, 3, 3, 3), 0xA5, dtype=torch.uint8)
    addresses = np.array([image.ctypes.data for image in batch], dtype=np.uint64)
    assert cuda.CudaProgram(tables).run(addresses, target, skip=np.array([False, True, False])) == 1
    assert target.flatten(1).float().mean(1).tolist() == [0.0, 0xA5, 100.0]
    assert cuda.CudaProgram(tables).run(addresses, target, skip=np.ones(3, dtype=bool)) == 0


def test_batches_larger_than_the_grid(fake, monkeypatch):
    monkeypatch.setattr(cuda, "_MOST_SAMPLES", 4)
    image = np.arange(9 * 9 * 3, dtype=np.uint8).reshape(9, 9, 3)
    plan = plan_for(*[image] * 10)
    plan.crop(np.arange(10) % 5, 0, 3, 3)
    launches, got = run(plan.tables(Type.UINT8, Layout.HWC), [image] * 10, 3)
    assert launches == 3 and [grid[2] for grid in fake.kernel.launches] == [4, 4, 2]
    for i in range(10):
        assert_same(got[i].numpy()[:27], image[i % 5 : i % 5 + 3, :3].reshape(-1))


def test_a_shrink_that_needs_more_shared_memory(fake, monkeypatch):
    """The last tile gets what the GPU can give at most, or a clear error."""
    image = np.random.default_rng(0).integers(0, 256, (2, 10_000, 3), dtype=np.uint8)
    plan = plan_for(image)
    plan.resize(1, 4)
    tables = plan.tables(Type.UINT8, Layout.HWC)
    _, got = run(tables, [image], 3)
    assert fake.granted == [227 << 10]
    want = np.empty(12, np.uint8)
    helpers.HostProgram(tables).run(0, image, want.ctypes.data)
    assert_same(got[0].numpy()[:12], want)
    monkeypatch.setattr(runtime, "deviceGetAttribute", lambda attribute, device: 64 << 10)
    with pytest.raises(DeviceError, match=r"one output pixel needs .* bytes of shared memory"):
        run(tables, [image], 3)


# --- the pipeline ----------------------------------------------------------------------------------------------------


@pytest.fixture
def loader_on(fake, monkeypatch):
    """Makes a loader on the real CPU pipeline or on the fake GPU's."""
    made = []

    def make(gpu: bool, files: Any, transforms: Any, **options: Any) -> cuaug.Loader:
        with monkeypatch.context() as patch:
            if gpu:
                patch.setattr(
                    cuaug.Loader,
                    "_make_pipeline",
                    lambda self: pipeline.CudaPipeline(
                        self._settings, self._recorder, self.threads, torch.device("cpu")
                    ),
                )
            made.append(cuaug.Loader(files, transforms, device="cpu", threads=2, **options))
        return made[-1]

    yield make
    for loader in made:
        loader.close()


@pytest.fixture
def pictures(tmp_path):
    """Files of many sizes: PNG, and BMP, which Pillow decodes."""
    rng = np.random.default_rng(0)
    paths = []
    for i in range(37):
        h, w = rng.integers(20, 90, 2)
        paths.append(str(tmp_path / f"{i}.{'bmp' if i % 7 == 0 else 'png'}"))
        Image.fromarray(rng.integers(0, 256, (h, w, 3), dtype=np.uint8)).save(paths[-1])
    return paths


CHAIN = [T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.RandomErasing(p=0.5), T.Normalize([0.5] * 3, [0.2] * 3)]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_loader_equals_the_cpu_loader(loader_on, pictures, layout):
    options = {"batch_size": 8, "shuffle": True, "seed": 3, "layout": layout, "dtype": torch.float16}
    gpu, cpu = (loader_on(device, pictures, CHAIN, **options) for device in (True, False))
    for _ in range(2):
        for (got, got_labels), (want, labels) in zip(gpu, cpu, strict=True):
            assert got.stride() == want.stride() and got_labels.tolist() == labels.tolist()
            assert_same(got, want)


def test_every_batch_is_waited_for(loader_on, pictures, fake):
    batches = list(loader_on(True, pictures, CHAIN, batch_size=10))
    assert len(batches) == len(fake.torch.consumer.waited) == 4


@pytest.mark.parametrize("bad", [{3, 11}, set(range(8, 16))], ids=["one of a batch", "all of a batch"])
def test_bad_images_are_left_out(loader_on, pictures, bad):
    for i in bad:
        path = Path(pictures[i])
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    options = {"batch_size": 8, "on_error": "skip"}
    gpu, cpu = (loader_on(device, pictures, CHAIN, **options) for device in (True, False))
    seen = []
    for (got, got_labels), (want, labels) in zip(gpu, cpu, strict=True):
        assert_same(got, want)
        seen += got_labels.tolist()
        assert got_labels.tolist() == labels.tolist()
    assert seen == [i for i in range(37) if i not in bad]
    with pytest.raises(DecodeError, match=f"sample {min(bad)}"):
        list(loader_on(True, pictures, CHAIN, batch_size=8))


@pytest.mark.parametrize("bad", [{3, 11}, set(range(8, 16)), {0, 8, 9}], ids=["some", "all of a batch", "early"])
@pytest.mark.parametrize("cut", [0.0, 0.5], ids=["no picture", "truncated"])
def test_bad_images_are_replaced(loader_on, pictures, bad, cut):
    for i in bad:
        path = Path(pictures[i])
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * cut)])
    options = {"batch_size": 8, "on_error": "replace", "shuffle": True, "last_batch": "pad"}
    gpu, cpu = (loader_on(device, pictures, CHAIN, **options) for device in (True, False))
    for got, want in zip(gpu, cpu, strict=True):
        assert_same(got.images, want.images)
        assert got.indices.equal(want.indices) and got.valid.equal(want.valid) and got.labels.equal(want.labels)
        assert len(got.images) == 8


@pytest.mark.parametrize("where", ["host", "disk", "device"])
@pytest.mark.parametrize("short_side", [None, 40])
@pytest.mark.parametrize("limit_bytes", [50_000, 10**8])
def test_decoded_caches(loader_on, fake, pictures, tmp_path, monkeypatch, where, short_side, limit_bytes):
    """Each epoch looks as on the CPU with the same cache, and the second decodes nothing that was kept."""

    def cache() -> cuaug.DecodedCache:
        directory = tmp_path / f"cache{len(list(tmp_path.iterdir()))}" if where == "disk" else None
        return cuaug.DecodedCache(short_side, limit_bytes=limit_bytes, directory=directory, on_device=where == "device")

    host_only = cuaug.DecodedCache(short_side, limit_bytes=limit_bytes)
    monkeypatch.setattr("cuaug.cache.device.torch", fake.torch)
    with monkeypatch.context() as patch:
        opened = cuaug.DecodedCache.open
        patch.setattr(
            cuaug.DecodedCache,
            "open",
            lambda self, n, contents, source, device: opened(self, n, contents, device=torch.device("cuda")),
        )
        gpu = loader_on(True, pictures, CHAIN, batch_size=8, cache=cache())
        cpu = loader_on(False, pictures, CHAIN, batch_size=8, cache=host_only)
    for epoch in range(3):
        for got, want in zip(gpu, cpu, strict=True):
            assert_same(got.images, want.images)
            assert got.labels.equal(want.labels)
        if epoch == 0 and limit_bytes > 10**6:
            monkeypatch.setattr(FakeDecoder, "decode", _only_pixels)
    assert gpu.cache.stats.samples == 37 or limit_bytes < 10**6
    assert 0 < gpu.cache.stats.bytes <= limit_bytes


def _only_pixels(self: FakeDecoder, headers: Any, slots: Any, stream: int) -> Any:
    assert all(isinstance(header, Pixels) for header in headers), "decoded again"
    return [header.array for header in headers]


def test_a_failing_producer_raises_where_the_batch_is_taken(loader_on, pictures, monkeypatch):
    loader = loader_on(True, pictures, CHAIN, batch_size=8)
    monkeypatch.setattr(FakeDecoder, "decode", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        next(iter(loader))


def test_slots_are_kept_and_giants_given_back(loader_on, tmp_path, monkeypatch):
    """The largest image of every batch takes the same slot, so one giant per batch makes one giant slot."""
    monkeypatch.setattr(pipeline, "_KEEP_BYTES", 3 * 4000)
    paths = []
    for i in range(32):
        side = (10, 10, 10, 90)[(i * 7 + i // 4) % 4]
        paths.append(str(tmp_path / f"{i}.png"))
        Image.new("RGB", (side, side)).save(paths[-1])
    loader = loader_on(True, paths, [T.Resize((8, 8))], batch_size=4)
    list(loader)
    producer = loader._pipeline.producer
    held = [slot.memory.nelement() for arena in producer._arenas for slot in arena.slots]
    assert sorted(held) == [339] * 6 + [90 * 90 * 3] * 2
    wrapped = producer.decoder.wrapped
    list(loader)
    assert producer.decoder.wrapped == wrapped
    small = tmp_path / "small.png"
    Image.new("RGB", (10, 10)).save(small)
    loader.source.paths[:] = [str(small)] * 32
    list(loader)
    assert max(slot.memory.nelement() for arena in producer._arenas for slot in arena.slots) <= pipeline._KEEP_BYTES


def test_a_forked_process_is_told_so(fake, loader_on, pictures):
    fake.torch.cuda._is_in_bad_fork = lambda: True
    assert "forked" in cuda.unavailable(torch.device("cuda"))
    with pytest.raises(DeviceError, match="spawn"):
        loader_on(True, pictures, CHAIN)
