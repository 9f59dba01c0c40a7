"""S3 on loopback: moto's server behind a proxy that delays, refuses, resets and truncates."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

BUCKET = "photos"
#: What may happen to a request, in place of an answer; "truncate" cuts the body.
FAULTS = ("500", "503", "reset", "truncate")


@dataclass
class Faults:
    """What the proxy does to requests for objects.

    Attributes:
        latency: seconds before each answer.
        share: part of the requests that fail, each by a random fault of `kinds`.
        stuck_path: a request whose path holds this text waits until `released`.
        stuck: number of requests that have waited so.
        seen: requests by method; faults by kind.
        range_sizes: the bytes that each GET with a range asks for.
    """

    latency: float = 0.0
    share: float = 0.0
    kinds: tuple[str, ...] = FAULTS
    stuck_path: str = "\0"
    stuck: int = 0
    released: threading.Event = field(default_factory=threading.Event)
    seen: Counter[str] = field(default_factory=Counter)
    range_sizes: list[int] = field(default_factory=list)
    random: random.Random = field(default_factory=lambda: random.Random(5))

    def next(self) -> str | None:
        return self.random.choice(self.kinds) if self.random.random() < self.share else None


class _Proxy(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    faults: Faults
    port: int

    def _forward(self) -> None:
        faults, method = self.faults, self.command
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = None
        if method in ("GET", "HEAD"):
            faults.seen[method] += 1
            if method == "GET" and self.headers["Range"]:
                first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
                faults.range_sizes.append(last + 1 - first)
            time.sleep(faults.latency)
            if faults.stuck_path in self.path:
                faults.stuck += 1
                faults.released.wait()
            fault = faults.next()
        if fault is not None:
            faults.seen[fault] += 1
        if fault == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            self.connection.close()
            return
        if fault in ("500", "503"):
            self._answer(int(fault), {}, b"<Error><Code>SlowDown</Code></Error>")
            return
        upstream = http.client.HTTPConnection("127.0.0.1", self.port)
        upstream.request(method, self.path, body, dict(self.headers))
        response = upstream.getresponse()
        data = response.read()
        headers = {name: value for name, value in response.getheaders() if name.lower() in _KEPT}
        if method == "HEAD":
            headers["Content-Length"] = response.headers.get("Content-Length", "0")
        self._answer(response.status, headers, data, truncate=fault == "truncate")
        upstream.close()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _forward

    def _answer(self, status: int, headers: dict[str, str], data: bytes, *, truncate: bool = False) -> None:
        with contextlib.suppress(OSError):  # the client may have given up
            self.send_response(status)
            for name, value in {"Content-Length": str(len(data)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data[: len(data) // 2] if truncate else data)
            self.close_connection |= truncate

    def log_message(self, *args: Any) -> None:
        pass


_KEPT = ("content-type", "content-range", "etag", "last-modified", "accept-ranges", "x-amz-bucket-region")


@dataclass
class S3:
    """An S3 server: `put` writes objects directly; requests to `endpoint` pass the proxy.

    Attributes:
        options: storage options that reach it.
    """

    endpoint: str
    client: Any
    faults: Faults

    @property
    def options(self) -> dict[str, Any]:
        return {"access_key_id": "a", "secret_access_key": "b", "endpoint": self.endpoint, "region": "us-east-1"}

    def put(self, name: str, data: bytes) -> str:
        self.client.put_object(Bucket=BUCKET, Key=name, Body=data)
        return f"s3://{BUCKET}/{name}"


@contextlib.contextmanager
def s3_server() -> Iterator[S3]:
    """Runs moto's server and the proxy."""
    boto3 = pytest.importorskip("boto3")
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    faults = Faults()
    handler = type("Proxy", (_Proxy,), {"faults": faults, "port": port})
    proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    proxy.daemon_threads = True
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    direct = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
    client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", **direct)
    try:
        client.create_bucket(Bucket=BUCKET)
        yield S3(f"http://127.0.0.1:{proxy.server_port}", client, faults)
    finally:
        proxy.shutdown()
        proxy.server_close()
        server.stop()
