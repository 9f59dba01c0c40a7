"""Caches keep encoded videos and decoded clips, and change no pixel."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

import cuaug
from cuaug import ArgumentError, DecodedCache, DecodeError, Loader, SourceError
from cuaug import transforms as T
from cuaug.codec.video.decoder import VideoDecoder
from cuaug.codec.video.video_index import scan_video
from cuaug.pipeline.clip_reader import check_clip_options
from cuaug.sources import Videos
from cuaug.sources.shards.shard_index import HEAD_BYTES, TAIL_BYTES
from tests.support.video.loading import CHAIN, videos, write
from tests.support.video.videos import VIDEOS, plane_bytes, write_video

COUNT = 4


@pytest.fixture
def files(tmp_path) -> list[str]:
    for number in range(COUNT):
        write(tmp_path / f"{number}.mp4", number)
    return [str(tmp_path / f"{number}.mp4") for number in range(COUNT)]


def epochs(source, chain=CHAIN, *, between=None, count=3, **how):
    """The batches of some epochs, and the loader's cache; `between` runs after the first epoch."""
    with Loader(source, chain, **({"batch_size": 3, "seed": 0, "shuffle": True} | how)) as loader:
        found = []
        for epoch in range(count):
            found.append(list(loader))
            if epoch == 0 and between is not None:
                between()
        return found, loader.cache, loader.stats()


def assert_equal(found, expected, *, same_chain: bool = True) -> None:
    for batches, others in zip(found, expected, strict=True):
        for batch, other in zip(batches, others, strict=True):
            assert torch.equal(batch.images, other.images) and torch.equal(batch.labels, other.labels)
            assert torch.equal(batch.clips.numbers, other.clips.numbers)
            assert torch.equal(batch.clips.timestamps, other.clips.timestamps)
            assert not same_chain or batch.digest == other.digest


@pytest.mark.parametrize("name", VIDEOS)
def test_frames_decoded_from_memory_are_those_of_the_file(tmp_path, name):
    path = write_video(tmp_path, name)
    try:
        index = scan_video(path)
    except DecodeError:
        pytest.skip("refused, with or without a cache")
    numbers = np.arange(0, len(index.pts), 7)

    def planes(file):
        try:
            frames = VideoDecoder().decode(file, index, numbers)
        except DecodeError as error:
            return str(error)
        return [plane_bytes(frame.owner) for frame in frames]

    assert planes(path) == planes(Path(path).read_bytes())


@pytest.mark.parametrize("how", [{}, {"clips_per_video": 2}, {"sampling": "all", "step": 11}, {"fps": 10, "stride": 1}])
@pytest.mark.parametrize("where", ["memory", "directory"])
def test_decoded_cache_of_clips(files, tmp_path, how, where):
    for path in files:
        with open(path, "ab") as file:
            file.write(TAIL_BYTES.to_bytes(4, "big") + b"free" + bytes(TAIL_BYTES - 8))  # an empty box
    source = videos(files, **({"sampling": "uniform"} | how))
    expected, _, _ = epochs(source)
    cache = DecodedCache() if where == "memory" else DecodedCache(directory=tmp_path / "cache", limit_bytes=1 << 30)

    def damage():
        for path in files:  # with the stamp of before, or the index would be made anew
            status, data = os.stat(path), Path(path).read_bytes()
            assert len(data) > HEAD_BYTES + TAIL_BYTES + 2000
            damaged = data[:HEAD_BYTES] + bytes(len(data) - HEAD_BYTES - TAIL_BYTES) + data[-TAIL_BYTES:]
            Path(path).write_bytes(damaged)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
            with pytest.raises(DecodeError):
                scan_video(path)

    found, cache, stats = epochs(source, cache=cache, between=damage)
    assert_equal(found, expected)
    assert stats.decoded_by == {"video": len(source), "cache": 2 * len(source)}
    assert cache.stats.samples == len(source) and cache.stats.bytes >= len(source) * 5 * 48 * 64 * 3
    if where == "directory":
        again, _, stats = epochs(source, cache=DecodedCache(directory=tmp_path / "cache", limit_bytes=1 << 30))
        assert_equal(again, expected)
        assert stats.decoded_by == {"cache": 3 * len(source)}
        other = DecodedCache(directory=tmp_path / "cache", limit_bytes=1 << 30)
        with pytest.raises(SourceError, match="another decoded cache"):
            Loader(videos(files, sampling="uniform", frames=4), cache=other)


def test_decoded_cache_scales_frames_down(files):
    source = videos(files, sampling="uniform")
    resized = [T.Resize((24, 32))]
    expected, _, _ = epochs(source, resized)
    found, cache, _ = epochs(source, cache=DecodedCache(short_side=24), chain=[])
    assert_equal(found, expected, same_chain=False)
    assert cache.stats.bytes == COUNT * 5 * 24 * 32 * 3
    cropped, _, _ = epochs(source, [T.RandomCrop(20)], cache=DecodedCache(short_side=24))
    assert_equal(cropped, epochs(source, [T.Resize((24, 32)), T.RandomCrop(20)])[0], same_chain=False)
    label = {"boxes": np.full((5, 1, 4), [20.0, 10.0, 30.0, 20.0])}
    boxed = Videos([(path, label) for path in files], frames=5, sampling="uniform")
    with pytest.raises(ArgumentError, match="short_side=24 scales images down, but not their boxes"):
        epochs(boxed, cache=DecodedCache(short_side=24))


def test_a_full_decoded_cache_changes_nothing(files):
    source = videos(files, sampling="uniform")
    one_clip = 5 * 48 * 64 * 3
    found, cache, stats = epochs(source, cache=DecodedCache(limit_bytes=2 * one_clip + 1))
    assert_equal(found, epochs(source)[0])
    assert cache.stats.samples == 2 and stats.decoded_by["cache"] == 4


@pytest.mark.parametrize("sampling", ["random", "segments"])
def test_decoded_cache_of_random_clips_is_refused(files, sampling):
    how = {"stride": 1} if sampling == "segments" else {}
    with pytest.raises(ArgumentError, match=f"cache: .*sampling='{sampling}' draws other frames"):
        Loader(videos(files, sampling=sampling, **how), CHAIN, cache="decoded")


def test_a_decoded_cache_in_a_gpus_memory_is_refused(files):
    cache, sampler = DecodedCache(limit_bytes=1 << 20, on_device=True), videos(files, sampling="uniform").clip_sampler
    with pytest.raises(ArgumentError, match="on_device=True keeps images, not clips"):
        check_clip_options(cache, cuaug.DecodeOptions(), sampler, stack=True)
