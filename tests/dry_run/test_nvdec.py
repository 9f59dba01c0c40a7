"""Clips decoded by NVDEC, with a fake of PyNvVideoCodec: FFmpeg's bits, and its fallback."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest

import cuaug
from cuaug import transforms as T
from cuaug.errors import DecodeError, DeviceError, LoaderError
from cuaug.sources import Videos
from tests.dry_run.test_clips import CHAIN, CHAINS, videos
from tests.support.fake_nvdec import replace_nvdec
from tests.support.same_batches import assert_same_batches
from tests.support.video.videos import VIDEOS, Video, rewrite_packets, write_video

NVDEC = cuaug.DecodeOptions(video_decoder="nvdec")
#: Videos that NVDEC decodes. No key frame of the edit lists' first frames is shown, so those clips are FFmpeg's.
DECODED = (
    *("h264 mp4", "h264 mp4 pyramid", "h264 mp4 variable rate", "h264 mp4 edit list with an empty edit"),
    *("h264 mp4 rotated", "h264 mp4 10 bits", "h264 mkv", "h264 ts"),
    *("hevc mp4", "hevc mp4 open group", "hevc mkv 10 bits"),
    *("vp9 webm", "vp9 webm hidden frames", "av1 mp4", "av1 webm"),
)
FALLBACKS = {
    "h264 mp4 422": "the pixel format yuv422p is none of yuv420p, yuvj420p, yuv420p10le",
    "h264 mp4 intra refresh": "no IDR frame",
    "mjpeg avi": "the codec mjpeg is none of h264, hevc, vp9, av1",
    "mpeg4 mp4": "the codec mpeg4 is none of",
}


@pytest.fixture
def nvdec(fake, monkeypatch):
    yield replace_nvdec(monkeypatch.setattr, monkeypatch.setitem, fake.torch)


def compare_epochs(loader_on: Any, source: Any, chain: Any, epochs: int = 2, **options: Any) -> cuaug.Loader:
    """Batches of NVDEC equal the CPU's. Returns the GPU's loader."""
    gpu = loader_on(True, source, chain, **{"decode": NVDEC} | options)
    cpu = loader_on(False, source, chain, **options)
    for _ in range(epochs):
        assert_same_batches(gpu, cpu)
    return gpu


@pytest.mark.parametrize("chain", CHAINS)
def test_clips_equal_those_of_the_cpu(loader_on, paths, nvdec, chain):
    gpu = compare_epochs(loader_on, videos(paths, clips_per_video=2), CHAINS[chain], batch_size=3, shuffle=True)
    assert set(gpu.stats().decoded_by) == {"nvdec"}
    assert 1 <= nvdec.made <= 2, "one session for each of two threads"


@pytest.mark.parametrize("name", DECODED)
def test_formats(loader_on, tmp_path, nvdec, name):
    """Of each video, clips that begin anywhere, with frames far apart, and with one that repeats."""
    path = write_video(tmp_path, name)
    source = [videos([path], frames=6, stride=stride, clips_per_video=4, pad="last") for stride in (1, 7, 30)]
    for one in source:
        gpu = compare_epochs(loader_on, one, [T.RandomResizedCrop(24)], batch_size=4)
        assert gpu.stats().decoded_by == {"nvdec": 8}


@pytest.mark.parametrize("height, width", [(57, 84), (58, 83), (57, 83)])
def test_odd_sizes(loader_on, tmp_path, nvdec, height, width):
    path = write_video(tmp_path, "odd", Video("webm", "libvpx-vp9", {"cpu-used": "8"}, height=height, width=width))
    assert compare_epochs(loader_on, videos([path]), [T.RandomResizedCrop(24)]).stats().decoded_by == {"nvdec": 2}


@pytest.mark.parametrize("name", FALLBACKS)
def test_ffmpeg_decodes_what_nvdec_does_not(loader_on, tmp_path, paths, nvdec, caplog, name):
    """In one batch with clips of NVDEC: counted, and warned of once."""
    other = write_video(tmp_path, name)
    with caplog.at_level(logging.WARNING, logger="cuaug"):
        source = Videos([paths[0], other, paths[1], other], frames=4, sampling="segments", clips_per_video=3)
        gpu = compare_epochs(loader_on, source, CHAIN, batch_size=6)
    assert gpu.stats().decoded_by["nvdec"] >= 12 and sum(gpu.stats().decoded_by.values()) == 24
    assert gpu.stats().decoded_by["cpu_fallback"] > 0
    (record,) = [record for record in caplog.records if "NVDEC did not decode" in record.message]
    assert FALLBACKS[name] in record.message and Path(other).name in record.message


def test_packets_that_are_no_frames(loader_on, tmp_path, nvdec, caplog):
    """A file that begins with an open group of pictures: the packets before the key frame give no frames."""
    path = rewrite_packets(write_video(tmp_path, "h264 mkv open group"), bytes, first_key=1)
    gpu = compare_epochs(loader_on, videos([path]), [T.RandomResizedCrop(24)], 1)
    assert gpu.stats().decoded_by == {"cpu_fallback": 1} and "frames that are not shown" in caplog.text


CROPS = {
    "h264 left": ("libx264", {"x264-params": "crop-rect=8,0,0,0"}, False),
    "h264 top": ("libx264", {"x264-params": "crop-rect=0,6,0,0"}, False),
    "h264 right and bottom": ("libx264", {"x264-params": "crop-rect=0,0,8,6"}, True),
    "hevc right and bottom": ("libx265", {"x265-params": "log-level=none"}, True),
}


@pytest.mark.parametrize("name", CROPS)
def test_cropped_frames(loader_on, tmp_path, nvdec, caplog, name):
    """The library copies from the left upper corner of a surface."""
    codec, options, is_decoded = CROPS[name]
    path = write_video(tmp_path, name, Video("mp4", codec, options, height=78, width=100))
    gpu = compare_epochs(loader_on, videos([path]), [T.RandomResizedCrop(24)], 1)
    assert gpu.stats().decoded_by == {"nvdec" if is_decoded else "cpu_fallback": 1}
    assert is_decoded or "cropped at the left or top" in caplog.text


def test_edit_lists(loader_on, tmp_path, nvdec):
    """Frames that an edit list leaves out are decoded, but not taken for others; some clips begin before a key frame
    that is shown."""
    files = [write_video(tmp_path, name) for name in VIDEOS if "edit list" in name and "mpeg4" not in name]
    gpu = compare_epochs(
        loader_on, videos(files, clips_per_video=4, pad="last"), [T.RandomResizedCrop(24)], batch_size=4
    )
    assert gpu.stats().decoded_by["nvdec"] > 0 and gpu.stats().decoded_by["cpu_fallback"] > 0


@pytest.mark.parametrize("packet", [0, 3])
def test_errors_of_the_library(loader_on, paths, nvdec, monkeypatch, caplog, packet):
    """FFmpeg decodes the clip, and the next one gets a new session."""
    monkeypatch.setattr(nvdec, "failing", packet)
    gpu = compare_epochs(loader_on, videos(paths), CHAIN, threads=1)
    assert gpu.stats().decoded_by == {"cpu_fallback": 10} and nvdec.made == 10
    (record,) = [record for record in caplog.records if "NVDEC did not decode" in record.message]
    assert record.message.endswith(
        "CUDA_ERROR_UNKNOWN. Later cases are only counted, as cpu_fallback in stats().decoded_by"
    )


def test_damaged_files_are_damaged_samples(loader_on, paths, tmp_path, nvdec):
    none, cut = tmp_path / "none.mp4", tmp_path / "cut.mkv"
    none.write_bytes(b"this is no video" * 100)
    data = bytearray(Path(write_video(tmp_path, "h264 mkv")).read_bytes())
    data[200:3000] = bytes(2800)  # the first key frame, which FFmpeg decodes, too
    cut.write_bytes(data)
    told: list[DecodeError] = []
    source = videos([paths[0], str(none), str(cut), paths[1]])
    gpu = loader_on(True, source, CHAIN, decode=NVDEC, on_error="skip", batch_size=4, error_callback=told.append)
    cpu = loader_on(False, source, CHAIN, on_error="skip", batch_size=4)
    assert_same_batches(gpu, cpu)
    assert str(none) in [error.path for error in told]


def test_a_session_is_for_one_size_and_format(loader_on, tmp_path, nvdec):
    """The library would scale frames of another size."""
    small = write_video(tmp_path, "small", Video("mp4", "libx264", height=48, width=64))
    files = [small, write_video(tmp_path, "h264 mp4"), write_video(tmp_path, "h264 mp4 10 bits"), small]
    gpu = compare_epochs(loader_on, videos(files, clips_per_video=2), [T.RandomResizedCrop(24)], 1, threads=1)
    assert gpu.stats().decoded_by == {"nvdec": 8} and nvdec.made == 4


def test_frames_between_distant_ones_are_not_decoded(loader_on, paths, nvdec):
    """Key frames every 30: the clip takes two frames from each group."""
    source = Videos([(paths[0], 0)], frames=3, stride=30, sampling="all")
    compare_epochs(loader_on, source, CHAIN, 1)
    assert nvdec.decoded < 3 * 8


def test_decoded_caches_use_ffmpeg(loader_on, paths, nvdec):
    """They hold RGB in host memory."""
    source = videos(paths, sampling="uniform")
    gpu = loader_on(True, source, CHAIN, decode=NVDEC, cache="decoded")
    cpu = loader_on(False, source, CHAIN)
    for _ in range(2):
        assert_same_batches(gpu, cpu)
    assert gpu.stats().decoded_by == {"video": 5, "cache": 5} and not nvdec.made


def test_sessions_end_with_the_loader(loader_on, paths, fake, nvdec):
    gpu = compare_epochs(loader_on, videos(paths), CHAIN, 1)
    pool = gpu._pipeline.producer.nvdec
    assert pool._unused
    sessions = [decoder for decoder in pool._unused if decoder._session is not None]
    (producer,) = [stream for stream in fake.torch.driver.streams.values() if "convert" in stream.work]
    assert len(producer.recorded) == 5, "torch's allocator learns who reads each clip's memory"
    gpu.close()
    assert not nvdec.freed_early
    assert sessions and not pool._unused and all(decoder._session is None for decoder in sessions)


def test_what_is_missing_is_said_when_the_loader_is_made(loader_on, paths, fake, monkeypatch):
    monkeypatch.setitem(sys.modules, "PyNvVideoCodec", None)
    with pytest.raises(LoaderError, match=r"pip install .*\[nvdec\]"):
        loader_on(True, videos(paths), CHAIN, decode=NVDEC)
    with pytest.raises(LoaderError, match="video_decoder='nvdec' needs device='cuda'"):
        loader_on(False, videos(paths), CHAIN, decode=NVDEC)

    def broken(module: str, extra: str) -> Any:
        raise RuntimeError("libnvidia-encode.so.1: cannot open shared object file\n\n=== TROUBLESHOOTING")

    monkeypatch.setattr("cuaug.codec.video.nvdec.require_module", broken)
    with pytest.raises(DeviceError, match=r"libnvidia-encode.so.1: cannot open .*NVIDIA_DRIVER_CAPABILITIES"):
        loader_on(True, videos(paths), CHAIN, decode=NVDEC)
