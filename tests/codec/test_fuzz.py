"""Thousands of damaged JPEGs, PNGs and WebPs: none crashes, hangs, takes much memory or harms its neighbors.

fuzz_images.py lists the promises, mutations.py the kinds of damage. The images are decoded in separate processes; a
crash names its case. CUAUG_FUZZ_CASES=100000 makes a longer run, CUAUG_FUZZ_SEED another one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cuaug.codec import CpuDecoder
from tests.fuzz.fuzz_images import FOUND, Case, Fuzzer, make_case
from tests.fuzz.mutations import join, split
from tests.support.codec.encoded_images import JPEG
from tests.support.codec.originals import ORIGINALS

ROOT = Path(__file__).parents[2]
CASES = int(os.environ.get("CUAUG_FUZZ_CASES", "2000"))
SEED = int(os.environ.get("CUAUG_FUZZ_SEED", "1"))
MAX_GROWTH = 192 << 20  # of a campaign; 45 to 100 MiB were seen, mostly memory that malloc keeps per thread


def start(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.fuzz.fuzz_images", *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def report(process: subprocess.Popen[str], seed: int, mark: Path) -> dict:
    """Read a campaign's report; fail if it did not finish, and name the case."""
    out, err = process.communicate()
    if process.returncode != 0:
        number = int(mark.read_text())
        pytest.fail(
            f"exit code {process.returncode} at {make_case(seed, number)}; try it again with "
            f"`python -m tests.fuzz.fuzz_images --seed {seed} --first {number} --count 1 --keep damaged.bin`\n"
            f"{err[-3000:]}"
        )
    return json.loads(out)


def campaign(seed: int, count: int, folder: Path, *options: str) -> dict:
    mark = folder / f"mark {seed}"
    return report(start("--seed", seed, "--count", count, "--mark", mark, *options), seed, mark)


def check(found: dict, count: int) -> None:
    assert found["broken"] == []
    assert found["decoded"] + found["refused"] == count
    assert min(found["decoded"], found["refused"]) > count // 5, "the damage is too light or too heavy"
    assert found["through the loader"] == count // 10
    assert found["growth"] < MAX_GROWTH


@pytest.mark.slow
def test_thousands_of_damaged_images(tmp_path):
    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(lambda seed: campaign(seed, CASES // 2, tmp_path), (SEED, SEED + 1)):
            check(found, CASES // 2)


def test_damaged_pictures_of_other_modes(tmp_path):
    found = campaign(0, 600, tmp_path, "--pictures")
    assert found["broken"] == [] and min(found["decoded"], found["refused"]) > 60


@pytest.mark.slow
def test_thousands_of_damaged_pictures_of_other_modes(tmp_path):
    found = campaign(SEED, CASES, tmp_path, "--pictures")
    assert found["broken"] == [] and min(found["decoded"], found["refused"]) > CASES // 10


def test_inputs_that_once_broke_a_promise():
    fuzzer = Fuzzer()
    for number, (name, data) in enumerate(FOUND.items()):
        for mode in range(4):  # the case's number decides mode and options
            case = Case(0, 4 * number + mode, name, "none", data)
            fuzzer.try_decoder(case)
            fuzzer.try_picture(case)
    assert len(FOUND) > 10 and fuzzer.broken == []


# --- the fuzzer itself -----------------------------------------------------------------------------------------------


def test_files_split_into_parts_and_join_again():
    for name, data in ORIGINALS.items():
        again = join(data, split(data))
        if not any(tail in name for tail in ("fill bytes", "trailing junk", "mpo", "trailing bytes")):
            assert again == data, name


class Faulty(CpuDecoder):
    """A decoder with one fault."""

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
            return self._memory.array[: pixels.size].reshape(pixels.shape)
        return pixels


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ("none", None),
        ("wrong size", "was promised"),
        ("another error", "KeyError: 'row 7'"),
        ("unwritten", "depends on uninitialized memory"),
        ("harms the next", "the sound image decoded next was harmed"),
    ],
)
def test_faults_are_found(fault, complaint):
    fuzzer = Fuzzer(Faulty(fault))
    fuzzer.try_decoder(Case(0, 1, "jpeg", "nothing", JPEG))
    assert fuzzer.counts["decoded"] + fuzzer.counts["refused"] == 1
    if complaint is None:
        assert fuzzer.broken == []
    else:
        assert complaint in " ".join(fuzzer.broken)
