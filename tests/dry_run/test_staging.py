"""Pinned memory of batches: encoded files and regions of decoded images, copied there by worker threads."""

from __future__ import annotations

import contextlib
import io
import itertools
import threading
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from cuaug import DecodedCache, DecodeOptions
from cuaug import transforms as T
from cuaug._runtime.native import address, library
from cuaug.codec import EncodedJpeg, image
from cuaug.pipeline.cuda import staging
from cuaug.pipeline.cuda.arena import Arena
from cuaug.pipeline.cuda.producer import _ARENAS, CudaProducer
from cuaug.pipeline.planning import Planned
from tests.dry_run import CHAIN
from tests.dry_run.test_memory import PixelSource
from tests.support.codec.encoded_images import encode, photo
from tests.support.codec.jpeg_crops import jpeg
from tests.support.fake_cuda import FakeDecoder, FakeEvent
from tests.support.loader.further_pictures import Bytes
from tests.support.run_plans import assert_same

COUNT = 24
VIEWS = [T.CenterCrop(40), T.MultiView([T.Compose([T.RandomResizedCrop(24), T.ColorJitter(0.3)])] * 3)]
INDEX = DecodeOptions(index_bytes=1 << 20, decoder="nvimgcodec")


def files() -> list[bytes]:
    """JPEGs with restart markers, and without; and PNGs, which the decoder takes from ordinary memory."""
    made = [jpeg(120 + 3 * i, 200 - 2 * i, interval=i % 2 * 2) for i in range(COUNT)]
    return [encode(Image.fromarray(photo(60, 90)), "PNG") if i % 8 == 5 else data for i, data in enumerate(made)]


