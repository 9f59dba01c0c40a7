"""Remote objects: byte ranges of files in object storage and on HTTP servers.

block_cache.py        blocks of remote objects in a local folder
cached_reader.py      reads byte ranges of remote objects through a cache of blocks on local disk
file.py               a remote object as a file: for scans of shards from front to back
fsspec_transport.py   any protocol through fsspec
object_store.py       byte ranges of remote files: in parallel, repeated where a request fails, always of one version
obstore_transport.py  S3, Google Cloud Storage and HTTP through obstore, which reads without the GIL
options.py            `RemoteOptions`: how shards behind URLs are read
read_ahead.py         reads byte ranges ahead of the samples that need them, in the order of an epoch
transport.py          the protocol of a transport, a library that reads remote files
urls.py               remote files, read through fsspec: checks URLs and fetches them
"""

from cuaug.remote.block_cache import RemoteOptions
from cuaug.remote.object_store import ObjectStore, RemoteObject
from cuaug.remote.read_ahead import Part, ReadAhead
from cuaug.remote.transport import Buffer

__all__ = ["Buffer", "ObjectStore", "Part", "ReadAhead", "RemoteObject", "RemoteOptions"]
