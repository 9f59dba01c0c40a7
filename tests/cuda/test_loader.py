"""The Loader on a GPU: correct pixels and labels, batches that stay unchanged, and no growth of memory."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
import torch
from PIL import Image

from cuaug import DecodeOptions, Loader
from cuaug import transforms as T
from tests.cuda import equal_epochs
from tests.loader.test_errors import bomb
from tests.support.codec import encoded_images
from tests.support.loader.further_pictures import Bytes, Memory, numbers_of, photo, write_photos

pytestmark = pytest.mark.cuda

CHAIN = [T.RandomResizedCrop(64), T.RandomHorizontalFlip(), T.RandomErasing(p=0.5), T.Normalize(0.5, 0.2)]
SLEEP = 300_000_000  # clock cycles, 0.15 s or more


def encode(image: np.ndarray, form: str = "PNG", **options) -> bytes:
    return encoded_images.encode(Image.fromarray(image), form, **options)


def photos(count: int, form: str = "PNG", seed: int = 0) -> Bytes:
    sizes = np.random.default_rng(seed).integers(40, 200, (count, 2)).tolist()
    return Bytes(*(encode(photo(h, w, seed + i), form) for i, (h, w) in enumerate(sizes)))


# --- the same as on the CPU ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_png_files_give_the_same_bits_as_on_the_cpu(layout, dtype):
    chain = CHAIN[:-1] if dtype == torch.uint8 else [*CHAIN[:-1], T.ColorJitter(0.4, 0.4, 0.4, 0.1), CHAIN[-1]]
    options = {"batch_size": 16, "shuffle": True, "seed": 5, "layout": layout, "dtype": dtype, "threads": 4}
    equal_epochs(photos(70), chain, 2, **options)


def test_nvimagecodec_gives_jpegs_nearly_the_same_pixels_as_on_the_cpu(tmp_path):
    paths = write_photos(tmp_path, 60, form="JPEG")
    options = {"batch_size": 20, "shuffle": True, "seed": 5, "dtype": torch.uint8}
    options["decode"] = DecodeOptions(decoder="nvimgcodec")
    loaders = [Loader(paths, CHAIN[:-1], device=device, **options) for device in ("cuda", "cpu")]
    for (got, labels), (want, cpu_labels) in zip(*loaders, strict=True):
        assert labels.tolist() == cpu_labels.tolist()
        difference = (got.cpu().short() - want.short()).abs().float()
        assert difference.max() <= 8 and difference.mean() <= 0.6
    for loader in loaders:
        loader.close()


def test_kernels_for_the_chain_give_the_same_bits(monkeypatch):
    """The first batches run on the full kernels, later ones on kernels compiled meanwhile, with one pass or several."""
    from cuaug.devices import specialize

    monkeypatch.setattr(specialize, "STABLE_SAMPLES", 128)
    source = photos(64)
    for chain in (CHAIN, [T.RandomResizedCrop(64), T.RandAugment(), CHAIN[-1]]):
        options = {"batch_size": 16, "seed": 5, "dtype": torch.float16}
        loaders = [Loader(source, chain, device=device, **options) for device in ("cuda", "cpu")]
        end = time.monotonic() + 120
        while loaders[0].stats().kernels.get("specialized", 0) < 24 and time.monotonic() < end:
            for (got, _), (want, _) in zip(*loaders, strict=True):
                assert torch.equal(got.cpu(), want)
        kernels = loaders[0].stats().kernels
        for loader in loaders:
            loader.close()
        assert kernels["specialized"] >= 24 and kernels["full"] >= 8, kernels


# --- labels, and damaged files ---------------------------------------------------------------------------------------


def test_thousands_of_labels_follow_their_images():
    """JPEGs of one color each, in many sizes: 1,728 colors, 19 levels apart, decoded by the engine and by CUDA."""
    levels = np.arange(12) * 19 + 20
    colors = np.array(list(itertools.product(levels, repeat=3)), dtype=np.uint8)
    rng = np.random.default_rng(0)
    files = []
    for color in colors:
        h, w = rng.integers(16, 300, 2)
        files.append(encode(np.broadcast_to(color, (h, w, 3)), "JPEG", quality=95))
    seen = 0
    options = {"batch_size": 96, "shuffle": True, "seed": 0, "decode": DecodeOptions(decoder="nvimgcodec")}
    with Loader(Bytes(*files), [T.RandomResizedCrop(24)], device="cuda", **options) as loader:
        for _ in range(4):
            for images, labels in loader:
                want = torch.from_numpy(colors[labels.cpu().numpy()]).cuda().short()[:, :, None, None]
                assert (images.short() - want).abs().max().item() <= 8
                seen += len(labels)
    assert seen == 4 * len(colors)


def test_a_header_bomb_allocates_nothing():
    source = Bytes(encode(photo(50, 50)), bomb(), encode(photo(60, 60)))
    with Loader(source, [T.Resize((8, 8))], batch_size=3, device="cuda", on_error="skip", seed=0) as loader:
        before = torch.cuda.memory_reserved()
        ((_, labels),) = loader
    assert labels.tolist() == [0, 2] and torch.cuda.memory_reserved() - before < 64 << 20


# --- memory ----------------------------------------------------------------------------------------------------------


def test_batches_are_the_users_to_keep():
    """Batch k is unchanged after batches k + 1 to k + 4, and at the end."""
    with Loader(Memory(2000), [T.CenterCrop(4)], batch_size=50, shuffle=True, device="cuda", seed=0) as loader:
        batches = []
        for images, labels in loader:
            batches.append((images, labels, images.clone()))
            for kept, numbers, copy in batches[-5:]:
                assert torch.equal(kept, copy) and numbers_of(kept.cpu()) == numbers.tolist()
    for kept, numbers, _ in batches:
        assert numbers_of(kept.cpu()) == numbers.tolist()


@pytest.mark.parametrize("side", [False, True], ids=["default stream", "side stream"])
def test_a_batch_deleted_while_queued_work_reads_it(side):
    """The next batches must not reuse its memory before that work has read it."""
    files = [encode(np.full((200, 300, 3), 40 + 3 * i, np.uint8), "JPEG", quality=95) for i in range(64)]
    stream = torch.cuda.Stream() if side else torch.cuda.current_stream()
    with Loader(Bytes(*files), batch_size=8, device="cuda", prefetch=3, seed=0) as loader, torch.cuda.stream(stream):
        for _ in range(3):
            sums = []
            for images, labels in loader:
                torch.cuda._sleep(SLEEP)
                sums.append((images.double().mean(dim=(1, 2, 3)), labels))
                del images
            stream.synchronize()
            for means, labels in sums:
                assert (means.cpu() - (40 + 3 * labels.cpu())).abs().max().item() <= 2


def test_a_consumer_on_a_side_stream_waits_for_the_producer():
    stream = torch.cuda.Stream(priority=-1)
    source = photos(64)
    chain = [T.Resize((256, 256)), T.ColorJitter(0.2, 0.2), T.Normalize(0.5, 0.2)]
    with Loader(source, chain, batch_size=8, device="cpu", seed=0) as loader:
        want = [images for images, _ in loader]
    with Loader(source, chain, batch_size=8, device="cuda", seed=0) as loader:
        loader.set_epoch(0)
        with torch.cuda.stream(stream):
            copies = [images.clone() for images, _ in loader]
    stream.synchronize()
    assert all(torch.equal(copy.cpu(), images) for copy, images in zip(copies, want, strict=True))


def test_a_captured_graph_reads_batches():
    """Meanwhile the loader's producer allocates, which only a thread-local capture allows."""
    images, labels = torch.empty((8, 3, 4, 5), device="cuda"), torch.empty(8, dtype=torch.int64, device="cuda")
    options = {"batch_size": 8, "last_batch": "drop", "shuffle": True, "dtype": torch.float32, "device": "cuda"}
    with Loader(Memory(400), **options) as loader:
        batches = iter(loader)
        next(batches).copy_into(images, labels)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            sums = images.double().sum(dim=(1, 2, 3)) + labels
        results = []
        for batch in batches:
            batch.copy_into(images, labels)
            graph.replay()
            results.append((sums.clone(), batch))
        for got, batch in results:
            assert got.equal(batch.images.double().sum(dim=(1, 2, 3)) + batch.labels)


