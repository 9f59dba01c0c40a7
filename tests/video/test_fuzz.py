"""Damaged videos of every container: none crashes, hangs, grows or harms the video decoded next. See fuzzer.py."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.video.fuzzer import CONTAINERS, damage, originals

ROOT = Path(__file__).parents[2]
MAX_GROWTH = 192 << 20


def campaign(mark: Path, *arguments: object) -> dict:
    """Run the fuzzer in a process of its own; a crash names its case."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.video.fuzzer", "--mark", str(mark), *map(str, arguments)],
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
    """3,000 of each container take minutes: the docstring of fuzzer.py has the command."""
    check(campaign(tmp_path / "mark", "--seed", 1, "--count", 300), 300 * len(CONTAINERS))


def test_damage_differs_and_is_reproducible():
    data = originals("mp4")["h264 mp4"]
    cases = [damage(random.Random(seed), data) for seed in range(300)]
    assert cases == [damage(random.Random(seed), data) for seed in range(300)]
    assert len(set(cases) - {data}) > 280
