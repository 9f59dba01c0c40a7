"""The disk cache of remote shards: right bytes whatever happens to its files, few requests, a kept limit."""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import multiprocessing
import os
import pickle
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cuaug import ArgumentError
from cuaug._runtime.disk import TEMPORARY_PREFIX, Directory
from cuaug.remote import RemoteObject, RemoteOptions, block_cache
from cuaug.remote.block_cache import BlockCache, CachedReader

BLOCK = 100_000  # two pages
DATA = random.Random(1).randbytes(7 * BLOCK + 12_345)
REMOTE = RemoteObject("s3://photos/a.tar", len(DATA), "etag")


class Store:
    """An object store in memory, which counts its requests."""

    connections = 4

    def __init__(self, *, seconds: float = 0.0) -> None:
        self.requests: list[tuple[int, int]] = []
        self.seconds = seconds
        self.error: OSError | None = None

    def read(self, remote, offset, size, stop=None) -> bytes:
        self.requests.append((offset, size))
        time.sleep(self.seconds)
        if self.error:
            raise self.error
        return DATA[offset : offset + size]


def make(folder: Path, *, limit: int = 1 << 30, **arguments) -> tuple[Store, CachedReader]:
    store = Store(**arguments)
    return store, CachedReader(store, BlockCache(folder, limit, block_bytes=BLOCK))


def read_all(reader: CachedReader) -> None:
    assert reader.read(REMOTE, 0, len(DATA)) == DATA


def blocks(folder: Path) -> list[Path]:
    """The blocks, by number; no temporary files."""
    return sorted(folder.glob("[!.]*.block"), key=lambda path: int(path.stem.partition("-")[2]))


def length(folder: Path) -> int:
    """The length of all blocks and temporary files, some of which may go meanwhile."""
    total = 0
    for path in folder.iterdir():
        if path.suffix == ".block" or path.name.startswith(TEMPORARY_PREFIX):
            with contextlib.suppress(FileNotFoundError):
                total += path.stat().st_size
    return total


def usage(reader: CachedReader) -> int:
    with open(Path(reader.cache.path) / "usage", "rb") as file:
        return reader.cache._usage(file.fileno())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    limit=st.sampled_from([BLOCK + 100, 3 * BLOCK, 6 * BLOCK, 20 * BLOCK]),
    steps=st.lists(
        st.tuples(
            st.sampled_from([0, 1]),
            st.sampled_from(["read", "read", "read", "truncate", "damage", "delete", "restart"]),
            st.integers(0, len(DATA) - 1),
            st.sampled_from([1, 300, BLOCK, 3 * BLOCK]),
        ),
        max_size=25,
    ),
)
def test_any_reads_evictions_and_damage(tmp_path_factory, limit, steps):
    """Two caches on one folder return the object's bytes, and their files stay within the limit."""
    folder = tmp_path_factory.mktemp("cache")
    readers = [make(folder, limit=limit)[1] for _ in range(2)]
    for which, action, offset, size in steps:
        files = blocks(folder)
        if action == "read":
            size = min(size, len(DATA) - offset)
            assert readers[which].read(REMOTE, offset, size) == DATA[offset : offset + size]
        elif action == "restart":
            readers[which] = make(folder, limit=limit)[1]
        elif files:
            file = files[offset % len(files)]
            if action == "delete":
                file.unlink()
            elif action == "truncate":
                os.truncate(file, offset % max(1, file.stat().st_size))
            else:
                data = bytearray(file.read_bytes() or b"0")
                data[offset % len(data)] ^= 1 << offset % 8
                file.write_bytes(data)
        assert length(folder) <= limit
    assert all(reader.cache.is_writable for reader in readers)


def test_only_missing_blocks_are_requested_once(tmp_path):
    store, reader = make(tmp_path)
    assert reader.read(REMOTE, 3 * BLOCK + 5, 10) == DATA[3 * BLOCK + 5 :][:10]
    assert store.requests == [(3 * BLOCK, BLOCK)]
    read_all(reader)
    assert store.requests[1:] == [(0, 3 * BLOCK), (4 * BLOCK, len(DATA) - 4 * BLOCK)]  # neighbors together
    other_store, other = make(tmp_path)
    read_all(other)
    read_all(pickle.loads(pickle.dumps(other)))
    assert not other_store.requests and not other.cache.damaged


@pytest.mark.parametrize("kind", ["truncated", "empty", "longer", "bytes", "checksum", "renamed"])
def test_damaged_blocks_are_requested_again(tmp_path, kind, caplog):
    _, first = make(tmp_path)
    read_all(first)
    file, other = blocks(tmp_path)[2:4]
    data = bytearray(file.read_bytes())
    data[-1 if kind == "checksum" else 70_000] ^= 1
    content = {"truncated": data[:-1], "empty": b"", "longer": file.read_bytes() + b"0", "renamed": other.read_bytes()}
    file.write_bytes(content.get(kind, data))
    store, reader = make(tmp_path)
    with caplog.at_level(logging.WARNING, "cuaug"):
        read_all(reader)
    assert store.requests == [(2 * BLOCK, BLOCK)] and reader.cache.damaged
    assert caplog.text.count("requested again") == 1 and file.name in caplog.text
    read_all(reader)
    assert len(store.requests) == 1


