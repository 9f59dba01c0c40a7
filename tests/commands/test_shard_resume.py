"""`cuaug shard` is killed, resumed and run twice at once: the set is always complete and correct."""

from __future__ import annotations

import fcntl
import itertools
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests.support.commands.shard_sets import files_of, read_manifest, shard, write_photos

pytestmark = pytest.mark.cpu_only

FORK = multiprocessing.get_context("fork")
CALLS = ("open", "os.rename", "os.remove", "os.chmod", "fcntl.flock")
KILLED = -signal.SIGKILL


def is_shard(name: str) -> bool:
    return name.endswith((".tar", ".json")) and not name.startswith(".")


def _run(photos: Path, out: Path, calls: tuple[str, ...], last: int, count: Path) -> None:
    """Builds the set in a child process, which dies before its `last`th call of these names."""
    numbers = itertools.count(1)

    def on_call(name: str, _: object) -> None:
        if name in calls and next(numbers) == last:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(on_call)
    status = shard(photos, out / "train-{:05d}.tar", "--size", "24kB")
    count.write_text(str(next(numbers)))
    os._exit(status)


def start(photos: Path, out: Path, calls=(), last=0) -> multiprocessing.process.BaseProcess:
    process = FORK.Process(target=_run, args=(photos, out, calls, last, out.parent / "count"))
    process.start()
    return process


def run(photos: Path, out: Path, calls=(), last=0) -> int:
    process = start(photos, out, calls, last)
    process.join(120)
    assert process.exitcode is not None
    return process.exitcode


@pytest.fixture
def reference(tmp_path):
    """(photos, the files of a set that was made without interruption)."""
    photos = write_photos(tmp_path)
    (tmp_path / "reference").mkdir()
    assert run(photos, tmp_path / "reference") == 0
    manifest = read_manifest(tmp_path / "reference" / "train.manifest.json")
    assert 4 < len(manifest["shards"]) < 10
    files = files_of(tmp_path / "reference", is_shard)
    return photos, {name: data.replace(b"/reference/", b"/out/") for name, data in files.items()}


@pytest.fixture
def out(tmp_path):
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def check_unfinished(out: Path, expected: dict[str, bytes]) -> int:
    """Checks what a killed run left; returns the number of shards."""
    present = files_of(out, is_shard)
    manifest = present.pop("train.manifest.json", None)
    assert all(data == expected[name] for name, data in present.items())  # none is half there
    known = [] if manifest is None else json.loads(manifest)["shards"]
    assert all(entry in json.loads(expected["train.manifest.json"])["shards"] for entry in known)
    assert {name for name in present if name.endswith(".tar")} <= {entry["name"] for entry in known}
    others = [name for name in os.listdir(out) if not is_shard(name) and not name.endswith(".cuaug-index")]
    assert all(re.fullmatch(r"\.cuaug-[0-9a-f]{16}", name) for name in others), others
    return len(present)


def check_finished(out: Path, expected: dict[str, bytes]) -> None:
    assert files_of(out, is_shard) == expected
    assert len(list(out.glob("train-*.cuaug-index"))) == len(list(out.glob("train-*.tar")))


@pytest.mark.slow
def test_killed_before_each_rename(reference, out):
    photos, expected = reference
    for last in itertools.count(1):
        shutil.rmtree(out)
        out.mkdir()
        if run(photos, out, ("os.rename",), last) == 0:
            break
        check_unfinished(out, expected)
        assert run(photos, out) == 0
        check_finished(out, expected)
    assert last > 3 * 5  # each shard, its index, the manifest


@pytest.mark.slow
def test_killed_at_50_random_moments(reference, out):
    photos, expected = reference
    assert run(photos, out, CALLS) == 0
    calls, moments, in_between = int((out.parent / "count").read_text()), random.Random(0), 0
    is_finished = True
    for _ in range(50):
        if is_finished:
            shutil.rmtree(out)
            out.mkdir()
        status = run(photos, out, CALLS, moments.randrange(1, calls))
        assert status in (0, KILLED)
        in_between += 0 < check_unfinished(out, expected) < len(expected) - 1
        is_finished = status == 0
    assert run(photos, out) == 0
    check_finished(out, expected)
    assert in_between >= 10


def test_a_finished_shard_is_never_made_again(reference, out):
    photos, expected = reference
    assert run(photos, out, ("os.rename",), 9) == KILLED
    before = {path: path.stat().st_ino for path in out.glob("train-*.tar")}
    (left_over,) = (name for name in os.listdir(out) if name.startswith(".cuaug-"))
    assert len(before) >= 2 and run(photos, out) == 0
    check_finished(out, expected)
    assert {path: path.stat().st_ino for path in before} == before
    after = {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in out.iterdir()}
    assert run(photos, out) == 0  # nothing is left to do
    assert {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in out.iterdir()} == after
    assert (out / left_over).exists()  # another run's files are never removed


def test_a_removed_shard_is_made_again(reference, out):
    photos, expected = reference
    assert run(photos, out) == 0
    for name in ("train-00001.tar", "train-00003.tar", "train-00002.tar.cuaug-index"):
        (out / name).unlink()
    assert run(photos, out) == 0
    check_finished(out, expected)


