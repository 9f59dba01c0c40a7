"""Clips on the CUDA pipeline: FFmpeg decodes, planes are uploaded, and a kernel converts them. The CPU's bits."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import ConcatDataset, Subset

import cuaug
from cuaug import transforms as T
from cuaug.batch import each_tensor
from cuaug.devices import cuda
from cuaug.errors import DecodeError
from cuaug.pipeline.cuda.arena import Arena
from cuaug.pipeline.cuda.producer import _ARENAS, CudaProducer
from cuaug.pipeline.cuda.staged_clips import StagedClips
from cuaug.pipeline.cuda.staging import StagingPool
from cuaug.sources import Videos
from tests.dry_run.test_planted_mistakes import OTHER, edit
from tests.support.fake_cuda import FakeDecoder, FakeEvent
from tests.support.run_plans import assert_same
from tests.support.video.videos import write_copies, write_video

CHAIN = [T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ColorJitter(0.4), T.Normalize([0.5] * 3, [0.2] * 3)]
VIEW = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip()])
#: A view of another size; draws per frame; and two passes, with noise per frame.
CHAINS = {
    "crop": CHAIN,
    "views": [T.MultiView([VIEW, T.CenterCrop((10, 12)), VIEW]), T.Normalize(0.5, 0.2)],
    "per frame": [T.RandomCrop(32), T.PerFrame(T.ColorJitter(0.5))],
    "two passes": [T.RandomCrop(32), T.GaussianBlur(3), T.GaussianNoise(sigma=0.1), T.RandomEqualize(0.5)],
    "whole frames": [T.RandomRotation(20)],
    "mixed": [T.RandomResizedCrop(24), T.RandomChoice([T.MixUp(num_classes=5), T.CutMix(num_classes=5)]), T.AugMix()],
}
MIXED = ("h264 mp4 rotated", "h264 mp4 10 bits", "h264 mp4 gray", "h264 mp4 422", "h264 mp4 444", "mjpeg avi")


@pytest.fixture(scope="module")
def paths(tmp_path_factory) -> list[str]:
    return write_copies(tmp_path_factory.mktemp("videos"), "h264 mp4", 5)


def videos(paths: list[str], **how: Any) -> Videos:
    return Videos(list(zip(paths, range(len(paths)), strict=True)), **({"frames": 4, "stride": 3} | how))


def compare(got: cuaug.Batch, want: cuaug.Batch) -> None:
    for one, other in zip(each_tensor(got.images), each_tensor(want.images), strict=True):
        assert one.is_contiguous() == other.is_contiguous()
        assert_same(one, other)
    assert got.labels.tolist() == want.labels.tolist() and got.valid.tolist() == want.valid.tolist()
    assert got.digest == want.digest and torch.equal(got.clips.numbers, want.clips.numbers)
    assert torch.equal(got.clips.timestamps, want.clips.timestamps)


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("layout", ["NTCHW", "NCTHW"])
def test_clips_equal_those_of_the_cpu(loader_on, paths, fake, chain, layout):
    options = {"batch_size": 3, "shuffle": True, "layout": layout, "seed": 4}
    gpu, cpu = (loader_on(on, videos(paths, clips_per_video=2), CHAINS[chain], **options) for on in (True, False))
    for _ in range(2):
        batches = list(gpu)
        for got, want in zip(batches, cpu, strict=True):
            compare(got, want)
    stats = gpu.stats()
    decoded = 28 if chain == "mixed" else 20  # each of the 8 batches has a partner
    assert stats.decoded_by == cpu.stats().decoded_by == {"video": decoded}
    assert stats.seconds["decode"] > 0 and "decode" in str(stats).split("\nthe producer thread")[0]
    assert len(fake.conversion.launches) == 8 and not FakeDecoder.created, "no decoder of images is opened"


def test_an_encoded_cache_and_concatenated_sources(loader_on, paths, tmp_path):
    """Later epochs decode from memory: the files are gone."""
    copies = []
    for path in paths:
        copies.append(str(tmp_path / Path(path).name))
        Path(copies[-1]).write_bytes(Path(path).read_bytes())
    source = ConcatDataset([videos(copies), Subset(videos(copies, sampling="uniform", clips_per_video=2), [3, 1])])
    options = {"batch_size": 3, "shuffle": True, "seed": 4}
    gpu, cpu = (loader_on(on, source, CHAIN, **options | ({"cache": "encoded"} if on else {})) for on in (True, False))
    expected = [list(cpu) for _ in range(2)]
    for number, batches in enumerate(expected):
        for got, want in zip(gpu, batches, strict=True):
            compare(got, want)
        for path in copies if number == 0 else ():
            Path(path).unlink()
    assert gpu.cache.stats.samples == 5


def test_frames_of_many_formats(loader_on, tmp_path):
    """In one batch: turned, with 10 bits, gray, and with each subsampling."""
    files = [write_video(tmp_path, name) for name in MIXED]
    gpu, cpu = (loader_on(on, videos(files), [T.RandomResizedCrop(24)], batch_size=6) for on in (True, False))
    for _ in range(3):
        for got, want in zip(gpu, cpu, strict=True):
            compare(got, want)


@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
def test_damaged_videos(loader_on, paths, tmp_path, on_error):
    """One is no video, one is cut off inside a clip: decoding it fails on a worker thread."""
    none, cut, whole = tmp_path / "none.mp4", tmp_path / "cut.mkv", Path(write_video(tmp_path, "h264 mkv"))
    none.write_bytes(b"this is no video" * 100)
    data = bytearray(whole.read_bytes())
    data[len(data) // 3 : len(data) // 3 + 400] = bytes(400)
    cut.write_bytes(data)
    files, told = [paths[0], str(none), paths[1], str(cut), paths[2]], []
    source = videos(files, frames=40, stride=2)
    how = {"on_error": on_error, "batch_size": 5}
    if on_error == "raise":
        with pytest.raises(DecodeError, match=r"none\.mp4"):
            list(loader_on(True, source, CHAIN, **how))
        return
    gpu, cpu = (loader_on(on, source, CHAIN, error_callback=told.append, **how) for on in (True, False))
    for got, want in zip(gpu, cpu, strict=True):
        compare(got, want)
    assert [Path(error.path).name for error in told] == ["none.mp4", "cut.mkv"] * 2


@pytest.mark.parametrize("chain", ["crop", "two passes"])
@pytest.mark.parametrize("budget", [1, 60_000])
def test_chunks_of_a_small_workspace(loader_on, paths, fake, monkeypatch, chain, budget):
    monkeypatch.setenv("CUAUG_WORKSPACE_BYTES", str(budget))
    gpu, cpu = (loader_on(on, videos(paths), CHAINS[chain], batch_size=5) for on in (True, False))
    for got, want in zip(gpu, cpu, strict=True):
        compare(got, want)
    frames = [grid[0] for grid in fake.conversion.launches]
    assert sum(frames) == 20 and (set(frames) == {1} if budget == 1 else 1 < max(frames) < 20)


def test_targets_move_with_their_frames(loader_on, paths):
    boxes = [[[20.0, 10.0, 30.0, 14.0 + t]] for t in range(4)]
    source = Videos([(path, {"boxes": torch.tensor(boxes)}) for path in paths], frames=4)
    gpu, cpu = (loader_on(on, source, [T.RandomCrop((40, 50)), T.RandomHorizontalFlip()]) for on in (True, False))
    for got, want in zip(gpu, cpu, strict=True):
        assert_same(got.images, want.images)
        for one, other in zip(got.labels, want.labels, strict=True):
            assert torch.equal(torch.as_tensor(one["boxes"]), torch.as_tensor(other["boxes"]))


def test_resume_and_replay(loader_on, paths):
    how = {"batch_size": 2, "shuffle": True}
    first = loader_on(True, videos(paths), CHAIN, **how)
    batches = iter(first)
    next(batches)
    state, rest = first.state_dict(), list(batches)
    second = loader_on(True, videos(paths), CHAIN, **how)
    second.load_state_dict(state)
    for got, want in zip(second, rest, strict=True):
        compare(got, want)
    compare(first.replay(epoch=0, step=2), rest[-1])


def test_videos_of_the_encoded_cache(loader_on, paths):
    gpu, cpu = (loader_on(on, videos(paths), CHAIN, batch_size=5, cache="encoded") for on in (True, False))
    for _ in range(2):
        for got, want in zip(gpu, cpu, strict=True):
            compare(got, want)


@pytest.mark.parametrize("short_side", [None, 40])
@pytest.mark.parametrize("room", [5, 2])
def test_clips_of_the_decoded_cache(loader_on, paths, short_side, room):
    """Found in the cache, added to it, and, if there is no room, neither: all are uploaded as RGB."""
    source, frame = videos(paths, sampling="uniform"), 64 * 96 if short_side is None else 40 * 60
    caches = [cuaug.DecodedCache(short_side, limit_bytes=room * (4 * frame * 3 + 500)) for _ in range(2)]
    chain = [T.RandomCrop(32), T.MultiView([VIEW, VIEW])]
    gpu, cpu = (
        loader_on(on, source, chain, batch_size=3, cache=cache) for on, cache in zip((True, False), caches, strict=True)
    )
    for _ in range(3):
        for got, want in zip(gpu, cpu, strict=True):
            compare(got, want)
    assert gpu.stats().decoded_by == cpu.stats().decoded_by == {"video": 15 - 2 * room, "cache": 2 * room}


def test_rows_of_planes_are_uploaded_as_they_are(loader_on, paths, monkeypatch):
    """1.5 bytes a pixel, no row beside the crop's, by one copy per batch from pinned memory of worker threads."""
    uploaded: list[list[int]] = []
    threads: set[str] = set()
    upload, stage = Arena.upload, StagedClips.stage

    def uploading(self: Arena, blocks: Any) -> Any:
        uploaded.append([block.nelement() for block in blocks])
        return upload(self, blocks)

    def staging(self: StagedClips, i: int) -> str:
        threads.add(threading.current_thread().name)
        return stage(self, i)

    monkeypatch.setattr(Arena, "upload", uploading)
    monkeypatch.setattr(StagedClips, "stage", staging)
    for batch in loader_on(True, videos(paths), [T.CenterCrop((20, 30))], batch_size=5):
        assert batch.images.shape == (5, 4, 3, 20, 30)
    rows = 20 * 96 + 2 * 12 * 48  # 20 of luma; 10 of chroma, and one more on both sides
    assert len(uploaded) == 1 and len(uploaded[0]) == 1 and 20 * rows <= uploaded[0][0] < 20 * (rows + 3 * 64)
    assert threads and threads <= {"cuaug-worker-0", "cuaug-worker-1"}


