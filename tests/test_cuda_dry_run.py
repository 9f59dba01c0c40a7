"""The CUDA pipeline with all of CUDA replaced: host memory, one stream, kernels run by the host build.

This shows that the Python around the kernels is right: slots, memory, order, who is told of which stream. Programs by
themselves are tested in `test_cuda_program.py`; what a GPU adds, `tests/cuda/` tests.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import cuaug
from cuaug import transforms as T
from cuaug.devices import cuda
from cuaug.errors import DecodeError, DeviceError, LoaderError
from cuaug.pipeline import cuda as pipeline
from cuaug.pipeline.stats import Recorder
from cuaug.pipeline.timeline import chrome_trace
from tests.fake_cuda import FakeDecoder, FakeEvent, replace_cuda
from tests.helpers import assert_same
from tests.loader.test_profile import check_trace

pytest.importorskip("cupy")


@pytest.fixture
def fake(monkeypatch):
    return replace_cuda(monkeypatch.setattr)


@pytest.fixture
def loader_on(fake, monkeypatch):
    """Makes a loader on the real CPU pipeline or on the fake GPU's."""
    made = []

    def make(gpu: bool, files: Any, transforms: Any, **options: Any) -> cuaug.Loader:
        def make_pipeline(self: cuaug.Loader) -> pipeline.CudaPipeline:
            self._recorder = Recorder(replace(self._setup, device="cuda"))
            return pipeline.CudaPipeline(self._settings, self._recorder, self.threads, torch.device("cpu"))

        with monkeypatch.context() as patch:
            if gpu:
                patch.setattr(cuaug.Loader, "_make_pipeline", make_pipeline)
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


class Decoded:
    """A source of pixels."""

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
@pytest.mark.parametrize("decoded", [False, True], ids=["files", "pixels"])
def test_after_warm_up_only_images_take_memory(loader_on, pictures, fake, monkeypatch, chain, decoded):
    """Nothing pinned is asked for, and of the device just each batch's images, from torch's allocator."""
    monkeypatch.setattr(cuda, "_MOST_ZEROS_BYTES", 4 << 10)
    files = Decoded(pictures) if decoded else pictures
    loader = loader_on(True, files, chain, batch_size=8, dtype=torch.float16)
    for _ in range(12):  # five batches each: so that every batch has been in both arenas
        list(loader)
    fake.torch.asked.clear()
    sizes = sorted(len(batch.images) for _ in range(4) for batch in loader)
    assert sorted(fake.torch.asked) == [("device", n * 3 * 24 * 24 * 2) for n in sizes]


class Pending(FakeEvent):
    """Has not passed before somebody waits for it."""

    pending = False

    def record(self, stream: Any = None) -> None:
        super().record(stream)
        self.pending = True

    def synchronize(self) -> None:
        self.pending = False


@pytest.mark.parametrize("waits", [True, False])
def test_memory_is_used_again_only_after_its_event(loader_on, pictures, fake, monkeypatch, waits):
    """Of uploads and slots; and the event comes after the last launch. Without the wait, this test would tell."""
    fake.torch.cuda.Event = Pending
    if not waits:
        monkeypatch.setattr(Pending, "synchronize", lambda self: None)
    used: list[str] = []

    def checked(what: str, work: Any) -> Any:
        def run(self: Any, *arguments: Any, **options: Any) -> Any:
            producer = loader._pipeline.producer
            arena = producer._arenas[(producer._turn - 1) % pipeline._ARENAS]
            assert what != "upload" or self in (arena.work, arena.pixels)
            assert not arena.free.pending, f"{what} in memory that is still in use"
            used.append(what)
            return work(self, *arguments, **options)

        return run

    monkeypatch.setattr(cuda.Workspace, "stage", checked("upload", cuda.Workspace.stage))
    monkeypatch.setattr(FakeDecoder, "decode", checked("decode", FakeDecoder.decode))
    monkeypatch.setattr(type(fake.kernel), "__call__", checked("launch", type(fake.kernel).__call__))
    loader = loader_on(True, pictures, CHAIN, batch_size=8)
    if not waits:
        with pytest.raises(AssertionError, match="memory that is still in use"):
            list(loader)
        return
    assert len(list(loader)) == 5
    assert used.count("decode") == used.count("launch") == 5 and used.count("upload") >= 5
    assert all(arena.free.pending for arena in loader._pipeline.producer._arenas)


