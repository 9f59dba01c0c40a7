"""Remote objects: byte ranges of files in object storage and on HTTP servers."""

from cuaug.remote.object_store import ObjectStore, RemoteObject
from cuaug.remote.options import RemoteOptions
from cuaug.remote.read_ahead import Part, ReadAhead
from cuaug.remote.transport import Buffer

__all__ = ["Buffer", "ObjectStore", "Part", "ReadAhead", "RemoteObject", "RemoteOptions"]
