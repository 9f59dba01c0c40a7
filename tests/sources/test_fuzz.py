"""Thousands of damaged datasets raise only cuaug's errors, each within 5 seconds and 1 GB.

`tests/fuzz/fuzz_sources.py` opens and reads them, in processes of their own; if one dies, the test names the case.
CUAUG_FUZZ_CASES=100000 makes a longer run, as `make fuzz` does each night, CUAUG_FUZZ_SEED another one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fuzz.fuzz_sources import KINDS

ROOT = Path(__file__).parents[2]
CASES = int(os.environ.get("CUAUG_FUZZ_CASES", "2000"))
SEED = int(os.environ.get("CUAUG_FUZZ_SEED", "20261125"))
# Of one process, which imports torch for longer than it takes for some hundred cases.
GROUPS = [list(KINDS)[first::4] for first in range(4)]


def campaign(kinds: Sequence[str], first: int, count: int, folder: Path) -> dict:
    """Runs a campaign and returns its measurements; a failure names the command that repeats the case."""
    mark = folder / "mark"
    program = [sys.executable, "-W", "error::RuntimeWarning", "-m", "tests.fuzz.fuzz_sources"]
    options = ["--seed", str(SEED), "--first", str(first), "--count", str(count), "--mark", str(mark)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "CUAUG_CACHE_DIR": str(folder / "caches")}
    command = [*program, *kinds, *options]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=3600)
    if done.returncode != 0:
        kind, _, number = mark.read_text().rpartition(" ")
        pytest.fail(
            f"exit code {done.returncode} at case {number} of {kind!r}; repeat it with "
            f"`python -m tests.fuzz.fuzz_sources '{kind}' --seed {SEED} --first {number} --count 1`\n"
            f"{done.stderr[-3000:]}"
        )
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("kinds", GROUPS)
def test_thousands_of_damaged_datasets(tmp_path, kinds):
    measured = campaign(kinds, 100, CASES // len(KINDS), tmp_path)
    assert measured["longest_seconds"] < 5
    assert measured["growth_bytes"] < 1 << 30


def test_the_fuzzer_notices_other_errors(tmp_path):
    """It ends with the case's number."""
    program = (
        "import sys; from tests.fuzz import fuzz_sources as fuzzer; "
        "fuzzer.KINDS['list'] = lambda rng, folder: 1 / rng.randrange(5); "
        "sys.argv[1:] = ['list', '--count', '100']; sys.exit(fuzzer.main())"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and "ZeroDivisionError" in done.stderr and "broke its promise" in done.stderr
