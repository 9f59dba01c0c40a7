"""Remote objects: byte ranges of files in object storage and on HTTP servers."""

from cuaug.remote.object_store import ObjectStore, RemoteObject

__all__ = ["ObjectStore", "RemoteObject"]
