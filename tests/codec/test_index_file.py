"""The file of a JPEG index: processes share it, and no damage to it changes pixels."""

from __future__ import annotations

import multiprocessing
import os
import random
import subprocess
import sys
import time
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cuaug.codec import JpegIndex
from cuaug.codec.jpeg_index import IndexFile
from tests.support.codec.index_files import HEADER, forge, forged_record, open_descriptor, parse
from tests.support.codec.jpeg_crops import MCU, crop, jpeg

REGION = (20, 60, 50, 110)
FILES = [jpeg(90 + i, 160 + i, kind, 90) for i, kind in enumerate([*MCU, *MCU])]
DIFFERENT = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def open_index(path: Path, limit: int = 1 << 24, files: int = 1, flags: int = os.O_RDWR | os.O_CREAT) -> JpegIndex:
    return JpegIndex(limit, files, lambda: IndexFile(open_descriptor(path, flags), bool(flags & os.O_RDWR), str(path)))


def crops(index: JpegIndex, files: list[bytes] = FILES) -> list[object]:
    return [crop(file, REGION, index) for file in files]


WANT = crops(JpegIndex(1 << 24))


@pytest.fixture
def path(tmp_path):
    """An index of all files."""
    path = tmp_path / "index"
    assert crops(open_index(path)) == WANT and None not in WANT
    return path


def assert_works(path: Path, *, damaged: bool = False) -> None:
    """An index that opens the file gives all crops, and completes it for the next one."""
    index = open_index(path)
    assert crops(index) == WANT == crops(index)
    assert (index.stats().damaged > 0) <= damaged
    last = open_index(path)
    assert crops(last) == WANT and last.stats()[2:] == (0, 0)
    parse(path.read_bytes())


# --- sharing ---------------------------------------------------------------------------------------------------------


# Forked: a new process would import torch for longer than it writes.
FORK = multiprocessing.get_context("fork")


def write_all(path: Path, seed: int, pipe: Connection) -> None:
    """Adds all files in an order of its own, after a word from the test; the made and the damaged entries."""
    index, order = open_index(path), list(range(len(FILES)))
    random.Random(seed).shuffle(order)
    pipe.send("ready")
    pipe.recv()
    assert [crop(FILES[i], REGION, index) for i in order] == [WANT[i] for i in order]
    pipe.send((index.stats().made, index.stats().damaged))


def start_writer(path: Path, seed: int) -> tuple[Any, Connection]:
    ours, theirs = FORK.Pipe()
    process = FORK.Process(target=write_all, args=(path, seed, theirs))
    process.start()
    theirs.close()  # so that a writer that fails ends a wait for it
    assert ours.recv() == "ready"
    return process, ours


@pytest.mark.slow
def test_processes_add_each_file_once(tmp_path):
    """Four processes start together, in different orders."""
    path = tmp_path / "index"
    writers = [start_writer(path, seed) for seed in range(4)]
    for _, pipe in writers:
        pipe.send("begin")
    made = [pipe.recv() for _, pipe in writers]
    for process, _ in writers:
        process.join()
        assert process.exitcode == 0
    assert sum(count for count, _ in made) == len(FILES) and {damaged for _, damaged in made} == {0}
    assert_works(path)


@pytest.mark.slow
def test_killed_processes(tmp_path):
    """An index whose writers were killed at any time gives the same crops."""
    path, rng = tmp_path / "index", random.Random(0)
    for seed in range(12):
        process, pipe = start_writer(path, seed)
        pipe.send("begin")
        time.sleep(rng.random() * 0.02)
        process.kill()
        process.join()
        if seed % 4 == 3:
            assert_works(path, damaged=True)
            path.unlink()


@DIFFERENT
@given(st.integers(0, 1 << 20))
def test_a_file_that_ends_anywhere(path, length):
    """As a process killed in the middle of a write, or a full disk, leaves it."""
    whole = path.read_bytes()
    torn = path.with_name("torn")
    torn.write_bytes(whole[: length % len(whole)])
    assert_works(torn, damaged=True)


def test_zeros_at_the_end(path):
    """As a crash of the machine leaves them. The next entry is shorter."""
    last = parse(path.read_bytes())[-1]
    data = path.read_bytes()[: last.offset] + bytes(1 << 16)
    path.write_bytes(data)
    assert_works(path, damaged=True)


# --- damage ----------------------------------------------------------------------------------------------------------


@DIFFERENT
@given(st.integers(0, 1 << 20), st.integers(1, 60), st.integers(0, 255))
def test_damaged_bytes(path, offset, count, value):
    """They cost entries, never pixels, and are written anew."""
    data = bytearray(path.read_bytes())
    offset %= len(data)
    data[offset : offset + count] = bytes([value]) * len(data[offset : offset + count])
    damaged = path.with_name("damaged")
    damaged.write_bytes(data)
    index = open_index(damaged)
    assert crops(index) == WANT == crops(index)
    last = open_index(damaged)
    assert crops(last) == WANT == crops(last)


