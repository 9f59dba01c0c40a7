"""Batches of the CUDA pipeline are those of the CPU, also where files are damaged or cached."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import cuaug
from cuaug import transforms as T
from cuaug.devices import cuda
from cuaug.errors import DecodeError, DeviceError, LoaderError
from tests.codec.test_messages import GAMMA, PRINTED
from tests.dry_run import CHAIN
from tests.support.fake_cuda import FakeDecoder
from tests.support.run_plans import assert_same


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_loader_equals_the_cpu_loader(loader_on, pictures, layout):
    options = {"batch_size": 8, "shuffle": True, "seed": 3, "layout": layout, "dtype": torch.float16}
    gpu, cpu = (loader_on(device, pictures, CHAIN, **options) for device in (True, False))
    for _ in range(2):
        for (got, got_labels), (want, labels) in zip(gpu, cpu, strict=True):
            assert got.stride() == want.stride() and got_labels.tolist() == labels.tolist()
            assert_same(got, want)


def test_views_of_several_sizes_take_one_launch(loader_on, pictures, fake):
    """Each goes where it belongs, damaged files or not; the allocator is told of all of a batch's tensors."""
    for i in (3, 20):
        Path(pictures[i]).write_bytes(b"no picture")
    large, small = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip()]), T.RandomResizedCrop((10, 12))
    chain = [T.MultiView([large, small, large, small, small]), T.Normalize(0.5, 0.2)]
    for on_error in ("skip", "replace"):
        gpu, cpu = (loader_on(device, pictures, chain, batch_size=8, on_error=on_error) for device in (True, False))
        fake.kernel.launches.clear()
        fake.torch.consumer.told.clear()
        batches = list(gpu)
        for (got, _), (want, _) in zip(batches, cpu, strict=True):
            assert len(got) == len(want) == 2
            assert_same(got[0], want[0])
            assert_same(got[1], want[1])
        assert fake.torch.consumer.told == [each.data_ptr() for batch in batches for each in batch.images]
        replaced = 2 if on_error == "replace" else 0
        assert len(fake.kernel.launches) == len(batches) + replaced


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_images_of_any_size(loader_on, pictures, fake, on_error):
    for i in (3, 20):
        Path(pictures[i]).write_bytes(b"no picture")
    chain = [T.RandomShortestSize(range(20, 40)), T.RandomHorizontalFlip(), T.Normalize(0.5, 0.2)]
    how = {"batch_size": 8, "on_error": on_error, "stack": False}
    gpu, cpu = (loader_on(device, pictures, chain, **how) for device in (True, False))
    batches = list(gpu)
    for (got, _), (want, _) in zip(batches, cpu, strict=True):
        for one, other in zip(got, want, strict=True):
            assert_same(one, other)
    assert fake.torch.consumer.told == [image.data_ptr() for batch in batches for image in batch.images]


def test_every_batch_is_waited_for(loader_on, pictures, fake):
    """And the allocator knows who reads it: the next one must not land in its memory before that is done."""
    batches, consumer = list(loader_on(True, pictures, CHAIN, batch_size=10)), fake.torch.consumer
    assert len(batches) == len(consumer.waited) == len(consumer.told) == 4
    assert [batch.images.data_ptr() for batch in batches] == consumer.told


def test_jpegs_are_the_gpus(loader_on, tmp_path):
    for name in ("a.jpg", "b.jpg", "c.png"):
        Image.new("RGB", (30, 20)).save(tmp_path / name)
    loader = loader_on(True, [str(tmp_path / name) for name in ("a.jpg", "b.jpg", "c.png")], CHAIN)
    list(loader)
    assert loader.stats().decoded_by == {"gpu": 2, "cpu": 1}


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
            monkeypatch.setattr(FakeDecoder, "decode", _nothing)
    assert gpu.cache.stats.samples == 37 or limit_bytes < 10**6
    assert 0 < gpu.cache.stats.bytes <= limit_bytes


def _nothing(self: FakeDecoder, headers: Any, slots: Any, stream: int) -> Any:
    assert not headers, "decoded again"
    return []


def test_a_failing_producer_raises_where_the_batch_is_taken(loader_on, pictures, monkeypatch):
    loader = loader_on(True, pictures, CHAIN, batch_size=8)
    monkeypatch.setattr(FakeDecoder, "decode", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        next(iter(loader))


@pytest.mark.parametrize("stuck_in", ["decode", "collate_fn"])
def test_a_stuck_producer_is_reported(loader_on, pictures, monkeypatch, stuck_in):
    let_go = threading.Event()

    def hang(*arguments: Any) -> Any:
        let_go.wait(30)
        raise DeviceError("too late")

    options = {"collate_fn": hang} if stuck_in == "collate_fn" else {}
    if stuck_in == "decode":
        monkeypatch.setattr(FakeDecoder, "decode", hang)
        what = "decoding samples"
    else:
        what = rf"finishing the batch of '{pictures[0]}' \(sample 0\)"
    loader = loader_on(True, pictures, CHAIN, batch_size=37, timeout_seconds=0.5, **options)
    try:
        with pytest.raises(LoaderError, match=rf"^{what} has taken \d\.\d s so far, more than timeout_seconds=0.5$"):
            next(iter(loader))
    finally:
        let_go.set()


def test_a_forked_process_is_told_so(fake, loader_on, pictures):
    fake.torch.cuda._is_in_bad_fork = lambda: True
    assert "forked" in cuda.unavailable(torch.device("cuda"))
    with pytest.raises(DeviceError, match="spawn"):
        loader_on(True, pictures, CHAIN)


def test_lines_of_image_libraries_are_logged_with_the_samples_name(loader_on, pictures, caplog):
    for i in (3, 20):
        Path(pictures[i]).write_bytes(GAMMA)
    for gpu in (True, False):
        caplog.clear()
        for _ in range(2):
            list(loader_on(gpu, pictures[:21], CHAIN, batch_size=5))
        names = [f"{pictures[i]!r} (sample {i})" for i in (3, 20)]
        assert sorted(caplog.messages) == sorted(2 * [f"{name}: {PRINTED['gamma.png'][1]}" for name in names])
