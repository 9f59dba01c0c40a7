"""Byte ranges of remote objects: parallel, repeated after faults, of one version."""

from __future__ import annotations

import logging
import os
import pickle
import random
import signal
import sys
import threading
import time
from collections.abc import Callable

import pytest

from cuaug import ArgumentError
from cuaug.remote import ObjectStore, RemoteOptions, object_store
from cuaug.remote.obstore_transport import ObstoreTransport
from cuaug.remote.transport import ChangedObjectError
from tests.support.remote.servers import FAULTS
from tests.support.sources.writers import Ranges, served
from tests.support.waiting import eventually

DATA = random.Random(1).randbytes(300_000)


@pytest.fixture
def store(s3) -> ObjectStore:
    return ObjectStore(s3.options, timeout_seconds=20)


def test_ranges(store, s3):
    remote = store.open(s3.put("folder/a b.tar", DATA))
    assert remote.size == len(DATA) and remote.version
    ranges = [(0, 10), (299_000, 1000), (5, 0), (1234, 100_000)] * 5
    assert store.read_ranges(remote, ranges) == [DATA[at : at + size] for at, size in ranges]
    assert store.read_ranges(remote, []) == []
    with pytest.raises(OSError, match=r"has 300000 bytes, not those from 299999 to 300001"):
        store.read(remote, 299_999, 2)


@pytest.mark.parametrize("fault", FAULTS)
def test_failed_requests_are_repeated(store, s3, fault, caplog):
    remote = store.open(s3.put("a.tar", DATA))
    s3.faults.share, s3.faults.kinds = 0.4, (fault,)
    ranges = [(i * 1000, 1000) for i in range(30)]
    with caplog.at_level(logging.WARNING, "cuaug"):
        assert store.read_ranges(remote, ranges) == [DATA[at : at + size] for at, size in ranges]
    assert s3.faults.seen[fault] > 3
    assert store.repeated == s3.faults.seen[fault]
    assert caplog.text.count("failed and is repeated") == 1 and "s3://photos/a.tar" in caplog.text


def test_refused_requests_are_not_repeated(store, s3):
    with pytest.raises(OSError, match=r"cannot read 's3://photos/missing.tar'"):
        store.open("s3://photos/missing.tar")
    assert store.repeated == 0


def test_a_changed_object_is_an_error(store, s3):
    remote = store.open(s3.put("a.tar", DATA))
    s3.put("a.tar", DATA[::-1])
    with pytest.raises(ChangedObjectError, match=r"photos/a.tar' has changed since its index was made"):
        store.read_ranges(remote, [(0, 10), (20, 30)])
    assert pickle.loads(pickle.dumps(ChangedObjectError("s3://x"))).url == "s3://x"


FAILED = r"'s3://photos/a.tar', bytes 7 to 17: no request succeeded in .*timeout_seconds=2"


def test_a_stuck_connection_is_named_in_time(s3):
    store = ObjectStore(s3.options, timeout_seconds=2)
    remote = store.open(s3.put("a.tar", DATA))
    s3.faults.stuck_path = "a.tar"
    with pytest.raises(OSError, match=FAILED):
        store.read(remote, 7, 10)


@pytest.mark.parametrize("kind", ["200", "404"])
def test_a_dead_server_is_waited_for_once(s3, kind, monkeypatch):
    """Later requests fail at once, and the first one that it answers ends that."""
    store = ObjectStore(s3.options, timeout_seconds=2)
    remote = store.open(s3.put("a.tar", DATA))
    s3.faults.share, s3.faults.kinds = 1.0, ("503",)
    with pytest.raises(OSError, match=FAILED):
        store.read(remote, 7, 10)
    monkeypatch.setattr(object_store, "_MAX_WAIT_SECONDS", 3600)
    store._servers["s3://photos"].next_try = time.monotonic()  # as after 5 seconds
    seen = s3.faults.seen["503"]
    for _ in range(20):
        with pytest.raises(OSError, match=r"bytes 7 to 17: no request to s3://photos has succeeded for"):
            store.read(remote, 7, 10)
    assert s3.faults.seen["503"] == seen + 1, "one has tried it again"
    store._servers["s3://photos"].next_try = s3.faults.share = 0.0
    if kind == "404":
        with pytest.raises(OSError, match="missing"):
            store.open("s3://photos/missing.tar")  # an answer, too
    else:
        assert store.read(remote, 7, 10) == DATA[7:17]
    s3.faults.share, store.timeout_seconds = 0.4, 20
    monkeypatch.undo()
    ranges = [(i * 1000, 1000) for i in range(20)]
    assert store.read_ranges(remote, ranges) == [DATA[at : at + size] for at, size in ranges]


def test_connections_are_limited(s3):
    store = ObjectStore(s3.options, connections=4)
    remote = store.open(s3.put("a.tar", DATA))
    s3.faults.stuck_path = "a.tar"
    reading = threading.Thread(target=store.read_ranges, args=[remote, [(i, 1) for i in range(16)]])
    reading.start()
    assert eventually(lambda: s3.faults.stuck == 4)
    time.sleep(0.1)  # for a fifth one
    assert s3.faults.stuck == 4
    s3.faults.released.set()
    reading.join()
    assert s3.faults.stuck == 16


