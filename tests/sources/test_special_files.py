"""Special files damage one sample at once: a pipe would block, a device may have no end."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cuaug import DecodeError, Loader, LoaderError
from cuaug.pipeline.native_work import FileReads, Times
from cuaug.pipeline.thread_pool import ThreadPool
from cuaug.sources import Coco, Csv, Hdf5, ListFile, LitData, Lmdb, Mds, Parquet, TarShards, TFRecord, Videos, Yolo
from cuaug.sources.file_bytes import read_bytes
from tests.support.cache.cached_images import run
from tests.support.loader.further_pictures import numbers_of
from tests.support.sources.writers import write_pngs, write_tar

pytestmark = pytest.mark.timeout(60)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/null")  # like /dev/zero, but with an end


@pytest.mark.parametrize("make", [pipe, device])
def test_special_files_are_not_read(tmp_path, make):
    make(tmp_path / "x.jpg")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match=r"it is no regular file: .*x.jpg'"):
        read_bytes(tmp_path / "x.jpg")
    assert len(os.listdir("/proc/self/fd")) == before


def test_other_paths(tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    assert read_bytes(tmp_path / "empty") == b""
    assert read_bytes("/proc/self/status").startswith(b"Name:"), "a file without a known size"
    with pytest.raises(IsADirectoryError):
        read_bytes(tmp_path)
    with pytest.raises(OSError, match="no file can have such a name"):
        read_bytes("a\0b")


def make_files(folder: Path) -> dict[str, bytes | None]:
    """{path: result of `read_files`} for all sorts of paths; None: left to `read_bytes`."""
    results: dict[str, bytes | None] = {}
    for name, size in {"one": 1, "two": 2, "some": 5_000, os.fsdecode(b"no text \xff"): 100, "many": 1 << 20}.items():
        results[str(folder / name)] = data = os.urandom(size)
        (folder / name).write_bytes(data)
    (folder / "empty").write_bytes(b"")
    pipe(folder / "pipe")
    device(folder / "device")
    others = [folder, folder / "empty", folder / "pipe", folder / "device", folder / "missing", "/proc/self/status"]
    return results | dict.fromkeys([*map(str, others), f"{folder}/one\0.jpg", f"{folder}/\ud800", ""])


def read_files(paths: list[str], max_bytes: int = 1 << 60) -> list[bytes | None]:
    """The files' bytes, read by native work on two threads; None for files that are left to `read_bytes`."""
    times = Times(0, np.zeros(1, dtype=np.int64), np.arange(len(paths)), ("read", "parse"))
    reads, pool, ended = FileReads(paths, None, times, max_bytes, 1 << 30), ThreadPool(2), threading.Event()
    pool.submit(ended.set, native=reads.work)
    assert ended.wait(600)
    pool.close()
    is_read, _ = reads.finish()
    return [reads.read(i).tobytes() if is_read[i] else None for i in range(len(paths))]


def test_reading_several_files(tmp_path):
    expected = make_files(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    assert read_files(list(expected)) == list(expected.values())
    assert len(os.listdir("/proc/self/fd")) == before


def test_files_above_the_limit_or_larger_than_memory_are_left_over(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    assert read_files([str(path)] * 2, 5) == [b"12345"] * 2 and read_files([str(path)], 4) == [None]
    os.truncate(path, 1 << 42)  # a hole
    before = len(os.listdir("/proc/self/fd"))
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 41, limits[1]))
    try:
        assert read_files([str(path)]) == [None]
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_that_changes_its_size_is_read_whole_or_left_over(tmp_path):
    path, stop = tmp_path / "a", threading.Event()
    path.write_bytes(b"0" * 100_000)

    def change() -> None:
        while not stop.is_set():
            for size in (10, 100_000):
                os.truncate(path, size)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        sizes = {None if data is None else len(data) for _ in range(100) for data in read_files([str(path)] * 4)}
    finally:
        stop.set()
        thread.join()
    assert sizes <= {None, 10, 100_000} and sizes - {None}


@pytest.mark.slow
def test_a_file_larger_than_memory(tmp_path):
    """The file is sparse."""
    with open(tmp_path / "x.jpg", "wb") as file:
        file.truncate(1 << 40)
    program = """
import resource, sys
from cuaug.sources.file_bytes import read_bytes
resource.setrlimit(resource.RLIMIT_AS, (1 << 36, 1 << 36))
try:
    read_bytes(sys.argv[1])
except OSError as error:
    print(error.strerror, error.filename)
"""
    assert run(program, tmp_path / "x.jpg") == f"its 1,099,511,627,776 bytes do not fit in memory {tmp_path}/x.jpg\n"


def test_a_pipe_in_a_folder_damages_one_sample(tmp_path):
    write_pngs(tmp_path, "ant/0.png", "ant/2.png")
    pipe(tmp_path / "ant" / "1.png")
    errors: list[DecodeError] = []
    with Loader(tmp_path, batch_size=3, on_error="skip", error_callback=errors.append) as loader:
        assert [numbers_of(images) for images, _ in loader] == [[0, 2]]
    assert [(error.path, error.cause) for error in errors] == [(f"{tmp_path}/ant/1.png", "it is no regular file")]


def test_a_pipe_in_place_of_a_shard_or_its_index(tmp_path):
    pipe(tmp_path / "a.tar")
    with pytest.raises(LoaderError, match=r"cannot read '.*a.tar': it is no regular file"):
        TarShards(tmp_path / "a.tar")
    write_tar(tmp_path / "b.tar", {"0.jpg": b"it"})
    pipe(tmp_path / "b.tar.cuaug-index")
    source = TarShards(tmp_path / "b.tar", label=None)
    os.rename(tmp_path / "b.tar", tmp_path / "c.tar")
    pipe(tmp_path / "b.tar")
    with pytest.raises(OSError, match="it is no regular file"):
        source.read(0)


FILES_OF_SOURCES: dict[str, Callable[[Path], object]] = {
    "list.txt": ListFile,
    "table.csv": Csv,
    "coco.json": lambda path: Coco(path.parent, path),
    "data.yaml": Yolo,
    "rows.parquet": lambda path: Parquet([path]),
    "mds/index.json": lambda path: Mds(path.parent),
    "litdata/index.json": lambda path: LitData(path.parent),
    "videos.txt": lambda path: Videos(path, frames=1),
    "data.h5": Hdf5,
    "data.lmdb": Lmdb,
    "db/data.mdb": lambda path: Lmdb(path.parent),
    "a.tar": TarShards,
    "a.tfrecord": TFRecord,
}


@pytest.mark.parametrize("make", [pipe, device, os.mkdir])
@pytest.mark.parametrize("name", FILES_OF_SOURCES)
def test_files_of_sources_that_are_no_regular_files(tmp_path, name, make):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    make(path)
    with pytest.raises(LoaderError) as error:
        FILES_OF_SOURCES[name](path)
    assert make is os.mkdir or "no regular file" in str(error.value)
    if make is pipe and path.suffix in (".txt", ".csv", ".json"):
        assert str(error.value).endswith("it is no regular file; write a pipe's data into a file first")
