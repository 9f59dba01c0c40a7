"""The decoded cache, in memory and on disk, against a dictionary."""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import signal
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cuaug.cache import CacheStats, DecodedCache, memory
from cuaug.errors import LoaderError
from tests.cache.pictures import overlapping, picture, same

COUNT = 12
CONTENTS = {"source": "a", "apply_exif": True}
sides = st.integers(1, 9)
operations = st.lists(st.tuples(st.booleans(), st.integers(0, COUNT - 1)), max_size=60)
shapes = st.lists(st.tuples(sides, sides), min_size=COUNT, max_size=COUNT)


@pytest.fixture(scope="module", params=["memory", "disk"])
def opened(request):
    """Makes open caches: an empty one each time, or the one that an earlier cache's directory holds."""

    def make(limit_bytes: int, count: int = COUNT, contents=CONTENTS, like=None) -> DecodedCache:
        directory = None
        if request.param == "disk":
            directory = Path(tempfile.mkdtemp(dir=root), "made") if like is None else like.directory
        cache = DecodedCache(32, limit_bytes=limit_bytes, directory=directory)
        cache.open(count, contents)
        return cache

    with tempfile.TemporaryDirectory() as root:
        yield make


@pytest.fixture(scope="module")
def small_blocks():
    """So that pictures of a few bytes need several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "BLOCK_BYTES", 200)
        yield


@pytest.mark.usefixtures("small_blocks")
@given(limit=st.integers(1, 2000), shapes=shapes, sequence=operations)
@example(limit=6, shapes=[(1, 1)] * COUNT, sequence=[(True, 0), (True, 1), (True, 2)])  # two fit to the byte
def test_as_a_dictionary_with_a_limit(opened, limit, shapes, sequence):
    cache, pictures = opened(limit), [picture(i, *shape) for i, shape in enumerate(shapes)]
    model: dict[int, np.ndarray] = {}
    views = {}
    for writes, index in sequence:
        if writes:
            room = limit - sum(view.nbytes for view in model.values())
            if pictures[index].nbytes <= room:
                model.setdefault(index, pictures[index])
            got = cache.put(index, pictures[index])
            assert same(got, model[index]) if index in model else got is None
        got = cache.get(index)
        assert same(got, model[index]) if index in model else got is None
        if got is not None:
            views[index] = got
    size = sum(view.nbytes for view in model.values())
    assert cache.stats == CacheStats(len(model), size, limit)
    cache.close()
    assert not overlapping(views.values())
    assert all(same(view, model[index]) for index, view in views.items()), "views outlive what came after, and close"


@pytest.mark.slow
@pytest.mark.usefixtures("small_blocks")
@given(limit=st.integers(1, 2000), shapes=shapes, sequences=st.lists(operations, min_size=2, max_size=4))
def test_from_several_threads(opened, limit, shapes, sequences):
    cache, pictures = opened(limit), [picture(i, *shape) for i, shape in enumerate(shapes)]
    gate = threading.Barrier(len(sequences))
    wrong = []

    def work(sequence):
        held = set()
        gate.wait()
        for writes, index in sequence:
            if writes and cache.put(index, pictures[index]) is not None:
                held.add(index)
            got = cache.get(index)
            if not same(got, pictures[index]) and (got is not None or index in held):
                wrong.append((index, got))

    threads = [threading.Thread(target=work, args=(sequence,)) for sequence in sequences]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)
    assert not wrong
    views = {index: view for index in range(COUNT) if (view := cache.get(index)) is not None}
    assert all(same(view, pictures[index]) for index, view in views.items()) and not overlapping(views.values())
    stats, size = cache.stats, sum(view.nbytes for view in views.values())
    # On disk, two threads with the same sample at the same moment take room twice, and one gives it up.
    assert stats.bytes == size or (cache.directory and stats.bytes > size)
    assert stats.samples == len(views) and stats.bytes <= limit
    tried = {index for sequence in sequences for writes, index in sequence if writes}
    left = limit - stats.bytes
    assert all(pictures[index].nbytes > left for index in tried - set(views)), "what would fit was refused"


def test_views_are_plain_and_read_only(opened):
    cache = opened(1000)
    turned = picture(0, 7, 5).transpose(1, 0, 2)
    for view in (cache.put(0, turned), cache.get(0), cache.put(0, picture(1, 5, 7))):
        assert same(view, turned) and view.flags.c_contiguous and not view.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            view[0, 0, 0] = 1
    turned[...] = 0
    assert same(cache.get(0), picture(0, 7, 5).transpose(1, 0, 2)), "a copy"


def test_what_it_refuses(opened):
    cache = opened(1000)
    for index in (-1, COUNT):
        with pytest.raises(LoaderError, match=f"no sample {index} in a cache of {COUNT}"):
            cache.put(index, picture(0))
    for pixels in (picture(0)[0], picture(0)[..., :2], picture(0)[:0], picture(0).astype(np.float32)):
        with pytest.raises(LoaderError, match=r"pixels are \(h, w, 3\) uint8, not \("):
            cache.put(0, pixels)
    assert cache.stats.samples == 0
    cache.close()
    with pytest.raises(LoaderError, match="not open"):
        cache.put(0, picture(0))
    assert cache.get(0) is None and cache.stats == CacheStats(0, 0, 1000)


def test_one_cache_serves_one_dataset(opened):
    cache = opened(10_000)
    cache.put(3, picture(3))
    cache.open(COUNT, CONTENTS)
    assert same(cache.get(3), picture(3))
    with pytest.raises(LoaderError, match="apply_exif is True there and False here; give each dataset"):
        cache.open(COUNT, {**CONTENTS, "apply_exif": False})
    with pytest.raises(LoaderError, match=f"samples is {COUNT} there and 99 here"):
        cache.open(99, CONTENTS)
    cache.close()
    cache.open(COUNT, CONTENTS)
    assert (cache.get(3) is None) == (cache.directory is None), "what is in memory goes, what is on disk stays"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_has_what_its_parent_had(opened):
    """Also while threads that it does not have hold the locks: here this one."""
    cache = opened(10_000)
    view = cache.put(1, picture(1))
    with cache._lock, cache._store._lock if cache.directory is None else cache._store._locked():
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(20)
            good = same(cache.get(1), picture(1)) and same(cache.put(2, picture(2)), picture(2))
            os._exit(0 if good and same(view, picture(1)) else 1)
    assert os.waitpid(child, 0)[1] == 0
    if cache.directory is None:
        assert cache.get(2) is None and cache.stats.samples == 1
        assert same(cache.put(3, picture(3)), picture(3)), "the child wrote where this is now, in memory of its own"
    else:
        assert same(cache.get(2), picture(2)) and cache.stats.samples == 2
    assert same(cache.get(1), picture(1))


def test_pickling(opened):
    cache = opened(10_000)
    cache.put(1, picture(1))
    if cache.directory is None:
        with pytest.raises(TypeError, match="give it a directory"):
            pickle.dumps(cache)
        cache.close()
        copy = pickle.loads(pickle.dumps(cache))
    else:
        copy = pickle.loads(pickle.dumps(cache))
        assert same(copy.get(1), picture(1))
        copy.put(2, picture(2))
        assert same(cache.get(2), picture(2))
    assert (copy.short_side, copy.limit_bytes, copy.directory) == (32, 10_000, cache.directory)


def resident() -> float:
    """MiB of this process's memory, maps of files included; without what malloc keeps of tests before."""
    gc.collect()
    if hasattr(ctypes.CDLL(None), "malloc_trim"):
        ctypes.CDLL(None).malloc_trim(0)
    return psutil.Process().memory_info().rss / 2**20


