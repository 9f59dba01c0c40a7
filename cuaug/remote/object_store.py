"""Byte ranges of remote files: in parallel, repeated where a request fails, always of one version.

`RemoteFile` is a remote object as a file: for scans of shards from front to back, and for libraries that read files.
"""

from __future__ import annotations

import io
import logging
import random
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from cuaug._runtime.arguments import seconds
from cuaug._runtime.fork import renew_after_fork
from cuaug._runtime.limits import check_bytes
from cuaug._runtime.threads import map_in_threads
from cuaug.errors import ArgumentError, DecodeError
from cuaug.remote.http_transport import HttpTransport
from cuaug.remote.obstore_transport import ObstoreTransport
from cuaug.remote.transport import Buffer, RemoteObject, TransientError
from cuaug.remote.urls import is_http

log = logging.getLogger("cuaug")

T = TypeVar("T")

# The longest wait before the first repetition, and before any.
_FIRST_WAIT_SECONDS, _MAX_WAIT_SECONDS = 0.1, 5.0
_jitter = random.SystemRandom()  # the state of Python's generator is the user's


class _Server:
    """A server or bucket.

    Attributes:
        answers: requests that succeeded, or were refused for good.
        failure: why it counts as dead; "" while requests succeed.
        next_try: when a request may try a dead one again, as of time.monotonic().
    """

    __slots__ = ("answers", "failure", "next_try")

    def __init__(self) -> None:
        self.answers, self.failure, self.next_try = 0, "", 0.0


class ObjectStore:
    """Reads byte ranges of URLs: s3, gs and az through obstore, http and https through urllib3.

    The URLs have been checked by `urls.check`. Failed requests are repeated with exponential back-off and full jitter,
    unless the object is missing or may not be read. The first one is logged, all are counted. Once no request to a
    server or bucket has succeeded for the whole time limit, further ones fail at once, but for one in 5 seconds that
    tries it again: a batch waits for a dead server once, not for each of its samples.

    Args:
        options: obstore's of the store, such as {"skip_signature": True} for s3; for http see `HttpTransport`.
        connections: requests at a time.
        timeout_seconds: limit for one range with its repetitions. A single request gets half of it.

    Attributes:
        requests, received_bytes: requests for byte ranges that succeeded, and their bytes.
        repeated: requests that failed and were repeated.

    It pickles. In a forked child, http is read by connections of its own; s3, gs and az are an error if the parent has
    read any, since obstore's threads are the parent's.
    """

    def __init__(
        self,
        options: Mapping[str, Any] | None = None,
        *,
        connections: int = 64,
        timeout_seconds: float = 60.0,
    ) -> None:
        if seconds("timeout_seconds", timeout_seconds) is None:
            raise ArgumentError("timeout_seconds must be a number above 0, not None")
        self.options = dict(options or {})
        self.connections, self.timeout_seconds = connections, timeout_seconds
        self._transports: dict[type, HttpTransport | ObstoreTransport] = {}
        self._renew()
        renew_after_fork(self._renew)

    def _renew(self) -> None:
        self.repeated = self.requests = self.received_bytes = 0
        self._servers: dict[str, _Server] = {}
        self._slots = threading.BoundedSemaphore(self.connections)
        self._lock = threading.Lock()

    def __reduce__(self) -> Any:
        return _make, (self.options, self.connections, self.timeout_seconds)

    def open(self, url: str) -> RemoteObject:
        """The current version of an object.

        Raises:
            OSError: the object is missing or may not be read, or no request succeeds in time.
            LoaderError: the protocol's library is missing.
        """
        return self._repeat(url, f"{url!r}", lambda: self._transport(url).head(url))

    def glob(self, pattern: str) -> list[str]:
        """The sorted URLs that match a pattern, in which `*` stands for any characters but "/".

        Raises:
            OSError, LoaderError: as of `open`; HTTP servers list nothing.
        """
        matches = re.compile("[^/]*".join(map(re.escape, pattern.split("*")))).fullmatch
        return list(filter(matches, self.list_below(pattern[: pattern.index("*")].rpartition("/")[0])))

    def list_below(self, folder: str) -> list[str]:
        """The sorted URLs of all objects below a folder.

        Raises:
            OSError, LoaderError: as of `glob`.
        """
        return sorted(self._repeat(folder, f"{folder!r}", lambda: self._transport(folder).list_below(folder)))

    def fetch(self, url: str, max_bytes: int) -> bytes:
        """Reads a whole object, by one request.

        It is repeated for s3, gs and az. Lists of http URLs name many servers that are gone: each costs one request.

        Raises:
            DecodeError: the object has more than `max_bytes`.
            OSError, LoaderError: as of `open`.
        """
        fetch = lambda: self._transport(url).fetch(url, max_bytes + 1)  # noqa: E731
        data = fetch() if is_http(url) else self._repeat(url, f"{url!r}", fetch)
        try:
            check_bytes(len(data), max_bytes)
        except DecodeError as error:
            raise error.at(url, None) from None
        return bytes(data)

    def read(self, remote: RemoteObject, offset: int, size: int, stop: threading.Event | None = None) -> Buffer:
        """Reads one byte range in the calling thread.

        Args:
            stop: ends the wait before a repetition, with the last error.

        Raises:
            ChangedObjectError: the object has another version.
            OSError: as of `open`; or the range lies outside the object.
        """
        if not 0 <= offset <= offset + size <= remote.size:
            raise OSError(f"{remote.url!r} has {remote.size} bytes, not those from {offset} to {offset + size}")
        if not size:
            return b""
        url = remote.url
        name = f"{url!r}, bytes {offset} to {offset + size}"
        data = self._repeat(url, name, lambda: self._transport(url).get(remote, offset, size), stop)
        with self._lock:
            self.requests += 1
            self.received_bytes += size
        return data

    def read_ranges(self, remote: RemoteObject, ranges: Sequence[tuple[int, int]]) -> list[Buffer]:
        """Reads (offset, size) ranges in parallel; returns their bytes, in order.

        Raises:
            ChangedObjectError, OSError: as of `read`.
        """
        stop = threading.Event()
        return map_in_threads(lambda part: self.read(remote, *part, stop), ranges, self.connections, stop)

    def _transport(self, url: str) -> HttpTransport | ObstoreTransport:
        kind = HttpTransport if is_http(url) else ObstoreTransport
        with self._lock:
            if kind not in self._transports:
                self._transports[kind] = kind(self.options, self.timeout_seconds / 2)
            return self._transports[kind]

    def _repeat(self, url: str, name: str, request: Callable[[], T], stop: threading.Event | None = None) -> T:
        """Makes a request until it succeeds, within the time limit."""
        root = "/".join(url.split("/", 3)[:3])
        with self._lock:
            server = self._servers.setdefault(root, _Server())
        begin, wait, answers = time.monotonic(), _FIRST_WAIT_SECONDS, server.answers
        while True:
            with self._lock:
                is_dead, now = bool(server.failure), time.monotonic()
                if is_dead and now < server.next_try:
                    raise OSError(f"{name}: {server.failure}")
                server.next_try = now + _MAX_WAIT_SECONDS
            try:
                with self._slots:
                    result = request()
            except TransientError as error:
                failure = error
            except OSError:
                self._answered(server)
                raise
            else:
                self._answered(server)
                return result
            pause = _jitter.uniform(0, wait)
            wait = min(2 * wait, _MAX_WAIT_SECONDS)
            passed = time.monotonic() - begin
            limit = f"timeout_seconds={self.timeout_seconds:g}"
            if is_dead or passed + pause > self.timeout_seconds:
                with self._lock:
                    if server.answers == answers:
                        server.failure = (
                            f"no request to {root} has succeeded for longer than {limit}; the last: {failure}"
                        )
                reason = f"no request succeeded in {passed:.1f} s ({limit}); the last: {failure}"
                raise OSError(f"{name}: {(is_dead and server.failure) or reason}") from failure
            self._count(name, failure)
            if (stop or threading.Event()).wait(pause):
                raise failure

    def _answered(self, server: _Server) -> None:
        with self._lock:
            server.answers += 1
            server.failure = ""

    def _count(self, name: str, error: TransientError) -> None:
        with self._lock:
            self.repeated += 1
            is_first = self.repeated == 1
        if is_first:
            log.warning("a request for %s failed and is repeated, as further ones will be: %s", name, error)


