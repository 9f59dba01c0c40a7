"""Arguments and limits of caches, and their statistics."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cuaug._runtime import cpus
from cuaug.cache import CacheStats, DecodedCache, EncodedCache, cache_limits, shrunken_size
from cuaug.errors import LoaderError
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import Resize


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


def test_default_limits_leave_out_memory_reserved_by_other_caches(monkeypatch):
    monkeypatch.setattr(cpus, "available_memory", lambda: 8_000_000)
    monkeypatch.setattr(cache_limits, "_reserved", {})
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    first, second = DecodedCache(), DecodedCache()
    given, third = DecodedCache(limit_bytes=10**12), DecodedCache()
    assert [first.limit_bytes, second.limit_bytes, third.limit_bytes] == [4_000_000, 2_000_000, 1_000_000]
    del second, given
    assert DecodedCache().limit_bytes == 1_500_000
    first.open(1, {})
    assert first.put(0, np.zeros((1000, 1000, 3), np.uint8)) is not None
    assert DecodedCache().limit_bytes == 3_000_000, "the filled memory is no longer reserved"
    first.close()
    assert DecodedCache().limit_bytes == 3_500_000, "the third still has its reservation"
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert DecodedCache().limit_bytes == 1_500_000


class StatsReader(dict):
    """Reads a cache's stats as soon as it has a reservation, as another thread may."""

    def __setitem__(self, cache, limit_bytes):
        super().__setitem__(cache, limit_bytes)
        assert cache().stats == CacheStats(0, 0, limit_bytes)


def test_caches_may_be_made_in_parallel(monkeypatch):
    monkeypatch.setattr(cache_limits, "_reserved", StatsReader())
    DecodedCache()


sides = st.integers(1, 5000)


@given(sides, sides, st.integers(1, 600))
@example(256, 256, 256)
@example(511, 1023, 256)
@example(1023, 511, 256)
def test_shrunken_size_is_the_size_of_resize_but_never_larger(height, width, short_side):
    resized = Resize(short_side).make_params(
        SampleRNG(0, 0, np.zeros(1, np.int64)), np.array([height]), np.array([width])
    )  # fmt: skip
    size = int(resized["height"][0]), int(resized["width"][0])
    assert shrunken_size(height, width, short_side) == (size if min(height, width) > short_side else (height, width))
    assert shrunken_size(height, width, None) == (height, width)
