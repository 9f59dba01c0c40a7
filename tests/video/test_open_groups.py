"""Files that begin with an open group of pictures lose its first frames alone; seeks in MPEG-TS reach the key frame."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cuaug.codec.video import decoder
from cuaug.codec.video.video_index import scan_video
from cuaug.errors import DecodeError
from tests.support.video.videos import Video, plain_frames, plane_bytes, rewrite_packets, write_video

OPEN_GROUPS = {
    "libx264": {"x264-params": "bframes=2:keyint=12:open-gop=1:scenecut=0:b-adapt=0"},
    "libx265": {"x265-params": "bframes=2:keyint=12:min-keyint=12:open-gop=1:scenecut=0:b-adapt=0:log-level=none"},
    "mpeg2video": {"bf": "2"},
}


def segment(folder: Path, codec: str, container: str) -> tuple[str, list[list[bytes]], int]:
    """A video cut at the second key frame; the planes of its frames by decoding the whole one; its first frames."""
    video = Video(container, codec, OPEN_GROUPS[codec], count=60, height=144, width=176, key_distance=12)
    whole = write_video(folder, "whole", video)
    index = scan_video(whole)
    key, planes = int(index.keys[1]), [planes for _, planes in plain_frames(whole)]
    path = rewrite_packets(whole, lambda data: data, first_key=1)
    count = len(scan_video(path).pts)
    leading = int(np.searchsorted(index.pts, key)) - (60 - count)
    return path, planes[60 - count :], leading


@pytest.mark.parametrize("container", ["mpegts", "matroska"])
@pytest.mark.parametrize("codec", OPEN_GROUPS)
def test_a_segment_loses_its_first_frames_alone(tmp_path, codec, container):
    path, planes, leading = segment(tmp_path, codec, container)
    index = scan_video(path)
    assert leading == 2 and len(index.keys) >= 3
    for first in range(leading, len(index.pts), 3):
        numbers = np.arange(first, min(first + 4, len(index.pts)))
        frames = decoder.VideoDecoder().decode(path, index, numbers)
        assert [plane_bytes(frame.owner) for frame in frames] == [planes[number] for number in numbers]
    for numbers in ([0], [1, 2], [1, 30], [20, 0]):
        with pytest.raises(DecodeError, match=r"near 0\.\d+ s"):
            decoder.VideoDecoder().decode(path, index, np.array(numbers))


@pytest.mark.parametrize("start", [0, 200])
@pytest.mark.parametrize("codec", OPEN_GROUPS)
def test_seeks_in_ts_reach_the_key_frame(tmp_path, monkeypatch, codec, start):
    """The first attempt gives each frame; it decodes from the key frame before the frame on."""
    video = Video("mpegts", codec, OPEN_GROUPS[codec], count=60, key_distance=12, times=tuple(range(start, start + 60)))
    path = write_video(tmp_path, "seeks", video)
    index, planes, starts = scan_video(path), dict(plain_frames(path)), []
    frames = decoder._Decoding._frames
    monkeypatch.setattr(decoder._Decoding, "_frames", lambda self, key: starts.append(key) or frames(self, key))
    for number in range(0, 60, 7):
        starts.clear()
        (frame,) = decoder.VideoDecoder().decode(path, index, np.array([number]))
        assert plane_bytes(frame.owner) == planes[int(index.pts[number])]
        assert starts == [int(np.searchsorted(index.keys, index.pts[number], side="right")) - 1]
