"""`cuaug check`: damage in each kind of data set, and samples that crash the process."""

from __future__ import annotations

import csv
import functools
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.support.codec.encoded_images import encode
from tests.support.loader.further_pictures import png
from tests.support.sources.writers import KINDS, samples, value_size_at, write_environment, write_tar

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def checked(run):
    """Checks paths; returns the exit status, output lines and stderr."""
    return functools.partial(run, "check", "--threads", 2)


def photos(folder: Path) -> list[Path]:
    """A folder with two classes and three images; the last one is truncated."""
    paths = [folder / "ant" / "0.jpg", folder / "ant" / "1.jpg", folder / "bee" / "2.jpg"]
    for i, path in enumerate(paths):
        path.parent.mkdir(exist_ok=True, parents=True)
        noise = np.random.default_rng(i).integers(0, 256, (40, 50, 3), dtype=np.uint8)
        Image.fromarray(noise).save(path)
    paths[2].write_bytes(paths[2].read_bytes()[:1000])
    return paths


CLASSES = "2 classes, numbered from 0: 'ant', 'bee'"


def test_a_folder_with_a_damaged_picture(tmp_path, checked):
    paths = photos(tmp_path / "photos")
    status, lines, errors = checked(tmp_path / "photos", "--csv", tmp_path / "damaged.csv")
    assert (status, errors) == (1, "") and lines[1:] == [CLASSES, "3 of 3 samples checked, 1 damaged"]
    assert lines[0].startswith(f"'{paths[2]}' (sample 2): ")
    with open(tmp_path / "damaged.csv", newline="") as file:
        head, row = csv.reader(file)
    assert head == ["index", "path", "cause"] and row[:2] == ["2", str(paths[2])] and lines[0].endswith(row[2])
    assert checked(tmp_path / "photos", "--no-decode") == (0, [CLASSES, "3 of 3 samples checked, 0 damaged"], "")


@pytest.mark.parametrize("kind", ["list", "tfrecord", "hdf5"])
def test_undamaged_data_sets(tmp_path, checked, kind):
    KINDS[kind].write(tmp_path, samples())
    names = {"list": "list.txt", "tfrecord": "train-*.tfrecord", "hdf5": "data.h5"}
    assert checked(tmp_path / names[kind]) == (0, ["12 of 12 samples checked, 0 damaged"], "")


def test_a_tar_with_a_damaged_member_and_a_damaged_label(tmp_path, checked):
    members = {}
    for i in range(4):
        members |= {f"{i}.png": png(i) if i != 1 else b"no picture", f"{i}.cls": b"5" if i != 2 else b"9" * 19}
    write_tar(tmp_path / "a.tar", members)
    status, lines, _ = checked(tmp_path / "a.tar")
    assert status == 1 and lines[-1] == "4 of 4 samples checked, 2 damaged"
    assert [line.partition(": ")[0] for line in sorted(lines[:-1])] == [
        f"'{tmp_path}/a.tar/{i}.png' (sample {i})" for i in (1, 2)
    ]
    assert "an integer beyond int64" in max(lines[:-1])


def test_paths_that_cannot_be_opened(tmp_path, checked):
    status, lines, errors = checked(tmp_path / "none.tar")
    assert (status, lines) == (1, []) and errors.startswith("cuaug check: there is no file") and "none.tar" in errors
    photos(tmp_path / "photos")
    status, lines, errors = checked(tmp_path / "photos", "--csv", tmp_path / "none" / "x.csv")
    assert (status, lines) == (1, []) and "x.csv" in errors


def noise(i: int) -> bytes:
    """An image large enough for LMDB's overflow pages."""
    return encode(Image.fromarray(np.random.default_rng(i).integers(0, 256, (60, 60, 3), dtype=np.uint8)), "PNG")


@pytest.mark.parametrize("threads", [1, 3])
def test_a_sample_that_ends_the_process(tmp_path, checked, threads):
    """LMDB reads beyond the end of the mapped file."""
    write_environment(tmp_path / "db", {b"%d" % i: noise(i) for i in range(8)})
    path = tmp_path / "db" / "data.mdb"
    data = bytearray(path.read_bytes())
    for key in (b"6", b"7"):
        at = value_size_at(data, key)
        data[at : at + 4] = struct.pack("<I", len(data))
    path.write_bytes(data)
    status, lines, _ = checked(tmp_path / "db", "--threads", threads, "--csv", tmp_path / "damaged.csv")
    assert status == 1 and lines == [
        f"'{tmp_path}/db[6]' (sample 6): it ends the process by SIGBUS",
        f"'{tmp_path}/db[7]' (sample 7): it ends the process by SIGBUS",
        "8 of 8 samples checked, 2 damaged",
    ]
    assert len((tmp_path / "damaged.csv").read_text().splitlines()) == 3