def test_another_version_is_another_block(tmp_path):
    store, reader = make(tmp_path)
    read_all(reader)
    for other in (REMOTE._replace(version="new"), REMOTE._replace(url="s3://b"), REMOTE._replace(size=len(DATA) - 1)):
        before = len(store.requests)
        reader.read(other, 0, 10)
        assert len(store.requests) == before + 1


def test_objects_without_a_version_are_not_cached(tmp_path, caplog):
    store, reader = make(tmp_path)
    for _ in range(2):
        assert reader.read(REMOTE._replace(version=""), 10, 20) == DATA[10:30]
    assert store.requests == [(10, 20)] * 2 and not blocks(tmp_path) and reader.cache.dropped == 2
    assert caplog.text.count("is not cached") == 1


def test_the_least_recently_used_go_first(tmp_path):
    _, reader = make(tmp_path, limit=8 * BLOCK + 1000)
    read_all(reader)
    assert length(tmp_path) == usage(reader)
    for i, path in enumerate(blocks(tmp_path)):
        os.utime(path, (1000 + i, 1000 + i))
    reader.read(REMOTE, 0, 1)  # block 0 is now the latest
    reader.read(REMOTE._replace(version="2"), 0, BLOCK)
    kept = [path.stem.partition("-")[2] for path in blocks(tmp_path)]
    assert kept == ["0", "0", "2", "3", "4", "5", "6", "7"] and length(tmp_path) <= 8 * BLOCK + 1000


def test_a_lost_usage_file_is_counted_anew(tmp_path):
    _, reader = make(tmp_path, limit=4 * BLOCK)
    read_all(reader)
    for content in (b"", b"damaged     "):
        (tmp_path / "usage").write_bytes(content)
        for i in range(6):
            reader.read(REMOTE._replace(version=f"{content!r}{i}"), 0, 1)
            assert length(tmp_path) <= 4 * BLOCK


def test_threads_share_requests(tmp_path):
    store, reader = make(tmp_path, seconds=0.05)
    with ThreadPoolExecutor(8) as pool:
        offsets = [BLOCK * (i % 2) + i for i in range(8)]
        assert list(pool.map(lambda at: reader.read(REMOTE, at, 100), offsets)) == [DATA[i : i + 100] for i in offsets]
    assert sorted(store.requests) == [(0, BLOCK), (BLOCK, BLOCK)]


def test_failures_are_each_threads_own(tmp_path):
    store, reader = make(tmp_path, seconds=0.05)
    store.error = OSError("no connection")
    with ThreadPoolExecutor(4) as pool:
        errors = [pool.submit(reader.read, REMOTE, i, 10).exception(60) for i in range(4)]
    assert [str(error) for error in errors] == ["no connection"] * 4
    store.error = None
    read_all(reader)


def test_a_stopped_thread_does_not_wait(tmp_path):
    store, reader = make(tmp_path)
    stop, may_end, read = threading.Event(), threading.Event(), store.read
    stop.set()
    store.read = lambda *arguments: (read(*arguments), may_end.wait(600))[0]
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(reader.read, REMOTE, 0, 10)
        while not store.requests:
            time.sleep(0.001)
        with pytest.raises(OSError, match="was stopped"):
            reader.read(REMOTE, 0, 10, stop)
        assert not first.done()
        may_end.set()
        assert first.result() == DATA[:10]


@pytest.mark.parametrize("kind", ["full", "file", "others", "deleted"])
def test_a_folder_that_cannot_be_written(tmp_path, kind, monkeypatch, caplog):
    folder = tmp_path / "cache"
    store, reader = make(folder)
    reader.read(REMOTE, 0, 1)
    if kind == "full":

        def write(*_, **__):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(Directory, "atomic_write", write)
    else:
        for path in folder.iterdir():
            path.unlink()
        if kind == "others":
            folder.chmod(0o777)
        else:
            folder.rmdir()
        if kind == "file":
            folder.write_text("mine")
        if kind != "deleted":
            store, reader = make(folder)
    store.requests.clear()
    for _ in range(2):
        assert reader.read(REMOTE, 5, 2 * BLOCK) == DATA[5:][: 2 * BLOCK]
    assert store.requests[-1] == (5, 2 * BLOCK)  # no whole blocks, which would be read again and again
    assert reader.cache.dropped >= 3 and caplog.text.count("without keeping further blocks") == 1
    if kind == "full":
        assert reader.read(REMOTE, 0, 1) == DATA[:1] and store.requests[-1] == (5, 2 * BLOCK)  # what is kept is used


