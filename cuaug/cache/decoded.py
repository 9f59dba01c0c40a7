"""`DecodedCache`: decoded pixels in memory, on disk or on a GPU.

`MemoryStore` keeps them in this process's memory, `DeviceStore` in a GPU's. `DeviceBlocks` is the memory of caches
there.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug._runtime.arguments import integer
from cuaug._runtime.fork import fork_safe_lock
from cuaug._runtime.migration_hints import suggests_arguments
from cuaug.cache.cache_limits import CacheStats, differences, identity, release_reservation, set_limit
from cuaug.cache.disk_store import DiskStore
from cuaug.errors import ArgumentError

log = logging.getLogger("cuaug")

# Memory is allocated in blocks of this size and filled from one end: untouched pages take no memory. A single block of
# the whole limit would fail if the limit exceeds the machine's memory.
BLOCK_BYTES = 64 << 20


class MemoryStore:
    """Keeps decoded images in large memory blocks of this process, one after the other.

    It grows block by block up to `limit_bytes`, and stops growing if memory runs out. A forked child keeps what its
    parent held; its own additions stay its own.

    `_views` maps a sample to its pixels. None marks a sample that a thread is copying: absent for `get`, present for
    `put`.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._free = np.empty(0, dtype=np.uint8)  # the rest of the last block
        self._views: dict[int, NDArray[np.uint8] | None] = {}
        self._lock = fork_safe_lock()

    def get(self, index: int) -> NDArray[np.uint8] | None:
        return self._views.get(index)

    def put(self, index: int, pixels: NDArray[np.uint8]) -> NDArray[np.uint8] | None:
        with self._lock:
            if index in self._views:
                return self._views[index]
            memory = self._allocate(pixels.nbytes)
            if memory is None:
                return None
            self._views[index] = None
        view = memory.reshape(pixels.shape)
        view[...] = pixels  # first touch of its pages: slow, so not under the lock
        view.flags.writeable = False
        self._views[index] = view
        return view

    def _allocate(self, size: int) -> NDArray[np.uint8] | None:
        available = self._limit_bytes - self._bytes
        if size > available:
            return None
        if size > len(self._free):
            try:
                self._free = np.empty(max(size, min(BLOCK_BYTES, available)), dtype=np.uint8)
            except MemoryError:
                log.warning("the decoded cache takes no more samples: out of memory beyond %d bytes", self._bytes)
                self._limit_bytes = self._bytes
                return None
        memory, self._free = self._free[:size], self._free[size:]
        self._bytes += size
        return memory

    def stats(self) -> CacheStats:
        return CacheStats(len(self._views), self._bytes, self._limit_bytes)


# Device memory is allocated in blocks of this size and filled from one end.
_BLOCK_BYTES = 64 << 20
# Alignment of each image: kernels read single bytes, but aligned ones share memory transactions.
_ALIGN_BYTES = 128


class DeviceImage:
    """A decoded image in device memory.

    Attributes:
        height, width: in pixels.
        tensor: (height, width, 3) uint8, contiguous. Do not write to it.
    """

    __slots__ = ("height", "tensor", "width")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.height, self.width = tensor.shape[:2]
        self.tensor = tensor


