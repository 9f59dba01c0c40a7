"""Parquet files behind URLs: the rows of local files, whatever the network does."""

from __future__ import annotations

import pickle
import threading
import time

import numpy as np
import pytest

import cuaug
from cuaug import LoaderError
from cuaug.sources import Parquet
from tests.support.remote.servers import FAULTS
from tests.support.sources.loading import read_all
from tests.support.sources.writers import png, samples, write_parquet
from tests.support.waiting import eventually

pa = pytest.importorskip("pyarrow")


def test_faults_change_nothing(s3, tmp_path):
    write_parquet(tmp_path, samples())
    urls = [s3.put(f"set/{path.name}", path.read_bytes()) for path in sorted(tmp_path.glob("*.parquet"))]
    s3.faults.share = 0.3
    local, source = Parquet(tmp_path), Parquet(urls, storage_options=s3.options, cache_bytes=20_000)
    assert source.fingerprint() == local.fingerprint()
    for copy in (source, pickle.loads(pickle.dumps(source))):
        assert read_all(copy) == read_all(local)
    assert all(s3.faults.seen[kind] for kind in FAULTS), s3.faults.seen
    s3.faults.share = 0
    for url in urls:
        s3.put(url.removeprefix("s3://photos/"), (tmp_path / "train-0.parquet").read_bytes() + b"PAR1")
    with pytest.raises(OSError, match="has changed since its index was made: open the dataset again"):
        Parquet.read(pickle.loads(pickle.dumps(source)), 0)


def test_long_columns_are_split_into_requests(s3, tmp_path):
    image = np.random.default_rng(0).bytes(6 << 20)
    table = pa.table({"image": [image, image[::-1]], "label": [1, 2]})
    pa.parquet.write_table(table, tmp_path / "a.parquet", compression="none", use_dictionary=False)
    source = Parquet(s3.put("a.parquet", (tmp_path / "a.parquet").read_bytes()), storage_options=s3.options)
    s3.faults.range_sizes.clear()
    assert source.read(1) == (image[::-1], 2)
    assert max(s3.faults.range_sizes) == 4 << 20 and 12 << 20 < sum(s3.faults.range_sizes) < 13 << 20


@pytest.mark.parametrize("name", ["missing.parquet", "broken.parquet"])
def test_files_that_cannot_be_opened(s3, name):
    s3.put("broken.parquet", b"PAR1" * 999)
    with pytest.raises(LoaderError, match=f"'s3://photos/{name}' cannot be read as a Parquet file"):
        Parquet(f"s3://photos/{name}", storage_options=s3.options)


ROWS = 120


@pytest.fixture
def both(s3, tmp_path):
    """(local path, URL, storage options) of a file with 24 row groups of 5 rows."""
    file = tmp_path / "a.parquet"
    table = pa.table({"image": [png(i) for i in range(ROWS)], "label": range(ROWS)})
    pa.parquet.write_table(table, file, row_group_size=5, compression="none", use_dictionary=False)
    return file, s3.put("a.parquet", file.read_bytes()), s3.options


def test_braces_patterns_and_folders(s3, tmp_path):
    write_parquet(tmp_path, samples())
    for i, path in enumerate(sorted(tmp_path.glob("*.parquet"))[:2]):
        s3.put(f"set/train-0{i}.parquet", path.read_bytes())
    for files in ("train-{00..01}.parquet", "*.parquet", ""):
        source = Parquet(f"s3://photos/set/{files}", storage_options=s3.options)
        assert source.paths == ["s3://photos/set/train-00.parquet", "s3://photos/set/train-01.parquet"]
    with pytest.raises(LoaderError, match=r"there is no file 's3://photos/other/\*\.parquet'"):
        Parquet("s3://photos/other", storage_options=s3.options)


def test_signed_urls_of_http(s3, tmp_path):
    write_parquet(tmp_path, samples())
    file = sorted(tmp_path.glob("*.parquet"))[0]
    s3.put("a.parquet", file.read_bytes())
    url = f"{s3.endpoint}/photos/a.parquet?X-Amz-Signature=1%2F2*"
    assert Parquet(url).paths == [url] and Parquet(url).read(1) == Parquet(file).read(1)


def batches(source: Parquet, **options) -> list:
    with cuaug.Loader(source, batch_size=4, threads=2, seed=1, device="cpu", **options) as loader:
        return [[(x.tolist(), y.tolist()) for x, y in loader] for _ in range(2)]


@pytest.mark.parametrize("cache_bytes", [1 << 20, 8000, 800])
@pytest.mark.parametrize("order", ["file", "windows", "shuffle"])
def test_read_ahead_changes_no_batch(both, cache_bytes, order):
    path, url, options = both
    local, remote = Parquet(path), Parquet(url, storage_options=options, cache_bytes=cache_bytes)
    orders = {"windows": {"sampler": cuaug.ShardSampler(local.shard_sizes, 20)}, "shuffle": {"shuffle": True}}
    assert batches(remote, **orders.get(order, {})) == batches(local, **orders.get(order, {}))
    cache, counts = remote._cache.get(), remote.remote_counts()
    assert not counts["held_bytes"] and counts["max_held_bytes"] > 0
    assert cache._bytes == sum(table.result().nbytes for table in cache._tables.values()) <= cache_bytes
    if order != "shuffle" and cache_bytes == 8000:
        assert cache.decoded_rows <= 2 * ROWS, "each row group at most once while its window passes"
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("cuaug-remote")]


def test_epochs_that_end_early_are_not_called_wasteful(both, caplog):
    _, url, options = both
    source = Parquet(url, storage_options=options, cache_bytes=8000)
    sampler = cuaug.ShardSampler(source.shard_sizes, 20)
    with cuaug.Loader(source, batch_size=4, threads=2, device="cpu", sampler=sampler) as loader:
        for _ in range(40):
            next(iter(loader))
            time.sleep(0.01)
    assert "were decoded" not in caplog.text


def test_a_row_group_that_cannot_be_decoded_damages_its_samples(both, s3):
    path, _, options = both
    data = bytearray(path.read_bytes())
    begin = pa.parquet.read_metadata(path).row_group(7).column(0).data_page_offset
    data[begin : begin + 20] = b"\xff" * 20
    remote = Parquet(s3.put("b.parquet", bytes(data)), storage_options=options)
    with cuaug.Loader(remote, batch_size=4, threads=2, device="cpu", on_error="skip") as loader:
        assert sorted(int(i) for batch in loader for i in batch.labels) == [i for i in range(ROWS) if not 35 <= i < 40]


def test_row_groups_beyond_the_memory_of_read_ahead_wait(both):
    """Batches share the tables that they need; no further ones are decoded until those are finished."""
    _, url, options = both
    size = Parquet(url, storage_options=options)._reader.size(0)
    remote = Parquet(url, storage_options=options, cache_bytes=9 * size)
    ahead = remote.read_ahead([np.arange(i, i + 2) for i in range(0, ROWS, 2)])
    cache = remote._cache.get()
    try:
        assert eventually(lambda: len(cache._unread) >= 3)
        time.sleep(0.1)  # for more
        assert len(cache._unread) < 12 and 0 < ahead.held_bytes <= 9 * size // 2
        for i in range(ROWS):
            assert remote.read(i) == (png(i), i)
            ahead.finish(i // 2)
        assert cache.decoded_rows == cache.samples == ROWS and ahead.max_held_bytes <= 9 * size // 2 + size
    finally:
        ahead.close()