@pytest.mark.parametrize("kind", ["hard link", "symbolic link"])
def test_links_in_the_folder_stay(tmp_path, kind, caplog):
    """Neither a link to a user's file in place of `usage` nor one in place of a block changes that file."""
    mine, folder = tmp_path / "mine", tmp_path / "cache"
    mine.write_bytes(b"mine")
    mine.chmod(0o600)
    _, reader = make(folder)
    name = "usage" if kind == "hard link" else reader.cache._name(REMOTE, 0)
    plant = Path.hardlink_to if kind == "hard link" else Path.symlink_to
    plant(folder / name, mine)
    for _ in range(2):
        assert reader.read(REMOTE, 5, 9) == DATA[5:][:9]
    assert mine.read_bytes() == b"mine" and (folder / name).samefile(mine)
    assert caplog.text.count("without keeping further blocks") == 1


def write_and_evict(folder: Path, seed: int) -> None:
    _, reader = make(folder, limit=5 * BLOCK)
    draw = random.Random(seed)
    for _ in range(300):
        at = draw.randrange(len(DATA) - 300)
        assert reader.read(REMOTE, at, 300) == DATA[at : at + 300]
    assert reader.cache.is_writable and not reader.cache.damaged


def test_two_processes_write_and_evict(tmp_path):
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=write_and_evict, args=(tmp_path, seed)) for seed in range(2)]
    for process in processes:
        process.start()
    while any(process.is_alive() for process in processes):
        assert length(tmp_path) <= 7 * BLOCK  # the limit, and one block for each writer
    assert [process.exitcode for process in processes] == [0, 0]
    # An eviction does not see the block that the other process is just writing; the next one counts it.
    assert length(tmp_path) <= 6 * BLOCK + 1000


def write_usage_slowly(*arguments, write=block_cache._write_usage):
    time.sleep(0.001)
    write(*arguments)


def test_two_processes_count_each_block(tmp_path):
    """Blocks of different objects, which only the lock keeps from being counted at the same moment."""
    _, reader = make(tmp_path)
    gates = [os.pipe() for _ in range(2)]
    children = []
    for child, (gate, _) in enumerate(gates):
        pid = os.fork()
        if not pid:
            block_cache._write_usage = write_usage_slowly
            os.read(gate, 1)
            for i in range(50):
                reader.cache.write(RemoteObject("s3://a", 10, f"{child} {i}"), 0, b"0123456789")
            os._exit(reader.cache.dropped)
        children.append(pid)
    for _, gate in gates:
        os.write(gate, b"1")
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0]
    assert usage(reader) == length(tmp_path) == 100 * 18


def test_a_killed_writer_leaves_no_half_block(tmp_path):
    """Processes that write and evict are killed at 30 moments."""
    for i in range(30):
        pid = os.fork()
        if not pid:  # the child
            _, reader = make(tmp_path, limit=40 * BLOCK)
            for j in itertools.count():
                reader.read(REMOTE._replace(version=f"{i} {j}"), 0, BLOCK)
        time.sleep(0.005 + 0.001 * i)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    _, reader = make(tmp_path, limit=40 * BLOCK)
    kept = 0
    for i, j in itertools.product(range(30), range(500)):
        data = reader.cache.read(REMOTE._replace(version=f"{i} {j}"), 0, 0, BLOCK)
        assert data in (None, DATA[:BLOCK])
        kept += data is not None
    assert kept and not reader.cache.damaged
    assert length(tmp_path) <= 70 * BLOCK  # a killed writer may leave one block that is not counted
    read_all(reader)
    assert reader.cache.is_writable and not reader.cache.dropped


def test_a_half_written_block_is_not_used(tmp_path):
    pid = os.fork()
    if not pid:
        os.replace = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
        make(tmp_path)[1].read(REMOTE, 0, 1)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    (orphan,) = tmp_path.glob(f"{TEMPORARY_PREFIX}*")
    assert orphan.name.startswith(".")
    store, reader = make(tmp_path, limit=3 * BLOCK)
    assert reader.read(REMOTE, 0, 1) == DATA[:1] and store.requests == [(0, BLOCK)]
    os.utime(orphan, (1000, 1000))
    read_all(reader)
    assert not orphan.exists() and length(tmp_path) <= 3 * BLOCK


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cache_dir": "s3://bucket/cache"}, "cache_dir must be a local folder"),
        ({"cache_dir": 3}, "cache_dir must be a local folder"),
        ({"cache_dir": ""}, "cache_dir must be a local folder"),
        ({"cache_bytes": 1 << 20}, "cache_bytes must be an integer of at least"),
    ],
)
def test_arguments(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        RemoteOptions(**arguments)