def test_one_upload_a_batch(loader_on, pictures, fake, monkeypatch):
    """Of tables; and one more where pictures come decoded: then of all of them."""
    copies = []
    copy = torch.Tensor.copy_
    monkeypatch.setattr(torch.Tensor, "copy_", lambda self, *a, **o: (copies.append(len(self)), copy(self, *a, **o))[1])
    png = [path for path in pictures if path.endswith("png")]
    for files, uploads in ((png[:16], 1), (Decoded(png[:16]), 2)):
        loader = loader_on(True, files, CHAIN, batch_size=8)
        copies.clear()
        assert len(list(loader)) == 2 and len(copies) == 2 * uploads


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


@pytest.mark.parametrize(
    ("options", "want"),
    [({}, (0.65, 2)), ({"load_hint": 0.9}, (0.9, 2)), ({"load_hint": 0, "decode_threads": 5}, (0.0, 5))],
)
def test_the_split_is_as_given_and_the_same_in_every_run(loader_on, pictures, options, want):
    for _ in range(2):
        list(loader_on(True, pictures, CHAIN, batch_size=8, **options))
    assert FakeDecoder.made == [want] * 2
    loader = loader_on(True, pictures, CHAIN, batch_size=8, **options)
    because = "as given" if options else "the default"
    assert f"load_hint={want[0]:g}, decode_threads={want[1]} ({because})" in str(loader.stats())


def test_the_split_is_chosen_in_the_first_batches(loader_on, pictures, monkeypatch):
    """Each candidate decodes batches; the fastest one is kept, and the same pixels come out meanwhile."""
    clock, decode = [0.0], FakeDecoder.decode

    def timed(self: FakeDecoder, headers: Any, slots: Any, stream: int) -> Any:
        hint = {id(d): h for d, h in alive}[id(self)]
        clock[0] += sum(header.height * header.width for header in headers) * (1.0 + abs(hint - 0.8))
        return decode(self, headers, slots, stream)

    alive: list[tuple[FakeDecoder, float]] = []
    make = FakeDecoder.__init__

    def made(self: FakeDecoder, *arguments: Any, **options: Any) -> None:
        make(self, *arguments, **options)
        alive.append((self, options["load_hint"]))

    monkeypatch.setattr(FakeDecoder, "__init__", made)
    monkeypatch.setattr(FakeDecoder, "decode", timed)
    monkeypatch.setattr(pipeline.time, "perf_counter", lambda: clock[0])
    options = {"batch_size": 4, "last_batch": "drop", "load_hint": "auto", "decode_threads": 3}
    gpu, cpu = (loader_on(device, pictures, CHAIN, **options) for device in (True, False))
    epochs = 0
    assert gpu.stats().setup.split_because == "still trying"
    while gpu.stats().setup.split_because != "chosen by trying" and epochs < 50:
        epochs += 1
        for got, want in zip(gpu, cpu, strict=True):
            assert_same(got.images, want.images)
    assert (gpu.stats().setup.load_hint, gpu.stats().setup.decode_threads) == (0.8, 3)
    assert cpu.stats().setup.load_hint is None and {hint for hint, _ in FakeDecoder.made} >= {0.5, 0.65, 0.8, 1.0}
    assert FakeDecoder.made[-1] == (0.8, 3)
    decoders = len(alive)
    list(gpu)
    assert len(alive) == decoders


@pytest.mark.parametrize("wrong", [-0.1, 1.5, "fast", True, float("nan")])
def test_a_load_hint_that_is_none(loader_on, pictures, wrong):
    with pytest.raises(LoaderError, match="load_hint is a share from 0 to 1, 'auto' or None"):
        loader_on(True, pictures, CHAIN, load_hint=wrong)


# --- what it tells ---------------------------------------------------------------------------------------------------


