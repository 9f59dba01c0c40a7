"""URLs of remote files: which ones are read."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cuaug._runtime.extras import require_module
from cuaug.errors import SourceError

#: Protocols that are read, and the library that reads each. Others reach local files, run code or send credentials.
PROTOCOLS = {"http": "urllib3", "https": "urllib3", "s3": "obstore", "gs": "obstore", "az": "obstore"}
_END_OF_HOST = re.compile("[/?#]")


def is_url(path: str) -> bool:
    """Whether this is protocol://... rather than the path of a file."""
    return "://" in path


def is_http(url: str) -> bool:
    """Whether an HTTP server has the file, rather than object storage."""
    return url.startswith(("http://", "https://"))


def check(urls: Iterable[str]) -> None:
    """Refuses URLs of other protocols, and those with credentials. Connects to nothing.

    Raises:
        LoaderError: a protocol is not one of `PROTOCOLS`, a URL holds credentials, or a library is missing.
    """
    for url in urls:
        protocol, _, rest = url.partition("://")
        if protocol not in PROTOCOLS:
            raise SourceError(
                f"{_without_password(url)!r} has the protocol {protocol!r}, which is not allowed (allowed: plain "
                f"paths, {', '.join(PROTOCOLS)}): copy or mount it"
            )
        if "@" in _END_OF_HOST.split(rest, 1)[0]:
            raise SourceError(f"{_without_password(url)!r} holds credentials: pass them as storage_options")
        require_module(PROTOCOLS[protocol], "remote")


def _without_password(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//...@", url)