def test_a_larger_clip_takes_another_block(loader_on, tmp_path, monkeypatch):
    """The first clip of a batch chooses the block's size. Sizes differ by format."""
    files = [write_video(tmp_path, name) for name in ("h264 mp4 gray", "h264 mp4 422 10 bits", "h264 mp4 444")]
    seen: list[int] = []
    on_device = StagedClips.on_device

    def counted(self: StagedClips, blocks: Any, failed: Any) -> Any:
        seen.append(len(blocks))
        return on_device(self, blocks, failed)

    monkeypatch.setattr(StagedClips, "on_device", counted)
    monkeypatch.setattr(StagingPool, "take", lambda self, size: torch.empty(size, dtype=torch.uint8))  # no more
    gpu, cpu = (loader_on(on, videos(files), [T.CenterCrop(32)], batch_size=3, threads=1) for on in (True, False))
    for got, want in zip(gpu, cpu, strict=True):
        compare(got, want)
    assert seen == [2]


def test_after_warm_up_only_images_take_memory(loader_on, paths, fake, monkeypatch):
    """On the device, each batch's clips and labels; pinned, the labels."""
    loader = loader_on(True, videos(paths, clips_per_video=3), CHAIN, batch_size=3, layout="NTCHW")
    produce = CudaProducer.produce_clips
    with monkeypatch.context() as patch:  # a slow producer: all prefetched batches wait for it, each with pinned memory
        patch.setattr(CudaProducer, "produce_clips", lambda *a: (time.sleep(0.02), produce(*a))[1])
        for _ in range(4):
            loader.set_epoch(0)  # the same crops
            list(loader)
    fake.torch.allocations.clear()
    loader.set_epoch(0)
    assert len(list(loader)) == 5
    assert sorted(fake.torch.allocations) == [("device", 3 * 4 * 3 * 24 * 24 * 4)] * 5 + [("pinned", 64)] * 5


