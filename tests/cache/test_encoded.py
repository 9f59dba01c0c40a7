"""The cache of JPEGs in a GPU's memory, with a fake for that memory."""

from __future__ import annotations

import pickle

import pytest
import torch

from cuaug.cache import CacheStats, EncodedCache, encoded
from cuaug.errors import LoaderError

COUNT = 12


class FakeBlocks:
    """In place of `DeviceBlocks`."""

    bytes = 0

    def __init__(self, limit_bytes: int, device: torch.device, name: str) -> None:
        self.limit_bytes = limit_bytes

    def has_room(self, size: int) -> bool:
        return self.bytes + size <= self.limit_bytes

    def allocate(self, size: int) -> str | None:
        if not self.has_room(size):
            return None
        self.bytes += size
        return f"{size} bytes"


@pytest.fixture(autouse=True)
def _fake_blocks(monkeypatch):
    monkeypatch.setattr(encoded, "DeviceBlocks", FakeBlocks)


def open_on(cache: EncodedCache, device: str, count: int = COUNT, source: str = "a") -> EncodedCache:
    cache.open(count, {"source": source}, device=torch.device(device))
    return cache


def test_one_cache_serves_one_dataset_on_one_gpu():
    cache = open_on(EncodedCache(1000), "cuda:0")
    cache.put_label(1, 100, "label")
    cache.put_residents({1: (100, lambda memory: memory)}, lambda: None)
    open_on(cache, "cuda:0")
    with pytest.raises(LoaderError, match="device is 'cuda:0' there and 'cuda:1' here"):
        open_on(cache, "cuda:1")
    with pytest.raises(LoaderError, match="other samples: source is 'a' there and 'b' here; give each dataset"):
        open_on(cache, "cuda:0", source="b")
    with pytest.raises(LoaderError, match="samples is 12 there and 13 here"):
        open_on(cache, "cuda:0", COUNT + 1)
    assert cache.stats == CacheStats(1, 100, 1000)
    cache.close()
    assert open_on(cache, "cuda:1", COUNT + 1, "b").stats == CacheStats(0, 0, 1000)


def test_pickling():
    assert pickle.loads(pickle.dumps(EncodedCache(77))).limit_bytes == 77
    with pytest.raises(TypeError, match="does not pickle"):
        pickle.dumps(open_on(EncodedCache(10), "cuda"))


def test_jpegs_have_their_label_and_are_found_after_the_copies():
    cache, events = open_on(EncodedCache(1000), "cuda"), []
    for key in (1, 2, 3):
        cache.put_label(key, 100, f"label {key}")
    cache.put_label(7, 1001, "too large")

    def wait() -> None:
        events.append([cache.get(key) for key in (1, 2, 3)])
        cache.put_label(2, 100, "label of another loader")  # which does not find it yet

    jpegs = {key: (100 * key, lambda memory: f"jpeg in {memory}") for key in (1, 2, 6, 7)}
    cache.put_residents(jpegs, wait)
    assert events == [[None] * 3], "6 and 7 have no label"
    assert cache.get(1) == ("jpeg in 100 bytes", "label 1") and cache.get(2) == ("jpeg in 200 bytes", "label 2")
    cache.put_residents({2: jpegs[2], 3: (701, jpegs[1][1])}, lambda: events.append("none"))
    assert len(events) == 1 and cache.get(2)[1] == "label 2" and cache.get(3) is None


def test_a_cache_that_is_closed_meanwhile_stays_empty():
    cache = open_on(EncodedCache(1000), "cuda")
    cache.put_label(1, 100, "label")
    cache.put_residents({1: (100, lambda memory: memory)}, cache.close)
    assert cache.stats.samples == 0
