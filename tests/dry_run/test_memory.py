"""Memory that the CUDA pipeline allocates, and when it reuses it."""

from __future__ import annotations

import ctypes
import time
import weakref
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from cuaug import transforms as T
from cuaug.cache.decoded import DeviceStore
from cuaug.devices import cuda
from cuaug.pipeline.cuda import arena as arenas
from cuaug.pipeline.cuda import producer as cuda_producer
from cuaug.plan.layout import SAMPLE
from cuaug.targets import Targets
from tests.dry_run import CHAIN
from tests.support.fake_cuda import FakeDecoder, FakeEvent, FakeStream
from tests.support.loader.further_pictures import Bytes, noisy_jpeg


class PixelSource:
    """A source of decoded images."""

    def __init__(self, paths: list[str]) -> None:
        self.arrays = [np.asarray(Image.open(path)) for path in paths]

    def __len__(self) -> int:
        return len(self.arrays)

    def read(self, index: int) -> Any:
        return self.arrays[index], index


BARRIERS = [
    T.Resize((24, 24)),
    T.ColorJitter(0.4, 0.4),
    T.GaussianBlur(3),
    T.RandomEqualize(p=1),
    T.Normalize(0.5, 0.2),
]


@pytest.mark.parametrize("chain", [CHAIN, BARRIERS], ids=["fused", "with barriers"])
@pytest.mark.parametrize("kind", ["files", "jpegs", "pixels"])
def test_after_warm_up_only_images_take_memory(loader_on, image_files, fake, monkeypatch, chain, kind):
    """On the device, only each batch's images and labels; pinned, only the labels."""
    monkeypatch.setattr(cuda, "_MAX_ZEROS_BYTES", 4 << 10)
    sources = {
        "files": lambda: image_files,
        "jpegs": lambda: Bytes(*[noisy_jpeg(30 + i, 90 - i) for i in range(37)]),
        "pixels": lambda: PixelSource(image_files),
    }
    loader = loader_on(True, sources[kind](), chain, batch_size=8, dtype=torch.float16)
    produce = cuda_producer.CudaProducer.produce

    def epoch() -> list[tuple[str, int]]:
        """The allocations of an epoch, without those of its images and labels."""
        fake.torch.allocations.clear()
        loader.set_epoch(0)  # the same crops
        sizes = [len(batch.images) for batch in loader]
        wanted = Counter(("device", n * 3 * 24 * 24 * 2) for n in sizes) + Counter({("pinned", 64): len(sizes)})
        assert not wanted - Counter(fake.torch.allocations)
        return list((Counter(fake.torch.allocations) - wanted).elements())

    with monkeypatch.context() as patch:  # a slow producer: all prefetched batches wait for it, each with pinned memory
        patch.setattr(cuda_producer.CudaProducer, "produce", lambda *a: (time.sleep(0.02), produce(*a))[1])
        for _ in range(4):  # five batches per epoch: each batch has been in both arenas, if they come in order
            epoch()
    extra = [epoch() for _ in range(20)]  # few batches come out of order, and may meet an arena for the first time
    assert not any(extra[-4:]) and sum(map(bool, extra)) <= 5


class PendingEvent(FakeEvent):
    """An event that passes when it is waited for."""

    pending = False

    def record(self, stream: Any = None) -> None:
        super().record(stream)
        self.pending = True

    def synchronize(self) -> None:
        self.pending = False


@pytest.mark.parametrize("waits", [True, False])
def test_memory_is_reused_only_after_its_event(loader_on, image_files, fake, monkeypatch, waits):
    """Memory of uploads and slots; the event follows the last launch. Without the wait, the check fails."""
    fake.torch.cuda.Event = PendingEvent
    if not waits:
        monkeypatch.setattr(PendingEvent, "synchronize", lambda self: None)
    used: list[str] = []

    def checked(step: str, function: Any) -> Any:
        def run(self: Any, *arguments: Any, **options: Any) -> Any:
            producer = loader._pipeline.producer
            arena = producer._arenas[(producer._batches - 1) % cuda_producer._ARENAS]
            assert step != "upload" or self in (arena.work, arena.uploads)
            assert not arena.free.pending, f"{step} in memory that is still in use"
            used.append(step)
            return function(self, *arguments, **options)

        return run

    monkeypatch.setattr(cuda.Workspace, "copy_to_pinned", checked("upload", cuda.Workspace.copy_to_pinned))
    monkeypatch.setattr(FakeDecoder, "decode_batch", checked("decode", FakeDecoder.decode_batch))
    monkeypatch.setattr(type(fake.kernel), "__call__", checked("launch", type(fake.kernel).__call__))
    loader = loader_on(True, image_files, CHAIN, batch_size=8)
    if not waits:
        with pytest.raises(AssertionError, match="memory that is still in use"):
            list(loader)
        return
    assert len(list(loader)) == 5
    assert used.count("decode") == used.count("launch") == 5 and used.count("upload") >= 5
    assert all(arena.free.pending for arena in loader._pipeline.producer._arenas)


