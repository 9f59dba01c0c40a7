"""`cuaug shard` is killed, resumed, run twice at once and by several ranks: the set is always complete and correct."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest

from cuaug.commands.shard import partial_files
from tests.commands.shard_sets import files_of, read_manifest, shard, write_photos

pytestmark = pytest.mark.cpu_only

FORK = multiprocessing.get_context("fork")


def is_shard(name: str) -> bool:
    return name.endswith((".tar", ".crc32", ".json"))


def run(photos: Path, out: Path, *options: str, rank: tuple[int, int] | None = None) -> None:
    """Builds the set, in a child process."""
    if rank is not None:
        os.environ.update(RANK=str(rank[0]), WORLD_SIZE=str(rank[1]))
    os._exit(shard(photos, out / "train-{:05d}.tar", "--size", "8kB", "--checksums", *options))


def start(*arguments, **options) -> multiprocessing.process.BaseProcess:
    process = FORK.Process(target=run, args=arguments, kwargs=options)
    process.start()
    return process


def finish(processes) -> None:
    for process in processes:
        process.join(120)
        assert process.exitcode == 0


@pytest.fixture
def reference(tmp_path):
    """(photos, the files of a set that was made without interruption)."""
    photos = write_photos(tmp_path)
    (tmp_path / "reference").mkdir()
    finish([start(photos, tmp_path / "reference")])
    read_manifest(tmp_path / "reference" / "train.manifest.json")
    files = files_of(tmp_path / "reference", is_shard)
    return photos, {name: data.replace(b"/reference/", b"/out/") for name, data in files.items()}


@pytest.fixture
def out(tmp_path):
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.mark.slow
def test_killed_at_50_random_moments(reference, out):
    photos, expected = reference
    began = time.monotonic()
    finish([start(photos, out)])
    seconds, moments = time.monotonic() - began, random.Random(0)
    in_between, finished = 0, 0
    for _ in range(50):
        if (out / "train.manifest.json").exists() and not (out / "train.partial").exists():
            finished += 1
            shutil.rmtree(out)
            out.mkdir()
        process = start(photos, out)
        time.sleep(moments.uniform(0, seconds / 2))
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        present = files_of(out, is_shard)
        assert all(data == expected[name] for name, data in present.items())  # none is half there
        in_between += 0 < len(present) < len(expected)
    finish([start(photos, out)])
    assert files_of(out, is_shard) == expected
    assert not (out / "train.partial").exists() and len(list(out.glob("*.cuaug-index"))) == len(list(out.glob("*.tar")))
    assert in_between >= 10, (in_between, finished)


def test_a_finished_shard_is_never_made_again(reference, out):
    photos, expected = reference
    process = start(photos, out)
    while not (out / "train-00002.tar").exists():
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    before = {path: path.stat().st_ino for path in out.glob("*.tar")}
    (out / "train.partial" / "train-00009.tar.tmp").write_bytes(b"half of a shard")
    finish([start(photos, out)])
    assert files_of(out, is_shard) == expected
    assert {path: path.stat().st_ino for path in before} == before
    finish([start(photos, out)])  # nothing is left to do
    assert {path: path.stat().st_ino for path in before} == before and not (out / "train.partial").exists()


def test_two_processes_at_once(reference, out):
    photos, expected = reference
    for _ in range(3):
        shutil.rmtree(out)
        out.mkdir()
        finish([start(photos, out) for _ in range(2)])
        assert files_of(out, is_shard) == expected
        assert not (out / "train.partial").exists()


def test_three_ranks_one_of_which_is_killed(reference, out):
    photos, expected = reference
    processes = [start(photos, out, rank=(rank, 3)) for rank in range(3)]
    os.kill(processes[1].pid, signal.SIGKILL)
    finish([processes[0], processes[2]])
    if (number := sum(name.endswith(".tar") for name in expected)) > 4:
        assert len(list(out.glob("*.tar"))) < number and not (out / "train.manifest.json").exists()
    finish([start(photos, out, rank=(1, 2)), start(photos, out, rank=(0, 2))])  # with another number of ranks
    assert files_of(out, is_shard) == expected


OTHERS = {
    "--size": ["--size", "9kB"],
    "--short-side": ["--short-side", "4"],
    "--checksums": [],
    "--shuffle": ["--shuffle", "1"],
}


@pytest.mark.parametrize("is_finished", [False, True])
@pytest.mark.parametrize("name", [*OTHERS, "SOURCE"])
def test_a_resume_with_other_arguments_is_refused(name, is_finished, tmp_path, out, capsys):
    photos, options = write_photos(tmp_path), ["--size", "8kB", "--checksums"]
    if not is_finished:
        (photos / "class0" / "999.png").symlink_to("missing")
    assert shard(photos, out / "x-{:05d}.tar", *options) == (0 if is_finished else 1)
    capsys.readouterr()
    if name == "SOURCE":
        (photos / "class1" / "new.png").write_bytes(b"new")
    elif name == "--checksums":
        options = options[:2]
    before = files_of(out, is_shard)
    assert shard(photos, out / "x-{:05d}.tar", *options, *OTHERS.get(name, [])) == 1
    assert capsys.readouterr().err.startswith(f"cuaug shard: {name} ")
    assert files_of(out, is_shard) == before


def test_files_of_other_sets_stay(tmp_path, out, capsys):
    photos = write_photos(tmp_path)
    (out / "x-00001.tar").write_bytes(b"precious")
    assert shard(photos, out / "x-{:05d}.tar", "--size", "8kB") == 1
    assert "x-00001.tar' exists" in capsys.readouterr().err and (out / "x-00001.tar").read_bytes() == b"precious"
    assert not (out / "x.partial").exists()


def test_a_finished_set_that_lost_a_shard(tmp_path, out, capsys):
    photos = write_photos(tmp_path)
    assert shard(photos, out / "x-{:05d}.tar", "--size", "8kB") == 0
    (out / "x-00001.tar").write_bytes(b"half")
    assert shard(photos, out / "x-{:05d}.tar", "--size", "8kB") == 1
    assert "x-00001.tar' of a finished set" in capsys.readouterr().err


def test_a_file_system_without_locks_is_named(tmp_path, out, monkeypatch, capsys):
    def flock(fd, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    photos = write_photos(tmp_path)
    monkeypatch.setattr("fcntl.flock", flock)
    assert shard(photos, out / "x-{:05d}.tar") == 1
    error = capsys.readouterr().err
    assert "no locks (flock)" in error and str(out / "x.partial") in error and list(out.glob("*.tar")) == []


@pytest.mark.parametrize("extension", ["tar", "parquet"])
def test_a_full_disk_is_named_and_the_run_resumes(extension, tmp_path, out, monkeypatch, capsys):
    if extension == "parquet":
        pytest.importorskip("pyarrow")
    photos, pattern, written = write_photos(tmp_path), out / f"x-{{:05d}}.{extension}", 0
    write = os.write

    def write_to_full_disk(fd, data):
        nonlocal written
        written += len(data)
        if written > 30_000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data)

    with monkeypatch.context() as full:
        full.setattr(os, "write", write_to_full_disk)
        assert shard(photos, pattern, "--size", "16kB") == 1
    error = capsys.readouterr().err
    assert "No space left on device: " in error and str(out / "x.partial" / "x-0000") in error
    assert shard(photos, pattern, "--size", "16kB") == 0
    assert read_manifest(out / "x.manifest.json")["samples"] == 60 and not (out / "x.partial").exists()


class Disk:
    """Finds names that a power failure could leave without their file's content."""

    def __init__(self, monkeypatch) -> None:
        self.errors: list[str] = []
        self._synced: dict[int, bytes] = {}
        fsync, replace = os.fsync, os.replace

        def record_fsync(fd: int) -> None:
            fsync(fd)
            path = Path(f"/proc/self/fd/{fd}")
            if not path.is_dir():
                self._synced[os.fstat(fd).st_ino] = path.read_bytes()

        def check_replace(old, new, **options) -> None:
            if not options and self._synced.get(os.stat(old).st_ino) != Path(old).read_bytes():
                self.errors.append(os.path.basename(new))
            replace(old, new, **options)

        monkeypatch.setattr(os, "fsync", record_fsync)
        monkeypatch.setattr(os, "replace", check_replace)


def test_content_is_on_disk_before_its_name(tmp_path, out, monkeypatch):
    photos, disk = write_photos(tmp_path), Disk(monkeypatch)
    assert shard(photos, out / "x-{:05d}.tar", "--size", "16kB", "--checksums") == 0
    assert disk.errors == [] and len(list(out.glob("*.tar"))) > 2


def test_a_missing_fsync_is_found(tmp_path, out, monkeypatch):
    photos, disk = write_photos(tmp_path), Disk(monkeypatch)
    publish = partial_files.PartialFile.publish

    def publish_early(self, target):
        if target.suffix == ".tar":
            os.replace(self.temporary, target)
        else:
            publish(self, target)

    monkeypatch.setattr(partial_files.PartialFile, "publish", publish_early)
    assert shard(photos, out / "x-{:05d}.tar", "--size", "16kB") == 0
    assert disk.errors == sorted(path.name for path in out.glob("*.tar"))


def test_the_manifest_is_json_with_one_entry_per_shard(reference):
    manifest = json.loads(reference[1]["train.manifest.json"])
    assert [entry["name"] for entry in manifest["shards"]] == sorted(n for n in reference[1] if n.endswith(".tar"))
