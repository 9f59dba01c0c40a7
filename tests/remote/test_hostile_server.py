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
from cuaug.remote import ObjectStore
from cuaug.sources import Parquet, Remote, RemoteOptions, TarShards
from tests.support.codec.memory import peak_bytes
from tests.support.loader.further_pictures import png

Handler = http.server.BaseHTTPRequestHandler
CHUNK = bytes(1 << 16)
SECRET = {"Authorization": "Bearer secret"}


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
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
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
        (bomb, r"its server compresses it \(gzip\)"),
        (without_end_headers, "cannot read"),
        (lambda request: head(request, 204), "cannot read|^$"),
        (lambda request: head(request, Content_Length=-5), "cannot read|^$"),
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

    with serving(drip) as url, pytest.raises(OSError, match=r"cannot read .*Timeout: \d+ bytes in 0.5 s"):
        Remote([f"{url}/a.png"], timeout_seconds=1).read(0)


@pytest.mark.parametrize("kind", ["host", "port", "scheme", "file"])
def test_redirects_to_other_hosts_are_refused(kind):
    """By lists and shards alike. Where the user allows them, the other host gets none of the user's headers."""
    reached: list[object] = []

    def target(request: Handler) -> None:
        reached.append(request.headers["Authorization"])
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
            with pytest.raises(LoaderError, match=r"redirects to another host, .*: list that URL instead"):
                TarShards(f"{url}/a.tar")
            allowed = Remote([f"{url}/a.png"], storage_options={"allow_redirects": True, "headers": SECRET})
            with contextlib.nullcontext() if "http" in location else pytest.raises(OSError, match="redirects to"):
                allowed.read(0)
            assert reached == ([None] if "http" in location else [])


def test_redirects_on_the_same_host_are_followed():
    def answer(request: Handler) -> None:
        assert request.headers["Authorization"] == SECRET["Authorization"]
        if request.path == "/moved/a.png":
            head(request, Content_Length=len(png(3)))
            request.wfile.write(png(3))
        else:
            head(request, 301, Location="moved/a.png" if request.path == "/a.png" else "/loop", Content_Length=0)

    with serving(answer) as url:
        source = Remote([f"{url}/a.png", f"{url}/loop"], storage_options={"headers": SECRET})
        assert source.read(0)[0] == png(3)
        with pytest.raises(OSError, match="more than 5 redirects"):
            source.read(1)


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


@pytest.mark.parametrize("body", [endless, bomb, longer], ids=["endless", "bomb", "longer"])
def test_ranges_are_bounded(body):
    with serving(shard(body)) as url:
        store = ObjectStore(timeout_seconds=5)
        remote = store.open(f"{url}/a.tar")
        before = peak_bytes()
        with pytest.raises(OSError, match=r"gives no byte ranges|server compresses it"):
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


def test_a_server_that_answers_other_requests_is_alive():
    """Only requests for one object fail until their limit."""

    def body(request: Handler) -> None:
        if request.path == "/bad.tar":
            store.read(good, 0, 20)  # answered while this one waits
            head(request, 503, Content_Length=0)
        else:
            head(request, 206, Content_Range="bytes 0-19/1000", ETag='"1"', Content_Length=20)
            request.wfile.write(bytes(20))

    with serving(shard(body)) as url:
        store = ObjectStore(timeout_seconds=1)  # a dead server would be tried again after 5
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


def answer_of(data: bytes = bytes(20), **changes: object) -> Callable[[Handler], None]:
    """Bytes 10 to 30 of an object, with some headers changed."""
    headers = {"Content_Range": "bytes 10-29/1000", "ETag": '"1"', "Content_Length": len(data)}

    def body(request: Handler) -> None:
        head(request, 206, **{**headers, **changes})
        request.wfile.write(data)

    return body


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (answer_of(ETag='"2"'), "has changed since its index was made"),
        (answer_of(Content_Range="bytes 10-29/1001"), "has changed since its index was made"),
        (lambda request: head(request, 412, Content_Length=0), "has changed since its index was made"),
        (answer_of(Content_Range="bytes 0-19/1000"), "gives no byte ranges"),
        (answer_of(bytes(21)), "gives no byte ranges"),
        (answer_of(bytes(7)), "no request succeeded in .* 7 bytes came of 20 from byte 10 on"),
        (answer_of(bytes(7), Content_Length=20), "no request succeeded in .*IncompleteRead"),
    ],
    ids=["version", "size", "precondition", "range", "long", "short", "cut"],
)
def test_answers_that_are_not_the_range(body, message):
    with serving(shard(body)) as url:
        store = ObjectStore(timeout_seconds=0.5)
        with pytest.raises(OSError, match=message):
            store.read(store.open(f"{url}/a.tar"), 10, 20)


def test_a_kept_connection_that_the_server_closes_is_opened_again():
    answered: list[int] = []

    def answer(request: Handler) -> None:
        answered.append(1)
        if len(answered) != 2:
            head(request, Content_Length=2)
            request.wfile.write(b"ok")

    with serving(answer) as url:
        store = ObjectStore()
        assert [store.fetch(f"{url}/{i}", 9) for i in range(3)] == [b"ok"] * 3 and len(answered) == 4