def test_a_failed_batchs_memory_has_an_event(loader_on, image_files, fake, monkeypatch):
    """Its decoding may still run."""
    fake.torch.cuda.Event = PendingEvent
    monkeypatch.setattr(cuda.CudaExecutor, "run", lambda *arguments, **options: 1 / 0)
    loader = loader_on(True, image_files[:8], CHAIN, batch_size=8)  # one batch: a later one would reuse the memory
    with pytest.raises(ZeroDivisionError):
        list(loader)
    assert loader._pipeline.producer._arenas[0].free.pending


def test_the_stream_is_synchronized_before_decoding_into_new_memory(loader_on, image_files, monkeypatch):
    """Work on the stream may still use memory from torch's allocator, and the decoder may not wait for it."""
    new, decoded = [], []
    reallocate, decode = arenas.Slot.reallocate, FakeDecoder.decode_batch
    monkeypatch.setattr(arenas.Slot, "reallocate", lambda self, *a: (new.append(self), reallocate(self, *a))[1])
    monkeypatch.setattr(FakeStream, "synchronize", lambda self: new.clear())
    monkeypatch.setattr(FakeDecoder, "decode_batch", lambda self, *a: (decoded.append(len(new)), decode(self, *a))[1])
    list(loader_on(True, image_files, CHAIN, batch_size=8))
    assert decoded == [0] * 5


def test_after_a_failed_allocation_no_slot_uses_freed_memory(loader_on, tmp_path, fake, monkeypatch):
    """A slot frees its memory before it allocates more; the next batch would fit into the old memory."""
    monkeypatch.setattr(cuda_producer, "_ARENAS", 1)
    for i, side in enumerate((10, 90)):
        Image.new("RGB", (side, side), (80, 90, 100 + i)).save(tmp_path / f"{i}.png")
    loader = loader_on(True, [str(tmp_path / f"{i}.png") for i in range(2)], [T.Resize((8, 8))], batch_size=1)
    empty = fake.torch.empty

    def limited(shape: Any, **options: Any) -> torch.Tensor:
        if np.prod(shape) > 8000:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return empty(shape, **options)

    with monkeypatch.context() as patch:
        patch.setattr(fake.torch, "empty", limited)
        with pytest.raises(torch.OutOfMemoryError):
            list(loader)
    assert [batch.images[0, 2, 0, 0].item() for batch in loader] == [100, 101]


def test_one_upload_per_batch(loader_on, image_files, fake, monkeypatch):
    """One upload of tables, and one more of all images that arrive decoded."""
    copies = []
    copy = torch.Tensor.copy_
    monkeypatch.setattr(torch.Tensor, "copy_", lambda self, *a, **o: (copies.append(len(self)), copy(self, *a, **o))[1])
    png = [path for path in image_files if path.endswith("png")]
    for files, uploads in ((png[:16], 1), (PixelSource(png[:16]), 2)):
        loader = loader_on(True, files, CHAIN, batch_size=8, labels_device="cpu")
        copies.clear()
        assert len(list(loader)) == 2 and len(copies) == 2 * uploads


