"""`EncodedCache`: encoded files in memory, or JPEGs in a GPU's."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from cuaug._runtime.fork import fork_safe_lock
from cuaug.cache.cache_limits import CacheStats, differences, identity, release_reservation, set_limit
from cuaug.cache.decoded import DeviceBlocks
from cuaug.codec import ResidentJpeg
from cuaug.errors import ArgumentError

__all__ = ["EncodedCache"]

log = logging.getLogger("cuaug")


class EncodedCache:
    """Keeps each sample's encoded bytes and label in this process's memory, up to a limit.

    The bytes are those of `Source.read`, or of its file if it returns a path. The first epoch fills the cache, and
    nothing is evicted: with a new random order each epoch, every sample is equally far from its next use, so eviction
    can only lose.

    Of clips it keeps each video's whole file, once for all clips of it, and the video's index.

    With `on_device` it keeps JPEGs in the memory of the loader's GPU: their entropy-coded bytes, and 16 bytes per
    segment (docs/cuda.md). A later batch of them takes no reading and no upload. It holds those that our kernels
    decode; other files are read in each epoch. In the first epoch all of a JPEG is decoded, so that damage shows.

    Args:
        limit_bytes: limit on encoded bytes. Labels, and about 180 bytes of bookkeeping per sample, come on top. None:
            half of the memory that is available now (divided by LOCAL_WORLD_SIZE, if set) and not reserved by other
            caches of this process.
        on_device: keep JPEGs on the loader's GPU. `limit_bytes`, which is needed then, counts its memory.

    Threads may share it. A forked child keeps what its parent held; its own additions stay its own.

    Raises:
        LoaderError: the limit is no positive integer, or is missing with `on_device`.
    """

    def __init__(self, limit_bytes: int | None = None, *, on_device: bool = False) -> None:
        if limit_bytes is None and on_device:
            raise ArgumentError("limit_bytes: say how many bytes the cache may take on the GPU")
        self.on_device = on_device
        self._blocks: DeviceBlocks | None = None
        self._labels: dict[int, Any] = {}  # of samples on their way to the GPU
        self._lock = fork_safe_lock()
        self._identity: dict[str, Any] | None = None
        self._source: object = None
        self._samples: dict[int | str, tuple[bytes | ResidentJpeg, Any]] = {}
        self._bytes = 0
        self.limit_bytes: int
        set_limit(self, limit_bytes)  # last: from now on other caches read our `stats`

    def open(
        self, count: int, contents: Mapping[str, Any], *, source: object = None, device: torch.device | None = None
    ) -> None:
        """Prepares the cache for a dataset. Opening it again for the same dataset changes nothing.

        Args:
            count: number of samples.
            contents: values that identify the dataset, by name: strings, numbers, booleans or None.
            source: kept alive with the cache, so that no other object gets its id.
            device: the loader's.

        Raises:
            LoaderError: the cache is open for another dataset; the message has the differences. Or it is for a GPU, and
                the loader is on the CPU.
        """
        if self.on_device:
            if device is None or device.type != "cuda":
                raise ArgumentError(f"on_device=True needs a loader on a GPU, not on {str(device)!r}")
            contents = {**contents, "device": str(device)}
        expected = identity(count, contents)
        with self._lock:
            if self._identity is not None and self._identity != expected:
                raise ArgumentError(
                    "cache: this EncodedCache serves a loader over other samples: "
                    f"{differences(self._identity, expected)}; give each dataset its own cache"
                )
            self._identity, self._source = expected, source
            if device is not None and self.on_device and self._blocks is None:
                self._blocks = DeviceBlocks(self.limit_bytes, device, "encoded cache")

    def get(self, key: int | str) -> tuple[bytes | ResidentJpeg, Any] | None:
        """Returns (encoded bytes, label) of a sample, or (encoded bytes, index) of a video; or None.

        A JPEG on a GPU takes the place of encoded bytes.
        """
        return self._samples.get(key)

    def get_each(self, keys: Sequence[int]) -> list[tuple[bytes | ResidentJpeg, Any] | None]:
        """As `get`, for each key."""
        return list(map(self._samples.get, keys))

    def has_room(self, size: int) -> bool:
        """Whether a sample of this many bytes fits."""
        if self._blocks is not None:
            return self._blocks.has_room(size)
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
        if self.on_device:
            if isinstance(key, int) and key not in self._samples and self.has_room(size):
                self._labels[key] = label  # until `put_resident`
            return key in self._samples
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

    def put_resident(self, key: int, size: int, make: Callable[[torch.Tensor], ResidentJpeg]) -> None:
        """Adds a JPEG of the GPU, with the label that `put` was given.

        Args:
            size: bytes of device memory.
            make: copies to such memory, on the current stream, which the caller then waits for.
        """
        with self._lock:
            if key in self._samples or key not in self._labels or self._blocks is None:
                return
            memory, label = self._blocks.allocate(size), self._labels.pop(key)
            if memory is not None:
                self._samples[key] = make(memory), label
                self._bytes = self._blocks.bytes

    @property
    def stats(self) -> CacheStats:
        """Fill level."""
        return CacheStats(len(self._samples), self._bytes, self.limit_bytes)

    def close(self) -> None:
        """Frees all memory. The cache can be opened again, empty, for any dataset."""
        with self._lock:
            self._identity, self._source, self._samples, self._bytes = None, None, {}, 0
            self._blocks, self._labels = None, {}
        release_reservation(self)

    def __reduce__(self) -> Any:
        if self._identity is not None:
            raise TypeError("an open EncodedCache holds its process's memory and does not pickle: pickle it before use")
        return partial(type(self), on_device=self.on_device), (self.limit_bytes,)
