"""Protocol of a transport, a library that reads remote files: one method call is one request.

`FsspecTransport` reads any protocol through fsspec. It costs one more request for each read, which shows that the
version is unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from cuaug.remote.urls import file_system, read_http

__all__ = [
    "NO_RANGES",
    "Buffer",
    "ChangedObjectError",
    "FsspecTransport",
    "RemoteObject",
    "TransientError",
    "Transport",
]

#: Received bytes; a memoryview shows a library's memory without a copy.
Buffer: TypeAlias = bytes | memoryview

NO_RANGES = "its server gives no byte ranges (HTTP 206): copy the file, or serve it by another server"


class RemoteObject(NamedTuple):
    """One version of a remote file.

    Attributes:
        size: in bytes.
        version: the ETag; without one, the modification time or another mark of the server's; "" if it gives none.
    """

    url: str
    size: int
    version: str


class TransientError(OSError):
    """A request failed, and may succeed later: no connection, a time limit, a busy or broken server."""


class ChangedObjectError(OSError):
    """The object has another version than the one that was opened."""

    def __init__(self, url: str) -> None:
        super().__init__(f"{url!r} has changed since its index was made: open the dataset again")
        self.url = url

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return type(self), (self.url,)


class Transport(Protocol):
    """A library that reads remote files. All methods are called from several threads."""

    def head(self, url: str) -> RemoteObject:
        """Asks for an object's size and version.

        Raises:
            TransientError: another try may succeed.
            OSError: the object is missing, or may not be read.
        """
        ...

    def get(self, remote: RemoteObject, offset: int, size: int) -> Buffer:
        """Requests one byte range, which lies within the object, once.

        Raises:
            TransientError, OSError: as in `head`.
            ChangedObjectError: the object has another version.
        """
        ...

    def glob(self, pattern: str) -> list[str]:
        """The sorted URLs that match a pattern, in which `*` stands for any characters but "/".

        Raises:
            TransientError, OSError: as in `head`.
        """
        ...


T = TypeVar("T")

# What file systems call the version of a file, best first.
_VERSIONS = ("ETag", "etag", "generation", "Last-Modified", "LastModified", "last_modified", "mtime", "created")
_PERMANENT = (
    FileNotFoundError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
    NotImplementedError,
    ValueError,
)
_BUSY = (408, 429)


class FsspecTransport:
    """Reads through fsspec's file systems.

    Args:
        options: for the file system.
        timeout_seconds: limit of one request, where the file system runs on asyncio.
    """

    def __init__(self, options: Mapping[str, Any], timeout_seconds: float) -> None:
        self._options, self._timeout_seconds = options, timeout_seconds

    def head(self, url: str) -> RemoteObject:
        system, path = file_system(url, self._options)
        info = _call(url, lambda: system.info(path, **self._limits(system)))
        if info.get("size") is None:
            raise OSError(f"{url!r} has no known size, so its parts cannot be read: copy or mount it")
        version = next((str(info[name]) for name in _VERSIONS if info.get(name)), "")
        return RemoteObject(url, int(info["size"]), version)

    def get(self, remote: RemoteObject, offset: int, size: int) -> bytes:
        url = remote.url
        system, path = file_system(url, self._options)
        data = _call(url, lambda: self._get(system, url, path, offset, size))
        if len(data) > size:
            raise OSError(f"{url!r}: {NO_RANGES}")
        # Most file systems show no version with the data. A version that is still there afterwards was there before.
        system.invalidate_cache(path)
        if self.head(url) != remote:
            raise ChangedObjectError(url)
        if len(data) != size:
            raise TransientError(f"{url!r}: {len(data)} bytes came of {size} from byte {offset} on")
        return data

    def _get(self, system: Any, url: str, path: str, offset: int, size: int) -> bytes:
        """A byte range, or more than `size` bytes from a server that ignores ranges."""
        if not url.startswith(("http://", "https://")):
            return system.cat_file(path, start=offset, end=offset + size, **self._limits(system))
        # As obstore does: the user, not a list, names the shards.
        limits = {"allow_redirects": True, **self._limits(system)}
        headers = {**system.kwargs.get("headers", {}), "Range": f"bytes={offset}-{offset + size - 1}"}
        return read_http(system, path, size + 1, headers=headers, **limits)

    def glob(self, pattern: str) -> list[str]:
        system, path = file_system(pattern, self._options)
        return sorted(map(system.unstrip_protocol, _call(pattern, lambda: system.glob(path))))

    def _limits(self, system: Any) -> dict[str, float]:
        """Arguments that limit a request's time."""
        return {"timeout": self._timeout_seconds} if getattr(system, "async_impl", False) else {}


def _call(url: str, function: Callable[[], T]) -> T:
    """Calls a function of a file system; each file system raises errors of its own."""
    try:
        return function()
    except Exception as error:
        reason = f"cannot read {url!r}: {type(error).__name__}: {error}"
        status = getattr(error, "status", None)
        if isinstance(status, int) and 400 <= status < 500 and status not in _BUSY:
            raise OSError(reason) from error
        if isinstance(error, _PERMANENT):
            raise OSError(reason) from error
        raise TransientError(reason) from error
