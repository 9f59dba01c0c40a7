"""Caches that carry one epoch's work to the next: JPEGs on a GPU or decoded pixels, up to a limit of bytes.

| class | keeps | saves |
|---|---|---|
| `EncodedCache` | JPEGs and labels, in the memory of a GPU | reading, uploading |
| `DecodedCache` | decoded pixels, in memory, in a directory or on a GPU | reading and decoding |

The first epoch fills a cache, and nothing is evicted (see `EncodedCache`). Samples that do not fit are read and decoded
again each epoch; a smaller sample may still fit later.

A loader calls `open(count, contents)` first. `contents` names all that the cached bytes depend on. One cache can serve
several loaders over the same samples and refuses others. `DecodedCache` keeps no labels. `EncodedCache` does, since
`Source.read` returns both at once.

`shrunken_size` is the size at which an image is cached.

encoded.py       `EncodedCache`
decoded.py       `DecodedCache`, over one of the stores; those in memory and in a GPU's memory
disk_store.py    `DiskStore`: decoded pixels in a directory, shared by processes and kept after they end
cache_limits.py  limits, sizes of images, and checks that a cache belongs to a dataset
open_cache.py    opens a loader's cache for its source
"""

from __future__ import annotations

from cuaug.cache.cache_limits import CacheStats, shrunken_size
from cuaug.cache.decoded import DecodedCache, DeviceImage
from cuaug.cache.encoded import EncodedCache
from cuaug.cache.open_cache import open_cache

__all__ = [
    "CacheStats",
    "DecodedCache",
    "DeviceImage",
    "EncodedCache",
    "open_cache",
    "shrunken_size",
]