# --- mistakes ---------------------------------------------------------------------------------------------------------

MISTAKES: dict[str, tuple[tuple[Any, str], list[tuple[str, str]], str]] = {
    "planes are uploaded on another stream": (
        (CudaProducer, "produce_clips"),
        [("        images, sources", f"        {OTHER}\n            images, sources")],
        r"a conversion on stream \d does not wait for the copy on stream \d",
    ),
    "the conversion is queued on the default stream": (
        (cuda.CudaExecutor, "run"),
        [("shared_mem=0, stream=stream", "shared_mem=0, stream=LaunchStream(0)")],
        "a conversion is not on torch's current stream",
    ),
    "the conversion is launched with another device current": (
        (cuda.CudaExecutor, "run"),
        [("with torch.cuda.device(device):", "with torch.cuda.device(0):")],
        "a conversion: GPU 0 is current",
    ),
    "the batch is queued on the default stream": (
        (CudaProducer, "_begin_batch"),
        [("torch.cuda.stream(self.stream)", "torch.cuda.device(self.device)")],
        "the tensor, tells nothing|does not wait for",
    ),
    "planes are looked for a byte further": (
        (StagedClips, "on_device"),
        [("images[plane] += ", "images[plane] += np.uint64(1) + ")],
        "values differ",
    ),
}


