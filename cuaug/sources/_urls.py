"""Remote files, read through fsspec: which urls are allowed, and how one is fetched."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from cuaug._runtime.fork import renew_after_fork
from cuaug.errors import DecodeError, LoaderError
from cuaug.limits import check_bytes
from cuaug.sources._extras import need

__all__ = ["DEFAULT_PROTOCOLS", "below", "check", "fetch", "file_system", "is_url"]

#: Protocols that a list of paths may name. Others reach local files, run code or send credentials.
DEFAULT_PROTOCOLS = ("http", "https", "s3", "gs")
# Never allowed: the files that such a url names may hold templates, which older versions of fsspec execute.
_FORBIDDEN = "fsspec.implementations.reference."
_END_OF_HOST = re.compile("[/?#]")

NO_OPTIONS: Mapping[str, Any] = {}


def _renew() -> None:
    """A forked child does not have fsspec's thread, for which older versions would wait."""
    if asyn := sys.modules.get("fsspec.asyn"):
        asyn.reset_lock()


renew_after_fork(_renew)


def is_url(path: str) -> bool:
    """Whether this is protocol://... and not the path of a file."""
    return "://" in path


def below(url: str, name: str) -> str:
    """The url of a file below a folder; in a chain, "zip://a::b.zip", below its first link that has a path."""
    links = url.split("::")
    first = next(i for i, link in enumerate(links) if is_url(link))
    protocol, _, path = links[first].partition("://")
    links[first] = f"{protocol}://{path.rstrip('/')}/{name}"
    return "::".join(links)


def check(urls: Iterable[str], protocols: Iterable[str] | None = None) -> None:
    """Refuses urls that reach more than the caller has allowed. Connects to nothing.

    Args:
        urls: they may come from anybody.
        protocols: the protocols that each link of a url may have; None: `DEFAULT_PROTOCOLS`, and no chains.

    Raises:
        LoaderError: a chain, a protocol or a url with credentials that is not allowed, or fsspec or a library that a
            protocol needs is missing.
    """
    fsspec = need("fsspec", "remote")
    allowed = frozenset(DEFAULT_PROTOCOLS if protocols is None else protocols)
    available: set[str] = set()
    for url in urls:
        links = [url] if protocols is None else url.split("::")
        for link in links:
            protocol, is_plain, rest = _protocol(link, fsspec)
            if protocol not in allowed or (protocols is None and "::" in url):
                raise _refused(url, protocol, allowed, chain="::" in url and protocols is None)
            if not is_plain and "@" in _END_OF_HOST.split(rest, 1)[0]:
                raise LoaderError(f"{_without_password(url)!r} holds credentials: give them as storage_options")
            if protocol not in available:
                _check_available(url, protocol, fsspec)
                available.add(protocol)


def _protocol(link: str, fsspec: Any) -> tuple[str, bool, str]:
    """(protocol, whether it is a local path, what follows) of one link of a url, as fsspec reads it."""
    protocol, separator, rest = link.partition("://")
    if separator:
        return protocol, False, rest
    if link in fsspec.available_protocols():  # "simplecache::s3://..."
        return link, True, ""
    return "file", True, link


def _refused(url: str, protocol: str, allowed: frozenset[str], *, chain: bool) -> LoaderError:
    why = "is a chain of urls" if chain else f"has the protocol {protocol!r}"
    wanted = ", ".join(sorted(allowed))
    return LoaderError(
        f"{_without_password(url)!r} {why}, which is not allowed here (allowed: plain paths, {wanted}): what you trust "
        f"opens by cuaug.sources.Remote(urls, protocols=({protocol!r}, ...))"
    )


def _without_password(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//...@", url)


def _check_available(url: str, protocol: str, fsspec: Any) -> None:
    """Imports the class of a protocol's file system; an instance might connect."""
    try:
        kind = fsspec.get_filesystem_class(protocol)
    except (ValueError, ImportError) as error:
        raise LoaderError(f"fsspec cannot open {_without_password(url)!r}: {error}") from error
    if any(f"{each.__module__}.".startswith(_FORBIDDEN) for each in kind.__mro__):
        raise LoaderError(f"{url!r}: the protocol {protocol!r} is never allowed: its files can hold code")


def file_system(url: str, options: Mapping[str, Any] = NO_OPTIONS) -> tuple[Any, str]:
    """fsspec's file system for a checked url, and the url's path there.

    fsspec keeps one of each kind for every thread, and begins anew after a fork, so that asking again costs little.

    Raises:
        LoaderError: no such protocol, options that do not fit it, or a library that it needs is missing.
    """
    fsspec = need("fsspec", "remote")
    try:
        return fsspec.core.url_to_fs(url, **options)
    except (ValueError, TypeError, ImportError) as error:
        raise LoaderError(f"fsspec cannot open {url!r}: {error}") from error


def fetch(url: str, max_bytes: int, options: Mapping[str, Any] = NO_OPTIONS) -> bytes:
    """All of a remote file.

    Raises:
        DecodeError: it has more than `max_bytes`.
        OSError: it cannot be fetched; names the url, and the reason that the file system gave.
    """
    system, path = file_system(url, options)
    try:
        data = _bounded(system, url, path, max_bytes + 1)
    except Exception as error:  # each kind of file system has errors of its own, many of which are no OSError
        raise OSError(f"cannot fetch {url!r}: {type(error).__name__}: {error}") from error
    try:
        check_bytes(len(data), max_bytes)
    except DecodeError as error:
        raise error.at(url, None) from None
    return data


def _bounded(system: Any, url: str, path: str, limit: int) -> bytes:
    """At most `limit` bytes of a file."""
    if not url.startswith("http"):
        return system.cat_file(path, start=0, end=limit)
    # An HTTP server may ignore a range. With a size that is given and no blocks, one GET is streamed, without a HEAD.
    parts, size = [], 0
    with system.open(path, "rb", size=1, block_size=0) as answer:
        while size < limit and (part := answer.read(limit - size)):
            parts.append(part)
            size += len(part)
    return b"".join(parts)
