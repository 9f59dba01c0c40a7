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
from cuaug._runtime.native import address
from cuaug.codec import EncodedJpeg, image
from cuaug.pipeline.cuda import staging
from cuaug.pipeline.cuda.arena import Arena
from cuaug.pipeline.cuda.producer import _ARENAS, CudaProducer
from cuaug.pipeline.planning import Planned
from tests.dry_run import CHAIN
from tests.dry_run.test_memory import PixelSource
from tests.support.codec.encoded_images import encode, photo
from tests.support.codec.jpeg_crops import jpeg
from tests.support.fake_cuda import FakeDecoder
from tests.support.fake_streams import FakeEvent
from tests.support.loader.further_pictures import Bytes
from tests.support.same_batches import assert_same_batches

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
@pytest.mark.parametrize("cache", [None, "decoded"])
def test_code_streams_view_pinned_memory(equal_loaders, pinned, tmp_path, monkeypatch, source, cache):
    """From any source."""
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
    equal_loaders(given, CHAIN, epochs=3, batch_size=5, cache=cache, decode=INDEX)
    jpegs = COUNT - 3
    assert len(sizes) == (jpegs if cache == "decoded" else 3 * jpegs) and set(sizes) <= set(map(len, files()))


class Mixed:
    """A source of JPEGs and, at every third sample, pixels."""

    def __init__(self) -> None:
        self.files = files()
        self.arrays = [np.asarray(Image.open(io.BytesIO(data))) for data in self.files]

    def __len__(self) -> int:
        return COUNT

    def read(self, index: int) -> Any:
        return self.files[index] if index % 3 else self.arrays[index], index


def assert_waits_for_memory(monkeypatch, make: Any, produce_name: str, memories: Any, mistake: str | None) -> None:
    """Pinned memory is taken again only after its batch's event. With a mistake, the check fails.

    Args:
        make: makes a loader.
        produce_name: the method of `CudaProducer` that produces its batches.
        memories: the pinned memories of a staged batch.
    """
    in_use: list[tuple[torch.Tensor, FakeEvent]] = []
    seen: set[int] = set()
    begin, take, produce = Arena.begin, staging.StagingPool.take, getattr(CudaProducer, produce_name)
    wait = FakeEvent.synchronize

    def began(self: Arena, staged: Any) -> None:
        in_use.extend((memory, self.free) for memory in memories(staged))
        begin(self, staged)

    def waited(self: FakeEvent) -> None:
        wait(self)
        in_use[:] = [(memory, event) for memory, event in in_use if event is not self]

    def taken(self: staging.StagingPool, size: int) -> torch.Tensor:
        buffer = take(self, size)
        assert all(memory is not buffer for memory, _ in in_use), "pinned memory that is still in use"
        seen.add(id(buffer))
        return buffer

    def produced(self: CudaProducer, *arguments: Any) -> Any:
        images = produce(self, *arguments)
        self.staging.give_back(in_use[-1][0])
        return images

    monkeypatch.setattr(Arena, "begin", began)
    monkeypatch.setattr(staging.StagingPool, "take", taken)
    monkeypatch.setattr(FakeEvent, "synchronize", wait if mistake == "no wait" else waited)
    if mistake == "released after the launch":
        monkeypatch.setattr(CudaProducer, produce_name, produced)
    loader = make()
    refused = pytest.raises(AssertionError, match="pinned memory that is still in use")
    with refused if mistake else contextlib.nullcontext():
        for _ in range(4):
            list(loader)
    assert mistake or len(seen) >= _ARENAS


MISTAKES = pytest.mark.parametrize("mistake", [None, "no wait", "released after the launch"])


@MISTAKES
def test_pinned_memory_is_reused_only_after_its_batchs_event(loader_on, monkeypatch, mistake):
    """nvJPEG may copy encoded bytes, and CUDA uploads pixels, until then."""
    assert_waits_for_memory(
        monkeypatch,
        lambda: loader_on(True, Mixed(), CHAIN, batch_size=4),
        "produce",
        lambda staged: [staged._memory],
        mistake,
    )


def assert_gives_memory_back(monkeypatch, loader: Any, rounds: int) -> None:
    """Batches in progress when the consumer ends an iteration give their memory back."""
    buffers, take = [], staging.StagingPool.take

    def taken(self: staging.StagingPool, size: int) -> torch.Tensor:
        buffers.append(take(self, size))
        return buffers[-1]

    monkeypatch.setattr(staging.StagingPool, "take", taken)
    for _ in range(rounds):
        for _ in zip(range(2), loader, strict=False):
            pass
    assert len(buffers) > 2 * rounds and len(set(map(id, buffers))) <= _ARENAS + 2 * (loader.prefetch + 1)


def test_batches_that_are_not_decoded_give_their_memory_back(loader_on, monkeypatch):
    assert_gives_memory_back(monkeypatch, loader_on(True, Bytes(*[files()[0]] * COUNT), CHAIN, batch_size=2), 30)


def test_memory_is_kept_while_batches_need_it(fake):
    """Batches of one size share a buffer; one of a giant batch is freed once many batches were small."""
    pool = staging.StagingPool(torch.device("cpu"))
    giant = pool.take(1 << 20)
    assert giant.nelement() == (1 << 20) * 9 // 8
    pool.give_back(giant)
    used = []
    for _ in range(500):
        used.append(pool.take(1000))
        pool.give_back(used[-1])
    assert used[0] is giant and used[-1].nelement() < 1 << 14
    assert len(set(map(id, used))) < 13, "its successors shrink by half"


# --- decoded images --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["source", "memory", "directory"])
@pytest.mark.parametrize("chain", [CHAIN, VIEWS], ids=["crop", "views"])
def test_only_regions_of_decoded_images_are_uploaded(loader_on, image_files, tmp_path, monkeypatch, kind, chain):
    """By one copy per batch, from pinned memory that worker threads have filled."""
    uploaded: list[int] = []
    threads: set[str] = set()
    upload, copy, plan = Arena.upload_pixels, staging.StagedBatch.fill, Planned.regions
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
        assert_same_batches(gpu, cpu)
        if epoch == 0:
            uploaded.clear()
            monkeypatch.setattr(Planned, "regions", lambda self: read.append(plan(self)) or read[-1])
            monkeypatch.setattr(staging.StagedBatch, "fill", staging_rows)
    assert len(uploaded) == 2 * 5 and len(read) == 2 * 2 * 5, "one upload per batch; both loaders ask for regions"
    needed = sum(3 * (y1 - y0) * (x1 - x0) for plans in read for y0, x0, y1, x1 in plans.tolist()) // 2
    whole = 2 * sum(3 * np.prod(Image.open(path).size) for path in image_files)
    assert needed <= sum(uploaded) < needed + 64 * 2 * 37 and needed < 0.75 * whole, (needed, sum(uploaded), whole)
    assert threads <= {"cuaug-worker-0", "cuaug-worker-1"}
