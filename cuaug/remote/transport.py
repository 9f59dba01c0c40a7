"""What `HttpTransport` and `ObstoreTransport` share. Each reads remote files through a library, from several threads.

One call is one request:

    head(url) -> RemoteObject           size and version
    get(remote, offset, size) -> bytes  one byte range, which lies within the object, of that version
    fetch(url, limit) -> bytes          a whole object, but no more than its first `limit` bytes
    list_below(folder) -> URLs          of all objects below a folder, at any depth

They raise TransientError where another try may succeed; OSError where the object is missing or may not be read, a
ChangedObjectError if it has another version; and ArgumentError for options that the library does not know.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

#: Received bytes; a memoryview shows a library's memory without a copy.
Buffer: TypeAlias = bytes | memoryview

NO_RANGES = "its server gives no byte ranges (HTTP 206): copy the file, or serve it by another server"
#: Statuses below 500 of requests that may succeed later.
BUSY = (408, 429)


class RemoteObject(NamedTuple):
    """One version of a remote file.

    Attributes:
        size: in bytes.
        version: the ETag; without one, the modification time; "" if the server gives neither.
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
