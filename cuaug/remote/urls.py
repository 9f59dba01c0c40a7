"""Remote files, read through fsspec: checks URLs and fetches them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit

from cuaug._runtime.extras import require_module
from cuaug._runtime.fork import renew_after_fork
from cuaug._runtime.limits import check_bytes
from cuaug.errors import DecodeError, LoaderError, SourceError

__all__ = ["DEFAULT_PROTOCOLS", "below", "check", "fetch", "file_system", "is_url", "read_http"]

#: Protocols allowed in lists of paths. Others reach local files, run code or send credentials.
DEFAULT_PROTOCOLS = ("http", "https", "s3", "gs")
# Never allowed: reference files may hold templates, which older versions of fsspec execute.
_FORBIDDEN = "fsspec.implementations.reference."
_END_OF_HOST = re.compile("[/?#]")
_REDIRECTS = (301, 302, 303, 307, 308)
_MAX_REDIRECTS = 5

NO_OPTIONS: Mapping[str, Any] = {}


def _reset_fsspec() -> None:
    """A forked child lacks fsspec's thread, for which older versions of fsspec wait forever."""
    if asyn := sys.modules.get("fsspec.asyn"):
        asyn.reset_lock()


renew_after_fork(_reset_fsspec)


def is_url(path: str) -> bool:
    """Whether this is protocol://... rather than the path of a file."""
    return "://" in path


def below(url: str, name: str) -> str:
    """URL of a file below a folder; in a chain such as "zip://a::b.zip", below the first link with a path."""
    links = url.split("::")
    first = next(i for i, link in enumerate(links) if is_url(link))
    protocol, _, path = links[first].partition("://")
    links[first] = f"{protocol}://{path.rstrip('/')}/{name}"
    return "::".join(links)


def check(
    urls: Iterable[str], protocols: Iterable[str] | None = None, reads: Callable[[str], bool] = lambda protocol: False
) -> None:
    """Refuses URLs beyond the allowed protocols. Connects to nothing.

    Args:
        urls: untrusted URLs.
        protocols: protocols that each link of a URL may have; None: `DEFAULT_PROTOCOLS`, and no chains.
        reads: whether a library beside fsspec reads a protocol, so that fsspec's own library for it may be missing.

    Raises:
        LoaderError: a chain or protocol that is not allowed, a URL with credentials, or a missing library.
    """
    fsspec = require_module("fsspec", "remote")
    allowed = frozenset(DEFAULT_PROTOCOLS if protocols is None else protocols)
    available: set[str] = set()
    for url in urls:
        links = [url] if protocols is None else url.split("::")
        for link in links:
            protocol, is_plain, rest = _protocol(link, fsspec)
            if protocol not in allowed or (protocols is None and "::" in url):
                raise _refusal(url, protocol, allowed, is_chain="::" in url and protocols is None)
            if not is_plain and "@" in _END_OF_HOST.split(rest, 1)[0]:
                raise SourceError(f"{_without_password(url)!r} holds credentials: pass them as storage_options")
            if protocol not in available and ("::" in url or not reads(protocol)):
                _check_available(url, protocol, fsspec)
                available.add(protocol)


def _protocol(link: str, fsspec: Any) -> tuple[str, bool, str]:
    """Returns (protocol, is a local path, rest) of one link of a URL, as fsspec parses it."""
    protocol, separator, rest = link.partition("://")
    if separator:
        return protocol, False, rest
    if link in fsspec.available_protocols():  # "simplecache::s3://..."
        return link, True, ""
    return "file", True, link


def _refusal(url: str, protocol: str, allowed: frozenset[str], *, is_chain: bool) -> LoaderError:
    reason = "is a chain of URLs" if is_chain else f"has the protocol {protocol!r}"
    names = ", ".join(sorted(allowed))
    return SourceError(
        f"{_without_password(url)!r} {reason}, which is not allowed here (allowed: plain paths, {names}); if you trust "
        f"it: cuaug.sources.Remote(urls, protocols=({protocol!r}, ...))"
    )


