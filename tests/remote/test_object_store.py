"""Byte ranges of remote objects: parallel, repeated after faults, of one version."""

from __future__ import annotations

import http.server
import logging
import os
import pickle
import random
import threading
import time
from functools import partial

import pytest

from cuaug.remote import ObjectStore, object_store
from cuaug.remote.transport import ChangedObjectError
from tests.support.remote.servers import FAULTS
from tests.support.sources.writers import served
from tests.support.waiting import eventually

DATA = random.Random(1).randbytes(300_000)
LIBRARIES = {"obstore": {}, "fsspec": {"use_ssl": False}}  # obstore has no such option


@pytest.fixture(params=LIBRARIES)
def store(request, s3) -> ObjectStore:
    return ObjectStore({**s3.options, **LIBRARIES[request.param]}, timeout_seconds=20)


def test_the_libraries_differ(store, s3, request):
    store.open(s3.put("a.tar", DATA))
    name = type(store._transport("s3://")).__name__
    assert name.lower().startswith(request.node.callspec.params["store"])


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
    if "use_ssl" in store.options and fault != "truncate":
        pytest.skip("s3fs repeats other requests itself, which takes long")
    remote = store.open(s3.put("a.tar", DATA))
    s3.faults.share, s3.faults.kinds = 0.4, (fault,)
    ranges = [(i * 1000, 1000) for i in range(30)]
    with caplog.at_level(logging.WARNING, "cuaug"):
        assert store.read_ranges(remote, ranges) == [DATA[at : at + size] for at, size in ranges]
    assert s3.faults.seen[fault] > 3
    if "use_ssl" not in store.options:
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


def test_an_object_that_changes_after_its_folder_was_listed_is_an_error(store, s3):
    """s3fs answers from its last listing, until that is cleared."""
    url = s3.put("set/a.tar", DATA)
    assert store.glob("s3://photos/set/*.tar") == [url]
    remote = store.open(url)
    assert store.read(remote, 0, 10) == DATA[:10]
    store.glob("s3://photos/set/*.tar")
    s3.put("set/a.tar", DATA[::-1])
    with pytest.raises(ChangedObjectError):
        store.read(remote, 0, 10)


@pytest.mark.parametrize("kind", ["stuck", "503"])
def test_a_stuck_connection_is_named_in_time(s3, kind):
    store = ObjectStore(s3.options, timeout_seconds=2)
    remote = store.open(s3.put("a.tar", DATA))
    if kind == "stuck":
        s3.faults.stuck_path = "a.tar"
    else:
        s3.faults.share, s3.faults.kinds = 1.0, (kind,)
    with pytest.raises(
        OSError, match=r"'s3://photos/a.tar', bytes 7 to 17: no request succeeded in .*timeout_seconds=2"
    ):
        store.read(remote, 7, 10)


@pytest.mark.parametrize("kind", ["200", "404"])
def test_a_dead_server_is_waited_for_once(s3, kind, monkeypatch):
    """Later requests fail at once, and the first one that it answers ends that."""
    store = ObjectStore(s3.options, timeout_seconds=2)
    remote = store.open(s3.put("a.tar", DATA))
    s3.faults.share, s3.faults.kinds = 1.0, ("503",)
    with pytest.raises(OSError, match="no request succeeded in"):
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


def test_patterns(store, s3):
    urls = [s3.put(f"set/train-{i:02d}.tar", b"x") for i in range(3)]
    s3.put("set/val-00.tar", b"x")
    s3.put("set/train-deep/a.tar", b"x")
    assert store.glob("s3://photos/set/train-*.tar") == urls


def test_stores_pickle_and_fork(s3):
    url = s3.put("a.tar", DATA)
    store = ObjectStore(s3.options, connections=3, timeout_seconds=20)
    remote = store.open(url)
    copy = pickle.loads(pickle.dumps(store))
    assert (copy.connections, copy.timeout_seconds) == (3, 20) and copy.read(remote, 5, 5) == DATA[5:10]
    if (child := os.fork()) == 0:
        try:
            os._exit(0 if store.read_ranges(remote, [(5, 5), (9, 1)]) == [DATA[5:10], DATA[9:10]] else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


class _Ranges(http.server.SimpleHTTPRequestHandler):
    """A file server with byte ranges."""

    def send_head(self):
        header = self.headers.get("Range")
        path = self.translate_path(self.path.partition("?")[0])
        with open(path, "rb") as file:
            data = file.read()
        if header is None:
            self.send_response(200)
            part = data
        else:
            first, last = map(int, header.removeprefix("bytes=").split("-"))
            part = data[first : last + 1]
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(data)}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", f'"{hash(data)}"')
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(part)

    def log_message(self, *args):
        pass


@pytest.fixture
def http_url(tmp_path):
    """The URL of a folder on an HTTP server with byte ranges."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Ranges, directory=tmp_path))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("options", [{}, {"block_size": 0}], ids=["obstore", "fsspec"])
def test_http(http_url, tmp_path, options):
    (tmp_path / "a b.tar").write_bytes(DATA)
    store = ObjectStore(options)
    for url in (f"{http_url}/a b.tar", f"{http_url}/a%20b.tar", f"{http_url}/a%20b.tar?signature=x%2Fy"):
        remote = store.open(url)
        assert remote.size == len(DATA) and store.read(remote, 100, 50) == DATA[100:150]
    (tmp_path / "a b.tar").write_bytes(DATA[1:] + b"x")
    with pytest.raises(ChangedObjectError):
        store.read(remote, 100, 50)


@pytest.mark.parametrize("options", [{}, {"block_size": 0}], ids=["obstore", "fsspec"])
def test_a_server_without_ranges_is_refused(tmp_path, options):
    (tmp_path / "a.tar").write_bytes(DATA)
    store = ObjectStore(options)
    with served(tmp_path) as url, pytest.raises(OSError, match="its server gives no byte ranges"):
        store.read(store.open(f"{url}/a.tar"), 100, 50)


def test_memory():
    fsspec = pytest.importorskip("fsspec")
    fsspec.filesystem("memory").pipe("/ranges/a.tar", DATA)
    store = ObjectStore()
    remote = store.open("memory://ranges/a.tar")
    assert store.read_ranges(remote, [(1, 2), (3, 4)]) == [DATA[1:3], DATA[3:7]]
    assert store.glob("memory://ranges/*.tar") == ["memory:///ranges/a.tar"]
    time.sleep(0.01)
    fsspec.filesystem("memory").pipe("/ranges/a.tar", DATA[::-1])
    with pytest.raises(ChangedObjectError):
        store.read(remote, 1, 2)
