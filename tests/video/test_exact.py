"""Decoded frames equal those of plain decoding from the first frame on, bit for bit, and come in the order asked."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import av
import numpy as np
import pytest

from cuaug.codec.video.decoder import VideoDecoder
from cuaug.codec.video.video_index import scan_video
from cuaug.errors import DecodeError
from tests.support.video.videos import VIDEOS, Video, plain_frames, plane_bytes, write_video

# FFmpeg numbers the packets of these in the order of decoding; frames share timestamps.
WITHOUT_TIMES = {"h264 avi b-frames"}
NAMES = [name for name in VIDEOS if name not in WITHOUT_TIMES]
CONVERTED = {"h264rgb mkv"}


@functools.cache
def _folder() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory()


@functools.cache
def _path(name: str) -> str:
    return write_video(Path(_folder().name), name)


def random_clip(rng: np.random.Generator, count: int) -> np.ndarray:
    """(T,) frame numbers: at a stride, or in any order with repetitions."""
    length = int(rng.integers(1, 17))
    if rng.random() < 0.3:
        return rng.integers(0, count, length)
    return np.minimum(rng.integers(count) + np.arange(length) * int(rng.integers(1, 9)), count - 1)


def check(name: str, seed: int, clips: int) -> None:
    path, rng = _path(name), np.random.default_rng([seed, list(VIDEOS).index(name)])
    index, plain = scan_video(path), dict(plain_frames(path))
    missing = index.pts.tolist()[len(plain) :]
    assert index.pts.tolist() == list(plain) + missing
    assert not missing or ("truncated" in name and len(missing) < 5), "frames of the file's cut end come not out"
    # Plain decoding gives up at a cut end with frames in the decoder; the whole file has them.
    expected = dict(plain_frames(_path(name.removesuffix(" truncated")))) | plain
    for _ in range(clips):
        numbers = random_clip(rng, len(index.pts))
        try:
            frames = VideoDecoder().decode(path, index, numbers)
        except DecodeError as error:
            # The last frame that a truncated file holds is cut: plain decoding fills it up.
            assert "truncated" in name and int(numbers.max()) >= len(index.pts) - 4, (numbers, error)
            continue
        for number, frame in zip(numbers.tolist(), frames, strict=True):
            assert plane_bytes(frame.owner) == expected[int(index.pts[number])], f"{name}: frame {number} of {numbers}"


# Of each video two clips, or twelve: together above 130 and 800.
@pytest.mark.parametrize("seed, clips", [(0, 2), pytest.param(1, 12, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [name for name in NAMES if name not in CONVERTED])
def test_frames_equal_plain_decoding(name, seed, clips):
    check(name, seed, clips)


def test_edit_lists_that_give_frames_one_timestamp_are_refused(tmp_path):
    video = Video("mp4", "mpeg4", {"bf": "2"}, count=85, edits=((8, 13), (61, 6)))
    with pytest.raises(DecodeError, match="edit list gives several frames one timestamp"):
        scan_video(write_video(tmp_path, "edits", video))


def test_a_cut_frame_of_mpeg2_is_refused(tmp_path):
    """Its decoder reports an error, and at some cuts gives what it has of the frame all the same."""
    path, outcomes = write_video(tmp_path, "mpeg2 ts"), []
    data, whole = Path(path).read_bytes(), dict(plain_frames(path))
    for share in np.arange(0.35, 0.95, 0.01):
        Path(path).write_bytes(data[: int(len(data) * share)])
        index = scan_video(path)
        last = len(index.pts) - 1
        (frame,) = VideoDecoder().decode(path, index, np.array([last - 2]))
        assert plane_bytes(frame.owner) == whole[int(index.pts[last - 2])]
        try:
            (frame,) = VideoDecoder().decode(path, index, np.array([last]))
        except DecodeError:
            outcomes.append("refused")
            continue
        assert plane_bytes(frame.owner) == whole[int(index.pts[last])], share
        outcomes.append("whole")
    assert set(outcomes) == {"refused", "whole"}


def test_other_formats_are_converted_by_libswscale():
    """RGB becomes yuv444p10le of full range and BT.601."""
    path = _path("h264rgb mkv")
    (frame,) = VideoDecoder().decode(path, scan_video(path), np.array([40]))
    assert (frame.format, frame.matrix, frame.full_range) == ("yuv444p10le", "bt601", True)
    with av.open(path) as container:
        plain = next(f for k, f in enumerate(container.decode(video=0)) if k == 40)
    expected = plain.reformat(format="yuv444p10le", dst_colorspace="ITU601", dst_color_range="JPEG")
    assert plane_bytes(frame.owner) == plane_bytes(expected)


def test_frames_outlive_the_decoder():
    path = _path("h264 mp4")
    index = scan_video(path)
    frames = VideoDecoder().decode(path, index, np.arange(30))
    before = [plane_bytes(frame.owner) for frame in frames]
    VideoDecoder().decode(path, index, np.arange(30, 60))
    assert [plane_bytes(frame.owner) for frame in frames] == before


def test_damage_names_its_time(tmp_path):
    path = Path(write_video(tmp_path, "h264 mp4"))
    index = scan_video(str(path))
    with av.open(str(path)) as container:
        packet = next(p for p in container.demux(video=0) if p.pts == index.pts[30])
        at, size = packet.pos, packet.size
    data = bytearray(path.read_bytes())
    data[at : at + size] = bytes(size)
    path.write_bytes(data)
    assert len(VideoDecoder().decode(str(path), index, np.arange(20))) == 20
    with pytest.raises(DecodeError, match=r"near 1\.\d+ s"):
        VideoDecoder().decode(str(path), index, np.arange(30, 40))


def test_another_size_in_the_middle_is_refused(tmp_path):
    small = Video("mpegts", "libx264", {"x264-params": "bframes=0"}, count=30)
    large = Video("mpegts", "libx264", {"x264-params": "bframes=0"}, count=30, height=96, times=tuple(range(30, 60)))
    paths = [write_video(tmp_path, f"part {k}", video) for k, video in enumerate((small, large))]
    joined = tmp_path / "joined.ts"
    joined.write_bytes(b"".join(Path(path).read_bytes() for path in paths))
    index = scan_video(str(joined))
    assert len(index.pts) == 60 and (index.height, index.width) == (64, 96)
    assert len(VideoDecoder().decode(str(joined), index, np.arange(20))) == 20
    with pytest.raises(DecodeError, match="has 96 x 96 pixels"):
        VideoDecoder().decode(str(joined), index, np.arange(40, 45))
