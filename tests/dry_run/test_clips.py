"""Clips on the CUDA pipeline: FFmpeg decodes, planes are uploaded, and a kernel converts them. The CPU's bits."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import cuaug
from cuaug import transforms as T
from cuaug.errors import DecodeError
from cuaug.pipeline.cuda.arena import Arena
from cuaug.pipeline.cuda.staged_clips import StagedClips
from cuaug.sources import Videos
from tests.dry_run.test_staging import MISTAKES as PINNED_MISTAKES
from tests.dry_run.test_staging import assert_gives_memory_back, assert_waits_for_memory
from tests.support.fake_cuda import FakeDecoder
from tests.support.same_batches import assert_same_batches
from tests.support.video.videos import write_video

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


def videos(paths: list[str], **how: Any) -> Videos:
    return Videos(list(zip(paths, range(len(paths)), strict=True)), **({"frames": 4, "stride": 3} | how))


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("layout", ["NTCHW", "NCTHW"])
def test_clips_equal_those_of_the_cpu(equal_loaders, paths, fake, chain, layout):
    options = {"batch_size": 3, "shuffle": True, "layout": layout, "seed": 4}
    stats = equal_loaders(videos(paths, clips_per_video=2), CHAINS[chain], epochs=2, **options).stats()
    assert stats.decoded_by == {"video": 28 if chain == "mixed" else 20}  # each of the 8 batches has a partner
    assert stats.seconds["decode"] > 0 and "decode" in str(stats).split("\nthe producer thread")[0]
    assert len(fake.conversion.launches) == 8 and not FakeDecoder.created, "no decoder of images is opened"


def test_frames_of_many_formats(equal_loaders, tmp_path):
    """In one batch: turned, with 10 bits, gray, and with each subsampling."""
    files = [write_video(tmp_path, name) for name in MIXED]
    equal_loaders(videos(files), [T.RandomResizedCrop(24)], epochs=3, batch_size=6)


@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
def test_damaged_videos(loader_on, equal_loaders, paths, tmp_path, on_error):
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
    equal_loaders(source, CHAIN, error_callback=told.append, **how)
    assert [Path(error.path).name for error in told] == ["none.mp4", "cut.mkv"] * 2


@pytest.mark.parametrize("chain", ["crop", "two passes"])
@pytest.mark.parametrize("budget", [1, 60_000])
def test_chunks_of_a_small_workspace(equal_loaders, paths, fake, monkeypatch, chain, budget):
    monkeypatch.setenv("CUAUG_WORKSPACE_BYTES", str(budget))
    equal_loaders(videos(paths), CHAINS[chain], batch_size=5)
    frames = [grid[0] for grid in fake.conversion.launches]
    assert sum(frames) == 20 and (set(frames) == {1} if budget == 1 else 1 < max(frames) < 20)


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
        assert_same_batches(gpu, cpu)
    assert gpu.stats().decoded_by == cpu.stats().decoded_by == {"video": 15 - 2 * room, "cache": 2 * room}


def test_rows_of_planes_are_uploaded_as_they_are(loader_on, paths, monkeypatch):
    """1.5 bytes a pixel, no row beside the crop's, by one copy per batch from pinned memory of worker threads."""
    uploaded: list[list[int]] = []
    threads: set[str] = set()
    upload, stage = Arena.upload, StagedClips.fill

    def uploading(self: Arena, blocks: Any) -> Any:
        uploaded.append([block.nelement() for block in blocks])
        return upload(self, blocks)

    def staging(self: StagedClips, i: int) -> str:
        threads.add(threading.current_thread().name)
        return stage(self, i)

    monkeypatch.setattr(Arena, "upload", uploading)
    monkeypatch.setattr(StagedClips, "fill", staging)
    for batch in loader_on(True, videos(paths), [T.CenterCrop((20, 30))], batch_size=5):
        assert batch.images.shape == (5, 4, 3, 20, 30)
    rows = 20 * 96 + 2 * 12 * 48  # 20 of luma; 10 of chroma, and one more on both sides
    assert len(uploaded) == 1 and len(uploaded[0]) == 1 and 20 * rows <= uploaded[0][0] < 20 * (rows + 3 * 64)
    assert threads and threads <= {"cuaug-worker-0", "cuaug-worker-1"}


def test_after_warm_up_only_images_take_memory(loader_on, paths, fake):
    """On the device, each batch's clips and labels; pinned, the labels."""
    loader = loader_on(True, videos(paths, clips_per_video=3), CHAIN, batch_size=3, layout="NTCHW")
    epochs, extra = 20, 0
    for _ in range(epochs):
        fake.torch.allocations.clear()
        loader.set_epoch(0)  # the same crops
        assert len(list(loader)) == 5
        allocations = Counter(fake.torch.allocations)
        wanted = Counter({("device", 3 * 4 * 3 * 24 * 24 * 4): 5, ("pinned", 64): 5})
        assert allocations & wanted == wanted
        extra += (allocations - wanted).total()
    # How many batches hold memory at once depends on the threads. Each one's memory grows a few times, not each batch.
    assert extra <= 50 < 5 * epochs


# --- memory ----------------------------------------------------------------------------------------------------------


@PINNED_MISTAKES
def test_pinned_memory_is_reused_only_after_its_batchs_event(loader_on, paths, monkeypatch, mistake):
    """The upload reads it until then."""
    assert_waits_for_memory(
        monkeypatch,
        lambda: loader_on(True, videos(paths, clips_per_video=3), CHAIN, batch_size=3),
        "produce_clips",
        lambda staged: staged._blocks,
        mistake,
    )


def test_batches_that_are_not_produced_give_their_memory_back(loader_on, paths, monkeypatch):
    loader = loader_on(True, videos(paths[:1], clips_per_video=8), [T.CenterCrop(24)], batch_size=1)
    assert_gives_memory_back(monkeypatch, loader, 20)
