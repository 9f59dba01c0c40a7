"""Remote shards: the samples of local files, bit for bit, whatever the network does."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, Subset

from cuaug import DecodeError, Loader, LoaderError, ShardSampler, WeightedSampler
from cuaug.sources import RemoteOptions, TarShards, TFRecord, open_source
from cuaug.transforms import MixUp, RandomHorizontalFlip, Resize
from tests.loader.test_native_work import finish
from tests.support.loader.native_runs import read
from tests.support.remote.servers import FAULTS
from tests.support.sources.loading import load, read_all
from tests.support.sources.writers import KINDS, samples, write_tar
from tests.support.waiting import eventually

SHARDS, PER_SHARD = 4, 30


def photo(number: int) -> bytes:
    file = io.BytesIO()
    pixels = np.random.default_rng(number).integers(0, 256, (40, 50, 3), np.uint8)
    Image.fromarray(pixels).save(file, "JPEG", quality=95)
    return file.getvalue()


@pytest.fixture
def shards(tmp_path) -> Path:
    """A folder of shards with photos and labels."""
    folder = tmp_path / "set"
    folder.mkdir()
    for shard in range(SHARDS):
        members = {}
        for i in range(PER_SHARD):
            number = shard * PER_SHARD + i
            members |= {f"{number:04d}.jpg": photo(number), f"{number:04d}.cls": str(number % 7).encode()}
        write_tar(folder / f"train-{shard:02d}.tar", members)
    return folder


@pytest.fixture
def uploaded(s3, shards) -> str:
    for path in sorted(shards.glob("*.tar")):
        s3.put(f"set/{path.name}", path.read_bytes())
    return "s3://photos/set/train-{00..03}.tar"


def options(s3, **changes) -> RemoteOptions:
    return RemoteOptions(**{"storage_options": s3.options, **changes})


def remote(s3, url: str, **changes) -> TarShards:
    return TarShards(url, remote=options(s3, **changes))


def digests(source, **arguments) -> list[tuple[list[int], str, list[int]]]:
    with loader_of(source, **arguments) as loader:
        return list(map(digest, loader))


def loader_of(source, **arguments) -> Loader:
    arguments = {"batch_size": 16, "device": "cpu", "seed": 3, "threads": 2, **arguments}
    return Loader(source, [Resize((32, 32)), RandomHorizontalFlip()], **arguments)


def digest(batch) -> tuple[list[int], str, list[int]]:
    images = hashlib.sha256(batch.images.numpy().tobytes()).hexdigest()
    return batch.indices.tolist(), batch.digest + images, batch.labels.tolist()


def no_remote_thread_lives() -> bool:
    return eventually(lambda: not any(thread.name.startswith("cuaug-remote") for thread in threading.enumerate()))


ORDERS = {
    "sequential": lambda source: {},
    "full shuffle": lambda source: {"shuffle": True},
    "windows": lambda source: {"sampler": ShardSampler(source.shard_sizes, window=40)},
    "weighted": lambda source: {"sampler": WeightedSampler(np.arange(1, len(source) + 1.0))},
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("readahead_bytes", [0, 20_000, 64 << 20])
def test_batches_equal_those_of_local_files(s3, shards, uploaded, order, readahead_bytes):
    local, source = TarShards(shards), remote(s3, uploaded, readahead_bytes=readahead_bytes)
    assert len(source) == len(local) == SHARDS * PER_SHARD
    assert source.fingerprint() == local.fingerprint() and source.shard_sizes == local.shard_sizes
    expected = digests(local, **ORDERS[order](local))
    assert digests(source, **ORDERS[order](source)) == expected
    assert no_remote_thread_lives()


@pytest.mark.parametrize("order", ["sequential", "full shuffle"])
def test_faults_lose_and_double_nothing(s3, shards, uploaded, order):
    local = TarShards(shards)
    expected = digests(local, **ORDERS[order](local))
    s3.faults.latency, s3.faults.share = 0.03, 0.05
    source = remote(s3, uploaded, readahead_bytes=20_000)  # many small requests
    for share in (0.05, 0.3):
        s3.faults.share = share
        assert digests(source, **ORDERS[order](source)) == expected
    assert all(s3.faults.seen[kind] for kind in FAULTS), s3.faults.seen


def test_an_interrupted_epoch_continues(s3, shards, uploaded):
    s3.faults.latency, s3.faults.share = 0.01, 0.05
    expected = digests(TarShards(shards), shuffle=True)
    found = []
    source = remote(s3, uploaded, readahead_bytes=100_000)
    with loader_of(source, shuffle=True) as loader:
        for batch in loader:
            found.append(digest(batch))
            if len(found) == 3:
                break
        state = loader.state_dict()
    assert no_remote_thread_lives()
    with loader_of(remote(s3, uploaded), shuffle=True) as loader:
        loader.load_state_dict(state)
        found += map(digest, loader)
        again = loader.replay(0, 2)
    assert found == expected and digest(again) == expected[2]


def test_batch_transforms_ranks_and_wrapped_sources(s3, shards, uploaded):
    def batches(source, **arguments):
        chain = [Resize((32, 32)), MixUp(num_classes=7)]
        with Loader(source, chain, batch_size=8, device="cpu", seed=1, shuffle=True, **arguments) as loader:
            return [batch.images.clone() for batch in loader]

    def wrapped(source):
        parts = [Subset(source, range(100, 20, -3)), Subset(source, range(20))]
        return open_source(ConcatDataset(parts))

    local, source = TarShards(shards), remote(s3, uploaded)
    for make, arguments in [(lambda x: x, {"rank": 1, "world_size": 3}), (wrapped, {})]:
        pairs = zip(batches(make(local), **arguments), batches(make(source), **arguments), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
    # A read-ahead makes few requests of neighbors, also through the wrapper.
    whole = open_source(ConcatDataset([source]))
    s3.faults.seen.clear()
    assert digests(whole) == digests(local)
    assert s3.faults.seen["GET"] == SHARDS


def test_the_index_is_kept_and_read_from_beside(s3, shards, uploaded, monkeypatch, tmp_path):
    remote(s3, uploaded)
    s3.faults.seen.clear()
    remote(s3, uploaded)
    assert s3.faults.seen == {"HEAD": SHARDS}  # the versions alone
    monkeypatch.setenv("CUAUG_CACHE_DIR", str(tmp_path / "another"))
    TarShards(shards)
    for path in shards.glob("*.cuaug-index"):
        s3.put(f"set/{path.name}", path.read_bytes())
    source = remote(s3, uploaded)
    assert digests(source) == digests(TarShards(shards))
    # One of another shard does not fit; a damaged one neither.
    s3.put("set/train-00.tar.cuaug-index", (shards / "train-01.tar.cuaug-index").read_bytes())
    s3.put("set/train-02.tar.cuaug-index", b"0" * 999)
    monkeypatch.setenv("CUAUG_CACHE_DIR", str(tmp_path / "third"))
    assert digests(remote(s3, uploaded)) == digests(TarShards(shards))


def test_an_index_is_made_from_headers_alone(s3, tmp_path):
    data = np.random.default_rng(0).bytes(4 << 20)
    members = {f"{i}.{field}": part for i in range(4) for field, part in (("png", data), ("cls", b"1"))}
    write_tar(tmp_path / "big.tar", members)
    url = s3.put("big.tar", (tmp_path / "big.tar").read_bytes())
    remote(s3, url)
    assert sum(s3.faults.range_sizes) < 300_000


def test_a_changed_shard_is_an_error(s3, shards, uploaded):
    source = remote(s3, uploaded)
    s3.put("set/train-01.tar", (shards / "train-02.tar").read_bytes())
    with pytest.raises(DecodeError, match=r"train-01.tar' has changed since its index was made"):
        digests(source)
    assert [source.read(i)[1] for i in (0, 119)] == [0, 119 % 7]
    assert len(remote(s3, uploaded)) == SHARDS * PER_SHARD  # opened again, with a new index


def test_failures_are_skipped_or_replaced(s3, shards, uploaded):
    source = remote(s3, uploaded)
    s3.client.delete_object(Bucket="photos", Key="set/train-03.tar")
    kept = [index for indices, _, _ in digests(source, on_error="skip") for index in indices]
    assert kept == list(range(3 * PER_SHARD))
    assert no_remote_thread_lives()


def test_patterns_lists_and_loaders(shards, uploaded, environment):
    expected = TarShards(shards).fingerprint()
    urls = [f"s3://photos/set/train-{i:02d}.tar" for i in range(SHARDS)]
    for files in ("s3://photos/set/train-*.tar", uploaded, urls):
        source = open_source(files)
        assert isinstance(source, TarShards) and source.fingerprint() == expected
    assert source.path(31) == "s3://photos/set/train-01.tar/0031.jpg"
    assert load(uploaded, transforms=Resize((8, 8)), batch_size=120).images.shape == (120, 3, 8, 8)
    copy = pickle.loads(pickle.dumps(source))
    assert copy.read(7) == source.read(7) == TarShards(shards).read(7)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ("s3://photos/set/missing.tar", "cannot read 's3://photos/set/missing.tar'"),
        ("s3://photos/set/*.tar", "there is no file 's3://photos/set/"),
        (["s3://photos/a.tar", "b.tar"], "shards holds local files and URLs"),
        ("ftp://photos/a.tar", "has the protocol 'ftp', which is not allowed"),
        ("https://me:secret@host/a.tar", "holds credentials"),
    ],
)
def test_shards_that_cannot_be_opened(s3, files, message):
    with pytest.raises(LoaderError, match=message):
        TarShards(files, remote=options(s3))


def test_records(s3, tmp_path):
    pytest.importorskip("google_crc32c")
    kind = KINDS["tfrecord"]
    kind.write(tmp_path, samples())
    local = kind.open(tmp_path)
    urls = [s3.put(Path(path).name, Path(path).read_bytes()) for path in local.paths]
    source = TFRecord(urls, local.image, local.fields[0], verify=True, remote=options(s3))
    s3.faults.share = 0.05
    assert read_all(source) == read_all(local)


def test_memory_is_bounded(s3, shards, uploaded):
    """A consumer that stands still leaves no more than `readahead_bytes` in memory."""
    source = remote(s3, uploaded, readahead_bytes=40_000)
    ahead = source.read_ahead([np.arange(i, i + 10) for i in range(0, 120, 10)])
    try:
        assert eventually(lambda: ahead.held_bytes > 10_000)
        time.sleep(0.3)  # for more
        assert ahead.held_bytes <= 40_000
        requests = [request for group in ahead._groups for request in group.requests]
        assert 10_000 < sum(len(request.data or b"") for request in requests) <= 40_000
        for index in range(0, 60):
            assert ahead.take(index)
        ahead.finish(6)
        assert all(batch.number >= 6 for batch in ahead._by_batch)
        assert eventually(lambda: ahead.held_bytes > 10_000)
        time.sleep(0.3)
        assert ahead.held_bytes <= 40_000
    finally:
        ahead.close()
    assert no_remote_thread_lives()


def test_arrived_samples_are_read_natively(s3, tmp_path):
    members = {f"{i}.{end}": photo(i) if end == "jpg" else b"%d" % i for i in range(20) for end in ("jpg", "cls")}
    del members["7.cls"]
    write_tar(tmp_path / "a.tar", members)
    local, source = TarShards(tmp_path / "a.tar"), remote(s3, s3.put("a.tar", (tmp_path / "a.tar").read_bytes()))
    order = np.array([3, 3, 7, 19, 0, 12])
    opened = source.remote_counts()["requests"]
    ahead = source.read_ahead([order[:4], order[4:]])
    try:
        assert eventually(lambda: source.remote_counts()["requests"] > opened)
        s3.faults.seen.clear()
        ranges = source.locate(order[:4])
        finish(work := read([None] * 4, ranges=ranges))
        is_read, labels = work.finish()
        assert is_read.tolist() == [True, True, False, True]
        assert [(work.read(i).tobytes(), labels[i]) for i in (0, 1, 3)] == [local.read(i) for i in (3, 3, 19)]
        assert (source.locate(order[:2]).table[..., 0] == -1).all(), "each occurrence is given once"
        with pytest.raises(DecodeError, match="no field 'cls'"):
            source.read(7)
        assert source.read(0) == local.read(0) and not s3.faults.seen, "no further request"
    finally:
        ahead.close()
    assert (source.locate(order).table[..., 0] == -1).all()


def test_stats_count_requests(s3, shards, uploaded):
    source = ConcatDataset([Subset(remote(s3, uploaded, readahead_bytes=100_000), range(60)), TarShards(shards)])
    s3.faults.share, s3.faults.kinds = 0.3, ("503",)
    with Loader(source, Resize((8, 8)), batch_size=16, device="cpu") as loader:
        opened = loader.stats().remote
        s3.faults.seen.clear()
        with loader.profile() as profile:
            for _ in loader:
                pass
        counts = profile.stats.remote
    assert counts["requests"] + counts["repeated"] == s3.faults.seen["GET"]
    assert counts["repeated"] == s3.faults.seen["503"] > 0
    # A sample that waits makes its own request, of at most a quarter of the limit, whatever is held.
    assert counts["held_bytes"] == 0 and 10_000 < counts["max_held_bytes"] <= 200_000
    assert loader.stats().remote["bytes"] == opened["bytes"] + counts["bytes"]
    line = f"remote: {counts['requests']} requests of 0 MB, {counts['repeated']} repeated; read-ahead holds 0 MB"
    assert line in str(profile.stats)
    with Loader(TarShards(shards), Resize((8, 8)), batch_size=16, device="cpu") as loader:
        assert loader.stats().remote == {} and "remote" not in str(loader.stats())


PROGRAM = """
import signal, sys, cuaug, cuaug.transforms as T
from cuaug.sources import RemoteOptions, TarShards
options = {"access_key_id": "a", "secret_access_key": "b", "endpoint": sys.argv[2], "region": "us-east-1"}
source = TarShards(sys.argv[1], remote=RemoteOptions(storage_options=options, timeout_seconds=600))
print("opened", flush=True)
input()
loader = cuaug.Loader(source, T.Resize((8, 8)), batch_size=8, device="cpu", threads=2)
batches = iter(loader)
next(batches)
print("read", flush=True)
input()
if sys.argv[3] == "error":
    raise KeyError("mine")