def load_twice(loader_on: Any, paths: list[str]) -> None:
    gpu, cpu = (loader_on(on, videos(paths, clips_per_video=3), CHAIN, batch_size=3) for on in (True, False))
    for got, want in zip(gpu, cpu, strict=True):
        compare(got, want)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_fakes_refuse(loader_on, paths, monkeypatch, mistake):
    load_twice(loader_on, paths)
    place, edits, reason = MISTAKES[mistake]
    edit(monkeypatch, place, edits)
    with pytest.raises(AssertionError, match=reason):
        load_twice(loader_on, paths)


@pytest.mark.parametrize("mistake", [None, "no wait", "given back after the launch"])
def test_pinned_memory_is_reused_only_after_its_batchs_event(loader_on, paths, monkeypatch, mistake):
    """The upload reads it until then. With a mistake, the check fails."""
    in_use: list[tuple[torch.Tensor, FakeEvent]] = []
    seen: set[int] = set()
    begin, take, produce = Arena.begin, StagingPool.take, CudaProducer.produce_clips
    wait = FakeEvent.synchronize

    def began(self: Arena, staged: Any) -> None:
        in_use.extend((memory, self.free) for memory in staged._blocks)
        begin(self, staged)

    def waited(self: FakeEvent) -> None:
        wait(self)
        in_use[:] = [(memory, event) for memory, event in in_use if event is not self]

    def taken(self: StagingPool, size: int) -> torch.Tensor:
        buffer = take(self, size)
        assert all(memory is not buffer for memory, _ in in_use), "pinned memory that is still in use"
        seen.add(id(buffer))
        return buffer

    def produced(self: CudaProducer, *arguments: Any) -> None:
        produce(self, *arguments)
        self.staging.give_back(in_use[-1][0])

    monkeypatch.setattr(Arena, "begin", began)
    monkeypatch.setattr(StagingPool, "take", taken)
    monkeypatch.setattr(FakeEvent, "synchronize", wait if mistake == "no wait" else waited)
    if mistake == "given back after the launch":
        monkeypatch.setattr(CudaProducer, "produce_clips", produced)
    loader = loader_on(True, videos(paths, clips_per_video=3), CHAIN, batch_size=3)
    if mistake:
        with pytest.raises(AssertionError, match="pinned memory that is still in use"):
            for _ in range(4):
                list(loader)
        return
    for _ in range(4):
        list(loader)
    assert len(seen) >= _ARENAS


def test_batches_that_are_not_produced_give_their_memory_back(loader_on, paths, monkeypatch):
    """Those in progress when the consumer ends an iteration."""
    buffers, take = [], StagingPool.take

    def taken(self: StagingPool, size: int) -> torch.Tensor:
        buffers.append(take(self, size))
        return buffers[-1]

    monkeypatch.setattr(StagingPool, "take", taken)
    loader = loader_on(True, videos(paths[:1], clips_per_video=8), [T.CenterCrop(24)], batch_size=1)
    for _ in range(20):
        for _ in zip(range(2), loader, strict=False):
            pass
    assert len(buffers) > 40 and len(set(map(id, buffers))) <= _ARENAS + 2 * (loader.prefetch + 1)
