"""Batches of the CUDA pipeline equal those of the CPU, also with damaged files and caches."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import cuaug
from cuaug import transforms as T
from cuaug.batch import each_tensor
from cuaug.devices import cuda
from cuaug.errors import DeviceError, LoaderError
from tests.dry_run import CHAIN
from tests.support.fake_cuda import FakeDecoder
from tests.support.same_batches import assert_same_batches


def memories(batches: list[cuaug.Batch]) -> list[int]:
    """The addresses of the batches' images and labels, in order."""
    return [tensor.data_ptr() for batch in batches for tensor in (*each_tensor(batch.images), batch.labels)]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_loader_equals_the_cpu_loader(equal_loaders, image_files, layout):
    options = {"batch_size": 8, "shuffle": True, "seed": 3, "layout": layout, "dtype": torch.float16}
    equal_loaders(image_files, CHAIN, epochs=2, **options)


@pytest.mark.parametrize("version", [12, 13])
def test_the_pixels_of_pillow(equal_loaders, image_files, version):
    for chain in (
        [T.RandomResizedCrop(24, interpolation="bicubic"), T.RandomHorizontalFlip(), T.Normalize(0.5, 0.2)],
        [T.Resize(30), T.CenterCrop((20, 40)), T.ColorJitter(0.4), T.Resize((50, 20), "lanczos")],
    ):
        equal_loaders(image_files, chain, batch_size=8, pillow=version)


def test_views_of_several_sizes_take_one_launch(loader_on, image_files, fake):
    """With damaged files, too. The allocator learns the stream of each of a batch's tensors."""
    for i in (3, 20):
        Path(image_files[i]).write_bytes(b"not an image")
    large, small = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip()]), T.RandomResizedCrop((10, 12))
    chain = [T.MultiView([large, small, large, small, small]), T.Normalize(0.5, 0.2)]
    for on_error in ("skip", "replace"):
        gpu, cpu = (loader_on(device, image_files, chain, batch_size=8, on_error=on_error) for device in (True, False))
        fake.kernel.launches.clear()
        fake.torch.consumer.recorded.clear()
        batches = list(gpu)
        assert_same_batches(batches, cpu)
        assert all(len(batch.images) == 2 for batch in batches)
        assert fake.torch.consumer.recorded == memories(batches)
        replaced = 2 if on_error == "replace" else 0
        assert len(fake.kernel.launches) == len(batches) + replaced


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_images_of_any_size(loader_on, image_files, fake, on_error):
    for i in (3, 20):
        Path(image_files[i]).write_bytes(b"not an image")
    chain = [T.RandomShortestSize(range(20, 40)), T.RandomHorizontalFlip(), T.Normalize(0.5, 0.2)]
    options = {"batch_size": 8, "on_error": on_error, "stack": False}
    gpu, cpu = (loader_on(device, image_files, chain, **options) for device in (True, False))
    batches = list(gpu)
    assert_same_batches(batches, cpu)
    assert fake.torch.consumer.recorded == memories(batches)


@pytest.mark.parametrize("on_error", ["skip", "replace"])
@pytest.mark.parametrize(
    "last",
    [T.Patches(8, 2, 2), T.Patches(8, order="hwc", pad=True), T.PadToLargest(), T.Tiles(24, 4), T.Tiles(24, pad=True)],
)
def test_packed_images(loader_on, image_files, fake, on_error, last):
    """In one launch for a batch, with the packing beside them."""
    for i in (3, 20):
        Path(image_files[i]).write_bytes(b"not an image")
    # Tiles resize: a resize before them would make a second launch.
    first = last if isinstance(last, T.Tiles) else T.ResizeToMultiple(16, max_pixels=48 * 48)
    chain = [first, T.RandomHorizontalFlip(), T.Normalize(0.5, 0.2), *([] if first is last else [last])]
    gpu, cpu = (loader_on(device, image_files, chain, batch_size=8, on_error=on_error) for device in (True, False))
    fake.kernel.launches.clear()
    batches = list(gpu)
    assert len(fake.kernel.launches) == len(batches) + 2 * (on_error == "replace")
    cpu_batches = list(cpu)
    assert_same_batches(batches, cpu_batches)
    for got, want in zip(batches, cpu_batches, strict=True):
        for one, other in zip(got.packing, want.packing, strict=True):
            assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


