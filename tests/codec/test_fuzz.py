"""Thousands of damaged JPEGs, PNGs and WebPs: none crashes, hangs, takes much memory or harms its neighbors.

fuzz_images.py lists the promises, mutations.py the kinds of damage. The images are decoded in separate processes; a
crash names its case. CUAUG_FUZZ_CASES=100000 makes a longer run, CUAUG_FUZZ_SEED another one.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from cuaug.codec import CpuDecoder
from tests.fuzz.fuzz_images import FOUND, Case, Fuzzer
from tests.fuzz.mutations import join, split
from tests.support.codec.encoded_images import JPEG
from tests.support.codec.originals import ORIGINALS
from tests.support.fuzzers import campaign, check

CASES = int(os.environ.get("CUAUG_FUZZ_CASES", "2000"))
SEED = int(os.environ.get("CUAUG_FUZZ_SEED", "1"))
PROGRAM = "tests.fuzz.fuzz_images"


@pytest.mark.slow
def test_thousands_of_damaged_images(tmp_path):
    count = CASES // 2

    def run(seed: int) -> dict:
        return campaign(PROGRAM, tmp_path / f"mark {seed}", "--seed", seed, "--count", count)

    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(run, (SEED, SEED + 1)):
            check(found, count)
            assert found["through the loader"] == count // 10


@pytest.mark.parametrize(("seed", "count"), [(0, 600), pytest.param(SEED, CASES, marks=pytest.mark.slow)])
def test_damaged_pictures_of_other_modes(tmp_path, seed, count):
    found = campaign(PROGRAM, tmp_path / "mark", "--seed", seed, "--count", count, "--pictures")
    assert found["broken"] == [] and min(found["decoded"], found["refused"]) > count // 10


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
