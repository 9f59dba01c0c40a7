"""A cache in a directory: shared by processes, outliving them, on disks that fill up."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from cuaug.cache import DecodedCache
from cuaug.errors import LoaderError
from tests.cache.pictures import overlapping, picture, run, same, start

COUNT = 400
SIZES = [picture(i).nbytes for i in range(COUNT)]
PROGRAM = """
import logging, os, resource, sys
import numpy as np
from cuaug.cache import DecodedCache
from tests.cache.pictures import picture, same
logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s")
directory, limit = sys.argv[1], int(sys.argv[2])
cache = DecodedCache(limit_bytes=limit, directory=directory)
cache.open(400, {"source": "a"})
"""


def opened(directory: Path, limit_bytes: int = 1 << 24, **contents: str) -> DecodedCache:
    cache = DecodedCache(limit_bytes=limit_bytes, directory=directory)
    cache.open(COUNT, contents or {"source": "a"})
    return cache


def held(cache: DecodedCache) -> list[int]:
    """The samples that a cache has, each checked."""
    views = {i: view for i in range(COUNT) if (view := cache.get(i)) is not None}
    assert all(same(view, picture(i)) for i, view in views.items()) and not overlapping(views.values())
    return list(views)


# --- several processes -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1 << 24, sum(SIZES) // 2], ids=["roomy", "tight"])
def test_processes_fill_one_directory(tmp_path, limit):
    """Each in an order of its own, from two threads, and reads what it finds."""
    body = """
import threading
def work(seed):
    for i in np.random.default_rng(seed).permutation(400).tolist():
        got = cache.get(i)
        if got is None:
            got = cache.put(i, picture(i))
        assert got is None or same(got, picture(i))
        assert cache.stats.bytes <= limit

