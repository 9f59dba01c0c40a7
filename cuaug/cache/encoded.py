"""The encoded cache: files' bytes in memory."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from cuaug._runtime.fork import fork_safe_lock
from cuaug.cache.identity import differences, identity
from cuaug.cache.limits import CacheStats, no_longer_promised, set_limit
from cuaug.errors import LoaderError

__all__ = ["EncodedCache"]

log = logging.getLogger("cuaug")


class EncodedCache:
    """Keeps what a source's `read` gave, with the bytes of the file where that was a path.

    It fills in the order in which samples are first read and never lets one go. That is on purpose: with a new random
    order each epoch every sample is equally far from being wanted again, so a policy that throws one out for another
    can only lose.

    Args:
        limit_bytes: the most encoded bytes to hold. Labels, and about 180 bytes of bookkeeping a sample, come on top.
            None: half of the memory that is available when the cache is made (divided by LOCAL_WORLD_SIZE if that is
            set) and not yet claimed by this process's other caches.

    It may be used from many threads. A forked child sees what its parent held, and adds its own.

    Raises:
        LoaderError: a limit that is no positive integer.
    """

    def __init__(self, limit_bytes: int | None = None) -> None:
        self._lock = fork_safe_lock()
        self._identity: dict[str, Any] | None = None
        self._source: object = None
        self._samples: dict[int, tuple[bytes, Any]] = {}
        self._bytes = 0
        self.limit_bytes: int
        set_limit(self, limit_bytes)  # last: others may then ask what it holds

    def open(self, count: int, contents: Mapping[str, Any], *, source: object = None) -> None:
        """Makes it ready for a dataset. Opening it again for the same one changes nothing.

        Args:
            count: number of samples.
            contents: what tells this dataset from others, by name: strings, numbers, booleans or None.
            source: kept alive with the cache, so that no other object takes its identity.

        Raises:
            LoaderError: it is open for another dataset; the message says what differs.
        """
        wanted = identity(count, contents)
        with self._lock:
            if self._identity is not None and self._identity != wanted:
                raise LoaderError(
                    "this EncodedCache serves a loader over other samples: "
                    f"{differences(self._identity, wanted)}; give each dataset a cache of its own"
                )
            self._identity, self._source = wanted, source

    def get(self, index: int) -> tuple[bytes, Any] | None:
        """(encoded bytes, label) of a sample, or None where it is not held."""
        return self._samples.get(index)

    def put(self, index: int, data: bytes | bytearray | memoryview, label: Any) -> bool:
        """Takes a sample, and says whether it is held now. The label is kept as it is; data other than bytes is copied.

        Raises:
            LoaderError: the cache is not open, or there is no such sample.
        """
        size = memoryview(data).nbytes
        if self._bytes + size > self.limit_bytes:  # saves the copy; what counts is asked again below
            return index in self._samples
        try:
            entry = bytes(data), label
        except MemoryError:
            log.warning("the encoded cache takes no more samples: there is no memory beyond %d bytes", self._bytes)
            self.limit_bytes = self._bytes
            return index in self._samples
        with self._lock:
            if self._identity is None:
                raise LoaderError("this EncodedCache is not open: call open(count, contents) first")
            if not 0 <= index < self._identity["samples"]:
                raise LoaderError(f"there is no sample {index} in a cache of {self._identity['samples']}")
            if index not in self._samples:
                if self._bytes + size > self.limit_bytes:
                    return False
                self._bytes += size
                self._samples[index] = entry
        return True

    @property
    def stats(self) -> CacheStats:
        """What it holds."""
        return CacheStats(len(self._samples), self._bytes, self.limit_bytes)

    def close(self) -> None:
        """Lets go of everything. It can be opened again, for any dataset, and is empty then."""
        with self._lock:
            self._identity, self._source, self._samples, self._bytes = None, None, {}, 0
        no_longer_promised(self)

    def __reduce__(self) -> Any:
        if self._identity is not None:
            raise TypeError("an open EncodedCache holds its process's memory and does not pickle: pickle it before use")
        return type(self), (self.limit_bytes,)
