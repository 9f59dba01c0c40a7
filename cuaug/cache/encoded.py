"""`EncodedCache`: encoded files in memory."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from cuaug._runtime.fork import fork_safe_lock
from cuaug.cache.limits import CacheStats, differences, identity, release_reservation, set_limit
from cuaug.errors import ArgumentError

__all__ = ["EncodedCache"]

log = logging.getLogger("cuaug")


class EncodedCache:
    """Keeps each sample's encoded bytes and label in this process's memory, up to a limit.

    The bytes are those of `Source.read`, or of its file if it returns a path. The first epoch fills the cache, and
    nothing is evicted: with a new random order each epoch, every sample is equally far from its next use, so eviction
    can only lose.

    Of clips it keeps each video's whole file, once for all clips of it, and the video's index.

    Args:
        limit_bytes: limit on encoded bytes. Labels, and about 180 bytes of bookkeeping per sample, come on top. None:
            half of the memory that is available now (divided by LOCAL_WORLD_SIZE, if set) and not reserved by other
            caches of this process.

    Threads may share it. A forked child keeps what its parent held; its own additions stay its own.

    Raises:
        LoaderError: the limit is no positive integer.
    """

    def __init__(self, limit_bytes: int | None = None) -> None:
        self._lock = fork_safe_lock()
        self._identity: dict[str, Any] | None = None
        self._source: object = None
        self._samples: dict[int | str, tuple[bytes, Any]] = {}
        self._bytes = 0
        self.limit_bytes: int
        set_limit(self, limit_bytes)  # last: from now on other caches read our `stats`

    def open(self, count: int, contents: Mapping[str, Any], *, source: object = None) -> None:
        """Prepares the cache for a dataset. Opening it again for the same dataset changes nothing.

        Args:
            count: number of samples.
            contents: values that identify the dataset, by name: strings, numbers, booleans or None.
            source: kept alive with the cache, so that no other object gets its id.

        Raises:
            LoaderError: the cache is open for another dataset; the message has the differences.
        """
        expected = identity(count, contents)
        with self._lock:
            if self._identity is not None and self._identity != expected:
                raise ArgumentError(
                    "cache: this EncodedCache serves a loader over other samples: "
                    f"{differences(self._identity, expected)}; give each dataset its own cache"
                )
            self._identity, self._source = expected, source

    def get(self, key: int | str) -> tuple[bytes, Any] | None:
        """Returns (encoded bytes, label) of a sample, or (encoded bytes, index) of a video; or None."""
        return self._samples.get(key)

    def has_room(self, size: int) -> bool:
        """Whether a sample of this many bytes fits."""
        return self._bytes + size <= self.limit_bytes

    def put(self, key: int | str, data: bytes | bytearray | memoryview, label: Any) -> bool:
        """Adds a sample; returns whether the cache holds it now. Data other than bytes are copied, labels are not.

        Args:
            key: the sample's index; or a video's path.
            label: of the sample; or the video's index.

        Raises:
            LoaderError: the cache is not open, or the sample's index is out of range.
        """
        size = memoryview(data).nbytes
        if not self.has_room(size):  # saves a useless copy; checked again under the lock
            return key in self._samples
        try:
            entry = bytes(data), label
        except MemoryError:
            log.warning("the encoded cache takes no more samples: out of memory beyond %d bytes", self._bytes)
            self.limit_bytes = self._bytes
            return key in self._samples
        with self._lock:
            if self._identity is None:
                raise ArgumentError("this EncodedCache is not open: call open(count, contents) first")
            if not isinstance(key, str) and not 0 <= key < self._identity["samples"]:
                raise ArgumentError(f"index {key} is out of range for a cache of {self._identity['samples']} samples")
            if key not in self._samples:
                if not self.has_room(size):
                    return False
                self._bytes += size
                self._samples[key] = entry
        return True

    @property
    def stats(self) -> CacheStats:
        """Fill level."""
        return CacheStats(len(self._samples), self._bytes, self.limit_bytes)

    def close(self) -> None:
        """Frees all memory. The cache can be opened again, empty, for any dataset."""
        with self._lock:
            self._identity, self._source, self._samples, self._bytes = None, None, {}, 0
        release_reservation(self)

    def __reduce__(self) -> Any:
        if self._identity is not None:
            raise TypeError("an open EncodedCache holds its process's memory and does not pickle: pickle it before use")
        return type(self), (self.limit_bytes,)
