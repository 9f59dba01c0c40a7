"""Files that lie elsewhere, read through fsspec."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from cuaug.errors import LoaderError
from cuaug.sources._extras import need

__all__ = ["below", "check", "fetch", "file_system", "is_url"]

NO_OPTIONS: Mapping[str, Any] = {}


def _renew() -> None:
    """A forked child does not have fsspec's thread, for which older versions would wait."""
    if asyn := sys.modules.get("fsspec.asyn"):
        asyn.reset_lock()


os.register_at_fork(after_in_child=_renew)


def is_url(path: str) -> bool:
    """Whether this is protocol://... and not the path of a file."""
    return "://" in path


def below(url: str, name: str) -> str:
    """The url of what lies below a folder; in a chain, "zip://a::b.zip", below its first link that has a path."""
    links = url.split("::")
    first = next(i for i, link in enumerate(links) if is_url(link))
    protocol, _, path = links[first].partition("://")
    links[first] = f"{protocol}://{path.rstrip('/')}/{name}"
    return "::".join(links)


def file_system(url: str, options: Mapping[str, Any] = NO_OPTIONS) -> tuple[Any, str]:
    """fsspec's file system for a url, and the url's path there.

    fsspec keeps one of each kind for every thread, and begins anew after a fork, so that asking again costs little.

    Raises:
        LoaderError: no such protocol, options that do not fit it, or a library that it needs is missing.
    """
    fsspec = need("fsspec", "remote")
    try:
        return fsspec.core.url_to_fs(url, **options)
    except (ValueError, TypeError, ImportError) as error:
        raise LoaderError(f"fsspec cannot open {url!r}: {error}") from error


def check(urls: Iterable[str], options: Mapping[str, Any] = NO_OPTIONS) -> None:
    """Raises a LoaderError unless there is a file system for each protocol; fetches nothing."""
    one_of_each = {url.partition("://")[0]: url for url in urls}
    for url in one_of_each.values():
        file_system(url, options)


def fetch(url: str, options: Mapping[str, Any] = NO_OPTIONS) -> bytes:
    """All of a remote file.

    Raises:
        OSError: it cannot be had; names the url, and the reason that the file system gave.
    """
    system, path = file_system(url, options)
    try:
        return system.cat_file(path)
    except Exception as error:  # each kind of file system has errors of its own, many of which are no OSError
        raise OSError(f"cannot fetch {url!r}: {type(error).__name__}: {error}") from error
