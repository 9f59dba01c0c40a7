"""Runs a program of tests/fuzz in a process of its own, and checks its report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
MAX_GROWTH = 192 << 20  # of a campaign; 45 to 100 MiB were seen, mostly memory that malloc keeps per thread


def campaign(program: str, mark: Path, *arguments: object) -> dict[str, Any]:
    """A campaign's report, and what it printed. The program writes each case to `mark`, which names a crash."""
    command = [sys.executable, "-m", program, "--mark", str(mark), *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.fail(f"exit code {done.returncode} of `{program}` at {mark.read_text().strip()}\n{done.stderr[-3000:]}")
    return json.loads(done.stdout) | {"printed": done.stderr}


def check(found: dict[str, Any], count: int) -> None:
    """Asserts that no promise is broken, and that the damage has the right strength."""
    assert found["broken"] == []
    assert found["decoded"] + found["refused"] == count
    assert min(found["decoded"], found["refused"]) > count // 5, "the damage is too light or too heavy"
    assert found["growth"] < MAX_GROWTH