@pytest.mark.parametrize("bad", [{3, 11}, set(range(8, 16)), {0, 8, 9}], ids=["some", "all of a batch", "early"])
@pytest.mark.parametrize("cut", [0.0, 0.5], ids=["not an image", "truncated"])
def test_damaged_images_are_replaced(equal_loaders, image_files, bad, cut):
    for i in bad:
        path = Path(image_files[i])
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * cut)])
    options = {"batch_size": 8, "on_error": "replace", "shuffle": True, "last_batch": "pad"}
    gpu = equal_loaders(image_files, CHAIN, **options)
    assert {len(batch.images) for batch in gpu} == {8}


@pytest.mark.parametrize("place", ["host", "disk", "device"])
@pytest.mark.parametrize("short_side", [None, 40])
@pytest.mark.parametrize("limit_bytes", [50_000, 10**8])
def test_decoded_caches(loader_on, fake, image_files, tmp_path, monkeypatch, place, short_side, limit_bytes):
    """Each epoch equals the CPU's with the same cache; later epochs decode no cached image."""

    def cache() -> cuaug.DecodedCache:
        directory = tmp_path / f"cache{len(list(tmp_path.iterdir()))}" if place == "disk" else None
        return cuaug.DecodedCache(short_side, limit_bytes=limit_bytes, directory=directory, on_device=place == "device")

    cpu_cache = cuaug.DecodedCache(short_side, limit_bytes=limit_bytes)
    monkeypatch.setattr("cuaug.cache.decoded.torch", fake.torch)
    with monkeypatch.context() as patch:
        open_cache = cuaug.DecodedCache.open
        patch.setattr(
            cuaug.DecodedCache,
            "open",
            lambda self, n, contents, source, device: open_cache(self, n, contents, device=torch.device("cuda")),
        )
        gpu = loader_on(True, image_files, CHAIN, batch_size=8, cache=cache())
        cpu = loader_on(False, image_files, CHAIN, batch_size=8, cache=cpu_cache)
    for epoch in range(3):
        assert_same_batches(gpu, cpu)
        if epoch == 0 and limit_bytes > 10**6:
            monkeypatch.setattr(FakeDecoder, "decode_batch", decode_nothing)
    assert gpu.cache.stats.samples == 37 or limit_bytes < 10**6
    assert 0 < gpu.cache.stats.bytes <= limit_bytes


def decode_nothing(self: FakeDecoder, headers: Any, slots: Any, stream: int) -> Any:
    assert not headers, "a cached image is decoded again"
    return []


def test_a_producers_error_is_raised_to_the_consumer(loader_on, image_files, monkeypatch):
    loader = loader_on(True, image_files, CHAIN, batch_size=8)
    monkeypatch.setattr(FakeDecoder, "decode_batch", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        next(iter(loader))


@pytest.mark.parametrize("stuck_in", ["decode", "collate_fn"])
def test_a_stuck_producer_is_reported(loader_on, image_files, monkeypatch, stuck_in):
    release = threading.Event()

    def hang(*arguments: Any) -> Any:
        release.wait()
        raise DeviceError("too late")

    options = {"collate_fn": hang} if stuck_in == "collate_fn" else {}
    if stuck_in == "decode":
        monkeypatch.setattr(FakeDecoder, "decode_batch", hang)
        activity = "decoding samples"
    else:
        activity = rf"finishing the batch of '{image_files[0]}' \(sample 0\)"
    loader = loader_on(True, image_files, CHAIN, batch_size=37, timeout_seconds=0.5, **options)
    try:
        with pytest.raises(
            LoaderError, match=rf"^{activity} has taken \d+\.\d s so far, more than timeout_seconds=0.5$"
        ):
            next(iter(loader))
    finally:
        release.set()


def test_a_forked_process_cannot_use_cuda(fake, loader_on, image_files):
    fake.torch.cuda._is_in_bad_fork = lambda: True
    assert "forked" in cuda.availability_error(torch.device("cuda"))
    with pytest.raises(DeviceError, match="spawn"):
        loader_on(True, image_files, CHAIN)