if sys.argv[3] == "interrupt":
    signal.raise_signal(signal.SIGINT)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("end", "code"), [("exit", 0), ("error", 1), ("interrupt", -2)])
def test_a_process_ends_while_requests_are_under_way(s3, uploaded, end, code):
    """The last shard is requested ahead, and never comes; the process has its own exit code."""
    s3.faults.share, s3.faults.kinds = 0.05, FAULTS
    command = [sys.executable, "-c", PROGRAM, uploaded, s3.endpoint, end]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    pipes = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}
    process = subprocess.Popen(command, env=environment, text=True, **pipes)
    assert process.stdout is not None and process.stdin is not None
    assert process.stdout.readline() == "opened\n"
    s3.faults.stuck_path = "train-03"
    print(file=process.stdin, flush=True)
    assert process.stdout.readline() == "read\n"
    assert eventually(lambda: s3.faults.stuck), "a request is under way"
    _, errors = process.communicate("\n", timeout=250)  # the request may take 300 seconds
    assert process.returncode == code, errors
    assert {"exit": "", "error": "KeyError: 'mine'", "interrupt": "KeyboardInterrupt"}[end] in errors
    assert "panicked" not in errors and "Fatal" not in errors


def test_a_stuck_server_does_not_hold_up_the_loader(s3, uploaded):
    source = remote(s3, uploaded, timeout_seconds=3600)
    s3.faults.stuck_path = ".tar"
    loader = Loader(source, Resize((8, 8)), batch_size=8, device="cpu", timeout_seconds=1)
    with pytest.raises(LoaderError, match=r"reading .*train-00.tar/0000.jpg.* has taken"):
        next(iter(loader))
    loader.close()


