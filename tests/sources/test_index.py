"""Indexes on disk: reused, made again when stale or damaged, and safe with many processes."""

from __future__ import annotations

import multiprocessing
import os
import re
import stat
import time
from pathlib import Path

import pytest

from cuaug import LoaderError
from cuaug.sources import TarShards, TFRecord
from cuaug.sources.shards import shard_index as indexing
from cuaug.sources.shards import tar
from tests.support.sources.writers import example, frame, write_tar

SUFFIX = ".cuaug-index"


@pytest.fixture
def scans(monkeypatch) -> list[str]:
    """Names of the scanned shards, in order."""
    seen: list[str] = []
    make = indexing._make

    def record_and_make(index_format, path, file):
        seen.append(os.path.basename(path))
        return make(index_format, path, file)

    monkeypatch.setattr(indexing, "_make", record_and_make)
    return seen


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("CUAUG_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "indexes"


def shard(folder: Path, name: str = "a.tar", count: int = 3, start: int = 0) -> Path:
    folder.mkdir(exist_ok=True)
    members = {f"{i}.{f}": str(start + i).encode() for i in range(count) for f in ("jpg", "cls")}
    write_tar(folder / name, members)
    return folder / name


def labels(path: Path) -> list[int]:
    source = TarShards(path)
    return [source.read(i)[1] for i in range(len(source))]


def test_an_index_is_made_once_beside_its_shard(tmp_path, scans, cache):
    paths = [shard(tmp_path / "d", f"{i}.tar", start=10 * i) for i in range(3)]
    assert labels(tmp_path / "d") == [0, 1, 2, 10, 11, 12, 20, 21, 22] and sorted(scans) == ["0.tar", "1.tar", "2.tar"]
    assert all(Path(f"{path}{SUFFIX}").is_file() for path in paths) and not cache.exists()
    assert sorted(os.listdir(tmp_path / "d")) == sorted(f"{i}.tar{s}" for i in range(3) for s in ("", SUFFIX))
    assert labels(tmp_path / "d") == [0, 1, 2, 10, 11, 12, 20, 21, 22] and len(scans) == 3


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="the system does not count bytes read")
def test_opening_reads_no_images(tmp_path):
    """The scan reads headers and labels, and the first eight TFRecord records. With an index, it reads the index."""

    def bytes_read(make, path) -> int:
        def total() -> int:
            return int(re.search(r"rchar: (\d+)", Path("/proc/self/io").read_text())[1])

        start = total()
        assert len(make(path)) == 100
        return total() - start

    image = bytes(200_000)
    members = {f"{i}.{field}": data for i in range(100) for field, data in (("jpg", image), ("cls", b"1"))}
    write_tar(tmp_path / "a.tar", members)
    record = frame(example({"image/encoded": image, "image/class/label": 1}))
    (tmp_path / "a.tfrecord").write_bytes(record * 100)
    for make, name, probed in ((TarShards, "a.tar", 0), (TFRecord, "a.tfrecord", 8 * len(record))):
        assert bytes_read(make, tmp_path / name) < probed + 4_000_000, "of 20 MB"
        assert bytes_read(make, tmp_path / name) < 50_000


def test_readers_of_the_shard_may_read_the_index(tmp_path):
    path = shard(tmp_path)
    os.chmod(path, 0o764)
    labels(path)
    assert stat.S_IMODE(os.stat(f"{path}{SUFFIX}").st_mode) == 0o644, "only the owner may write it"


def test_another_shard_of_the_same_name_gets_another_index(tmp_path, scans):
    path = shard(tmp_path)
    assert labels(path) == [0, 1, 2]
    time.sleep(0.01)  # file systems store time in steps of milliseconds
    shard(tmp_path, start=5)
    assert labels(path) == [5, 6, 7] and len(scans) == 2
    shard(tmp_path, count=4)
    assert labels(path) == [0, 1, 2, 3] and len(scans) == 3
    os.utime(path, ns=(0, 0))
    assert labels(path) == [0, 1, 2, 3] and len(scans) == 4
    assert labels(path) == [0, 1, 2, 3] and len(scans) == 4


