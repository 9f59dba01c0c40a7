"""Random clips of random videos of all codecs equal plain decoding in their planes, bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cuaug.codec.video.decoder import VideoDecoder
from cuaug.codec.video.video_index import scan_video
from cuaug.errors import DecodeError
from tests.support.video.random_videos import random_video
from tests.support.video.videos import EXTENSIONS, make_video, plain_frames, plane_bytes
from tests.video.test_exact import random_clip

CLIPS = 5
LOST = 4  # the last frames of a cut file may be damaged: they are refused, where plain decoding fills them up


def check(folder: Path, seed: int) -> int:
    """Number of clips that were compared."""
    rng = np.random.default_rng(seed)
    video, share = random_video(rng)
    data, whole = make_video(video), folder / f"whole.{EXTENSIONS[video.container]}"
    path = whole.with_stem("cut")
    whole.write_bytes(data)
    path.write_bytes(data[: int(len(data) * share)])
    # FFmpeg gives some frames of such edit lists the timestamps of others.
    has_parts = video.edits is not None and sum(first >= 0 for first, _ in video.edits) > 1
    try:
        index = scan_video(str(path))
    except DecodeError as error:
        assert has_parts and "several frames one timestamp" in str(error), (video, error)
        return 0
    plain = dict(plain_frames(str(path)))
    if share == 1.0 and not has_parts:
        assert index.pts.tolist() == list(plain), video
    expected, compared = dict(plain_frames(str(whole))) | plain, 0
    for _ in range(CLIPS):
        numbers = random_clip(rng, len(index.pts))
        try:
            frames = VideoDecoder().decode(str(path), index, numbers)
        except DecodeError:
            assert has_parts or (share < 1.0 and numbers.max() >= len(index.pts) - LOST), (video, share, numbers)
            continue
        for number, frame in zip(numbers.tolist(), frames, strict=True):
            assert plane_bytes(frame.owner) == expected[int(index.pts[number])], (video, share, number, numbers)
        compared += 1
    return compared


@pytest.mark.parametrize(
    "seeds, clips", [(range(12), 40), pytest.param(range(100, 152), 200, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_random_videos(tmp_path, seeds, clips):
    assert sum(check(tmp_path, seed) for seed in seeds) > clips
