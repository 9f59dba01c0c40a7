"""Memory and streams that the CUDA pipeline allocates, and when it reuses them."""

from __future__ import annotations

import weakref
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from cuaug import transforms as T
from cuaug.cache.decoded import DeviceStore
from cuaug.devices import cuda, workspace
from cuaug.pipeline.cuda import arena as arenas
from cuaug.pipeline.cuda import producer as cuda_producer
from tests.dry_run import CHAIN
from tests.support.fake_cuda import FakeDecoder
from tests.support.fake_streams import FakeStream
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

    def epoch() -> list[tuple[str, int]]:
        """The allocations of an epoch, without those of its images and labels."""
        fake.torch.allocations.clear()
        loader.set_epoch(0)  # the same crops
        sizes = [len(batch.images) for batch in loader]
        wanted = Counter(("device", n * 3 * 24 * 24 * 2) for n in sizes) + Counter({("pinned", 64): len(sizes)})
        assert not wanted - Counter(fake.torch.allocations)
        return list((Counter(fake.torch.allocations) - wanted).elements())

    epochs = 40
    extra = sum(len(epoch()) for _ in range(epochs))
    # Which batches meet in which arena depends on the threads. Each of its memories grows with at most five batches.
    memories = 2 * (8 + 6)  # of two arenas: slots, and other buffers
    assert extra <= 5 * memories < 5 * epochs, "one more per batch"


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
    paths = [str(tmp_path / f"{i}.png") for i in range(2)]
    loader = loader_on(True, paths, [T.Resize((8, 8))], batch_size=1, threads=1)  # the batches come in order
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


def test_released_streams_are_used_again(monkeypatch):
    made = []
    monkeypatch.setattr(workspace, "_unused", {})
    monkeypatch.setattr(workspace, "_create", lambda device_id: made.append(device_id) or 100 * device_id + len(made))

    class Stream:
        def __init__(self, handle, device):
            self.cuda_stream, self.device = handle, device

    monkeypatch.setattr(torch.cuda, "ExternalStream", Stream)
    devices = [torch.device("cuda", index) for index in (0, 1)]
    first, second, other = workspace.acquire(devices[0]), workspace.acquire(devices[0]), workspace.acquire(devices[1])
    assert [stream.cuda_stream for stream in (first, second, other)] == [1, 2, 103]
    assert not weakref.getweakrefcount(second), "torch does not clear weak references to its streams"
    del first, other
    third, fourth = workspace.acquire(devices[0]), workspace.acquire(devices[0])
    assert [third.cuda_stream, fourth.cuda_stream, workspace.acquire(devices[1]).cuda_stream] == [1, 4, 103]
