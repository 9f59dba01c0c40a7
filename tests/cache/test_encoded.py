"""The encoded cache compared with a dictionary."""

from __future__ import annotations

import os
import pickle
import signal
import threading

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cuaug.cache import CacheStats, EncodedCache
from cuaug.errors import LoaderError

COUNT = 12
operations = st.lists(st.tuples(st.booleans(), st.integers(0, COUNT - 1)), max_size=60)


def data(index: int) -> bytes:
    """0 to 110 bytes."""
    return bytes([index]) * (10 * index)


def open_cache(limit_bytes: int, count: int = COUNT) -> EncodedCache:
    cache = EncodedCache(limit_bytes)
    cache.open(count, {"source": "a"})
    return cache


@given(st.integers(1, 800), operations)
@example(30, [(True, 1), (True, 2), (True, 3)])  # two fit to the byte
def test_it_behaves_like_a_dictionary_with_a_limit(limit, sequence):
    cache, model = open_cache(limit), {}
    for writes, index in sequence:
        if writes:
            fits = index in model or sum(map(len, model.values())) + len(data(index)) <= limit
            assert cache.put(index, data(index), f"label {index}") == fits
            if fits:
                model[index] = data(index)
        expected = (model[index], f"label {index}") if index in model else None
        assert cache.get(index) == expected
    assert cache.stats == CacheStats(len(model), sum(map(len, model.values())), limit)


@given(st.integers(1, 800), st.lists(operations, min_size=2, max_size=4))
def test_from_several_threads(limit, sequences):
    cache = open_cache(limit)
    gate = threading.Barrier(len(sequences))
    errors = []

    def work(sequence):
        held = set()
        gate.wait()
        for writes, index in sequence:
            if writes and cache.put(index, data(index), index):
                held.add(index)
            result = cache.get(index)
            if result != (data(index), index) and (result is not None or index in held):
                errors.append((index, result))

    threads = [threading.Thread(target=work, args=(sequence,)) for sequence in sequences]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    held = [index for index in range(COUNT) if cache.get(index)]
    size = sum(len(data(index)) for index in held)
    assert cache.stats == CacheStats(len(held), size, limit) and size <= limit
    tried = {index for sequence in sequences for writes, index in sequence if writes}
    assert all(len(data(index)) > limit - size for index in tried - set(held)), "a sample that fits was refused"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, np.frombuffer])
def test_data_are_copied_to_bytes(kind):
    buffer = kind(bytearray(b"abcd")) if kind is not np.frombuffer else np.frombuffer(bytearray(b"abcd"), np.int16)
    cache = open_cache(4)
    assert cache.put(0, buffer, label := ["a label"])
    if kind is not bytes:
        memoryview(buffer).cast("B")[0] = 0
    assert cache.get(0) == (b"abcd", label) and cache.get(0)[1] is label
    assert cache.stats.bytes == 4


def test_another_thread_fills_the_cache_during_a_copy():
    cache = open_cache(10)

    class SlowToCopy(bytearray):
        def __bytes__(self):
            assert cache.put(1, bytes(6), 0)
            return bytes(bytearray(self))

    assert not cache.put(0, SlowToCopy(5), 0)
    assert cache.get(0) is None and cache.stats == CacheStats(1, 6, 10)


def test_bytes_are_not_copied():
    encoded = bytes(1000)
    cache = open_cache(1000)
    cache.put(3, encoded, None)
    assert cache.get(3)[0] is encoded


def test_put_before_open_and_out_of_range():
    with pytest.raises(LoaderError, match="not open"):
        EncodedCache(10).put(0, b"", 0)
    for index in (-1, 12):
        with pytest.raises(LoaderError, match=f"index {index} is out of range for a cache of 12 samples"):
            open_cache(10).put(index, b"", 0)
    with pytest.raises(LoaderError, match="count must be an integer of at least 1, not 0"):
        open_cache(10, count=0)


def test_one_cache_serves_one_dataset():
    cache = open_cache(10)
    cache.put(1, b"abc", 5)
    cache.open(COUNT, {"source": "a"})
    assert cache.get(1) == (b"abc", 5)
    with pytest.raises(LoaderError, match="other samples: source is 'a' there and 'b' here; give each dataset"):
        cache.open(COUNT, {"source": "b"})
    with pytest.raises(LoaderError, match="samples is 12 there and 13 here"):
        cache.open(COUNT + 1, {"source": "a"})
    cache.close()
    assert cache.get(1) is None and cache.stats == CacheStats(0, 0, 10)
    cache.open(COUNT + 1, {"source": "b"})
    assert cache.get(1) is None and cache.put(12, b"0123456789", 5)


def test_pickling():
    assert pickle.loads(pickle.dumps(EncodedCache(77))).limit_bytes == 77
    with pytest.raises(TypeError, match="does not pickle"):
        pickle.dumps(open_cache(10))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_keeps_its_parents_samples():
    """Even if a thread that the child lacks holds the lock."""
    cache = open_cache(10)
    cache.put(1, b"abc", 5)
    with cache._lock:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(100)
            is_right = cache.get(1) == (b"abc", 5) and cache.put(2, b"0123456", 6) and not cache.put(3, b"0", 7)
            os._exit(0 if is_right else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert cache.get(2) is None and cache.stats.bytes == 3
