"""Decoding seeks to a later key frame only where that skips frames: else it would decode the key frame twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cuaug.codec.video import decoder
from cuaug.codec.video.video_index import scan_video
from tests.support.video.videos import Video, write_video

OPTIONS = {"preset": "veryfast", "bf": "3", "g": "12", "sc_threshold": "0"}


@pytest.fixture
def starts(monkeypatch):
    """The key frames from which decoding started."""
    found, frames = [], decoder._Decoding._frames
    monkeypatch.setattr(decoder._Decoding, "_frames", lambda self, key: found.append(key) or frames(self, key))
    return found


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        (np.arange(4, 40, 2), [0]),  # across key frames 12, 24 and 36
        (np.arange(12), [0]),
        ([11, 12], [0]),
        ([9, 13], [0]),  # decoders give frames late: frames 10 and 11 are sent already
        ([1, 26], [0, 2]),
        ([14, 15, 50], [1, 4]),
    ],
)
def test_decoding_seeks_where_that_skips_frames(tmp_path: Path, starts, numbers, expected):
    path = write_video(tmp_path, "seeks", Video("mp4", "libx264", OPTIONS))
    index = scan_video(path)
    assert np.array_equal(np.searchsorted(index.pts, index.keys), np.arange(0, len(index.pts), 12))
    frames = decoder.VideoDecoder().decode(path, index, np.array(numbers))
    assert starts == expected
    assert [frame.owner.pts for frame in frames] == index.pts[numbers].tolist()