class DeviceBlocks:
    """Large blocks of device memory, filled one after the other.

    They grow up to `limit_bytes`, counting each piece rounded up to 128 bytes, and stop growing if the GPU runs out of
    memory.

    Args:
        name: of the cache, for a warning.

    Attributes:
        bytes: in use.
        limit_bytes: limit on these.
    """

    def __init__(self, limit_bytes: int, device: torch.device, name: str) -> None:
        self.limit_bytes, self._device, self._name = limit_bytes, device, name
        self.bytes = 0
        self._free = torch.empty(0, dtype=torch.uint8, device=device)

    def has_room(self, size: int) -> bool:
        return -(-size // _ALIGN_BYTES) * _ALIGN_BYTES <= self.limit_bytes - self.bytes

    def allocate(self, size: int) -> torch.Tensor | None:
        """(size,) uint8, from a multiple of 128 bytes on; None if it does not fit."""
        if not self.has_room(size):
            return None
        aligned_size = -(-size // _ALIGN_BYTES) * _ALIGN_BYTES
        if aligned_size > len(self._free):
            block_size = max(aligned_size, min(_BLOCK_BYTES, self.limit_bytes - self.bytes))
            try:
                self._free = torch.empty(block_size, dtype=torch.uint8, device=self._device)
            except torch.cuda.OutOfMemoryError:
                log.warning("the %s takes no more samples: GPU out of memory beyond %d bytes", self._name, self.bytes)
                self.limit_bytes = self.bytes
                return None
        memory, self._free = self._free[:size], self._free[aligned_size:]
        self.bytes += aligned_size
        return memory


class DeviceStore:
    """Keeps decoded images in `DeviceBlocks`. It belongs to one process and one GPU."""

    def __init__(self, limit_bytes: int, device: torch.device) -> None:
        self._device = device
        self._blocks = DeviceBlocks(limit_bytes, device, "decoded cache")
        self._images: dict[int, DeviceImage] = {}
        self._lock = threading.Lock()

    def get(self, index: int) -> DeviceImage | None:
        return self._images.get(index)

    def put(self, images: Mapping[int, torch.Tensor]) -> None:
        """Copies the samples' images, (h, w, 3) uint8 on the device, as far as they fit.

        It waits for the copies, so that any stream may read an image found here.
        """
        copies = {}
        with self._lock:
            for index, image in images.items():
                memory = None if index in self._images else self._blocks.allocate(image.nelement())
                if memory is not None:
                    copies[index] = memory.view(image.shape)
                    copies[index].copy_(image)
        if copies:
            torch.cuda.current_stream(self._device).synchronize()
            self._images.update((index, DeviceImage(tensor)) for index, tensor in copies.items())

    def stats(self) -> CacheStats:
        return CacheStats(len(self._images), self._blocks.bytes, self._blocks.limit_bytes)


@suggests_arguments
class DecodedCache:
    """Keeps decoded images, full size or scaled down, so that later epochs read and decode nothing.

    | stored | by | shared with | lifetime |
    |---|---|---|---|
    | in this process's memory | default | forked children | the process |
    | in files | `directory` | all processes of the machine | until the directory is deleted |
    | in the loader's GPU memory | `on_device` | no process | the process |

    The first epoch fills the cache, and nothing is evicted (see `EncodedCache`). Labels are not kept: they come from
    the source's `label(i)`, or else from its `read(i)`.

    Args:
        short_side: images with a longer short side are scaled down to this one, in pixels; see `shrunken_size`. None:
            full size.
        limit_bytes: limit on bytes of pixels. None: half of the memory that is available now (divided by
            LOCAL_WORLD_SIZE, if set) and not reserved by other caches of this process. Required on disk and on a GPU.
            Bookkeeping comes on top: about 240 bytes per sample in memory; with a directory, 24 there and 24 in each
            process.
        on_device: keep the images in the memory of the loader's GPU, so that later epochs need no transfer.
        directory: keep the images in files there; it is made if missing.

    **A cache in a directory.** The system's page cache holds it once for all processes, as far as memory allows; each
    process copies only the images of the batches in progress. Each dataset and each `short_side` needs its own
    directory, and so does a dataset that was moved or written again. Replacing single files needs a new directory too:
    the cache checks size and time of at most 1,000 files, and only when it opens.

    The directory and its files must belong to this user or root, and no other user may write them, since pixels decide
    what a model learns. If this user cannot write them (a read-only mount, files of root), the cache is only read. A
    later fault, such as a full disk or a truncated file, logs one warning, and samples are decoded as without a cache.

    Threads may share a cache. A forked child keeps what its parent held; additions to a cache in memory stay its own.

    Raises:
        LoaderError: arguments are invalid or exclude each other.
    """

    def __init__(
        self,
        short_side: int | None = None,
        *,
        limit_bytes: int | None = None,
        directory: str | os.PathLike[str] | None = None,
        on_device: bool = False,
    ) -> None:
        self.short_side = None if short_side is None else integer("short_side", short_side, 1)
        self.directory = None if directory is None else _directory(directory)
        self.on_device = on_device
        if on_device and directory is not None:
            raise ArgumentError(f"on_device=True and directory={directory!r} exclude each other")
        if limit_bytes is None and (on_device or directory is not None):
            where = "on the GPU" if on_device else f"in {directory!r}"
            raise ArgumentError(f"limit_bytes is None: the cache {where} needs a limit in bytes")
        self._lock = fork_safe_lock()
        self._identity: dict[str, Any] = {}  # of the dataset it was last opened for
        self._store: MemoryStore | DiskStore | DeviceStore | None = None
        self.limit_bytes: int
        set_limit(self, limit_bytes)  # last: from now on other caches read our `stats`

    def open(
        self, count: int, contents: Mapping[str, Any], *, source: object = None, device: torch.device | None = None
    ) -> None:
        """Prepares the cache for a dataset. Opening it again for the same dataset changes nothing.

        Args:
            count: number of samples.
            contents: values that identify the dataset and how it is decoded, by name: strings, numbers, booleans or
                None. `short_side` is added.
            source: kept alive with the cache, so that no other object gets its id.
            device: the loader's device.

        Raises:
            LoaderError: the cache, or the one in its directory, belongs to another dataset (the message has the
                differences); the directory is damaged, untrusted or cannot be written; or `on_device` is set and the
                loader is not on a GPU.
        """
        expected = identity(count, {**contents, "short_side": self.short_side})
        if self.on_device:
            if device is None or device.type != "cuda":
                raise ArgumentError(f"on_device=True needs a loader on a GPU, not on {device}")
            expected["device"] = str(device)
        with self._lock:
            if self._store is None:
                self._store, self._source, self._identity = self._make_store(expected, device), source, expected
            elif self._identity != expected:
                raise ArgumentError(
                    "cache: this DecodedCache serves a loader over other samples: "
                    f"{differences(self._identity, expected)}; give each dataset its own cache"
                )

    def _make_store(
        self, contents: dict[str, Any], device: torch.device | None
    ) -> MemoryStore | DiskStore | DeviceStore:
        if self.on_device:
            assert device is not None
            return DeviceStore(self.limit_bytes, device)
        if self.directory is not None:
            return DiskStore(self.directory, self.limit_bytes, contents)
        return MemoryStore(self.limit_bytes)

    def get(self, index: int) -> NDArray[np.uint8] | DeviceImage | None:
        """Returns a sample's pixels, (h, w, 3) uint8, read-only, C-contiguous, or None.

        They stay valid after `close`. On a GPU they are a `DeviceImage`.
        """
        store = self._store
        return None if store is None else store.get(index)

    def put(self, index: int, pixels: NDArray[np.uint8]) -> NDArray[np.uint8] | None:
        """Copies a sample's pixels, (h, w, 3) uint8, into the cache and returns the copy, as `get` does.

        If the cache already holds the sample, it returns that copy. None: the sample does not fit, or another thread
        is adding it.

        Raises:
            LoaderError: the cache is not open, the index is out of range, or the pixels have another shape or dtype.
        """
        store = self._store
        if store is None:
            raise ArgumentError("this DecodedCache is not open: call open(count, contents) first")
        if not 0 <= index < self._identity["samples"]:
            raise ArgumentError(f"index {index} is out of range for a cache of {self._identity['samples']} samples")
        assert not isinstance(store, DeviceStore), "a cache on a GPU is filled by put_from_device"
        if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size:
            raise ArgumentError(f"pixels must be (h, w, 3) uint8, not {pixels.shape} {pixels.dtype}")
        return store.put(index, pixels)

    def put_from_device(self, images: Mapping[int, torch.Tensor]) -> None:
        """Copies samples' images, (h, w, 3) uint8, from the current stream of the loader's GPU."""
        if isinstance(self._store, DeviceStore):
            self._store.put(images)
            return
        for index, image in images.items():
            self.put(index, image.cpu().numpy())

    @property
    def stats(self) -> CacheStats:
        """Fill level. On disk: of all processes together; `bytes` is the length of the pixel file."""
        store = self._store
        return CacheStats(0, 0, self.limit_bytes) if store is None else store.stats()

    def close(self) -> None:
        """Frees memory and closes files; files on disk stay. The cache can be opened again."""
        with self._lock:
            self._store = self._source = None
        release_reservation(self)

    def __reduce__(self) -> Any:
        if self._store is not None and self.directory is None:
            raise TypeError(
                "an open DecodedCache holds its process's memory and does not pickle: give it a directory, which "
                "processes share, or pickle it before use"
            )
        open_for = None if self._store is None else self._identity
        return _rebuild, (self.short_side, self.limit_bytes, self.directory, self.on_device, open_for)


def _rebuild(
    short_side: int | None,
    limit_bytes: int,
    directory: str | None,
    on_device: bool,
    open_for: dict[str, Any] | None,
) -> DecodedCache:
    cache = DecodedCache(short_side, limit_bytes=limit_bytes, directory=directory, on_device=on_device)
    if open_for is not None:
        cache.open(open_for["samples"], open_for)
    return cache


def _directory(value: Any) -> str:
    path = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(path, str) or not path:
        raise ArgumentError(f"directory must be a path, not {value!r}")
    if os.path.lexists(path) and not os.path.isdir(path):
        raise ArgumentError(f"directory {path!r} is not a directory")
    return os.path.abspath(path)
