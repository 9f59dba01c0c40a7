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
from tests.support.fuzzers import ROOT, campaign, check
from tests.support.video.videos import Video, make_video


def quiet_campaign(mark: Path, *arguments: object) -> dict:
    found = campaign("tests.fuzz.fuzz_videos", mark, *arguments)
    assert found["printed"] == "", "FFmpeg printed lines"
    return found


@pytest.mark.parametrize(("seed", "count"), [(0, 60), pytest.param(1, 120, marks=pytest.mark.slow)])
def test_damaged_videos(tmp_path, seed, count):
    """3,000 of each container take minutes: the docstring of tests/fuzz/fuzz_videos.py has the command."""
    found = quiet_campaign(tmp_path / "mark", "--seed", seed, "--count", count)
    check(found, count * len(CONTAINERS))


def test_a_table_that_claims_too_many_frames():
    """A damaged `trun` box of this case claims 84 million frames, for which FFmpeg takes 2 GB by default."""
    case = ("--seed", 7, "--container", "mp4", "--first", 969, "--count", 1)
    found = quiet_campaign(Path(os.devnull), *case)
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
from tests.support.codec.memory import forget_peak, peak_bytes
before, error = forget_peak(), ""
try:
    scan_video(sys.argv[1])
except DecodeError as raised:
    error = str(raised)
print(json.dumps([error, peak_bytes() - before]))
"""