def test_a_profile_has_the_gpus_lane(loader_on, pictures, fake, tmp_path):
    loader = loader_on(True, pictures, CHAIN, batch_size=4)
    list(loader)
    with loader.profile() as profile:
        list(loader)
    lanes = profile.lanes()
    assert list(lanes)[:3] == ["consumer", "GPU", "cuaug-producer-0"]
    batches = [event.batch for event in lanes["cuaug-producer-0"] if event.stage == "decode"]  # as they were planned
    assert len(set(batches)) == 10
    of_gpu = [(event.stage, event.batch) for event in lanes["GPU"]]
    assert of_gpu == [(stage, batch) for batch in batches[:8] for stage in ("gpu_decode", "gpu_augment")]
    queued = {event.batch: event for event in lanes["cuaug-producer-0"] if event.stage == "decode"}
    for event in lanes["GPU"]:
        if event.stage == "gpu_decode":  # the stand-in's GPU works while it is told what to do
            assert abs(event.start - queued[event.batch].start) < 5e6 or event.start >= queued[event.batch].start
    check_trace(json.loads(json.dumps(chrome_trace(lanes, profile.queue(), ""))))
    ranges = fake.torch.ranges
    assert not any(ranges.open.values()), "each was closed in the thread that opened it"
    assert {"cuaug read", "cuaug decode", "cuaug augment", "cuaug wait_for_data"} <= set(ranges.closed)
    closed = len(ranges.closed)
    list(loader)
    assert len(ranges.closed) == closed, "none where nothing profiles"


def test_the_gpus_times_are_read_without_waiting(loader_on, pictures, monkeypatch):
    """Only for a batch's memory, which it must; and once for each arena when a profile begins."""
    waits: list[FakeEvent] = []
    monkeypatch.setattr(FakeEvent, "synchronize", lambda self: waits.append(self))
    loader = loader_on(True, pictures, CHAIN, batch_size=4, load_hint=0.5)
    list(loader)
    assert len(waits) == 10 and not any(event.timed for event in waits)
    for _ in range(2):
        waits.clear()
        with loader.profile():
            list(loader)
        assert len(waits) == 12 and sum(event.timed for event in waits) == 2
    stats = loader.stats()
    assert stats.seconds["gpu_decode"] > 0 and stats.seconds["gpu_augment"] > 0
    assert stats.decoded_by == {"cpu": 3 * 31, "pillow": 3 * 6}
    assert "the producer thread" in str(stats) and "the GPU" in str(stats)


def test_jpegs_are_the_gpus(loader_on, tmp_path):
    for name in ("a.jpg", "b.jpg", "c.png"):
        Image.new("RGB", (30, 20)).save(tmp_path / name)
    loader = loader_on(True, [str(tmp_path / name) for name in ("a.jpg", "b.jpg", "c.png")], CHAIN)
    list(loader)
    assert loader.stats().decoded_by == {"gpu": 2, "cpu": 1}


def test_slow_decoding_is_seen(loader_on, pictures, monkeypatch):
    decode = FakeDecoder.decode

    def slowly(*arguments):
        time.sleep(0.1)
        return decode(*arguments)

    monkeypatch.setattr(FakeDecoder, "decode", slowly)
    loader = loader_on(True, pictures, CHAIN, batch_size=4)
    list(loader)
    assert loader.stats().verdict.startswith("decoding binds: "), loader.stats()


def test_a_failed_batch_leaves_no_times(loader_on, pictures, monkeypatch):
    loader = loader_on(True, pictures, CHAIN, batch_size=4)
    with monkeypatch.context() as patch:
        patch.setattr(FakeDecoder, "decode", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            list(loader)
    list(loader)
    assert loader.stats().seconds["gpu_decode"] > 0


def test_a_forked_process_is_told_so(fake, loader_on, pictures):
    fake.torch.cuda._is_in_bad_fork = lambda: True
    assert "forked" in cuda.unavailable(torch.device("cuda"))
    with pytest.raises(DeviceError, match="spawn"):
        loader_on(True, pictures, CHAIN)
