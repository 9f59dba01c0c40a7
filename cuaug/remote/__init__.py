"""Remote objects: byte ranges of files in object storage and on HTTP servers."""

from cuaug.remote.object_store import ObjectStore, RemoteObject
from cuaug.remote.options import RemoteOptions
from cuaug.remote.read_ahead import ReadAhead, Span

__all__ = ["ObjectStore", "ReadAhead", "RemoteObject", "RemoteOptions", "Span"]