def test_the_cache_makes_later_epochs_free_of_requests(s3, shards, uploaded, tmp_path):
    expected = digests(TarShards(shards), shuffle=True)
    source = remote(s3, uploaded, cache_dir=tmp_path / "blocks")
    s3.faults.seen.clear()
    assert digests(source, shuffle=True) == expected
    assert s3.faults.seen == {"GET": SHARDS}  # a block each
    s3.faults.seen.clear()
    assert digests(source, shuffle=True) == expected
    assert digests(remote(s3, uploaded, cache_dir=tmp_path / "blocks", readahead_bytes=0), shuffle=True) == expected
    assert s3.faults.seen == {"HEAD": SHARDS}  # of opening it again
    copy = pickle.loads(pickle.dumps(source))
    assert copy.read(7) == source.read(7) and s3.faults.seen == {"HEAD": SHARDS}


def test_the_cache_never_mixes_versions(s3, shards, uploaded, tmp_path):
    source = remote(s3, uploaded, cache_dir=tmp_path / "blocks")
    before = source.read(0)
    for path in sorted(shards.glob("*.tar")):  # each shard becomes the next one
        s3.put(f"set/train-{(int(path.stem[-2:]) - 1) % SHARDS:02d}.tar", path.read_bytes())
    assert source.read(0) == before  # of the version that was opened
    with pytest.raises(OSError, match="has changed since its index was made"):
        source.read(PER_SHARD)
    assert remote(s3, uploaded, cache_dir=tmp_path / "blocks").read(0) == TarShards(shards).read(PER_SHARD)