def test_memory_is_taken_only_as_it_is_filled(opened):
    count, side = 64, 418  # 0.5 MiB each
    pixels = picture(0, side, side)
    before = resident()
    cache = opened(1 << 40, count)
    assert resident() - before < 4
    for index in range(count):
        cache.put(index, pixels)
        if index == 9:
            assert resident() - before < 5 + 4
    assert same(cache.get(63), pixels)
    grown = resident() - before
    assert 30 <= grown < 32 + 8 or (cache.directory and grown < 32 + 8)
    cache.close()
    assert resident() - before < 4


def test_close_gives_back_files_and_memory(opened):
    def held() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), Path("/proc/self/maps").read_text().count("/made/")

    cache = opened(1 << 30)
    cache.close()
    before = held()
    for _ in range(3):
        cache.open(COUNT, CONTENTS)
        views = [cache.put(i, picture(i)) for i in range(COUNT)]
        cache.close()
        assert all(same(view, picture(i)) for i, view in enumerate(views))
    del views
    gc.collect()
    assert held() == before == (before[0], 0)


def test_no_memory_is_no_room(monkeypatch, caplog):
    """Blocks that the system refuses: no machine has so many addresses."""
    monkeypatch.setattr(memory, "BLOCK_BYTES", 1 << 60)
    cache = DecodedCache(limit_bytes=1 << 61)
    cache.open(COUNT, CONTENTS)
    assert cache.put(0, picture(0)) is None and cache.put(1, picture(1)) is None
    assert [record.levelname for record in caplog.records] == ["WARNING"] and "no memory" in caplog.text


def test_a_large_picture_has_a_block_of_its_own(small_blocks):
    cache = DecodedCache(limit_bytes=10_000)
    cache.open(COUNT, CONTENTS)
    pictures = [picture(0, 5, 5), picture(1, 30, 30), picture(2, 5, 5)]
    views = [cache.put(i, pixels) for i, pixels in enumerate(pictures)]
    assert all(same(view, pixels) for view, pixels in zip(views, pictures, strict=True))
    assert cache.stats == CacheStats(3, 75 + 2700 + 75, 10_000)
