"""Arguments and limits of caches, and their statistics."""

from __future__ import annotations

import numpy as np
import psutil
import pytest

from cuaug._runtime import cpus
from cuaug.cache import CacheStats, DecodedCache, EncodedCache, cache_limits
from cuaug.cache.cache_limits import format_bytes
from cuaug.errors import LoaderError


@pytest.mark.parametrize("limit", [0, -1, 1.5, "8GB", True])
@pytest.mark.parametrize("cache", [EncodedCache, DecodedCache])
def test_a_limit_is_a_positive_integer(cache, limit):
    with pytest.raises(LoaderError, match=f"limit_bytes must be an integer of at least 1, not {limit!r}"):
        cache(limit_bytes=limit)
    assert cache(limit_bytes=np.int64(7)).limit_bytes == 7


@pytest.mark.parametrize("side", [0, -256, 25.6, "256", (256, 256), False])
def test_a_short_side_is_a_positive_integer(side):
    with pytest.raises(LoaderError, match="short_side must be an integer of at least 1, not "):
        DecodedCache(short_side=side, limit_bytes=1)
    assert DecodedCache(np.int32(256), limit_bytes=1).short_side == 256


def test_directory_must_be_a_path_to_a_directory(tmp_path):
    for value in (7, b"cache", ""):
        with pytest.raises(LoaderError, match=f"directory must be a path, not {value!r}"):
            DecodedCache(directory=value, limit_bytes=1)
    (tmp_path / "file").write_text("")
    with pytest.raises(LoaderError, match=r"'.*file' is not a directory"):
        DecodedCache(directory=tmp_path / "file", limit_bytes=1)
    with pytest.raises(LoaderError, match=r"limit_bytes is None: .*somewhere"):
        DecodedCache(directory=tmp_path / "somewhere")
    DecodedCache(directory=tmp_path / "somewhere", limit_bytes=1)
    assert not (tmp_path / "somewhere").exists(), "made only when the cache is opened"


def test_the_default_limit_is_half_of_the_available_memory(monkeypatch):
    monkeypatch.setattr(cache_limits, "_reserved", {})  # caches of other tests
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    alone = EncodedCache().limit_bytes
    assert 0 < alone <= psutil.virtual_memory().total // 2
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert EncodedCache().limit_bytes == pytest.approx(alone / 4, rel=0.2)
    assert DecodedCache().limit_bytes == pytest.approx(alone / 4, rel=0.2)


def test_default_limits_leave_out_memory_reserved_by_other_caches(monkeypatch):
    monkeypatch.setattr(cpus, "available_memory", lambda: 8_000_000)
    monkeypatch.setattr(cache_limits, "_reserved", {})
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    first, second = EncodedCache(), DecodedCache()
    given, third = EncodedCache(10**12), EncodedCache()
    assert [first.limit_bytes, second.limit_bytes, third.limit_bytes] == [4_000_000, 2_000_000, 1_000_000]
    del second, given
    assert EncodedCache().limit_bytes == 1_500_000
    first.open(1, {})
    first.put(0, bytes(3_000_000), 0)
    assert EncodedCache().limit_bytes == 3_000_000, "the filled memory is no longer reserved"
    first.close()
    assert EncodedCache().limit_bytes == 3_500_000, "the third still has its reservation"
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert EncodedCache().limit_bytes == 1_500_000


class StatsReader(dict):
    """Reads a cache's stats as soon as it has a reservation, as another thread may."""

    def __setitem__(self, cache, limit_bytes):
        super().__setitem__(cache, limit_bytes)
        assert cache().stats == CacheStats(0, 0, limit_bytes)


@pytest.mark.parametrize("cache", [EncodedCache, DecodedCache])
def test_caches_may_be_made_in_parallel(monkeypatch, cache):
    monkeypatch.setattr(cache_limits, "_reserved", StatsReader())
    cache()


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1 kB"), (108_400, "108 kB"), (999_499, "999 kB"), (999_500, "1 MB"),
     (1_234_567_890, "1.23 GB"), (5 * 10**18, "5,000 PB")],
)  # fmt: skip
def test_format_bytes(size, text):
    assert format_bytes(size) == text


def test_stats_are_readable():
    assert str(CacheStats(1024, 139_300_000_000, 200_000_000_000)) == "1,024 samples, 139 GB of 200 GB"
