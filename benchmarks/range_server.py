"""A loopback server of objects with byte ranges, fast enough for benchmarks: one process, no copy to disk.

It answers HEAD and GET of /bucket/key with an ETag, as S3 does for a signed request that it does not check. Each answer
comes after a latency.

    python benchmarks/range_server.py FOLDER PORT LATENCY_SECONDS
"""

from __future__ import annotations

import asyncio
import re
import sys
import zlib
from pathlib import Path

_RANGE = re.compile(rb"(?im)^range: *bytes=(\d+)-(\d*)")


class Server(asyncio.Protocol):
    """One connection."""

    def __init__(self, folder: Path, latency: float, objects: dict[str, bytes]) -> None:
        self.folder, self.latency, self.objects = folder, latency, objects
        self.received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        while b"\r\n\r\n" in self.received:
            head, _, self.received = self.received.partition(b"\r\n\r\n")
            asyncio.get_running_loop().call_later(self.latency, self.answer, head)

    def answer(self, head: bytes) -> None:
        method, path = head.split(b" ", 2)[:2]
        name = path.decode().partition("?")[0].lstrip("/")
        file = self.folder / name
        if name not in self.objects and not file.is_file():
            self.send(b"404 Not Found", b"", b"", 0)
            return
        data = self.objects.setdefault(name, file.read_bytes() if name not in self.objects else b"")
        etag = b"%08x" % zlib.crc32(name.encode())
        fields = b'ETag: "%s"\r\nLast-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\nAccept-Ranges: bytes\r\n' % etag
        match = _RANGE.search(head)
        if method == b"HEAD":
            self.send(b"200 OK", fields, b"", len(data))
        elif match:
            first, last = int(match[1]), min(int(match[2] or len(data)), len(data) - 1)
            fields += b"Content-Range: bytes %d-%d/%d\r\n" % (first, last, len(data))
            self.send(b"206 Partial Content", fields, memoryview(data)[first : last + 1], last + 1 - first)
        else:
            self.send(b"200 OK", fields, data, len(data))

    def send(self, status: bytes, fields: bytes, body: bytes | memoryview, size: int) -> None:
        self.transport.write(b"HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n" % (status, fields, size))
        if body:
            self.transport.write(body)


async def main(folder: str, port: str, latency: str) -> None:
    objects: dict[str, bytes] = {}
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Server(Path(folder), float(latency), objects), "127.0.0.1", int(port))
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
