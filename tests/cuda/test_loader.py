"""The Loader on a GPU: correct pixels and labels, batches that stay unchanged, and no growth of memory."""

from __future__ import annotations

import io
import itertools
import time

import numpy as np
import pytest
import torch
from PIL import Image

from cuaug import DecodeError, DecodeOptions, Loader, LoaderError
from cuaug import transforms as T
from tests.loader.test_errors import bomb
from tests.support.loader.further_pictures import Bytes, Memory, numbers_of, photo, write_photos

pytestmark = pytest.mark.cuda

CHAIN = [T.RandomResizedCrop(64), T.RandomHorizontalFlip(), T.RandomErasing(p=0.5), T.Normalize(0.5, 0.2)]
SLEEP = 300_000_000  # clock cycles, 0.15 s or more


def encode(image: np.ndarray, form: str = "PNG", **options) -> bytes:
    out = io.BytesIO()
    Image.fromarray(image).save(out, form, **options)
    return out.getvalue()


def photos(count: int, form: str = "PNG", seed: int = 0) -> Bytes:
    sizes = np.random.default_rng(seed).integers(40, 200, (count, 2)).tolist()
    return Bytes(*(encode(photo(h, w, seed + i), form) for i, (h, w) in enumerate(sizes)))


# --- the same as on the CPU ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_png_files_give_the_same_bits_as_on_the_cpu(layout, dtype):
    chain = CHAIN[:-1] if dtype == torch.uint8 else [*CHAIN[:-1], T.ColorJitter(0.4, 0.4, 0.4, 0.1), CHAIN[-1]]
    options = {"batch_size": 16, "shuffle": True, "seed": 5, "layout": layout, "dtype": dtype, "threads": 4}
    source = photos(70)
    with Loader(source, chain, device="cuda", **options) as gpu, Loader(source, chain, device="cpu", **options) as cpu:
        for _ in range(2):
            for (got, labels), (want, cpu_labels) in zip(gpu, cpu, strict=True):
                assert got.device.type == "cuda" and got.dtype == dtype and got.stride() == want.stride()
                assert labels.tolist() == cpu_labels.tolist() and labels.is_cuda
                assert torch.equal(got.cpu(), want)


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


def test_one_launch_per_batch(monkeypatch):
    from cuaug.devices import cuda

    launches = []
    run = cuda.CudaExecutor.run

    def counted(self, *arguments, **options):
        launches.append(run(self, *arguments, **options))
        return launches[-1]

    monkeypatch.setattr(cuda.CudaExecutor, "run", counted)
    source = photos(40)
    for chain, want in ((CHAIN, 1), ([T.Resize((32, 32)), T.ColorJitter(contrast=(0.5, 0.6)), CHAIN[-1]], 2)):
        launches.clear()
        with Loader(source, chain, batch_size=10, device="cuda", seed=0) as loader:
            list(loader)
        assert launches == [want] * 4


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


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_labels_follow_with_damaged_files_and_slow_threads(layout, caplog):
    damaged = {3, 64, 65, *range(96, 128)}
    source = Memory(400, damaged=damaged, slow=0.002)
    options = {"batch_size": 32, "device": "cuda", "on_error": "skip", "layout": layout, "threads": 4}
    with Loader(source, [T.CenterCrop(4)], **options) as loader:
        labels = []
        for images, numbers in loader:
            assert numbers_of(images.cpu()) == numbers.tolist()
            labels += numbers.tolist()
    assert labels == [i for i in range(400) if i not in damaged]


def test_a_truncated_jpeg_is_a_decode_error(tmp_path):
    """Its header is valid: decoding fails on the GPU, and Pillow names the cause."""
    paths = write_photos(tmp_path, 24, form="JPEG")
    data = (tmp_path / "5.jpg").read_bytes()
    (tmp_path / "5.jpg").write_bytes(data[: len(data) // 2])
    chain = [T.Resize((32, 32))]
    with Loader(paths, chain, batch_size=8, device="cuda", on_error="skip", seed=0) as loader:
        assert [label for _, labels in loader for label in labels.tolist()] == [i for i in range(24) if i != 5]
        assert loader.stats().failed == 1
    with (
        Loader(paths, chain, batch_size=8, device="cuda", seed=0) as loader,
        pytest.raises(DecodeError, match=r"5\.jpg.*truncated"),
    ):
        list(loader)


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


@pytest.mark.parametrize("load_hint", [0.0, 1.0])
def test_with_one_decoder_pixels_do_not_depend_on_the_batch(tmp_path, load_hint):
    """As docs/promises.md states: pixels depend on the file alone, bit for bit."""
    paths = write_photos(tmp_path, 48, form="JPEG")
    results = []
    for batch_size in (48, 16, 5):
        with Loader(
            paths,
            [T.Resize((64, 64))],
            batch_size=batch_size,
            device="cuda",
            decode=DecodeOptions(load_hint=load_hint, decoder="nvimgcodec"),
            seed=0,
        ) as loader:
            results.append(torch.cat([images for images, _ in loader]))
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_each_loader_has_its_own_stream():
    """Not one of torch's 32 pooled streams; a new loader reuses a closed loader's stream."""
    torch_streams = {torch.cuda.Stream(priority=priority).cuda_stream for priority in (0, -1) for _ in range(32)}
    used = []
    for _ in range(2):
        loaders = [Loader(Memory(8), [T.CenterCrop(4)], batch_size=4, device="cuda", seed=0) for _ in range(2)]
        for loader in loaders:
            list(loader)
        used.append({loader._pipeline.producer.stream.cuda_stream for loader in loaders})
        for loader in loaders:
            loader.close()
    assert used[0] == used[1] and len(used[0]) == 2 and not used[0] & (torch_streams | {0})


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


# --- ends and errors -------------------------------------------------------------------------------------------------


def test_break_exceptions_and_close():
    loader = Loader(Memory(640), [T.CenterCrop(4)], batch_size=16, device="cuda", seed=0)
    for _ in range(5):
        for images, labels in loader:
            assert numbers_of(images.cpu()) == labels.tolist()
            break
    with pytest.raises(ZeroDivisionError):
        for _ in loader:
            1 / 0  # noqa: B018
    assert sum(len(labels) for _, labels in loader) == 640
    running = iter(loader)
    next(running)
    loader.close()
    with pytest.raises(LoaderError, match="closed"):
        list(running)


def test_a_producers_error_is_raised_to_the_consumer(monkeypatch):
    """The next epoch works."""
    from cuaug.devices import cuda

    loader = Loader(Memory(64), [T.CenterCrop(4)], batch_size=8, device="cuda", seed=0)
    with monkeypatch.context() as patch:
        patch.setattr(cuda.CudaExecutor, "run", lambda *arguments, **options: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            list(loader)
    for images, labels in loader:
        assert numbers_of(images.cpu()) == labels.tolist()
    loader.close()


def test_two_loaders_and_two_iterators_at_once():
    first, second = (Loader(Memory(300), device="cuda", batch_size=20, seed=seed, shuffle=True) for seed in range(2))
    with first, second:
        for batches in zip(first, first, second, strict=True):
            for images, labels in batches:
                assert numbers_of(images.cpu()) == labels.tolist()