def test_reserved_memory_is_flat_over_epochs():
    source = photos(96, "JPEG")
    with Loader(source, CHAIN, batch_size=16, shuffle=True, device="cuda", dtype=torch.float16, seed=0) as loader:
        reserved = []
        for _ in range(40):
            for images, _ in loader:
                images.float().mean()
            torch.cuda.synchronize()
            reserved.append(torch.cuda.memory_reserved())
    # Slots still grow for rare combinations of sizes in a batch; torch reserves 2 MB at a time.
    assert reserved[-1] <= reserved[9] + (4 << 20), reserved


def test_no_allocations_after_warm_up():
    """Neither device memory from the driver nor pinned memory."""
    source = photos(96, "JPEG")
    with Loader(source, CHAIN, batch_size=16, device="cuda", dtype=torch.float16, seed=0) as loader:
        allocations = []
        for _ in range(20):
            for images, _ in loader:
                images.float().mean()
            torch.cuda.synchronize()
            stats = torch.cuda.memory_stats()
            allocations.append((stats["num_device_alloc"], torch.cuda.host_memory_stats()["num_host_alloc"]))
    assert allocations[-1] == allocations[9], allocations


def test_close_frees_the_memory():
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    loader = Loader(photos(64, "JPEG"), CHAIN, batch_size=16, device="cuda", seed=0)
    kept = next(iter(loader))[0]
    assert torch.cuda.memory_allocated() > before
    loader.close()
    want = kept.sum()
    del kept, loader
    assert torch.isfinite(want).item()
    del want
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() - before < 1 << 20


def test_memory_of_giant_images_is_freed():
    """Each epoch has one image of 60 megapixels, 180 MB."""
    giant = encode(np.zeros((6000, 10_000, 3), np.uint8), "JPEG")
    files = [giant] + [encode(photo(60, 60, i), "JPEG") for i in range(63)]
    with Loader(Bytes(*files), [T.Resize((32, 32))], batch_size=8, shuffle=True, device="cuda", seed=0) as loader:
        for _ in range(3):
            list(loader)
        arenas = loader._pipeline.producer._arenas
        size = sum(slot.memory.nelement() for arena in arenas for slot in arena.slots)
    assert size < 300 << 20
