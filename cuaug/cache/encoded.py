"""`EncodedCache`: JPEGs in a GPU's memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from cuaug._runtime.arguments import limit
from cuaug._runtime.fork import fork_safe_lock
from cuaug._runtime.migration_hints import suggests_arguments
from cuaug.cache.cache_limits import CacheStats, differences, identity
from cuaug.cache.decoded import DeviceBlocks
from cuaug.codec import ResidentJpeg
from cuaug.errors import ArgumentError


@suggests_arguments
class EncodedCache:
    """Keeps JPEGs, still encoded, and their labels in the memory of the loader's GPU, up to a limit.

    It holds their entropy-coded bytes, and 16 bytes per segment (docs/cuda.md). A later batch of them takes no reading
    and no upload. Only JPEGs that our kernels decode are kept; other files are read in each epoch. In the first epoch
    all of a JPEG is decoded, so that damage shows.

    The first epoch fills the cache, and nothing is evicted: with a new random order each epoch, every sample is equally
    far from its next use, so eviction can only lose.

    In main memory there is no such cache: the operating system keeps files that were read, as far as memory is free.

    Args:
        limit_bytes: limit on bytes of the GPU's memory. Labels, and about 180 bytes of bookkeeping per sample, take
            main memory.

    Threads may share it.

    Raises:
        LoaderError: the limit is no positive integer.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._blocks: DeviceBlocks | None = None
        self._labels: dict[int, Any] = {}  # of samples on their way to the GPU
        self._lock = fork_safe_lock()
        self._identity: dict[str, Any] | None = None
        self._source: object = None
        self._samples: dict[int, tuple[ResidentJpeg, Any]] = {}
        self._bytes = 0
        self.limit_bytes = limit("limit_bytes", limit_bytes, 1)

    def open(self, count: int, contents: Mapping[str, Any], *, source: object = None, device: torch.device) -> None:
        """Prepares the cache for a dataset. Opening it again for the same dataset changes nothing.

        Args:
            count: number of samples.
            contents: values that identify the dataset, by name: strings, numbers, booleans or None.
            source: kept alive with the cache, so that no other object gets its id.
            device: the loader's.

        Raises:
            LoaderError: the cache is open for another dataset; the message has the differences. Or the loader is on the
                CPU.
        """
        if device.type != "cuda":
            raise ArgumentError(
                f"cache: EncodedCache keeps JPEGs in a GPU's memory, and the loader is on {str(device)!r}: leave it "
                "out, since the system keeps files that were read in free memory; or use cache='decoded'"
            )
        expected = identity(count, {**contents, "device": str(device)})
        with self._lock:
            if self._identity is not None and self._identity != expected:
                raise ArgumentError(
                    "cache: this EncodedCache serves a loader over other samples: "
                    f"{differences(self._identity, expected)}; give each dataset its own cache"
                )
            self._identity, self._source = expected, source
            if self._blocks is None:
                self._blocks = DeviceBlocks(self.limit_bytes, device, "encoded cache")

    def get(self, index: int) -> tuple[ResidentJpeg, Any] | None:
        """Returns (JPEG, label) of a sample, or None."""
        return self._samples.get(index)

    def get_each(self, indices: Sequence[int]) -> list[tuple[ResidentJpeg, Any] | None]:
        """As `get`, for each index."""
        return list(map(self._samples.get, indices))

    def put_label(self, index: int, size: int, label: Any) -> None:
        """Keeps the label of a JPEG of this many bytes, if it fits, until `put_residents` has the JPEG."""
        if self._blocks is not None and index not in self._samples and self._blocks.has_room(size):
            self._labels[index] = label

    def put_residents(
        self, images: Mapping[int, tuple[int, Callable[[torch.Tensor], ResidentJpeg]]], wait: Callable[[], object]
    ) -> None:
        """Adds JPEGs of the GPU, with the labels that `put_label` was given, as far as they fit.

        Args:
            images: for each index the bytes of device memory, and a function that copies to such memory, on the current
                stream.
            wait: waits for these copies, so that any stream may read a JPEG found here.
        """
        made: dict[int, tuple[ResidentJpeg, Any]] = {}
        with self._lock:
            for key, (size, make) in images.items():
                if key not in self._labels or self._blocks is None:
                    continue
                label = self._labels.pop(key)  # another loader may have added it meanwhile
                memory = None if key in self._samples else self._blocks.allocate(size)
                if memory is not None:
                    made[key] = make(memory), label
        if made:
            wait()
            with self._lock:
                if self._blocks is not None:  # else the cache was closed meanwhile
                    self._samples.update(made)
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

    def __reduce__(self) -> Any:
        if self._identity is not None:
            raise TypeError("an open EncodedCache holds a GPU's memory and does not pickle: pickle it before use")
        return type(self), (self.limit_bytes,)
