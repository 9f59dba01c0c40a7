"""JPEGs that stay in the GPU's memory: `EncodedCache` with fakes for CUDA."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import cuaug
from cuaug import transforms as T
from cuaug.codec import ResidentJpeg
from cuaug.errors import LoaderError
from cuaug.pipeline.cuda.batch_decoding import BatchDecoding
from tests.dry_run import CHAIN
from tests.support.codec.jpeg_crops import MCU, jpeg
from tests.support.fake_streams import FakeStream
from tests.support.loader.further_pictures import Bytes
from tests.support.same_batches import assert_same_batches

VIEWS = [T.CenterCrop(50), T.MultiView([T.Compose([T.RandomResizedCrop(24), T.ColorJitter(0.3)])] * 3)]


class Counted(Bytes):
    """Counts the samples that are read."""

    reads = 0

    def read(self, index: int) -> Any:
        self.reads += 1
        return super().read(index)


def jpegs() -> list[bytes]:
    """Of every sampling and orientation, with restart markers and without."""
    return [
        jpeg(150 + 3 * i, 200 - 2 * i, [*MCU][i % len(MCU)], 90, interval=(0, 2, 13)[i % 3], orientation=i % 8 + 1)
        for i in range(24)
    ]


@pytest.fixture
def cached(loader_on, fake, monkeypatch):
    """Makes a loader on the fakes, with a cache on the device."""
    monkeypatch.setattr("cuaug.cache.decoded.torch", fake.torch)
    open_cache = cuaug.EncodedCache.open

    def make(source: Any, chain: Any, cache: cuaug.EncodedCache, **options: Any) -> cuaug.Loader:
        def open_on_gpu(self: cuaug.EncodedCache, n: int, contents: Any, source: Any, device: Any) -> None:
            open_cache(self, n, contents, source=source, device=torch.device("cuda"))

        with monkeypatch.context() as patch:
            patch.setattr(cuaug.EncodedCache, "open", open_on_gpu)
            return loader_on(True, source, chain, cache=cache, **options)

    return make


@pytest.mark.parametrize("chain", [CHAIN, VIEWS], ids=["crop", "views"])
@pytest.mark.parametrize("limit_bytes", [60_000, 10**8])
@pytest.mark.parametrize("index_bytes", [0, None])
def test_later_epochs_read_nothing(cached, loader_on, chain, limit_bytes, index_bytes):
    """Batches equal the CPU's. A sample that does not fit is read in each epoch."""
    source, cache = Counted(*jpegs()), cuaug.EncodedCache(limit_bytes)
    options = {"batch_size": 5, "shuffle": True, "seed": 3}
    gpu = cached(source, chain, cache, decode=cuaug.DecodeOptions(index_bytes=index_bytes), **options)
    cpu = loader_on(False, Bytes(*jpegs()), chain, **options)
    for epoch in range(3):
        kept, reads = cache.stats.samples, source.reads
        assert_same_batches(gpu, cpu)
        assert 0 < cache.stats.bytes <= limit_bytes
        assert source.reads - reads == 24 - (kept if epoch else 0)
        assert cache.stats.samples == 24 or limit_bytes < 10**6
    assert gpu.stats().decoded_by == {"kernels": 3 * 24}
    assert any(isinstance((cache.get(i) or [None])[0], ResidentJpeg) for i in range(24))


def test_segments_lie_at_multiples_of_16_bytes(cached):
    """The kernels read 16 bytes at once. No place lies outside of its sample's memory."""
    cache = cuaug.EncodedCache(10**8)
    list(cached(Counted(*jpegs()), CHAIN, cache, batch_size=8))
    for i in range(24):
        resident, _ = cache.get(i)
        data, segments = resident.description[:16].view(np.uint64).tolist()
        begin = resident.memory.data_ptr()
        assert data == begin and segments % 16 == begin % 16 and data < segments < begin + len(resident.memory)


def test_samples_are_found_only_after_their_copies(cached, monkeypatch):
    """Another loader may read them on any stream."""
    cache, found = cuaug.EncodedCache(10**8), []
    make, wait = BatchDecoding._make_resident, FakeStream.synchronize
    monkeypatch.setattr(
        BatchDecoding, "_make_resident", lambda self, *a: (found.append(cache.stats.samples), make(self, *a))[1]
    )
    monkeypatch.setattr(FakeStream, "synchronize", lambda self: (found.append("wait"), wait(self)))
    list(cached(Counted(*jpegs()[:4]), CHAIN, cache, batch_size=4))
    assert found[-5:] == [0, 0, 0, 0, "wait"] and cache.stats.samples == 4


def test_damaged_files_are_not_kept(cached, loader_on):
    """The whole file is checked, whatever the crop is."""
    files = [jpeg(120, 160, interval=3) for _ in range(6)]
    files[2] = files[2][:-400] + bytes(8) + files[2][-392:]
    source, cache = Counted(*files), cuaug.EncodedCache(10**8)
    chain, options = T.CenterCrop(16), {"batch_size": 3, "on_error": "skip"}
    gpu, cpu = cached(source, chain, cache, **options), loader_on(False, Bytes(*files), chain, **options)
    for _ in range(2):
        assert_same_batches(gpu, cpu)
    assert cache.stats.samples == 5 and cache.get(2) is None and source.reads == 7


def test_data_that_are_damaged_in_memory_are_the_samples_error(cached):
    source, cache = Counted(*[jpeg(120, 160, interval=3) for _ in range(6)]), cuaug.EncodedCache(10**8)
    loader = cached(source, T.Resize((24, 24)), cache, batch_size=6, on_error="skip")
    list(loader)
    errors: list[Exception] = []
    loader.error_callback = errors.append
    for damaged in ([1], [1, 4]):
        for i in damaged:
            cache.get(i)[0].memory[:600] = 0
        (batch,) = loader
        assert batch.labels.tolist() == [i for i in range(6) if i not in damaged]
        assert len(errors) == len(damaged) and all("data in the GPU's memory are damaged" in str(e) for e in errors)
        errors.clear()
    assert loader.stats().decoded_by == {"kernels": 18 - 3} and source.reads == 6


def test_a_cache_serves_several_loaders_and_is_freed(cached):
    source, cache = Counted(*jpegs()), cuaug.EncodedCache(10**8)
    for _ in range(2):
        list(cached(source, CHAIN, cache, batch_size=8))
    assert source.reads == 24
    cache.close()
    assert cache.stats.samples == cache.stats.bytes == 0


def test_misuse_is_refused(loader_on):
    with pytest.raises(LoaderError, match="the loader is on 'cpu': leave it out"):
        loader_on(False, Bytes(*jpegs()), CHAIN, cache=cuaug.EncodedCache(1000))