def test_slots_are_kept_and_giant_ones_freed(loader_on, tmp_path, monkeypatch):
    """The largest image of each batch takes the same slot, so one giant per batch makes one giant slot."""
    monkeypatch.setattr(arenas, "_MAX_KEPT_BYTES", 3 * 4000)
    paths = []
    for i in range(32):
        side = (10, 10, 10, 90)[(i * 7 + i // 4) % 4]
        paths.append(str(tmp_path / f"{i}.png"))
        Image.new("RGB", (side, side)).save(paths[-1])
    loader = loader_on(True, paths, [T.Resize((8, 8))], batch_size=4)
    list(loader)
    producer = loader._pipeline.producer
    sizes = [slot.memory.nelement() for arena in producer._arenas for slot in arena.slots]
    assert sorted(sizes) == [339] * 6 + [90 * 90 * 3] * 2
    wrapped = producer.decoder.wrapped
    list(loader)
    assert producer.decoder.wrapped == wrapped
    small = tmp_path / "small.png"
    Image.new("RGB", (10, 10)).save(small)
    loader.source.paths[:] = [str(small)] * 32
    list(loader)
    assert max(slot.memory.nelement() for arena in producer._arenas for slot in arena.slots) <= arenas._MAX_KEPT_BYTES


def test_a_cache_on_the_gpu_offers_only_finished_copies(fake, monkeypatch):
    """A reader may use them on any stream."""
    monkeypatch.setattr("cuaug.cache.decoded.torch", fake.torch)
    store, found = DeviceStore(10_000, torch.device("cpu")), []
    monkeypatch.setattr(FakeStream, "synchronize", lambda self: found.append(store.get(0)))
    store.put({0: torch.zeros((2, 2, 3), dtype=torch.uint8)})
    assert found == [None] and store.get(0) is not None


def test_close_synchronizes_the_stream_before_freeing_it(loader_on, image_files, fake, monkeypatch):
    """The decoder may not heed the stream that frees memory."""
    loaders = [loader_on(True, image_files, CHAIN, batch_size=8) for _ in range(2)]
    for loader in loaders:
        list(loader)
    streams = [weakref.ref(loader._pipeline.producer.stream) for loader in loaders]
    assert None not in {stream() for stream in streams} and streams[0]() is not streams[1]()
    synchronized = []
    monkeypatch.setattr(FakeStream, "synchronize", lambda self: synchronized.append(weakref.ref(self)))
    for loader in (*loaders, *loaders):
        loader.close()
    assert synchronized == streams and {stream() for stream in streams} == {None}


def test_the_two_arenas_share_memory_between_passes(loader_on, image_files):
    """Their passes run one after the other on one stream, so a second buffer would lie idle."""
    loader = loader_on(True, image_files, BARRIERS, batch_size=8)
    assert len(list(loader)) == 5
    first, second = (arena.work for arena in loader._pipeline.producer._arenas)
    assert first is not second and first._intermediates is second._intermediates
    assert first._intermediates._memory is not None


def test_images_that_pillow_decodes_take_no_slot(loader_on, tmp_path):
    """They are uploaded with the batch: a slot would hold twice the memory."""
    paths = [str(tmp_path / f"{i}.{suffix}") for i, suffix in enumerate(("bmp", "png", "bmp", "png"))]
    for path, side in zip(paths, (90, 10, 80, 12), strict=True):
        Image.new("RGB", (side, side)).save(path)
    loader = loader_on(True, paths, [T.Resize((8, 8))], batch_size=4)
    list(loader)
    (memories, *_) = ([slot.memory for slot in arena.slots] for arena in loader._pipeline.producer._arenas)
    assert [0 if memory is None else memory.nelement() for memory in memories] == [3 * 162, 3 * 113, 0, 0]


def test_samples_whose_targets_fail_are_not_decoded(loader_on, image_files, fake, monkeypatch):
    """They take neither a slot nor a tile of a launch."""
    moved = Targets._moved

    def failing(self: Targets, *arguments: Any) -> Any:
        move = moved(self, *arguments)

        def fail_third(i: int) -> Any:
            if i == 2:
                raise MemoryError("masks")
            return move(i)

        return fail_third

    monkeypatch.setattr(Targets, "_moved", failing)
    decoded, launched = [], []
    decode, launch = FakeDecoder.decode_batch, type(fake.kernel).__call__
    monkeypatch.setattr(FakeDecoder, "decode_batch", lambda self, *a: (decoded.append(len(a[0])), decode(self, *a))[1])

    def counted(self: Any, grid: Any, block: Any, arguments: Any, **options: Any) -> None:
        memory = (ctypes.c_char * (grid[2] * SAMPLE.itemsize)).from_address(int(arguments[0]))
        launched.append((grid[2], int(np.frombuffer(memory, dtype=SAMPLE)["active"].sum())))
        launch(self, grid, block, arguments, **options)

    monkeypatch.setattr(type(fake.kernel), "__call__", counted)
    files = [(path, {"boxes": np.array([[1.0, 2.0, 9.0, 8.0]])}) for path in image_files[:8]]
    loader = loader_on(True, files, CHAIN[:2], batch_size=8, on_error="skip", collate_fn=len)
    (batch,) = loader
    assert batch.indices.tolist() == [0, 1, 3, 4, 5, 6, 7]
    assert decoded == [7] and launched == [(7, 7)]
    assert sum(loader.stats().decoded_by.values()) == 7
