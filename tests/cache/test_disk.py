"""A cache in a directory: several processes, killed processes, full disks, other caches."""

from __future__ import annotations

import errno
import functools
import json
import multiprocessing
import os
import random
import shutil
import signal
import struct
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuaug.cache import DecodedCache
from cuaug.errors import LoaderError
from tests.support.cache import cached_images
from tests.support.cache.cached_images import is_same, make_image, overlap, run

COUNT = 400
SIZES = [make_image(i).nbytes for i in range(COUNT)]
# A new process would import torch for longer than it works.
FORK = multiprocessing.get_context("fork")
PROGRAM = """
import logging, os, resource, sys
from tests.support.cache.cached_images import make_image, is_same, open_cache
logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s")
directory, limit = sys.argv[1], int(sys.argv[2])
cache = open_cache(directory, limit, count=400)
"""


open_cache = functools.partial(cached_images.open_cache, count=COUNT)


def verified_samples(cache: DecodedCache) -> list[int]:
    """The samples that a cache holds, with verified pixels."""
    views = {i: view for i in range(COUNT) if (view := cache.get(i)) is not None}
    assert all(is_same(view, make_image(i)) for i, view in views.items()) and not overlap(views.values())
    return list(views)


# --- several processes -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1 << 24, sum(SIZES) // 2], ids=["roomy", "tight"])
def test_processes_fill_one_directory(tmp_path, limit):
    """Each process uses its own order and two threads, and verifies the images it finds."""

    def fill() -> None:
        cache = open_cache(tmp_path / "cache", limit)

        def work(seed: int) -> None:
            for i in np.random.default_rng(seed).permutation(COUNT).tolist():
                image = cache.get(i)
                if image is None:
                    image = cache.put(i, make_image(i))
                assert image is None or is_same(image, make_image(i))
                assert cache.stats.bytes <= limit

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(work, [os.getpid(), os.getpid() + 1]))
        assert cache.stats.samples > 0

    processes = [FORK.Process(target=fill) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(600)
        assert process.exitcode == 0
    cache = open_cache(tmp_path / "cache", limit)
    samples = verified_samples(cache)
    assert cache.stats.samples == len(samples) and sum(SIZES[i] for i in samples) <= cache.stats.bytes <= limit
    left = limit - cache.stats.bytes
    assert all(SIZES[i] > left for i in range(COUNT) if i not in samples)
    assert len(samples) == COUNT or limit < 1 << 24


def test_allocation_waits_for_the_lock(tmp_path):
    """Two processes that allocate the same space would overwrite each other; the test above rarely sees it."""
    cache, other = open_cache(tmp_path), open_cache(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        with cache._store._locked():
            put = pool.submit(other.put, 1, make_image(1))
            assert not wait([put], timeout=0.3).done
        assert is_same(put.result(60), make_image(1))


def test_the_first_record_of_a_sample_stays(tmp_path, monkeypatch):
    """Another process may be reading it."""
    slow, fast = open_cache(tmp_path), open_cache(tmp_path)
    allocate, views = slow._store._allocate, []

    def allocate_late(size):
        offset = allocate(size)
        views.append(fast.put(1, make_image(1)))
        return offset

    monkeypatch.setattr(slow._store, "_allocate", allocate_late)
    assert is_same(slow.put(1, make_image(1)), make_image(1))
    offset = struct.unpack("<?3xIIIQ", fast._store._record(1))[-1]
    assert is_same(views[0], make_image(1)) and offset == SIZES[1]
    assert verified_samples(slow) == verified_samples(fast) == [1]
    assert slow.stats.bytes == 2 * SIZES[1]


def test_a_smaller_limit_only_ends_adding(tmp_path):
    small, large = open_cache(tmp_path, 4 * SIZES[0]), open_cache(tmp_path)
    for i in range(COUNT - 1):
        large.put(i, make_image(i))
    assert small.put(COUNT - 1, make_image(COUNT - 1)) is None
    assert verified_samples(small) == verified_samples(large) == list(range(COUNT - 1))


# --- killed ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_killed_at_any_moment(tmp_path):
    """A killed process leaves valid samples, and the next process adds the rest."""
    images = [make_image(i) for i in range(COUNT)]

    def fill(directory: Path, ready: Any) -> None:
        cache = open_cache(directory)
        ready.set()
        while True:
            for i in np.random.default_rng().permutation(COUNT).tolist():
                cache.put(i, images[i])

    counts = []
    for k in range(6):
        ready = FORK.Event()
        process = FORK.Process(target=fill, args=(tmp_path / str(k), ready))
        process.start()
        assert ready.wait(600)
        time.sleep(random.random() / 100)
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        cache = open_cache(tmp_path / str(k))
        counts.append(len(verified_samples(cache)))
        for i in range(COUNT):
            assert is_same(cache.put(i, make_image(i)), make_image(i))
        assert verified_samples(cache) == list(range(COUNT))
    assert set(counts) - {0, COUNT}, f"no process was killed half-way: {counts}"


@pytest.mark.slow
@pytest.mark.parametrize("function", ["_write", "_write_record"])
def test_killed_before_the_record(tmp_path, function):
    """Only the allocated space is lost."""
    body = f"""
from cuaug.cache import disk_store as disk
cache.put(0, make_image(0))
owner = disk if "{function}" == "_write" else disk.DiskStore
setattr(owner, "{function}", lambda *arguments: os._exit(0))
cache.put(1, make_image(1))
"""
    run(PROGRAM + body, tmp_path, 1 << 24)
    cache = open_cache(tmp_path)
    assert verified_samples(cache) == [0] and cache.stats.bytes == SIZES[0] + SIZES[1]
    assert is_same(cache.put(1, make_image(1)), make_image(1)) and verified_samples(cache) == [0, 1]
    assert cache.stats.bytes == SIZES[0] + 2 * SIZES[1]


@pytest.mark.slow
def test_killed_while_the_cache_is_made(tmp_path):
    body = """
import cuaug.cache.disk_store
cuaug.cache.disk_store.os.replace = lambda *names, **directories: os._exit(0)
open_cache(directory + "/made", limit, count=400)
"""
    run(PROGRAM + body, tmp_path, 1 << 24)
    cache = open_cache(tmp_path / "made")
    assert cache.put(0, make_image(0)) is not None and verified_samples(cache) == [0]


@pytest.mark.parametrize("damage", ["zeros", "one bit"])
def test_pixels_lost_in_a_crash_of_the_machine(tmp_path, damage, caplog):
    """The record is on disk, its pixels are not: the sample is decoded again."""
    first = open_cache(tmp_path)
    for i in range(10):
        first.put(i, make_image(i))
    first.close()
    del first
    begin, end = sum(SIZES[:4]), sum(SIZES[:5])
    with open(tmp_path / "pixels", "r+b") as file:
        file.seek(begin)
        old = file.read(end - begin)
        file.seek(begin)
        file.write(bytes(len(old)) if damage == "zeros" else bytes([old[0] ^ 1]))
    cache = open_cache(tmp_path)
    assert verified_samples(cache) == [i for i in range(10) if i != 4]
    assert caplog.text.count("do not match their checksum, of sample 4") == 1 == len(caplog.records)
    assert is_same(cache.put(4, make_image(4)), make_image(4))
    assert verified_samples(cache) == verified_samples(open_cache(tmp_path)) == list(range(10))
    assert len(caplog.records) == 1


@pytest.mark.parametrize("damage", ["transposed", "of another sample"])
def test_a_record_of_other_pixels(tmp_path, damage, caplog):
    """The checksum covers the sample number, height and width too."""
    first = open_cache(tmp_path)
    for i in range(2):
        first.put(i, make_image(i, 3, 5))
    first.close()
    del first
    with open(tmp_path / "index", "r+b") as file:
        records = [file.read(24), file.read(24)]
        ready, checksum, height, width, offset = struct.unpack("<?3xIIIQ", records[0])
        file.seek(0)
        transposed = struct.pack("<?3xIIIQ", ready, checksum, width, height, offset)
        file.write(transposed if damage == "transposed" else records[1])
    cache = open_cache(tmp_path)
    assert cache.get(0) is None and caplog.text.count("do not match their checksum, of sample 0") == 1
    assert is_same(cache.put(0, make_image(0)), make_image(0)) and is_same(open_cache(tmp_path).get(0), make_image(0))


# --- a full disk -----------------------------------------------------------------------------------------------------

FILL = """
held = [cache.put(i, make_image(i)) is not None for i in range(400)]
assert any(held) and not all(held), "the disk did not fill up, or was full from the start"
for i in range(400):
    image = cache.get(i)
    assert is_same(image, make_image(i)) if held[i] else image is None
print(sum(held), cache.stats.samples)
"""


def check_full(output: str) -> None:
    warning, counts = output.splitlines()
    assert warning.startswith("WARNING the decoded cache in") and "takes no more samples" in warning
    assert len(set(counts.split())) == 1


@pytest.mark.slow
def test_a_file_size_limit(tmp_path):
    body = "resource.setrlimit(resource.RLIMIT_FSIZE, (10 ** 5, 10 ** 5))"
    check_full(run(PROGRAM + body + FILL, tmp_path, 1 << 24))
    samples = verified_samples(open_cache(tmp_path))
    assert open_cache(tmp_path).stats.bytes == sum(SIZES[i] for i in samples), "a failed reservation is undone"


def small_disk(directory: Path) -> list[str]:
    """A command prefix that mounts a disk of 256 kB at `directory`; skips the test if this user cannot mount."""
    directory.mkdir()
    own = ["unshare", "--user", "--map-root-user", "--mount"]
    mount = f"mount -t tmpfs -o size=256k none {directory}"
    if not shutil.which("unshare") or subprocess.run([*own, "sh", "-c", mount], capture_output=True).returncode:
        pytest.skip("this user cannot mount")
    return [*own, "sh", "-c", f'{mount} && exec "$@"', "sh"]


@pytest.mark.slow
def test_a_full_disk(tmp_path):
    check_full(run(PROGRAM + FILL, tmp_path / "small", 1 << 24, prefix=small_disk(tmp_path / "small")))


@pytest.mark.slow
def test_a_full_disk_whose_reservation_is_void(tmp_path):
    """Some file systems report a reservation that they did not make: writing then fails."""
    body = "os.posix_fallocate = lambda file, offset, size: os.ftruncate(file, offset + size)"
    check_full(run(PROGRAM + body + FILL, tmp_path / "small", 1 << 24, prefix=small_disk(tmp_path / "small")))


def test_a_partial_reservation_is_undone(tmp_path, monkeypatch):
    """ext4 may fail half-way."""
    cache, reserve = open_cache(tmp_path), os.posix_fallocate
    cache.put(0, make_image(0))

    def half(file, offset, size):
        reserve(file, offset, size // 2)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", half)
    assert cache.put(1, make_image(1)) is None and cache.stats.bytes == SIZES[0]


def test_a_sparse_index(tmp_path):
    """Disk space grows only as the cache fills."""
    cache = DecodedCache(limit_bytes=1 << 40, directory=tmp_path)
    cache.open(10**7, {})
    cache.put(7_654_321, make_image(1, 100, 100))
    assert is_same(cache.get(7_654_321), make_image(1, 100, 100))
    assert sum(os.stat(tmp_path / name).st_blocks * 512 for name in os.listdir(tmp_path)) < 10**5


# --- another cache's directory ---------------------------------------------------------------------------------------


def test_another_dataset_is_refused(tmp_path):
    open_cache(tmp_path, source="a", apply_exif="yes").put(1, make_image(1))
    with pytest.raises(LoaderError, match=r"holds another decoded cache: source is 'a' there and 'b' here; delete it"):
        open_cache(tmp_path, source="b", apply_exif="yes")
    with pytest.raises(LoaderError, match="apply_exif is 'yes' there and None here"):
        open_cache(tmp_path, source="a")
    with pytest.raises(LoaderError, match="short_side is None there and 256 here"):
        DecodedCache(256, limit_bytes=10, directory=tmp_path).open(COUNT, {"source": "a", "apply_exif": "yes"})
    with pytest.raises(LoaderError, match="samples is 400 there and 401 here"):
        DecodedCache(limit_bytes=10, directory=tmp_path).open(COUNT + 1, {"source": "a", "apply_exif": "yes"})
    assert verified_samples(open_cache(tmp_path, source="a", apply_exif="yes")) == [1], "refusal changes nothing"


def test_another_version_is_refused(tmp_path):
    open_cache(tmp_path)
    contents = json.loads((tmp_path / "contents.json").read_text())
    (tmp_path / "contents.json").write_text(json.dumps({**contents, "version": 2}))
    with pytest.raises(LoaderError, match="version is 2 there and 3 here; delete it"):
        open_cache(tmp_path)


def test_a_cache_with_a_missing_file_is_refused(tmp_path):
    open_cache(tmp_path)
    os.remove(tmp_path / "index")
    with pytest.raises(LoaderError, match=r"directory .* cannot hold a cache: .*No such file"):
        open_cache(tmp_path)


def test_an_unusable_directory_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LoaderError, match=r"directory .* cannot hold a cache: .*Not a directory"):
        open_cache(tmp_path / "file" / "below")


def test_a_huge_limit_is_allowed(tmp_path):
    """Address space once bounded it."""
    cache = open_cache(tmp_path, (1 << 64) + 4096)
    assert is_same(cache.put(1, make_image(1)), make_image(1)) and cache.stats.bytes == SIZES[1]


def test_a_new_cache_in_a_directory_in_use(tmp_path):
    """For example a job that starts while its directory is deleted: open files keep their content."""
    cache = open_cache(tmp_path)
    view = cache.put(1, make_image(1))
    os.remove(tmp_path / "contents.json")
    new = open_cache(tmp_path)
    assert is_same(view, make_image(1)) and verified_samples(cache) == [1]
    new.put(2, make_image(2))
    assert verified_samples(new) == [2] and verified_samples(cache) == [1]


def test_a_directory_deleted_while_in_use(tmp_path, caplog):
    cache = open_cache(tmp_path / "cache")
    cache.put(1, make_image(1))
    shutil.rmtree(tmp_path / "cache")
    assert verified_samples(cache) == [1]
    assert cache.put(2, make_image(2)) is None and cache.put(3, make_image(3)) is None
    assert caplog.text.count("takes no more samples: No such file") == 1 == len(caplog.records)