def test_names_of_objects(store, s3):
    urls = [s3.put(f"names/{name}", DATA[:99]) for name in ("a%20b.tar", "a b.tar", "a#b?c=d.tar", "\u00e9.tar")]
    assert store.list_below("s3://photos/names/") == sorted(urls)
    for url in urls:
        assert store.read(store.open(url), 3, 5) == DATA[3:8] and store.fetch(url, 99) == DATA[:99]


def test_options_that_obstore_does_not_know_are_named_without_their_values(s3):
    message = r"storage_options of s3://photos: .*'key' is not valid.*'key', 'anon'"
    with pytest.raises(ArgumentError, match=message) as caught:
        ObjectStore({"key": "mysecret", "anon": False}).open("s3://photos/a.tar")
    assert "mysecret" not in str(caught.value) + repr(RemoteOptions(storage_options={"key": "mysecret"}))
    with pytest.raises(ArgumentError, match="storage_options has 'anon': for http and https there are 'headers' and"):
        ObjectStore({"anon": True}).open("http://host/a.tar")


@pytest.mark.parametrize("url", ["gs://photos/a b.tar", "az://photos/a b.tar"])
def test_other_clouds(tmp_path, url):
    """Their stores read from the addresses that their options name."""
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a b.tar").write_bytes(DATA)
    with served(tmp_path, Ranges) as root:
        options = {"gs": {"base_url": root}, "az": {"account_name": "me", "endpoint": root}}[url[:2]]
        store = ObjectStore({**options, "skip_signature": True})
        remote = store.open(url)
        assert store.read(remote, 7, 90) == DATA[7:97] and store.fetch(url, len(DATA)) == DATA


def test_stores_pickle(s3):
    url = s3.put("a.tar", DATA)
    store = ObjectStore(s3.options, connections=3, timeout_seconds=20)
    copy = pickle.loads(pickle.dumps(store))
    assert (copy.connections, copy.timeout_seconds) == (3, 20) and copy.read(store.open(url), 5, 5) == DATA[5:10]


def in_child(check: Callable[[], bool]) -> int:
    """The status of a forked process: 0 if the check holds there."""
    if (child := os.fork()) == 0:
        signal.alarm(60)  # ends a child that waits for ever
        try:
            os._exit(0 if check() else 1)
        finally:
            os._exit(2)
    return os.waitpid(child, 0)[1]


def test_a_forked_process_gets_an_error_instead_of_waiting_for_ever(s3):
    """obstore's threads stay with the parent, as long as which its stores stay: freeing one may wait for a thread."""
    url, store = s3.put("a.tar", DATA), ObjectStore(s3.options)
    remote = store.open(url)
    (kept,) = store._transports[ObstoreTransport]._stores.values()  # type: ignore[attr-defined]

    def fails() -> bool:
        references = sys.getrefcount(kept)
        for reader in (store, ObjectStore(s3.options)):
            with pytest.raises(OSError, match=r"in a forked process: .*multiprocessing_context='spawn'"):
                reader.read(remote, 5, 5)
        store._transports.clear()
        return sys.getrefcount(kept) == references - 1 and references > 3

    assert in_child(fails) == 0 and store.repeated == 0
    assert store.read(remote, 5, 5) == DATA[5:10]


@pytest.fixture
def http_url(tmp_path):
    """The URL of a folder on an HTTP server with byte ranges."""
    with served(tmp_path, Ranges) as url:
        yield url


def test_http(http_url, tmp_path):
    (tmp_path / "a b.tar").write_bytes(DATA)
    store = ObjectStore()
    for url in (f"{http_url}/a b.tar", f"{http_url}/a%20b.tar", f"{http_url}/a%20b.tar?signature=x%2Fy"):
        remote = store.open(url)
        assert remote.size == len(DATA) and store.read(remote, 100, 50) == DATA[100:150]
    assert in_child(lambda: store.read(remote, 100, 50) == DATA[100:150]) == 0
    with pytest.raises(OSError, match=r"cannot list .*HTTP servers have no lists of files"):
        store.glob(f"{http_url}/*.tar")
    (tmp_path / "a b.tar").write_bytes(DATA[1:] + b"x")
    with pytest.raises(ChangedObjectError):
        store.read(remote, 100, 50)
    assert store.repeated == 0


def test_a_server_without_ranges_is_refused(tmp_path):
    (tmp_path / "a.tar").write_bytes(DATA)
    store = ObjectStore()
    with served(tmp_path) as url, pytest.raises(OSError, match="its server gives no byte ranges"):
        store.read(store.open(f"{url}/a.tar"), 100, 50)


def test_proxies_of_the_environment(http_url, tmp_path, monkeypatch):
    """A proxy gets the whole URL; that server looks it up as a path."""
    folder = tmp_path / "http:" / "host.invalid"
    folder.mkdir(parents=True)
    (folder / "a.tar").write_bytes(DATA)
    host = http_url.removeprefix("http://")
    monkeypatch.setenv("http_proxy", f"http://me:secret@{host}")
    store = ObjectStore()
    assert store.fetch("http://host.invalid/a.tar", len(DATA)) == DATA
    monkeypatch.setenv("no_proxy", "host.invalid")
    with pytest.raises(OSError, match="NameResolution") as caught:
        store.fetch("http://host.invalid/a.tar", len(DATA))
    assert "secret" not in str(caught.value)
