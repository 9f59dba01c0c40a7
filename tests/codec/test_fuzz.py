"""Ten thousand damaged JPEGs, PNGs and WebPs: none crashes, hangs, takes memory or harms its neighbours.

What is asked of each stands in fuzzer.py, how they are damaged in mutations.py. The pictures are decoded in processes
of their own: one that dies names the case it died of.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cuaug.codec import CpuDecoder
from tests.codec.fuzzer import Case, Fuzzer, case
from tests.codec.images import JPEG, PNG
from tests.codec.mutations import KINDS, join, mutate, split
from tests.codec.originals import ORIGINALS

ROOT = Path(__file__).parents[2]
MOST_GROWTH = 192 << 20  # of a whole campaign; 45 to 100 MiB were seen, most of it what malloc keeps for its threads


def start(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.codec.fuzzer", *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def report(process: subprocess.Popen[str], seed: int, mark: Path) -> dict:
    """What a campaign found; fails where it did not come to its end, and names the case."""
    out, err = process.communicate(timeout=250)
    if process.returncode != 0:
        number = int(mark.read_text())
        pytest.fail(
            f"exit code {process.returncode} at {case(seed, number)}; try it again with "
            f"`python -m tests.codec.fuzzer --seed {seed} --first {number} --count 1 --keep damaged.bin`\n{err[-3000:]}"
        )
    return json.loads(out)


def campaign(seed: int, count: int, folder: Path) -> dict:
    mark = folder / f"mark {seed}"
    return report(start("--seed", seed, "--count", count, "--mark", mark), seed, mark)


def check(found: dict, count: int) -> None:
    assert found["broken"] == []
    assert found["pictures"] + found["refused"] == count
    assert min(found["pictures"], found["refused"]) > count // 5, "too gentle, or too rough, to try much"
    assert found["through the loader"] == count // 10
    assert found["growth"] < MOST_GROWTH


@pytest.mark.slow
def test_a_thousand_damaged_pictures(tmp_path):
    check(campaign(0, 1000, tmp_path), 1000)


@pytest.mark.slow
def test_ten_thousand_damaged_pictures(tmp_path):
    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(lambda seed: campaign(seed, 5000, tmp_path), (1, 2)):
            check(found, 5000)


# --- the fuzzer itself -----------------------------------------------------------------------------------------------


def test_files_fall_into_parts_and_back():
    for name, data in ORIGINALS.items():
        again = join(data, split(data))
        if not any(tail in name for tail in ("fill bytes", "trailing junk", "mpo", "much to say")):
            assert again == data, name


def test_mutations_differ_and_can_be_made_again():
    damaged = [case(5, number) for number in range(500)]
    assert [what.data for what in damaged] == [case(5, number).data for number in range(500)]
    assert all(what.data != ORIGINALS[what.original] for what in damaged)
    assert len({what.data for what in damaged}) > 480
    done = {name for what in damaged for name in what.mutations.split("+")}
    assert done == KINDS


def test_damage_leaves_checksums_right():
    """Informed damage gets past the checksums: some of it is still a picture."""
    rng, alive = random.Random(0), 0
    for _ in range(200):
        data, done = mutate(rng, PNG, PNG)
        if done in ("damage_body", "damage_rest", "hostile_number"):
            alive += join(data, split(data)) == data
    assert alive > 20


@pytest.mark.slow
def test_a_crash_names_its_case(tmp_path):
    mark = tmp_path / "mark"
    process = start("--seed", 3, "--count", 100_000, "--mark", mark)
    while not mark.exists() or int(mark.read_text() or 0) < 20:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGSEGV)
    with pytest.raises(
        pytest.fail.Exception, match=r"exit code -11 at seed 3, case \d+ \('.*' after .*--seed 3 --first"
    ):
        report(process, 3, mark)


@pytest.mark.slow
def test_a_hang_names_its_case(tmp_path):
    mark, keep = tmp_path / "mark", tmp_path / "pipe"
    os.mkfifo(keep)
    process = start("--seed", 3, "--count", 100_000, "--mark", mark, "--deadline", 3, "--keep", keep)
    read, cases = keep.read_bytes(), 0
    while read:  # more than the first, where another came before this end was seen
        one = case(3, cases).data
        assert read.startswith(one)
        read, cases = read[len(one) :], cases + 1
    # The next picture is never read, so writing it never ends.
    with pytest.raises(pytest.fail.Exception, match=rf"exit code 1 at seed 3, case {cases} .*(?s:.*)Timeout"):
        report(process, 3, mark)


class Faulty(CpuDecoder):
    """A decoder that does not do as it should with JPEG, or with all but JPEG."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self._fault = fault
        self._sound = CpuDecoder()

    def decode(self, header, region=None):
        pixels = self._sound.decode(header, region)
        if header._data != JPEG:
            return 255 - pixels if self._fault == "harms the next" else pixels
        if self._fault == "wrong size":
            return pixels[1:]
        if self._fault == "another error":
            raise KeyError("row 7")
        if self._fault == "unwritten":
            return self._slots[0].memory[: pixels.size].reshape(pixels.shape)
        return pixels


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ("none", None),
        ("wrong size", "was promised"),
        ("another error", "KeyError: 'row 7'"),
        ("unwritten", "depends on what was in memory before"),
        ("harms the next", "the good picture decoded next was harmed"),
    ],
)
def test_faults_are_found(fault, complaint):
    fuzzer = Fuzzer(Faulty(fault))
    fuzzer.try_decoder(Case(0, 1, "jpeg", "nothing", JPEG))
    assert fuzzer.counts["pictures"] + fuzzer.counts["refused"] == 1
    if complaint is None:
        assert fuzzer.broken == []
    else:
        assert complaint in " ".join(fuzzer.broken)