def _make(options: dict[str, Any], connections: int, timeout_seconds: float) -> ObjectStore:
    return ObjectStore(options, connections=connections, timeout_seconds=timeout_seconds)


# A jump within this distance costs less as part of one request than as a second request: 1 MiB takes a connection of
# object storage about 10 ms, and an answer 20 to 80 ms.
_WINDOW_BYTES = 1 << 20
# After a longer jump, mostly over one large member.
_HEADER_BYTES = 8192
# A longer range is split, for several connections.
_MAX_REQUEST_BYTES = 4 << 20


class RemoteFile(io.RawIOBase):
    """A remote object, of which one window is in memory.

    Attributes:
        remote: the object.

    Raises:
        OSError: of `ObjectStore.read`, by every method that reads.
    """

    def __init__(self, store: ObjectStore, remote: RemoteObject) -> None:
        super().__init__()
        self._store, self.remote = store, remote
        self._at = self._start = 0
        self._window = b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self.remote.size)[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Reads without the copies of `RawIOBase.read`."""
        data = self.pread(self.remote.size if size < 0 else size, self._at)
        self._at += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        data = self.pread(len(buffer), self._at)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def pread(self, size: int, offset: int) -> bytes:
        """Reads a range as `os.pread` does: shorter at the end of the file."""
        size = max(0, min(size, self.remote.size - offset))
        end = self._start + len(self._window)
        if offset < self._start or offset + size > end:
            if size > _WINDOW_BYTES:
                return self._read(offset, size)
            is_near = self._window and self._start <= offset < end + _WINDOW_BYTES
            wanted = max(size, _WINDOW_BYTES if is_near else _HEADER_BYTES)
            self._window = self._read(offset, min(wanted, self.remote.size - offset))
            self._start = offset
        at = offset - self._start
        return self._window[at : at + size]

    def _read(self, offset: int, size: int) -> bytes:
        """Reads a range; a long one by several requests at a time."""
        starts = range(offset, offset + size, _MAX_REQUEST_BYTES)
        ranges = [(start, min(_MAX_REQUEST_BYTES, offset + size - start)) for start in starts]
        return b"".join(self._store.read_ranges(self.remote, ranges))