def test_another_shard_of_equal_size_and_time(tmp_path, scans):
    """tarfile pads to multiples of 10,240 bytes, and copying can keep the time."""
    path = shard(tmp_path)
    assert labels(path) == [0, 1, 2]
    before = os.stat(path)
    for members in (  # all members differ, then only the last ones
        {f"{i}.{f}": str(i + 5).encode() for i in range(3) for f in ("jpg", "cls")},
        {f"{i}.{f}": str(i + 5 + (i == 2)).encode() for i in range(3) for f in ("jpg", "cls")},
    ):
        write_tar(path, members)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert os.stat(path).st_size == before.st_size
        assert labels(path) == [int(data) for name, data in members.items() if name.endswith("cls")]
    assert len(scans) == 3


def test_an_index_of_another_format_is_ignored(tmp_path, scans):
    """A TFRecord file and a tar file of the same name and stamp."""
    path = tmp_path / "same"
    record = frame(example({"image/encoded": b"x", "image/class/label": 4}))
    path.write_bytes(record)
    os.utime(path, ns=(0, 0))
    assert TFRecord(path).read(0) == (b"x", 4)
    with pytest.raises(LoaderError, match="not a tar file"):
        TarShards(path)
    assert len(scans) == 2


def test_the_cache_directory_holds_an_index_if_the_folder_cannot(tmp_path, scans, cache):
    """The index's name would be too long."""
    name = "n" * 248 + ".tar"
    path = shard(tmp_path / "d", name)
    for _ in range(2):
        assert labels(path) == [0, 1, 2] and len(scans) == 1
    assert os.listdir(tmp_path / "d") == [name] and len(list(cache.iterdir())) == 1
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "d")
    assert labels(link / name) == [0, 1, 2] and len(scans) == 1, "also through a link"
    other = shard(tmp_path / "e", name, start=5)
    assert labels(other) == [5, 6, 7] and labels(path) == [0, 1, 2] and len(list(cache.iterdir())) == 2


def test_an_index_that_cannot_be_kept_is_made_each_time(tmp_path, scans, monkeypatch, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CUAUG_CACHE_DIR", str(tmp_path / "file"))
    path = shard(tmp_path / "d", "n" * 248 + ".tar")
    for count in (1, 2):
        assert labels(path) == [0, 1, 2] and len(scans) == count
    assert "cannot keep the index of" in caplog.text and "made again each time: [Errno 20]" in caplog.text


def test_ctrl_c_after_the_rename_of_an_index(tmp_path, scans, monkeypatch):
    """The temporary name is gone by then: failing to remove it must not hide the Ctrl-C."""
    replace = os.replace

    def interrupted(old, new, **directories):
        replace(old, new, **directories)
        raise KeyboardInterrupt

    path = shard(tmp_path / "d")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "replace", interrupted)
        labels(path)
    assert labels(path) == [0, 1, 2] and len(scans) == 1
    assert sorted(os.listdir(tmp_path / "d")) == ["a.tar", f"a.tar{SUFFIX}"]


def test_a_shard_that_grows_during_the_scan(tmp_path, monkeypatch):
    path = shard(tmp_path)
    has_header = tar._has_header

    def grow(path, file, at):
        with open(path, "ab") as more:
            more.write(bytes(512))
        return has_header(path, file, at)

    monkeypatch.setattr(tar, "_has_header", grow)
    with pytest.raises(LoaderError, match=r"a.tar' changed while its index was made"):
        TarShards(path)
    assert not Path(f"{path}{SUFFIX}").exists()


def test_sixteen_processes_open_the_same_shards(tmp_path, scans):
    for i in range(16):
        shard(tmp_path / "d", f"{i:02d}.tar", count=25, start=25 * i)
    context = multiprocessing.get_context("fork")
    barrier, scan_counts = context.Barrier(16), context.Queue()

    def open_and_read() -> None:
        barrier.wait(600)
        assert labels(tmp_path / "d") == list(range(16 * 25))
        scan_counts.put(len(scans))

    processes = [context.Process(target=open_and_read) for _ in range(16)]
    for process in processes:
        process.start()
    counts = [scan_counts.get(timeout=600) for _ in processes]
    for process in processes:
        process.join(600)
    assert [process.exitcode for process in processes] == [0] * 16
    assert 16 <= sum(counts) <= 16 * 16
    assert sorted(os.listdir(tmp_path / "d")) == sorted(f"{i:02d}.tar{s}" for i in range(16) for s in ("", SUFFIX))