threads = [threading.Thread(target=work, args=(os.getpid() + k,)) for k in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(cache.stats.samples > 0)
"""
    processes = [start(PROGRAM + body, tmp_path / "cache", limit) for _ in range(3)]
    for process in processes:
        assert process.communicate(timeout=60) == ("True\n", "")
    cache = opened(tmp_path / "cache", limit)
    here = held(cache)
    assert cache.stats.samples == len(here) and sum(SIZES[i] for i in here) <= cache.stats.bytes <= limit
    left = limit - cache.stats.bytes
    assert all(SIZES[i] > left for i in range(COUNT) if i not in here)
    assert len(here) == COUNT or limit < 1 << 24


def test_who_takes_room_waits_for_who_does_so_already(tmp_path):
    """Two that took the same room would spoil each other's picture; the test above meets that seldom."""
    cache, other = opened(tmp_path), opened(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        with cache._store._locked():
            put = pool.submit(other.put, 1, picture(1))
            assert not wait([put], timeout=0.3).done
        assert same(put.result(10), picture(1))


@pytest.mark.slow
def test_what_one_process_adds_the_other_sees(tmp_path):
    cache = opened(tmp_path)
    run(PROGRAM + "cache.put(5, picture(5))", tmp_path, 1 << 24)
    assert held(cache) == [5]
    cache.put(6, picture(6))
    run(PROGRAM + "assert same(cache.get(6), picture(6)) and cache.stats.samples == 2", tmp_path, 1 << 24)


def test_the_first_of_two_with_one_sample_wins(tmp_path, monkeypatch):
    """Its record stays as it is: another process may be reading it."""
    slow, fast = opened(tmp_path), opened(tmp_path)
    take, views = slow._store._take, []

    def overtaken(size):
        offset = take(size)
        views.append(fast.put(1, picture(1)))
        return offset

    monkeypatch.setattr(slow._store, "_take", overtaken)
    assert same(slow.put(1, picture(1)), picture(1))
    offset = struct.unpack("<?3xIIIQ", fast._store._record(1))[-1]
    assert same(views[0], picture(1)) and offset == SIZES[1] and held(slow) == held(fast) == [1]
    assert slow.stats.bytes == 2 * SIZES[1]


def test_a_smaller_limit_reads_all_and_adds_nothing(tmp_path):
    small, large = opened(tmp_path, 4 * SIZES[0]), opened(tmp_path)
    for i in range(COUNT - 1):
        large.put(i, picture(i))
    assert small.put(COUNT - 1, picture(COUNT - 1)) is None
    assert held(small) == held(large) == list(range(COUNT - 1))


# --- killed ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_killed_at_any_moment(tmp_path):
    """Whatever a killed process leaves behind is right, and the next one goes on."""
    body = """
pictures = [picture(i) for i in range(400)]
print("ready", flush=True)
while True:
    for i in np.random.default_rng().permutation(400).tolist():
        cache.put(i, pictures[i])
"""
    moments = []
    for k in range(6):
        process = start(PROGRAM + body, tmp_path / str(k), 1 << 24)
        assert process.stdout.readline() == "ready\n"
        time.sleep(random.random() / 100)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        process.communicate()
        cache = opened(tmp_path / str(k))
        moments.append(len(held(cache)))
        for i in range(COUNT):
            assert same(cache.put(i, picture(i)), picture(i))
        assert held(cache) == list(range(COUNT))
    assert set(moments) - {0, COUNT}, f"none was killed half-way: {moments}"


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["_write", "_publish"])
def test_killed_before_the_record(tmp_path, moment):
    """The room is lost, and nothing else."""
    body = f"""
from cuaug.cache import disk
cache.put(0, picture(0))
where = disk if "{moment}" == "_write" else disk.DiskStore
setattr(where, "{moment}", lambda *arguments: os._exit(0))
cache.put(1, picture(1))
"""
    run(PROGRAM + body, tmp_path, 1 << 24)
    cache = opened(tmp_path)
    assert held(cache) == [0] and cache.stats.bytes == SIZES[0] + SIZES[1]
    assert same(cache.put(1, picture(1)), picture(1)) and held(cache) == [0, 1]
    assert cache.stats.bytes == SIZES[0] + 2 * SIZES[1]


@pytest.mark.slow
def test_killed_while_it_is_made(tmp_path):
    body = """
import cuaug.cache.disk
cuaug.cache.disk.os.replace = lambda *names, **directories: os._exit(0)
DecodedCache(limit_bytes=limit, directory=directory + "/made").open(400, {"source": "a"})
"""
    run(PROGRAM + body, tmp_path, 1 << 24)
    cache = opened(tmp_path / "made")
    assert cache.put(0, picture(0)) is not None and held(cache) == [0]


@pytest.mark.parametrize("damage", ["zeros", "one bit"])
def test_pixels_that_a_crash_of_the_machine_lost(tmp_path, damage, caplog):
    """The record is on the disk, its pixels are not: they are made anew, and never shown."""
    first = opened(tmp_path)
    for i in range(10):
        first.put(i, picture(i))
    first.close()
    del first
    begin, end = sum(SIZES[:4]), sum(SIZES[:5])
    with open(tmp_path / "pixels", "r+b") as file:
        file.seek(begin)
        old = file.read(end - begin)
        file.seek(begin)
        file.write(bytes(len(old)) if damage == "zeros" else bytes([old[0] ^ 1]))
    cache = opened(tmp_path)
    assert held(cache) == [i for i in range(10) if i != 4]
    assert caplog.text.count("do not match their checksum, of sample 4") == 1 == len(caplog.records)
    assert same(cache.put(4, picture(4)), picture(4))
    assert held(cache) == held(opened(tmp_path)) == list(range(10)) and len(caplog.records) == 1


@pytest.mark.parametrize("damage", ["turned", "of another sample"])
def test_a_record_of_other_pixels(tmp_path, damage, caplog):
    """Its checksum is of the sample's number and the picture's height and width, too."""
    first = opened(tmp_path)
    for i in range(2):
        first.put(i, picture(i, 3, 5))
    first.close()
    del first
    with open(tmp_path / "index", "r+b") as file:
        records = [file.read(24), file.read(24)]
        ready, checksum, height, width, offset = struct.unpack("<?3xIIIQ", records[0])
        file.seek(0)
        turned = struct.pack("<?3xIIIQ", ready, checksum, width, height, offset)
        file.write(turned if damage == "turned" else records[1])
    cache = opened(tmp_path)
    assert cache.get(0) is None and caplog.text.count("do not match their checksum, of sample 0") == 1
    assert same(cache.put(0, picture(0)), picture(0)) and same(opened(tmp_path).get(0), picture(0))


# --- a full disk -----------------------------------------------------------------------------------------------------

FILL = """
held = [cache.put(i, picture(i)) is not None for i in range(400)]
assert any(held) and not all(held), "the disk was not full, or was from the start"
for i in range(400):
    got = cache.get(i)
    assert same(got, picture(i)) if held[i] else got is None
print(sum(held), cache.stats.samples)
"""


def check_full(printed: str) -> None:
    warning, counts = printed.splitlines()
    assert warning.startswith("WARNING the decoded cache in") and "takes no more samples" in warning
    assert len(set(counts.split())) == 1


@pytest.mark.slow
def test_a_limit_on_the_size_of_files(tmp_path):
    body = "resource.setrlimit(resource.RLIMIT_FSIZE, (10 ** 5, 10 ** 5))"
    check_full(run(PROGRAM + body + FILL, tmp_path, 1 << 24))
    here = held(opened(tmp_path))
    assert opened(tmp_path).stats.bytes == sum(SIZES[i] for i in here), "what could not be reserved was given back"


def small_disk(directory: Path) -> list[str]:
    """What to put before a command that is to find a disk of 256 kB at `directory`; skips where none can be made."""
    directory.mkdir()
    own = ["unshare", "--user", "--map-root-user", "--mount"]
    mount = f"mount -t tmpfs -o size=256k none {directory}"
    if not shutil.which("unshare") or subprocess.run([*own, "sh", "-c", mount], capture_output=True).returncode:
        pytest.skip("this user may not mount a file system of its own")
    return [*own, "sh", "-c", f'{mount} && exec "$@"', "sh"]


@pytest.mark.slow
def test_a_full_disk(tmp_path):
    check_full(run(PROGRAM + FILL, tmp_path / "small", 1 << 24, prefix=small_disk(tmp_path / "small")))


@pytest.mark.slow
def test_a_full_disk_that_reserves_nothing(tmp_path):
    """Some file systems say that they have reserved room and have not: then writing fails, as an error."""
    body = "os.posix_fallocate = lambda file, offset, size: os.ftruncate(file, offset + size)"
    check_full(run(PROGRAM + body + FILL, tmp_path / "small", 1 << 24, prefix=small_disk(tmp_path / "small")))


def test_a_reservation_that_fails_half_way_gives_back_its_half(tmp_path, monkeypatch):
    """As ext4's does."""
    cache, reserve = opened(tmp_path), os.posix_fallocate
    cache.put(0, picture(0))

    def half(file, offset, size):
        reserve(file, offset, size // 2)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", half)
    assert cache.put(1, picture(1)) is None and cache.stats.bytes == SIZES[0]


def test_a_sparse_index(tmp_path):
    """Room on the disk is taken as it is filled."""
    cache = DecodedCache(limit_bytes=1 << 40, directory=tmp_path)
    cache.open(10**7, {})
    cache.put(7_654_321, picture(1, 100, 100))
    assert same(cache.get(7_654_321), picture(1, 100, 100))
    assert sum(os.stat(tmp_path / name).st_blocks * 512 for name in os.listdir(tmp_path)) < 10**5


# --- another cache's directory ---------------------------------------------------------------------------------------


def test_another_dataset_is_refused(tmp_path):
    opened(tmp_path, source="a", apply_exif="yes").put(1, picture(1))
    with pytest.raises(LoaderError, match=r"holds another decoded cache: source is 'a' there and 'b' here; delete it"):
        opened(tmp_path, source="b", apply_exif="yes")
    with pytest.raises(LoaderError, match="apply_exif is 'yes' there and None here"):
        opened(tmp_path, source="a")
    with pytest.raises(LoaderError, match="short_side is None there and 256 here"):
        DecodedCache(256, limit_bytes=10, directory=tmp_path).open(COUNT, {"source": "a", "apply_exif": "yes"})
    with pytest.raises(LoaderError, match="samples is 400 there and 401 here"):
        DecodedCache(limit_bytes=10, directory=tmp_path).open(COUNT + 1, {"source": "a", "apply_exif": "yes"})
    assert held(opened(tmp_path, source="a", apply_exif="yes")) == [1], "refusing changes nothing"


def test_another_version_is_refused(tmp_path):
    opened(tmp_path)
    contents = json.loads((tmp_path / "contents.json").read_text())
    (tmp_path / "contents.json").write_text(json.dumps({**contents, "version": 2}))
    with pytest.raises(LoaderError, match="version is 2 there and 3 here; delete it"):
        opened(tmp_path)


def test_a_cache_with_a_file_missing_is_refused(tmp_path):
    opened(tmp_path)
    os.truncate(tmp_path / "index", 240)
    with pytest.raises(LoaderError, match="damaged: its index has a wrong length; delete it"):
        opened(tmp_path)
    os.remove(tmp_path / "index")
    with pytest.raises(LoaderError, match=r"cannot keep a cache of 16777216 bytes in .*No such file"):
        opened(tmp_path)


def test_a_directory_that_cannot_be_used(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LoaderError, match=r"cannot keep a cache .*Not a directory"):
        opened(tmp_path / "file" / "below")


def test_a_limit_beyond_all_disks(tmp_path):
    """Address space once bounded it: a cache takes what it holds."""
    cache = opened(tmp_path, (1 << 64) + 4096)
    assert same(cache.put(1, picture(1)), picture(1)) and cache.stats.bytes == SIZES[1]


def test_a_cache_made_anew_where_another_is_in_use(tmp_path):
    """As by a job that starts while its directory is being deleted: what others look at stays as it is."""
    cache = opened(tmp_path)
    view = cache.put(1, picture(1))
    os.remove(tmp_path / "contents.json")
    new = opened(tmp_path)
    assert same(view, picture(1)) and held(cache) == [1]
    new.put(2, picture(2))
    assert held(new) == [2] and held(cache) == [1]


def test_a_directory_deleted_under_way(tmp_path, caplog):
    cache = opened(tmp_path / "cache")
    cache.put(1, picture(1))
    shutil.rmtree(tmp_path / "cache")
    assert held(cache) == [1] and cache.put(2, picture(2)) is None and cache.put(3, picture(3)) is None
    assert caplog.text.count("takes no more samples: No such file") == 1 == len(caplog.records)