def _without_password(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//...@", url)


def _check_available(url: str, protocol: str, fsspec: Any) -> None:
    """Imports a protocol's file system class; an instance might connect."""
    try:
        system_class = fsspec.get_filesystem_class(protocol)
    except (ValueError, ImportError) as error:
        raise SourceError(f"fsspec cannot open {_without_password(url)!r}: {error}") from error
    if any(f"{base.__module__}.".startswith(_FORBIDDEN) for base in system_class.__mro__):
        raise SourceError(f"{url!r}: the protocol {protocol!r} is never allowed, because its files can hold code")


def file_system(url: str, options: Mapping[str, Any] = NO_OPTIONS) -> tuple[Any, str]:
    """Returns fsspec's file system for a checked URL, and the URL's path there.

    fsspec caches file systems per thread and process, so repeated calls cost little.

    Raises:
        LoaderError: an unknown protocol, options that do not fit it, or a missing library.
    """
    fsspec = require_module("fsspec", "remote")
    try:
        return fsspec.core.url_to_fs(url, **options)
    except (ValueError, TypeError, ImportError) as error:
        raise SourceError(f"fsspec cannot open {url!r}: {error}") from error


def fetch(url: str, max_bytes: int, options: Mapping[str, Any] = NO_OPTIONS) -> bytes:
    """Reads a whole remote file.

    Raises:
        DecodeError: the file has more than `max_bytes`.
        OSError: the request fails; the message has the URL and the file system's reason.
    """
    system, path = file_system(url, options)
    try:
        data = _read_bounded(system, url, path, max_bytes + 1)
    except Exception as error:  # each file system raises errors of its own, often not OSError
        raise OSError(f"cannot fetch {url!r}: {type(error).__name__}: {error}") from error
    try:
        check_bytes(len(data), max_bytes)
    except DecodeError as error:
        raise error.at(url, None) from None
    return data


def _read_bounded(system: Any, url: str, path: str, limit: int) -> bytes:
    """Reads at most `limit` bytes of a file."""
    if url.startswith(("http://", "https://")):
        return read_http(system, path, limit)
    return system.cat_file(path, start=0, end=limit)


def read_http(system: Any, url: str, limit: int, **arguments: Any) -> bytes:
    """Reads at most `limit` bytes of an HTTP response: a server may ignore a range, or never end.

    Redirects to other hosts are refused, unless `arguments` or the file system's options have "allow_redirects".

    Args:
        system: fsspec's file system of http.
        arguments: of the request.

    Raises:
        OSError: a redirect is refused; there are also errors of aiohttp.
    """
    if "allow_redirects" not in system.kwargs:
        arguments.setdefault("allow_redirects", False)
    for _ in range(_MAX_REDIRECTS):
        # A given size and block_size=0 stream one GET, without a HEAD.
        with system.open(url, "rb", size=1, block_size=0, **arguments) as response:
            status, headers = response.r.status, response.r.headers
            if status not in _REDIRECTS or "Location" not in headers:
                response.r.raise_for_status()
                parts, size = [], 0
                while size < limit and (part := response.read(limit - size)):
                    parts.append(part)
                    size += len(part)
                return b"".join(parts)
        url = _redirected(url, headers["Location"])
    raise OSError(f"more than {_MAX_REDIRECTS} redirects")


def _redirected(url: str, location: str) -> str:
    """The target of a redirect on the same host; http may become https there."""
    target = urljoin(url, location)
    old, new = urlsplit(url), urlsplit(target)
    is_upgrade = (old.scheme, new.scheme) == ("http", "https")
    if old.hostname != new.hostname or not (is_upgrade or (old.scheme, old.port) == (new.scheme, new.port)):
        raise OSError(
            f"the server redirects to another host, {new.scheme}://{new.netloc}: list that URL instead, or pass "
            'storage_options={"allow_redirects": True}'
        )
    return target
