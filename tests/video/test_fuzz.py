"""Damaged videos (fuzz_videos.py) of every container: none crashes, hangs, grows or harms the next one."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.fuzz_videos import CONTAINERS, MAX_PEAK
from tests.support.video.videos import Video, make_video

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
        timeout=600,
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
    check(campaign(tmp_path / "mark", "--seed", 1, "--count", 120), 120 * len(CONTAINERS))


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
    done = subprocess.run([sys.executable, "-c", program, path], cwd=ROOT, capture_output=True, text=True, timeout=600)
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