@pytest.fixture
def pinned(fake, monkeypatch):
    """(begin, end) of each pinned allocation."""
    ranges, empty = [], fake.torch.empty

    def recorded(shape: Any, *, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        memory = empty(shape, pin_memory=pin_memory, **options)
        if pin_memory:
            ranges.append((memory.data_ptr(), memory.data_ptr() + memory.nbytes))
        return memory

    monkeypatch.setattr(fake.torch, "empty", recorded)
    return ranges


def record_decoding(monkeypatch, record: Any) -> None:
    """Calls record(JPEGs) for each batch that is decoded."""
    decode = FakeDecoder.decode_batch

    def recorded(self: FakeDecoder, headers: Any, slots: Any, stream: int) -> Any:
        record([header for header in headers if isinstance(header, EncodedJpeg)])
        return decode(self, headers, slots, stream)

    monkeypatch.setattr(FakeDecoder, "decode_batch", recorded)


# --- JPEGs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["files", "bytes"])
@pytest.mark.parametrize("cache", [None, "encoded", "decoded"])
def test_code_streams_view_pinned_memory(loader_on, pinned, tmp_path, monkeypatch, source, cache):
    """Of whole JPEGs and of crops, by restart markers and by an index, from any source."""
    opened: list[int] = []
    open_streams = image.open_streams

    def open_and_record(data: Any) -> Any:
        opened.extend(address(np.asarray(memoryview(file))) for file in data)
        return open_streams(data)

    monkeypatch.setattr(image, "open_streams", open_and_record)
    sizes: list[int] = []

    def check(headers: list[EncodedJpeg]) -> None:
        sizes.extend(len(header.data) for header in headers)
        for header in headers:
            at = address(header.data)
            assert at in opened, "its stream reads other memory"
            assert any(begin <= at and at + len(header.data) <= end for begin, end in pinned)

    record_decoding(monkeypatch, check)
    names = [str(tmp_path / f"{i}.jpg") for i in range(COUNT)]
    for name, data in zip(names, files(), strict=True):
        with open(name, "wb") as file:
            file.write(data)
    given = names if source == "files" else Bytes(*files())
    gpu, cpu = (loader_on(on, given, CHAIN, batch_size=5, cache=cache, decode=INDEX) for on in (True, False))
    for _ in range(3):
        for got, want in zip(gpu, cpu, strict=True):
            assert_same(got.images, want.images)
    whole = {len(data) for data in files()}
    jpegs = COUNT - 3
    assert len(sizes) == (jpegs if cache == "decoded" else 3 * jpegs)
    assert whole & set(sizes) and (cache == "decoded" or set(sizes) - whole), "whole files, and crops"


class Mixed:
    """A source of JPEGs and, at every third sample, pixels."""

    def __init__(self) -> None:
        self.files = files()
        self.arrays = [np.asarray(Image.open(io.BytesIO(data))) for data in self.files]

    def __len__(self) -> int:
        return COUNT

    def read(self, index: int) -> Any:
        return self.files[index] if index % 3 else self.arrays[index], index


@pytest.mark.parametrize("mistake", [None, "no wait", "released after the launch"])
def test_pinned_memory_is_reused_only_after_its_batchs_event(loader_on, monkeypatch, mistake):
    """nvJPEG may copy encoded bytes, and CUDA uploads pixels, until then. With a mistake, the check fails."""
    in_use: list[tuple[torch.Tensor, FakeEvent]] = []
    seen: set[int] = set()
    begin, take, produce = Arena.begin, staging.StagingPool.take, CudaProducer.produce
    wait = FakeEvent.synchronize

    def began(self: Arena, staged: Any) -> None:
        in_use.append((staged._memory, self.free))
        begin(self, staged)

    def waited(self: FakeEvent) -> None:
        wait(self)
        in_use[:] = [(memory, event) for memory, event in in_use if event is not self]

    def taken(self: staging.StagingPool, size: int) -> torch.Tensor:
        buffer = take(self, size)
        assert all(memory is not buffer for memory, _ in in_use), "pinned memory that is still in use"
        seen.add(id(buffer))
        return buffer

    def produced(self: CudaProducer, job: Any, positions: Any, staged: Any, planned: Any) -> None:
        produce(self, job, positions, staged, planned)
        self.staging.give_back(in_use[-1][0])

    monkeypatch.setattr(Arena, "begin", began)
    monkeypatch.setattr(staging.StagingPool, "take", taken)
    monkeypatch.setattr(FakeEvent, "synchronize", wait if mistake == "no wait" else waited)
    if mistake == "released after the launch":
        monkeypatch.setattr(CudaProducer, "produce", produced)
    loader = loader_on(True, Mixed(), CHAIN, batch_size=4)
    if mistake:
        with pytest.raises(AssertionError, match="pinned memory that is still in use"):
            for _ in range(4):
                list(loader)
        return
    for _ in range(4):
        list(loader)
    assert len(seen) > _ARENAS


def test_batches_that_are_not_decoded_give_their_memory_back(loader_on, monkeypatch):
    """Those in progress when the consumer ends an iteration."""
    buffers, take = [], staging.StagingPool.take

    def taken(self: staging.StagingPool, size: int) -> torch.Tensor:
        buffers.append(take(self, size))
        return buffers[-1]

    monkeypatch.setattr(staging.StagingPool, "take", taken)
    loader = loader_on(True, Bytes(*[files()[0]] * COUNT), CHAIN, batch_size=2)
    for _ in range(30):
        for _ in zip(range(2), loader, strict=False):
            pass
    assert len(buffers) > 60 and len(set(map(id, buffers))) <= _ARENAS + 2 * (loader.prefetch + 1)


def test_memory_is_pinned_with_the_loaders_gpu_current(loader_on, fake, monkeypatch):
    """By worker threads, whose current device is GPU 0: pinning would make a context there."""
    device, empty = fake.torch.cuda.device, fake.torch.empty
    current, pinned_on = threading.local(), []

    @contextlib.contextmanager
    def guard(index: Any) -> Any:
        with device(index):
            current.device = index
            yield
            current.device = None

    def recorded(shape: Any, *, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        if pin_memory and threading.current_thread().name.startswith("cuaug-worker"):
            pinned_on.append(getattr(current, "device", None))
        return empty(shape, pin_memory=pin_memory, **options)

    monkeypatch.setattr(fake.torch.cuda, "device", guard)
    monkeypatch.setattr(fake.torch, "empty", recorded)
    list(loader_on(True, Mixed(), CHAIN, batch_size=4))
    assert pinned_on and set(pinned_on) == {torch.device("cpu")}, "the fakes' device"


def test_a_giant_batchs_memory_is_freed(fake, monkeypatch):
    monkeypatch.setattr(staging, "_MAX_KEPT_BYTES", 1000)
    pool = staging.StagingPool(torch.device("cpu"))
    giant, small = pool.take(1001), pool.take(100)
    assert (giant.nelement(), small.nelement()) == (1001, 1000)
    pool.give_back(giant)
    pool.give_back(small)
    assert pool.take(900) is small and pool.take(900) is not giant


# --- decoded images --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["source", "memory", "directory"])
@pytest.mark.parametrize("chain", [CHAIN, VIEWS], ids=["crop", "views"])
def test_only_regions_of_decoded_images_are_uploaded(loader_on, image_files, tmp_path, monkeypatch, kind, chain):
    """By one copy per batch, from pinned memory that worker threads have filled."""
    uploaded: list[int] = []
    threads: set[str] = set()
    upload, copy, plan = Arena.upload_pixels, staging.StagedBatch.stage, Planned.regions
    read: list[np.ndarray] = []

    def uploading(self: Arena, staged: Any) -> torch.Tensor | None:
        memory = upload(self, staged)
        uploaded.append(0 if memory is None else memory.nelement())
        return memory

    def staging_rows(self: staging.StagedBatch, *arguments: Any) -> int:
        threads.add(threading.current_thread().name)
        return copy(self, *arguments)

    def caches() -> Any:
        limit = {"limit_bytes": 1 << 24}
        return {
            "source": None,
            "memory": DecodedCache(**limit),
            "directory": DecodedCache(directory=tmp_path / f"cache{next(numbers)}", **limit),
        }[kind]

    numbers = itertools.count()
    source = PixelSource(image_files) if kind == "source" else image_files
    gpu, cpu = (loader_on(on, source, chain, batch_size=8, cache=caches()) for on in (True, False))
    monkeypatch.setattr(Arena, "upload_pixels", uploading)
    for epoch in range(3):
        for got, want in zip(gpu, cpu, strict=True):
            assert_same(got.images, want.images)
        if epoch == 0:
            uploaded.clear()
            monkeypatch.setattr(Planned, "regions", lambda self: read.append(plan(self)) or read[-1])
            monkeypatch.setattr(staging.StagedBatch, "stage", staging_rows)
    assert len(uploaded) == 2 * 5 and len(read) == 2 * 2 * 5, "one upload per batch; both loaders ask for regions"
    needed = sum(3 * (y1 - y0) * (x1 - x0) for plans in read for y0, x0, y1, x1 in plans.tolist()) // 2
    whole = 2 * sum(3 * np.prod(Image.open(path).size) for path in image_files)
    assert needed <= sum(uploaded) < needed + 64 * 2 * 37 and needed < 0.75 * whole, (needed, sum(uploaded), whole)
    assert threads <= {"cuaug-worker-0", "cuaug-worker-1"}


def test_rows_are_copied_packed():
    """From images whose rows are apart, cut off at both sides."""
    source = np.random.default_rng(0).integers(0, 256, (9, 40), dtype=np.uint8)
    target = np.zeros(64, dtype=np.uint8)
    table = np.array(
        [
            [address(source) + 2 * 40 + 7, 40, 3, 5, address(target) + 1],
            [address(source), 0, 1, 11, address(target) + 20],
        ]
    )
    library.cuaug_copy_rows(address(table), len(table))
    want = np.zeros(64, dtype=np.uint8)
    want[1:16], want[20:31] = source[2:5, 7:12].ravel(), source[0, :11]
    np.testing.assert_array_equal(target, want)
