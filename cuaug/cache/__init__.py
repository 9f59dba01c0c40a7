"""What an epoch leaves behind for the next: encoded files, or decoded pixels, under a limit of bytes.

`EncodedCache` saves reading, `DecodedCache` saves reading and decoding. Both are filled by the first epoch that reads
a sample, take samples until they are full, and never let one go: an epoch reads every sample once, in a new random
order, so whatever is thrown out to make room is as likely to be wanted next as what took its place, and throwing it out
only loses the work of putting it there. Samples that do not fit are read and decoded again each time; a smaller one
that comes later may still fit.

A loader calls `open(count, contents)` before anything else. `contents` says what the cached bytes depend on, by name;
so one cache can serve several loaders over the same samples, and refuses any other. Caches hold no labels, except
that `EncodedCache` keeps the label with the bytes, since a source gives both at once.

`estimate` says what a dataset would take; `shrunken_size` is the size at which a picture is cached.

encoded.py   `EncodedCache`
decoded.py   `DecodedCache`, over one of memory.py, disk.py (with blocks.py) and device.py
identity.py  what a cache is of
limits.py    how much it may hold
estimate.py  how much it would
opening.py   a loader's, open for its source
"""

from __future__ import annotations

from cuaug.cache.decoded import DecodedCache
from cuaug.cache.device import DeviceImage
from cuaug.cache.encoded import EncodedCache
from cuaug.cache.estimate import SizeEstimate, estimate, shrunken_size
from cuaug.cache.limits import CacheStats
from cuaug.cache.opening import open_cache

__all__ = [
    "CacheStats",
    "DecodedCache",
    "DeviceImage",
    "EncodedCache",
    "SizeEstimate",
    "estimate",
    "open_cache",
    "shrunken_size",
]
