"""The decoded cache, in memory and on disk, compared with a dictionary."""

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

from cuaug._runtime.native import release_freed_memory
from cuaug.cache import CacheStats, DecodedCache, decoded
from cuaug.errors import LoaderError
from tests.support.cache.cached_images import is_same, make_image, overlap

COUNT = 12
CONTENTS = {"source": "a", "apply_exif": True}
sides = st.integers(1, 9)
operations = st.lists(st.tuples(st.booleans(), st.integers(0, COUNT - 1)), max_size=60)
shapes = st.lists(st.tuples(sides, sides), min_size=COUNT, max_size=COUNT)


@pytest.fixture(scope="module", params=["memory", "disk"])
def open_cache(request):
    """Opens caches: a new, empty one, or the one in the directory of an earlier cache."""

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
    """Images of a few bytes then need several blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoded, "BLOCK_BYTES", 200)
        yield


@pytest.mark.usefixtures("small_blocks")
@given(limit=st.integers(1, 2000), shapes=shapes, sequence=operations)
@example(limit=6, shapes=[(1, 1)] * COUNT, sequence=[(True, 0), (True, 1), (True, 2)])  # two fit to the byte
def test_it_behaves_like_a_dictionary_with_a_limit(open_cache, limit, shapes, sequence):
    cache, images = open_cache(limit), [make_image(i, *shape) for i, shape in enumerate(shapes)]
    model: dict[int, np.ndarray] = {}
    views = {}
    for writes, index in sequence:
        if writes:
            room = limit - sum(view.nbytes for view in model.values())
            if images[index].nbytes <= room:
                model.setdefault(index, images[index])
            result = cache.put(index, images[index])
            assert is_same(result, model[index]) if index in model else result is None
        result = cache.get(index)
        assert is_same(result, model[index]) if index in model else result is None
        if result is not None:
            views[index] = result
    size = sum(view.nbytes for view in model.values())
    assert cache.stats == CacheStats(len(model), size, limit)
    cache.close()
    assert not overlap(views.values())
    assert all(is_same(view, model[index]) for index, view in views.items()), (
        "views stay valid after later puts and after close"
    )


@pytest.mark.slow
@pytest.mark.usefixtures("small_blocks")
@given(limit=st.integers(1, 2000), shapes=shapes, sequences=st.lists(operations, min_size=2, max_size=4))
def test_from_several_threads(open_cache, limit, shapes, sequences):
    cache, images = open_cache(limit), [make_image(i, *shape) for i, shape in enumerate(shapes)]
    gate = threading.Barrier(len(sequences))
    errors = []

    def work(sequence):
        held = set()
        gate.wait()
        for writes, index in sequence:
            if writes and cache.put(index, images[index]) is not None:
                held.add(index)
            result = cache.get(index)
            if not is_same(result, images[index]) and (result is not None or index in held):
                errors.append((index, result))

    threads = [threading.Thread(target=work, args=(sequence,)) for sequence in sequences]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)
    assert not errors
    views = {index: view for index in range(COUNT) if (view := cache.get(index)) is not None}
    assert all(is_same(view, images[index]) for index, view in views.items()) and not overlap(views.values())
    stats, size = cache.stats, sum(view.nbytes for view in views.values())
    # On disk, two threads that add the same sample at once allocate twice; one space is lost.
    assert stats.bytes == size or (cache.directory and stats.bytes > size)
    assert stats.samples == len(views) and stats.bytes <= limit
    tried = {index for sequence in sequences for writes, index in sequence if writes}
    left = limit - stats.bytes
    assert all(images[index].nbytes > left for index in tried - set(views)), "a sample that fits was refused"


def test_views_are_plain_and_read_only(open_cache):
    cache = open_cache(1000)
    turned = make_image(0, 7, 5).transpose(1, 0, 2)
    for view in (cache.put(0, turned), cache.get(0), cache.put(0, make_image(1, 5, 7))):
        assert is_same(view, turned) and view.flags.c_contiguous and not view.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            view[0, 0, 0] = 1
    turned[...] = 0
    assert is_same(cache.get(0), make_image(0, 7, 5).transpose(1, 0, 2)), "a copy"


def test_invalid_arguments_are_refused(open_cache):
    cache = open_cache(1000)
    for index in (-1, COUNT):
        with pytest.raises(LoaderError, match=f"index {index} is out of range for a cache of {COUNT} samples"):
            cache.put(index, make_image(0))
    for pixels in (make_image(0)[0], make_image(0)[..., :2], make_image(0)[:0], make_image(0).astype(np.float32)):
        with pytest.raises(LoaderError, match=r"pixels must be \(h, w, 3\) uint8, not \("):
            cache.put(0, pixels)
    assert cache.stats.samples == 0
    cache.close()
    with pytest.raises(LoaderError, match="not open"):
        cache.put(0, make_image(0))
    assert cache.get(0) is None and cache.stats == CacheStats(0, 0, 1000)


def test_one_cache_serves_one_dataset(open_cache):
    cache = open_cache(10_000)
    cache.put(3, make_image(3))
    cache.open(COUNT, CONTENTS)
    assert is_same(cache.get(3), make_image(3))
    with pytest.raises(LoaderError, match="apply_exif is True there and False here; give each dataset"):
        cache.open(COUNT, {**CONTENTS, "apply_exif": False})
    with pytest.raises(LoaderError, match=f"samples is {COUNT} there and 99 here"):
        cache.open(99, CONTENTS)
    cache.close()
    cache.open(COUNT, CONTENTS)
    assert (cache.get(3) is None) == (cache.directory is None), "memory is freed, files stay"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_keeps_its_parents_images(open_cache):
    """Even if a thread that the child lacks holds the locks."""
    cache = open_cache(10_000)
    view = cache.put(1, make_image(1))
    with cache._lock, cache._store._lock if cache.directory is None else cache._store._locked():
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(100)
            is_right = is_same(cache.get(1), make_image(1)) and is_same(cache.put(2, make_image(2)), make_image(2))
            os._exit(0 if is_right and is_same(view, make_image(1)) else 1)
    assert os.waitpid(child, 0)[1] == 0
    if cache.directory is None:
        assert cache.get(2) is None and cache.stats.samples == 1
        assert is_same(cache.put(3, make_image(3)), make_image(3)), "the child wrote to its own copy of this memory"
    else:
        assert is_same(cache.get(2), make_image(2)) and cache.stats.samples == 2
    assert is_same(cache.get(1), make_image(1))


def test_pickling(open_cache):
    cache = open_cache(10_000)
    cache.put(1, make_image(1))
    if cache.directory is None:
        with pytest.raises(TypeError, match="give it a directory"):
            pickle.dumps(cache)
        cache.close()
        copy = pickle.loads(pickle.dumps(cache))
    else:
        copy = pickle.loads(pickle.dumps(cache))
        assert is_same(copy.get(1), make_image(1))
        copy.put(2, make_image(2))
        assert is_same(cache.get(2), make_image(2))
    assert (copy.short_side, copy.limit_bytes, copy.directory) == (32, 10_000, cache.directory)


def resident() -> float:
    """Resident memory of this process in MiB, with mapped files, without memory freed by earlier tests."""
    gc.collect()
    if hasattr(ctypes.CDLL(None), "malloc_trim"):
        ctypes.CDLL(None).malloc_trim(0)
    return psutil.Process().memory_info().rss / 2**20


def test_memory_grows_only_as_the_cache_fills(open_cache):
    count, side = 64, 418  # 0.5 MiB each
    pixels = make_image(0, side, side)
    gc.collect()  # loaders of other tests would return their memory during this one
    release_freed_memory()
    before = resident()
    cache = open_cache(1 << 40, count)
    assert resident() - before < 4
    for index in range(count):
        cache.put(index, pixels)
        if index == 9:
            assert resident() - before < 5 + 4
    grown = resident() - before
    assert 30 <= grown < 32 + 8 or (cache.directory and grown < 32 + 8)
    assert is_same(cache.get(63), pixels)
    cache.close()
    assert resident() - before < 4


def test_close_frees_files_and_memory(open_cache):
    def resources() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), Path("/proc/self/maps").read_text().count("/made/")

    cache = open_cache(1 << 30)
    cache.close()
    before = resources()
    for _ in range(3):
        cache.open(COUNT, CONTENTS)
        views = [cache.put(i, make_image(i)) for i in range(COUNT)]
        cache.close()
        assert all(is_same(view, make_image(i)) for i, view in enumerate(views))
    del views
    gc.collect()
    assert resources() == before == (before[0], 0)


def test_out_of_memory_ends_adding(monkeypatch, caplog):
    """No machine has so many addresses."""
    monkeypatch.setattr(decoded, "BLOCK_BYTES", 1 << 60)
    cache = DecodedCache(limit_bytes=1 << 61)
    cache.open(COUNT, CONTENTS)
    assert cache.put(0, make_image(0)) is None and cache.put(1, make_image(1)) is None
    assert [record.levelname for record in caplog.records] == ["WARNING"] and "out of memory" in caplog.text
