"""Servers that lie: endless, compressed and slow responses, ignored ranges, redirects, claimed sizes."""

from __future__ import annotations

import contextlib
import gzip
import http.server
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from cuaug import DecodeError, LoaderError
from cuaug.remote import ObjectStore, object_store
from cuaug.sources import Parquet, Remote, RemoteOptions, TarShards
from tests.support.codec.memory import peak_bytes
from tests.support.loader.further_pictures import png

aiohttp = pytest.importorskip("aiohttp")
Handler = http.server.BaseHTTPRequestHandler
LIBRARIES = {"obstore": {}, "fsspec": {"block_size": 0}}  # obstore has no such option
CHUNK = bytes(1 << 16)


@contextlib.contextmanager
def serving(answer: Callable[[Handler], None], host: str = "127.0.0.1") -> Iterator[str]:
    """Serves each request by `answer`; yields the URL."""

    class Answer(Handler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            with contextlib.suppress(OSError):  # the client may have seen enough
                answer(self)
            self.close_connection = True

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer((host, 0), Answer)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://{host}:{server.server_port}"
    server.shutdown()
    server.server_close()


def head(request: Handler, status: int = 200, **headers: object) -> None:
    request.send_response(status)
    for name, value in {**headers, "Connection": "close"}.items():
        request.send_header(name.replace("_", "-"), str(value))
    request.end_headers()


def endless(request: Handler) -> None:
    """Chunks until the client closes the connection, at most 4 GB."""
    head(request, Transfer_Encoding="chunked")
    for _ in range(1 << 16):
        request.wfile.write(b"%x\r\n%s\r\n" % (len(CHUNK), CHUNK))


def bomb(request: Handler) -> None:
    """1 GB of zeros, compressed."""
    member = gzip.compress(bytes(1 << 24))
    head(request, Content_Encoding="gzip", Content_Length=64 * len(member))
    for _ in range(64):
        request.wfile.write(member)


def without_end_headers(request: Handler) -> None:
    request.wfile.write(b"HTTP/1.1 200 OK\r\n")
    for i in range(1 << 12):
        request.wfile.write(b"X-%d: %s\r\n" % (i, CHUNK))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (endless, "above the limit max_bytes=1,000,000"),
        (bomb, "above the limit max_bytes=1,000,000|ContentEncodingError|Can not decode"),
        (without_end_headers, "cannot fetch"),
        (lambda request: head(request, 204), "the file is empty|cannot fetch|^$"),
        (lambda request: head(request, Content_Length=-5), "cannot fetch"),
    ],
    ids=["endless", "bomb", "headers", "nothing", "negative length"],
)
def test_responses_are_bounded(answer, message):
    with serving(answer) as url:
        source = Remote([f"{url}/a.png"])
        source.max_bytes = 1_000_000
        before = peak_bytes()
        try:
            assert source.read(0)[0] == b""  # an image that the decoder refuses
        except (DecodeError, OSError) as error:
            assert f"{url}/a.png" in str(error)
            with pytest.raises(type(error), match=message):
                raise
        assert peak_bytes() - before < 100 << 20


def test_a_slow_drip_ends_at_the_users_limit():
    def drip(request: Handler) -> None:
        head(request, Content_Length=1000)
        for _ in range(1000):
            request.wfile.write(b"x")
            time.sleep(0.05)

    with serving(drip) as url:
        limit = {"client_kwargs": {"timeout": aiohttp.ClientTimeout(total=0.5)}}
        with pytest.raises(OSError, match=r"cannot fetch .*Timeout"):
            Remote([f"{url}/a.png"], storage_options=limit).read(0)


# --- redirects -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["host", "port", "scheme", "file"])
def test_redirects_to_other_hosts_are_refused(kind):
    reached: list[str] = []

    def target(request: Handler) -> None:
        reached.append(request.path)
        head(request, Content_Length=0)

    with serving(target) as other:
        port = other.rpartition(":")[2]
        location = {
            "host": f"http://localhost:{port}/secret",
            "port": f"{other}/secret",
            "scheme": "ftp://127.0.0.1/secret",
            "file": "file:///etc/passwd",
        }[kind]
        with serving(lambda request: head(request, 302, Location=location, Content_Length=0)) as url:
            with pytest.raises(OSError, match=r"redirects to another host, .*: list that URL instead"):
                Remote([f"{url}/a.png"]).read(0)
            assert reached == []
            if kind == "port":
                Remote([f"{url}/a.png"], storage_options={"allow_redirects": True}).read(0)
                assert reached == ["/secret"]


def test_redirects_on_the_same_host_are_followed():
    def answer(request: Handler) -> None:
        if request.path == "/moved/a.png":
            head(request, Content_Length=len(png(3)))
            request.wfile.write(png(3))
        else:
            head(request, 301, Location="moved/a.png" if request.path == "/a.png" else "/loop", Content_Length=0)

    with serving(answer) as url:
        source = Remote([f"{url}/a.png", f"{url}/loop"])
        assert source.read(0)[0] == png(3)
        with pytest.raises(OSError, match="more than 5 redirects"):
            source.read(1)


# --- shards ----------------------------------------------------------------------------------------------------------