@pytest.mark.parametrize("foreign", [b"x", b"text\n" * 100, bytes(4096), "version", "keys"])
def test_a_foreign_file_is_made_again(path, foreign, caplog):
    if isinstance(foreign, str):
        data = bytearray(path.read_bytes())
        data[{"version": 8, "keys": 20}[foreign]] ^= 1
        foreign = bytes(data)
    path.write_bytes(foreign)
    index = open_index(path)
    assert crops(index) == WANT
    index.report(), index.report()
    assert caplog.text.count(f"{path} was no JPEG index of this version of cuaug") == 1
    assert_works(path)


def test_a_file_that_is_emptied_or_replaced_in_use(path):
    """As by another version of cuaug, or by hand."""
    for contents in (b"", path.read_bytes()[:3000], HEADER.pack(b"other", *[0] * 10), path.read_bytes()):
        index = open_index(path)
        assert crops(index) == WANT
        path.write_bytes(contents)
        for found, want in zip(crops(index) + crops(index), WANT * 2, strict=True):
            assert found in (want, None)
        assert_works(path, damaged=True)


def test_a_file_that_others_cut_off_in_use_is_written_no_more(path):
    """Records behind a hole would be lost to all others."""
    index = open_index(path)
    assert crops(index) == WANT
    whole, cut = path.read_bytes(), parse(path.read_bytes())[4].offset
    os.truncate(path, cut)
    other = jpeg(100, 200)
    want = crop(other, REGION, JpegIndex(1 << 24))
    assert crop(other, REGION, index) in (want, None)
    assert path.read_bytes() == whole[:cut] and index.stats()[2:] == (0, 1)
    assert crop(other, REGION, open_index(path)) == want
    assert len(parse(path.read_bytes())) == 5


def test_a_file_that_cannot_be_written(path):
    """Its entries are used; other files have none."""
    before = path.read_bytes()
    index = open_index(path, flags=os.O_RDONLY)
    assert crops(index) == WANT and crop(jpeg(100, 200), REGION, index) is None
    assert path.read_bytes() == before
    path.write_bytes(b"no index")
    assert crops(open_index(path, flags=os.O_RDONLY)) == [None] * len(FILES)
    assert path.read_bytes() == b"no index"


# --- limits ----------------------------------------------------------------------------------------------------------


def test_the_size_is_limited_for_all_processes(tmp_path, caplog):
    caplog.set_level("INFO", "cuaug")
    path = tmp_path / "index"
    for _ in range(2):
        index = open_index(path, 3000, 1 << 20)
        found = crops(index)
        assert 0 < sum(crop is not None for crop in found) < len(FILES) and path.stat().st_size <= 3000
    index.report(), index.report()
    assert caplog.text.count("is full with") == 1


def test_entries_at_another_distance_are_used(tmp_path):
    """An index made for many files has entry points 64 pixels apart; a process for one file would make 16."""
    path = tmp_path / "index"
    coarse = crops(open_index(path, 1 << 24, 1 << 20))
    index = open_index(path)
    assert crops(index) == coarse != WANT and index.stats()[2:] == (0, 0)


FULL = """
import logging, resource, sys
from pathlib import Path
from tests.codec import test_index_file as test
logging.basicConfig(format="%(message)s", stream=sys.stdout)
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
index = test.open_index(Path(sys.argv[1]))
assert test.crops(index)[:3] == test.WANT[:3] and test.crops(index)[-1] is None
index.report(), index.report()
"""


def test_a_full_disk(tmp_path):
    """What was written stays and is used; one warning tells."""
    path = tmp_path / "index"
    done = subprocess.run([sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"the JPEG index {path} takes no more images: File too large\n"
    assert 0 < len(parse(path.read_bytes())) < len(FILES)
    assert_works(path)


# --- forged entries --------------------------------------------------------------------------------------------------


@DIFFERENT
@given(st.data(), st.integers(0, 1 << 30))
def test_forged_entries(path, data, seed):
    """Valid checksums, any numbers: no address outside the file is used."""
    forged, rng = path.with_name("forged"), random.Random(seed)
    forged.write_bytes(path.read_bytes())
    kind = data.draw(st.sampled_from(["at", "dc", "check", "count", "distance", "components"]))

    forge(forged, partial(forged_record, rng, kind))
    found = crops(open_index(forged))
    if kind in ("check", "count", "components"):  # others give other pixels: only trusted files are opened
        assert all(crop in (want, None) for crop, want in zip(found, WANT, strict=True))
    if kind == "check":
        assert parse(forged.read_bytes())[len(FILES) :]  # they were made again
