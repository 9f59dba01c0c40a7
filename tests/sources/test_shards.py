"""Several shards as one dataset: file patterns, shuffling by shard, shards that change, and many shards."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from cuaug import Loader, LoaderError, ShardSampler
from cuaug.sources import TarShards, TFRecord
from tests.sources.test_tar_shards import archive
from tests.support.loader.further_pictures import numbers_of, png
from tests.support.loader.programs import run
from tests.support.sources.loading import read_all


def test_patterns_of_shards(tmp_path):
    for i in range(12):
        archive(tmp_path, {f"{i}.jpg": b"", f"{i}.cls": str(i).encode()}, f"s-{i:03d}.tar")
    (tmp_path / "notes.txt").write_text("")

    def labels(shards, **options) -> list[int]:
        return [label for _, label in read_all(TarShards(shards, **options))]

    base = str(tmp_path)
    assert labels(f"{base}/s-{{003..010}}.tar") == list(range(3, 11))
    assert labels(f"{base}/s-{{010..008}}.tar") == [10, 9, 8]
    assert labels(f"{base}/s-{{001,00{{3,5}},011}}.tar") == [1, 3, 5, 11]
    assert labels(f"{base}/s-0{{0,1}}{{0..1}}.tar") == [0, 1, 10, 11]
    assert labels(f"{base}/s-00[0-4].tar") == list(range(5)) and labels(f"{base}/*.tar") == list(range(12))
    assert labels(tmp_path) == list(range(12))
    assert labels([tmp_path / "s-007.tar", f"{base}/s-{{001..002}}.tar"]) == [7, 1, 2]
    for missing in ("s-012.tar", "s-{010..012}.tar", "t-*.tar", "s-{012}.tar"):
        with pytest.raises(LoaderError, match="there is no file"):
            labels(f"{base}/{missing}")
    (tmp_path / "empty").mkdir()
    with pytest.raises(LoaderError, match=r"there is no file \*.tar in the folder '.*empty'"):
        labels(tmp_path / "empty")
    with pytest.raises(LoaderError, match=r"there is no file \*.tfrecord or \*.tfrecords in the folder '.*empty'"):
        TFRecord(tmp_path / "empty")
    with pytest.raises(LoaderError, match="shards is an empty list"):
        labels([])


def test_an_existing_name_is_no_pattern(tmp_path):
    path = archive(tmp_path, {"a.jpg": b"it"}, "a{1,2}[x]*.tar")
    assert read_all(TarShards(path, label=None)) == [(b"it", 0)]


def test_empty_shards(tmp_path):
    for i, count in enumerate([0, 3, 0, 0, 2, 0]):
        archive(tmp_path, {f"{k}.jpg": bytes([i, k]) for k in range(count)}, f"{i}.tar")
    source = TarShards(tmp_path, label=None)
    assert source.shard_sizes == [3, 2]
    assert [data for data, _ in read_all(source)] == [b"\1\0", b"\1\1", b"\1\2", b"\4\0", b"\4\1"]
    with pytest.raises(LoaderError, match="shards hold no sample"):
        TarShards(tmp_path / "0.tar")


def test_shuffling_by_shard(tmp_path):
    for i in range(8):
        members = {}
        for k in range(6):
            members |= {f"{k}.png": png(10 * i + k), f"{k}.cls": str(i).encode()}
        archive(tmp_path, members, f"{i}.tar")
    source = TarShards(tmp_path)
    with Loader(source, batch_size=6, sampler=ShardSampler(source.shard_sizes, window=1)) as loader:
        batches = [(sorted(numbers_of(images)), labels.tolist()) for images, labels in loader]
    assert all(numbers == [10 * labels[0] + k for k in range(6)] for numbers, labels in batches)
    order = [labels[0] for _, labels in batches]
    assert sorted(order) == list(range(8)) != order


def test_a_shard_that_is_replaced(tmp_path):
    path = archive(tmp_path, {f"{i}.jpg": png(i) for i in range(3)})
    source, other = TarShards(path, label=None), TarShards(path, label=None)
    assert source.read(0)[0] == png(0)
    archive(tmp_path, {f"{i}.jpg": png(i + 5) for i in range(3)}, "new.tar")
    os.replace(tmp_path / "new.tar", path)
    assert source.read(1)[0] == png(1), "open files keep the old content"
    with pytest.raises(OSError, match=r"a.tar' has changed since its index was made"):
        other.read(0)
    assert TarShards(path, label=None).read(0)[0] == png(5)


def rewrite(path: Path) -> None:
    """Overwrites in place, like cp and rsync --inplace."""
    data = archive(path.parent, {f"{i}.jpg": bytes(5) + png(i + 5) for i in range(3)}, "new").read_bytes()
    with open(path, "r+b") as file:
        file.write(data)


def rewrite_as_old(path: Path) -> None:
    """Overwrites with equal size and time, like cp -p and rsync -t --inplace."""
    before = os.stat(path)
    rewrite(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert os.stat(path).st_size == before.st_size


def cut(path: Path) -> None:
    os.truncate(path, 512 * 3)


@pytest.mark.parametrize("change", [rewrite, rewrite_as_old, cut])
def test_a_shard_that_changes_in_place_is_refused(tmp_path, change):
    path = archive(tmp_path, {f"{i}.jpg": png(i) for i in range(3)})
    source = TarShards(path, label=None)
    assert source.read(0)[0] == png(0)
    time.sleep(0.01)  # file systems store time in steps of milliseconds
    change(path)
    for i in (0, 1, 2, 0):
        with pytest.raises(OSError, match=r"a.tar' has changed since its index was made: open the dataset again"):
            source.read(i)


def test_a_moved_shard_stays_readable(tmp_path):
    """ctime changes, the content does not."""
    path = archive(tmp_path, {f"{i}.jpg": png(i) for i in range(3)})
    source = TarShards(path, label=None)
    assert source.read(0)[0] == png(0)
    time.sleep(0.01)
    os.chmod(path, 0o640)
    os.rename(path, tmp_path / "b.tar")
    assert [source.read(i)[0] for i in (1, 2, 0)] == [png(1), png(2), png(0)]


@pytest.mark.slow
def test_many_shards_keep_few_files_open(tmp_path):
    """Several threads read more shards than a process may open, in random order."""
    program = f"""
import resource, sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from cuaug.sources import TarShards
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
source = TarShards({str(tmp_path)!r})
order = np.random.default_rng(0).integers(0, len(source), 5000).tolist()
with ThreadPoolExecutor(8) as pool:
    assert [label for _, label in pool.map(source.read, order)] == order
"""
    for i in range(100):
        members = {f"{k}.{field}": str(2 * i + k).encode() for k in range(2) for field in ("jpg", "cls")}
        archive(tmp_path, members, f"{i:03d}.tar")
    assert run(program) == ""