def shard(body: Callable[[Handler], None], size: int = 1000) -> Callable[[Handler], None]:
    """A server of one object, whose GET is answered by `body`."""

    def answer(request: Handler) -> None:
        if request.command == "HEAD":
            head(request, Content_Length=size, ETag='"1"', Accept_Ranges="bytes")
        else:
            body(request)

    return answer


def longer(request: Handler) -> None:
    """The range's headers, but a body of a gigabyte."""
    first, last = request.headers["Range"].removeprefix("bytes=").split("-")
    head(request, 206, Content_Range=f"bytes {first}-{last}/1000", ETag='"1"', Content_Length=1 << 30)
    for _ in range(1 << 14):
        request.wfile.write(CHUNK)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("body", [endless, bomb, longer], ids=["endless", "bomb", "longer"])
def test_ranges_are_bounded(library, body):
    with serving(shard(body)) as url:
        store = ObjectStore(LIBRARIES[library], timeout_seconds=5)
        remote = store.open(f"{url}/a.tar")
        before = peak_bytes()
        with pytest.raises(OSError, match=r"gives no byte ranges|Content-Length|no request succeeded|ContentEncoding"):
            store.read(remote, 10, 20)
        assert peak_bytes() - before < 100 << 20


@pytest.mark.parametrize("location", [None, "/a.tar", "file:///etc/passwd", "ftp://127.0.0.1/a.tar"])
def test_redirects_of_ranges_that_lead_nowhere_are_refused_at_once(location):
    def body(request: Handler) -> None:
        head(request, 302, Content_Length=0, **({"Location": location} if location else {}))

    with serving(shard(body)) as url:
        store = ObjectStore()
        remote = store.open(f"{url}/a.tar")
        with pytest.raises(OSError, match=r"^cannot read 'http://.*/a\.tar'"):
            store.read(remote, 10, 20)
        assert store.repeated == 0


def test_a_server_that_answers_other_requests_is_alive(monkeypatch):
    """Only requests for one object fail until their limit."""
    monkeypatch.setattr(object_store, "_MAX_WAIT_SECONDS", 3600)  # a dead server would be tried again after it
    monkeypatch.setattr(object_store.random, "uniform", lambda *_: 3600)  # no request is repeated within the limit

    def body(request: Handler) -> None:
        if request.path == "/bad.tar":
            store.read(good, 0, 20)  # answered while this one waits
            head(request, 503, Content_Length=0)
        else:
            head(request, 206, Content_Range="bytes 0-19/1000", ETag='"1"', Content_Length=20)
            request.wfile.write(bytes(20))

    with serving(shard(body)) as url:
        store = ObjectStore()
        good, bad = store.open(f"{url}/good.tar"), store.open(f"{url}/bad.tar")
        for _ in range(2):
            with pytest.raises(OSError, match=r"bad.tar', bytes 0 to 20: no request succeeded in"):
                store.read(bad, 0, 20)
            assert store.read(good, 0, 20) == bytes(20)


@pytest.mark.parametrize("size", [2**63, -1, 10**30, "x"])
def test_claimed_sizes_that_are_impossible(size, tmp_path, monkeypatch):
    monkeypatch.setenv("CUAUG_CACHE_DIR", str(tmp_path))
    with serving(shard(endless, size)) as url, pytest.raises(LoaderError, match=r"a\.tar"):
        TarShards(f"{url}/a.tar", remote=RemoteOptions(timeout_seconds=1))


def test_a_claimed_petabyte_is_not_requested(tmp_path, monkeypatch):
    """Neither of the shard, nor of the index beside it."""
    monkeypatch.setenv("CUAUG_CACHE_DIR", str(tmp_path))
    ranges: list[str] = []

    def body(request: Handler) -> None:
        ranges.append(request.headers["Range"])
        head(request, 404, Content_Length=0)

    with serving(shard(body, 1 << 50)) as url, pytest.raises(LoaderError, match=r"cannot read .*a\.tar"):
        TarShards(f"{url}/a.tar")
    sizes = [int(last) - int(first) for first, last in (text[6:].split("-") for text in ranges)]
    assert ranges and max(sizes) < 1 << 20


def test_a_claimed_footer_is_not_requested():
    pytest.importorskip("pyarrow")
    sizes: list[int] = []

    def body(request: Handler) -> None:
        first, last = map(int, request.headers["Range"].removeprefix("bytes=").split("-"))
        sizes.append(last + 1 - first)
        data = bytes(sizes[-1] - 8) + (2 << 30).to_bytes(4, "little") + b"PAR1"
        head(request, 206, Content_Range=f"bytes {first}-{last}/{3 << 30}", ETag='"1"', Content_Length=len(data))
        request.wfile.write(data)

    with serving(shard(body, 3 << 30)) as url, pytest.raises(LoaderError, match=r"its footer claims 2,147,483,656"):
        Parquet(f"{url}/a.parquet")
    assert sizes == [64 << 10]


def test_folders_without_end():
    def answer(request: Handler) -> None:
        page = b'<a href="deeper/">deeper/</a>'
        head(request, Content_Length=len(page), Content_Type="text/html")
        request.wfile.write(page)

    with serving(answer) as url, pytest.raises(LoaderError, match="lies more than 50 folders deep"):
        Remote.from_folder(f"{url}/root")