def children(monkeypatch, *events: list[list]) -> list[dict]:
    """Replaces children by scripted events; records their requests."""
    requests: list[dict] = []

    def tell(request: dict, timeout: float):
        requests.append(request)
        yield from events[len(requests) - 1]

    monkeypatch.setattr("cuaug.commands.check._events", tell)
    return requests


def test_samples_under_way_are_checked_one_by_one(checked, monkeypatch):
    opened, death = ["opened", 9, ""], ["death", "ends the process by SIGBUS"]
    begun = [["begin", i, f"path {i}"] for i in range(9)]
    sound = [["done", i, f"path {i}", None] for i in range(9)]
    requests = children(
        monkeypatch,
        [opened, begun[0], begun[1], begun[2], sound[1], begun[3], death],
        [opened, begun[0], sound[0], begun[2], death],
        [opened, begun[3], sound[3], begun[4], sound[4], *begun[5:], *sound[5:]],
    )
    status, lines, errors = checked("a", "b")
    found = ["'path 2' (sample 2): it ends the process by SIGBUS", "9 of 9 samples checked, 1 damaged"]
    assert (status, lines) == (1, found)
    assert errors == "cuaug check: one of the samples 0, 2, 3 ends the process by SIGBUS: checking each alone\n"
    assert [(each["alone"], each["begin"]) for each in requests] == [([], 0), ([0, 2, 3], 4), ([3], 4)]


def test_a_crash_that_no_sample_explains(checked, monkeypatch):
    events = [["begin", 0, "path 0"], ["begin", 1, "path 1"]]
    sound = [["done", 0, "path 0", None], ["done", 1, "path 1", None]]
    children(monkeypatch, [["opened", 2, ""], *events, ["death", "ends the process by SIGBUS"]], [*events, *sound])
    status, lines, errors = checked("a")
    assert (status, lines) == (1, ["2 of 2 samples checked, 0 damaged"])
    assert errors.endswith("SIGBUS, but none of them does so alone\n")


def test_a_data_set_that_crashes_every_process(checked, monkeypatch):
    each = [["opened", 99, ""], ["begin", 0, "path 0"], ["death", "ends the process by SIGBUS"]]
    requests = children(monkeypatch, *[each] * 100)
    status, lines, errors = checked("a")
    assert status == 1 and lines[-1] == "50 of 99 samples checked, 50 damaged" and len(requests) == 50
    assert errors == "cuaug check: gave up after 50 crashed processes\n"


def test_a_container_that_crashes_the_process(tmp_path, checked, in_place_of):
    KINDS["hdf5"].write(tmp_path, samples())
    in_place_of("h5py", "os.kill(os.getpid(), 11)")
    status, lines, errors = checked(tmp_path / "data.h5")
    assert (status, lines) == (1, []) and errors == (
        f"cuaug check: opening {tmp_path}/data.h5 ends the process by SIGSEGV\n"
    )


@pytest.mark.slow
def test_a_sample_that_hangs(tmp_path, checked, in_place_of):
    KINDS["hdf5"].write(tmp_path, samples())
    (tmp_path / "data.h5").rename(tmp_path / "other.h5")
    code = """
with h5py.File(FOLDER + "/other.h5") as old, h5py.File(FOLDER + "/data.h5", "w") as new:
    new["images"], new["labels"] = old["pixels"][:], old["labels"][:]
read = h5py.Dataset.__getitem__
def slow(self, rows):
    if rows == slice(3, 4):
        time.sleep(60)
    return read(self, rows)
h5py.Dataset.__getitem__ = slow
"""
    in_place_of("h5py", f"FOLDER = {str(tmp_path)!r}\n" + code)
    status, lines, _ = checked(tmp_path / "data.h5", "--no-decode", "--timeout", 4)
    assert status == 1 and lines == [
        f"'{tmp_path}/data.h5/images[3]' (sample 3): it takes longer than 4 seconds",
        "12 of 12 samples checked, 1 damaged",
    ]


def test_modules_in_the_working_folder_are_not_imported(tmp_path, checked, monkeypatch):
    """The folder may be an untrusted data set."""
    photos(tmp_path)
    for name in ("json", "random", "numpy", "torch"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    assert checked("ant/0.jpg", "ant/1.jpg") == (0, ["2 of 2 samples checked, 0 damaged"], "")
