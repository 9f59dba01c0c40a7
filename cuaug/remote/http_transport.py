"""http and https through urllib3: pooled connections, bounded answers, no redirects to other hosts."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit

from cuaug._runtime.extras import require_module
from cuaug._runtime.fork import PerProcess
from cuaug.errors import ArgumentError
from cuaug.remote.transport import BUSY, NO_RANGES, ChangedObjectError, RemoteObject, TransientError

_OPTIONS = ("headers", "allow_redirects")
_MAX_REDIRECTS = 5
# Of connections that stay open to one server, and of servers with such connections.
_CONNECTIONS, _SERVERS = 64, 16
# `read1` allocates what it is asked for.
_PART_BYTES = 1 << 18


class HttpTransport:
    """Reads through urllib3.

    Args:
        options: "headers" of each request; "allow_redirects": True to follow redirects to other hosts, which get no
            such headers.
        timeout_seconds: limit of one request.

    Raises:
        ArgumentError: another option.
    """

    def __init__(self, options: Mapping[str, Any], timeout_seconds: float) -> None:
        for name in options:
            if name not in _OPTIONS:
                names = " and ".join(map(repr, _OPTIONS))
                raise ArgumentError(f"storage_options has {name!r}: for http and https there are {names}")
        # A compressed answer may be any number of times as long as its bytes.
        self._headers = {**options.get("headers", {}), "Accept-Encoding": "identity"}
        self._allows_redirects = bool(options.get("allow_redirects", False))
        self._timeout_seconds = timeout_seconds
        self._pools: PerProcess[dict[str, Any]] = PerProcess(dict)  # by proxy; a child's connections are its own

    def head(self, url: str) -> RemoteObject:
        _, headers, _ = self._request("HEAD", url, 1)
        size = headers.get("Content-Length", "")
        if not size.isdecimal() or int(size) >= 1 << 63:
            raise OSError(f"{url!r} has no known size, so its parts cannot be read: copy or mount it")
        return RemoteObject(url, int(size), _version(headers))

    def get(self, remote: RemoteObject, offset: int, size: int) -> bytes:
        bounds = f"{offset}-{offset + size - 1}"
        headers = {"Range": f"bytes={bounds}"}
        if remote.version.startswith('"'):  # no If-Match names a weak ETag
            headers["If-Match"] = remote.version
        status, found, data = self._request("GET", remote.url, size + 1, headers)
        if status == 206 and (
            _version(found) != remote.version or not _content_range(found).endswith((f"/{remote.size}", "/*"))
        ):
            raise ChangedObjectError(remote.url)
        if status != 206 or len(data) > size or not _content_range(found).startswith(f"bytes {bounds}/"):
            raise OSError(f"{remote.url!r}: {NO_RANGES}")
        if len(data) != size:
            raise TransientError(f"{remote.url!r}: {len(data)} bytes came of {size} from byte {offset} on")
        return data

    def fetch(self, url: str, limit: int) -> bytes:
        try:
            return self._request("GET", url, limit)[2]
        except TransientError as error:
            if not isinstance(error.__cause__, require_module("urllib3", "remote").exceptions.ProtocolError):
                raise
        return self._request("GET", url, limit)[2]  # a server may close a connection that is kept open

    def list_below(self, folder: str) -> list[str]:
        raise OSError(f"cannot list {folder!r}: HTTP servers have no lists of files: give the files' URLs")

    def _request(
        self, method: str, url: str, limit: int, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Returns status, headers, and at most `limit` bytes: a server may ignore a range, or never end."""
        urllib3 = require_module("urllib3", "remote")
        at, own, end = url, self._headers, time.monotonic() + self._timeout_seconds
        try:
            for _ in range(_MAX_REDIRECTS + 1):
                response = self._pool(at).request(
                    *(method, at),
                    headers={**own, **(headers or {})},
                    timeout=self._timeout_seconds,
                    **{"redirect": False, "retries": False, "preload_content": False, "decode_content": False},
                )
                with response:
                    if not (location := response.get_redirect_location()):
                        self._check(url, response)
                        return response.status, response.headers, self._read(url, response, limit, end)
                at, is_same_host = self._redirected(at, location)
                own = own if is_same_host else {"Accept-Encoding": "identity"}
            raise OSError(f"cannot read {url!r}: more than {_MAX_REDIRECTS} redirects")
        except urllib3.exceptions.HTTPError as error:
            kind = OSError if isinstance(error, ValueError) else TransientError  # ValueError: no valid URL
            raise kind(f"cannot read {url!r}: {type(error).__name__}: {error}") from error

    def _pool(self, url: str) -> Any:
        """The connections to a server, or to the proxy that the environment names for it."""
        urllib3 = require_module("urllib3", "remote")
        parts = urlsplit(url)
        proxy = "" if urllib.request.proxy_bypass(parts.netloc) else urllib.request.getproxies().get(parts.scheme, "")
        pools = self._pools.get()
        if proxy not in pools:
            size = {"num_pools": _SERVERS, "maxsize": _CONNECTIONS}
            if proxy:
                proxy_url = urllib3.util.parse_url(proxy if "://" in proxy else f"http://{proxy}")
                headers = urllib3.make_headers(proxy_basic_auth=proxy_url.auth)
                pools[proxy] = urllib3.ProxyManager(proxy_url._replace(auth=None).url, proxy_headers=headers, **size)
            else:
                pools[proxy] = urllib3.PoolManager(**size)
        return pools[proxy]

    def _redirected(self, url: str, location: str) -> tuple[str, bool]:
        """The target of a redirect, and whether it is on the same host; http may become https there."""
        target = urljoin(url, location)
        old, new = urlsplit(url), urlsplit(target)
        is_upgrade = (old.scheme, new.scheme) == ("http", "https")
        is_same = old.hostname == new.hostname and (is_upgrade or (old.scheme, old.port) == (new.scheme, new.port))
        if not is_same and not (self._allows_redirects and new.scheme in ("http", "https")):
            raise OSError(
                f"cannot read {url!r}: the server redirects to another host, {new.scheme}://{new.netloc}: list that "
                'URL instead, or pass storage_options={"allow_redirects": True}'
            )
        return target, is_same

    def _check(self, url: str, response: Any) -> None:
        status, encoding = response.status, response.headers.get("Content-Encoding", "identity")
        if status == 412:
            raise ChangedObjectError(url)
        if not 200 <= status < 300:
            kind = TransientError if status >= 500 or status in BUSY else OSError
            raise kind(f"cannot read {url!r}: HTTP status {status} {response.reason}")
        if encoding != "identity":
            raise OSError(f"cannot read {url!r}: its server compresses it ({encoding}): serve the file as it is")

    def _read(self, url: str, response: Any, limit: int, end: float) -> bytes:
        parts, size = [], 0
        while size < limit and (part := response.read1(min(limit - size, _PART_BYTES))):
            parts.append(part)
            size += len(part)
            if time.monotonic() > end:  # urllib3 limits the time between two packets
                raise TransientError(f"cannot read {url!r}: Timeout: {size} bytes in {self._timeout_seconds:g} s")
        return b"".join(parts)


def _version(headers: Mapping[str, str]) -> str:
    return headers.get("ETag") or headers.get("Last-Modified") or ""


def _content_range(headers: Mapping[str, str]) -> str:
    return headers.get("Content-Range", "")
