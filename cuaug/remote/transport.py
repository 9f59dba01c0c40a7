"""Protocol of a transport, a library that reads remote files: one method call is one request."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias

__all__ = ["NO_RANGES", "Buffer", "ChangedObjectError", "RemoteObject", "TransientError", "Transport"]


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
