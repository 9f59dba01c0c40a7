"""Parquet files behind URLs: the rows of local files, whatever the network does."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from cuaug import LoaderError
from cuaug.sources import Parquet
from tests.remote.servers import FAULTS
from tests.sources.writers import samples, write_parquet

pa = pytest.importorskip("pyarrow")


def test_faults_change_nothing(s3, tmp_path):
    write_parquet(tmp_path, samples())
    urls = [s3.put(f"set/{path.name}", path.read_bytes()) for path in sorted(tmp_path.glob("*.parquet"))]
    s3.faults.share = 0.3
    local, source = Parquet(tmp_path), Parquet(urls, storage_options=s3.options, cache_bytes=20_000)
    assert source.fingerprint() == local.fingerprint()
    for copy in (source, pickle.loads(pickle.dumps(source))):
        assert [copy.read(i) for i in range(len(copy))] == [local.read(i) for i in range(len(local))]
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
    s3.faults.ranges.clear()
    assert source.read(1) == (image[::-1], 2)
    ends = [header.removeprefix("bytes=").split("-") for header in s3.faults.ranges]
    sizes = [int(last) + 1 - int(first) for first, last in ends]
    assert max(sizes) == 4 << 20 and 12 << 20 < sum(sizes) < 13 << 20


@pytest.mark.parametrize("name", ["missing.parquet", "broken.parquet"])
def test_files_that_cannot_be_opened(s3, name):
    s3.put("broken.parquet", b"PAR1" * 999)
    with pytest.raises(LoaderError, match=f"'s3://photos/{name}' cannot be read as a Parquet file"):
        Parquet(f"s3://photos/{name}", storage_options=s3.options)
