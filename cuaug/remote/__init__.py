"""Remote objects: byte ranges of files in object storage and on HTTP servers.

urls.py               URLs: which ones are read
object_store.py       byte ranges of remote files: in parallel, repeated where a request fails, always of one version
transport.py          what transports share: libraries that read remote files
obstore_transport.py  S3, Google Cloud Storage and Azure through obstore, which reads without the GIL
http_transport.py     HTTP servers through urllib3, without redirects to other hosts
block_cache.py        blocks of remote objects in a local folder; `RemoteOptions`: how shards behind URLs are read
read_ahead.py         reads byte ranges ahead of the samples that need them, in the order of an epoch
"""

from cuaug.remote.block_cache import RemoteOptions
from cuaug.remote.object_store import ObjectStore, RemoteObject
from cuaug.remote.read_ahead import Part, ReadAhead
from cuaug.remote.transport import Buffer

__all__ = ["Buffer", "ObjectStore", "Part", "ReadAhead", "RemoteObject", "RemoteOptions"]