def test_two_processes_at_once(reference, out):
    photos, expected = reference
    for _ in range(3):
        shutil.rmtree(out)
        out.mkdir()
        processes = [start(photos, out) for _ in range(2)]
        for process in processes:
            process.join(120)
        assert sorted(process.exitcode for process in processes) in ([0, 0], [0, 1])
        check_finished(out, expected)


def test_a_folder_in_use_is_refused(tmp_path, out, capfd):
    photos, fd = write_photos(tmp_path), os.open(out, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    process = start(photos, out)
    process.join(120)
    os.close(fd)
    assert process.exitcode == 1 and os.listdir(out) == []
    assert run(photos, out) == 0


def test_a_file_system_without_locks_is_named(tmp_path, out, monkeypatch, capsys):
    def flock(fd, operation):
        raise OSError(37, "No locks available")

    photos = write_photos(tmp_path)
    monkeypatch.setattr("fcntl.flock", flock)
    assert shard(photos, out / "x-{:05d}.tar") == 1
    error = capsys.readouterr().err
    assert "no locks (flock)" in error and repr(str(out)) in error and os.listdir(out) == []


OTHERS = {
    "--size": ["--size", "9kB"],
    "--short-side": ["--short-side", "4"],
    "--shuffle": ["--shuffle", "1"],
}


@pytest.mark.parametrize("is_finished", [False, True])
@pytest.mark.parametrize("name", [*OTHERS, "SOURCE"])
def test_a_resume_with_other_arguments_is_refused(name, is_finished, tmp_path, out, capsys):
    photos, options = write_photos(tmp_path), ["--size", "8kB"]
    if not is_finished:
        (photos / "class0" / "999.png").symlink_to("missing")
    assert shard(photos, out / "x-{:05d}.tar", *options) == (0 if is_finished else 1)
    capsys.readouterr()
    if name == "SOURCE":
        (photos / "class1" / "new.png").write_bytes(b"new")
    before = files_of(out)
    assert shard(photos, out / "x-{:05d}.tar", *options, *OTHERS.get(name, [])) == 1
    assert capsys.readouterr().err.startswith(f"cuaug shard: {name} ")
    assert files_of(out) == before


@pytest.mark.parametrize("change", ["size", "bit"])
def test_a_shard_that_has_changed_is_refused(change, tmp_path, out, capsys):
    photos = write_photos(tmp_path)
    assert shard(photos, out / "x-{:05d}.tar", "--size", "8kB") == 0
    path = out / "x-00001.tar"
    data = bytearray(path.read_bytes())
    data[600] ^= 1
    path.write_bytes(data if change == "bit" else b"half")
    before = files_of(out)
    assert shard(photos, out / "x-{:05d}.tar", "--size", "8kB") == 1
    assert "x-00001.tar' has not the " in capsys.readouterr().err and files_of(out) == before


def test_a_disk_that_fails_is_named_and_the_run_resumes(tmp_path, out, capsys):
    photos, (soft, hard) = write_photos(tmp_path), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
    try:
        assert shard(photos, out / "x-{:05d}.tar", "--size", "16kB") == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert f"File too large: '{out}/x-00000.tar'" in capsys.readouterr().err
    assert os.listdir(out) == ["x.manifest.json"]
    assert shard(photos, out / "x-{:05d}.tar", "--size", "16kB") == 0
    assert read_manifest(out / "x.manifest.json")["samples"] == 60


class Disk:
    """Finds names that a power failure could leave without their file's content."""

    def __init__(self, monkeypatch) -> None:
        self.errors: list[str] = []
        self._synced: dict[int, bytes] = {}
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self.fsync)
        for name in ("replace", "rename"):
            monkeypatch.setattr(os, name, self._checked(getattr(os, name)))

    def fsync(self, fd: int) -> None:
        self._fsync(fd)
        path = Path(f"/proc/self/fd/{fd}")
        if not path.is_dir():
            self._synced[os.fstat(fd).st_ino] = path.read_bytes()

    def _checked(self, rename):
        def check(old, new, *, src_dir_fd, dst_dir_fd) -> None:
            with open(os.open(old, os.O_RDONLY, dir_fd=src_dir_fd), "rb") as file:
                content, number = file.read(), os.fstat(file.fileno()).st_ino
            if self._synced.get(number) != content and not new.endswith(".cuaug-index"):  # which is checked when read
                self.errors.append(new)
            rename(old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

        return check


def test_content_is_on_disk_before_its_name(tmp_path, out, monkeypatch):
    photos, disk = write_photos(tmp_path), Disk(monkeypatch)
    assert shard(photos, out / "x-{:05d}.tar", "--size", "16kB") == 0
    assert disk.errors == [] and len(list(out.glob("*.tar"))) > 2


def test_a_missing_fsync_is_found(tmp_path, out, monkeypatch):
    photos, disk = write_photos(tmp_path), Disk(monkeypatch)
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    assert shard(photos, out / "x-{:05d}.tar", "--size", "16kB") == 0
    assert set(disk.errors) == {path.name for path in out.iterdir() if not path.name.endswith(".cuaug-index")}


def test_the_manifest_is_json_with_one_entry_per_shard(reference):
    manifest = json.loads(reference[1]["train.manifest.json"])
    assert [entry["name"] for entry in manifest["shards"]] == sorted(n for n in reference[1] if n.endswith(".tar"))
