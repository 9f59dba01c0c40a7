"""Damaged videos (fuzz_videos.py) of every container: none crashes, hangs, grows or harms the next one."""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.fuzz_videos import CONTAINERS, MAX_PEAK, damage, originals
from tests.support.video.videos import Video, make_video, write_video

ROOT = Path(__file__).parents[2]
MAX_GROWTH = 192 << 20


def campaign(mark: Path, *arguments: object) -> dict:
    """Run the fuzzer in a process of its own; a crash names its case."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.fuzz_videos", "--mark", str(mark), *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        timeout=500,
    )
    if done.returncode != 0:
        pytest.fail(f"exit code {done.returncode} at {mark.read_text().strip()}\n{done.stderr[-3000:]}")
    assert done.stderr == "", "FFmpeg printed lines"
    return json.loads(done.stdout)


def check(found: dict, count: int) -> None:
    assert found["broken"] == []
    assert found["decoded"] + found["refused"] == count
    assert min(found["decoded"], found["refused"]) > count // 5, "the damage is too light or too heavy"
    assert found["growth"] < MAX_GROWTH


def test_damaged_videos(tmp_path):
    check(campaign(tmp_path / "mark", "--count", 60), 60 * len(CONTAINERS))


@pytest.mark.slow
def test_more_damaged_videos(tmp_path):
    """3,000 of each container take minutes: the docstring of tests/fuzz/fuzz_videos.py has the command."""
    check(campaign(tmp_path / "mark", "--seed", 1, "--count", 300), 300 * len(CONTAINERS))


def test_a_table_that_claims_too_many_frames():
    """A damaged `trun` box of this case claims 84 million frames, for which FFmpeg takes 2 GB by default."""
    found = campaign(Path(os.devnull), "--seed", 7, "--container", "mp4", "--first", 969, "--count", 1)
    assert (found["broken"], found["refused"]) == ([], 1)
    assert found["largest"][0] < 100 << 20


@pytest.mark.parametrize("frames", [2_000_000, 22_000_000, 23_000_000, 2**28])
def test_frames_that_a_fragment_claims(tmp_path, frames):
    """Just below the limit of one allocation the index is made, and the bound of a case holds."""
    path, program = tmp_path / "claims.mp4", "import json, sys\n" + CLAIMS
    data = make_video(Video("mp4", "libx264", {"bf": "0"}, count=12, muxer={"movflags": "frag_keyframe+empty_moov"}))
    at = data.index(b"trun") + 4
    run = struct.pack(">II", 0, frames)  # no flags: all frames have the defaults, and need no bytes of the file
    path.write_bytes(data[:at] + run + data[at + len(run) :])
    done = subprocess.run([sys.executable, "-c", program, path], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    error, peak = json.loads(done.stdout)
    assert peak < MAX_PEAK
    assert ("512 MB" in error) == (frames > 22_000_000), error


CLAIMS = """
from cuaug.codec.video.video_index import scan_video
from cuaug.errors import DecodeError
from tests.fuzz.fuzz_videos import peak_bytes, reset_peak
before, error = reset_peak(), ""
try:
    scan_video(sys.argv[1])
except DecodeError as raised:
    error = str(raised)
print(json.dumps([error, peak_bytes() - before]))
"""


@pytest.mark.slow
def test_nothing_grows_with_the_number_of_clips(tmp_path):
    """The bytes that malloc has given out; PyAV's generators keep 150 unless they are closed."""
    path = write_video(tmp_path, "h264 mp4")
    done = subprocess.run(
        [sys.executable, "-c", CLIPS, path],
        cwd=ROOT,
        env=os.environ | {"MALLOC_ARENA_MAX": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert all(growth < 40 for growth in json.loads(done.stdout).values()), done.stdout


CLIPS = """
import ctypes, gc, json, sys
import numpy as np
from cuaug.codec.video.decoder import VideoDecoder
from cuaug.codec.video.video_index import scan_video

class Usage(ctypes.Structure):  # mallinfo2(3)
    _fields_ = [(name, ctypes.c_size_t) for name in "abcdefg"] + [("in_use", ctypes.c_size_t)] + [
        (name, ctypes.c_size_t) for name in "hi"
    ]

mallinfo = ctypes.CDLL(None).mallinfo2
mallinfo.restype = Usage
path = sys.argv[1]
index = scan_video(path)

def growth(function, count):
    for _ in range(400):
        function()
    gc.collect()
    before = mallinfo().in_use
    for _ in range(count):
        function()
    gc.collect()
    return (mallinfo().in_use - before) / count

print(json.dumps({
    "scan": growth(lambda: scan_video(path), 2000),
    "decode": growth(lambda: VideoDecoder().decode(path, index, np.array([3, 40])), 2000),
}))
"""


def test_damage_differs_and_is_reproducible():
    data = originals("mp4")["h264 mp4"]
    cases = [damage(random.Random(seed), data) for seed in range(300)]
    assert cases == [damage(random.Random(seed), data) for seed in range(300)]
    assert len(set(cases) - {data}) > 280
