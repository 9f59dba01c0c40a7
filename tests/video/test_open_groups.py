"""Files that begin with an open group of pictures lose its leading frames alone; seeks in MPEG-TS reach key frames."""

from __future__ import annotations

import av
import numpy as np
import pytest

from cuaug.codec.video import decoder
from cuaug.codec.video.video_index import scan_video
from tests.support.video.videos import Video, plain_frames, plane_bytes, rewrite_packets, write_video

OPEN_GROUPS = {
    "libx264": {"x264-params": "bframes=2:keyint=12:open-gop=1:scenecut=0:b-adapt=0"},
    "libx265": {"x265-params": "bframes=2:keyint=12:min-keyint=12:open-gop=1:scenecut=0:b-adapt=0:log-level=none"},
    "mpeg2video": {"bf": "2"},
}


@pytest.mark.parametrize("container", ["mpegts", "matroska"])
@pytest.mark.parametrize("codec", OPEN_GROUPS)
def test_a_segment_loses_its_leading_frames_alone(tmp_path, codec, container):
    """They refer to frames before the cut, and precede the key frame: FFmpeg gives none for them."""
    video = Video(container, codec, OPEN_GROUPS[codec], count=60, height=144, width=176, key_distance=12)
    whole = write_video(tmp_path, "whole", video)
    key, planes = int(scan_video(whole).keys[1]), [planes for pts, planes in plain_frames(whole)]
    path = rewrite_packets(whole, lambda data: data, first_key=1)
    index, first = scan_video(path), int(np.searchsorted(scan_video(whole).pts, key))
    with av.open(path) as container:
        assert sum(packet.size > 0 for packet in container.demux(video=0)) == 60 - first + 2
    assert index.pts[0] == index.keys[0] and len(index.pts) == 60 - first and len(index.keys) >= 3
    for start in range(0, len(index.pts), 3):
        numbers = np.arange(start, min(start + 4, len(index.pts)))
        frames = decoder.VideoDecoder().decode(path, index, numbers)
        assert [plane_bytes(frame.owner) for frame in frames] == [planes[first + number] for number in numbers]


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
