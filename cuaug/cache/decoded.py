"""The decoded cache: pixels, in memory or on disk."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug._runtime.fork import fork_safe_lock
from cuaug.arguments import integer
from cuaug.cache.device import DeviceImage, DeviceStore
from cuaug.cache.disk import DiskStore
from cuaug.cache.identity import differences, identity
from cuaug.cache.limits import CacheStats, no_longer_promised, set_limit
from cuaug.cache.memory import MemoryStore
from cuaug.errors import LoaderError

__all__ = ["DecodedCache"]


class DecodedCache:
    """Keeps decoded pictures, whole or scaled down, so that later epochs read and decode nothing.

    Labels are not kept: they come from the source's `label(i)` where it has that, or else from its `read(i)`.

    Args:
        short_side: pictures with a longer short side are kept scaled down to this one, in pixels; see
            `shrunken_size`. None: in full size.
        limit_bytes: the most bytes of pixels to hold. None: half of the memory that is available when the cache is made
            (divided by LOCAL_WORLD_SIZE if that is set) and not yet claimed by this process's other caches. On disk and
            on a GPU it must be given.
        on_device: keep them in the memory of the loader's GPU, where later epochs need not send them again.
        directory: keep them in files there, made where there are none. Processes of one machine share such a cache,
            which is in the system's page cache once, as far as there is room; each process holds copies of the pictures
            of the batches in the making. It stays after them, until the directory is deleted. Each dataset, and each
            `short_side`, needs its own, also one that has moved or was made anew. Single files that are replaced need a
            new one too: sizes and times are looked at of up to 1,000 files, and not each time a picture is taken.
            The directory and its files must belong to this user or root, and no other user may write them, since pixels
            decide what a model learns. Where this user may not write them (a read-only mount, files of root), they are
            read and nothing is added. A fault that shows later, such as a full disk or a file that was cut short, logs
            one warning, and samples are decoded as without a cache.
            None: in this process's memory, which is used only as far as it is filled.

    It fills in the order in which samples are first read and never lets one go (`EncodedCache` says why). Bookkeeping
    comes on top of the limit: about 240 bytes a sample in memory; with a directory 24 there and 24 in each process.

    It may be used from many threads. A forked child sees what its parent held and adds its own, which in memory the
    parent does not see.

    Raises:
        LoaderError: arguments that do not fit.
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
            raise LoaderError(f"on_device=True and directory={directory!r} exclude each other")
        if limit_bytes is None and (on_device or directory is not None):
            where = "on the GPU" if on_device else f"in {directory!r}"
            raise LoaderError(f"limit_bytes is None: say how many bytes the cache {where} may take")
        self._lock = fork_safe_lock()
        self._identity: dict[str, Any] = {}  # of what it was opened for last
        self._store: MemoryStore | DiskStore | DeviceStore | None = None
        self.limit_bytes: int
        set_limit(self, limit_bytes)  # last: others may then ask what it holds

    def open(
        self, count: int, contents: Mapping[str, Any], *, source: object = None, device: torch.device | None = None
    ) -> None:
        """Makes it ready for a dataset. Opening it again for the same one changes nothing.

        Args:
            count: number of samples.
            contents: what pixels depend on, by name: strings, numbers, booleans or None that tell this dataset, and
                this way of decoding it, from others. `short_side` is added.
            source: kept alive with the cache, so that no other object takes its identity.
            device: the loader's.

        Raises:
            LoaderError: it is open for something else, or the directory holds a cache of something else (the message
                says what differs), is damaged, cannot be trusted or cannot be written, or it is to be on a GPU and the
                loader is not.
        """
        wanted = identity(count, {**contents, "short_side": self.short_side})
        if self.on_device:
            if device is None or device.type != "cuda":
                raise LoaderError(f"DecodedCache(on_device=True) serves loaders on a GPU, not on {device}")
            wanted["device"] = str(device)
        with self._lock:
            if self._store is None:
                self._store, self._source, self._identity = self._make_store(wanted, device), source, wanted
            elif self._identity != wanted:
                raise LoaderError(
                    "this DecodedCache serves a loader over other samples: "
                    f"{differences(self._identity, wanted)}; give each dataset a cache of its own"
                )

    def _make_store(self, wanted: dict[str, Any], device: torch.device | None) -> MemoryStore | DiskStore | DeviceStore:
        if self.on_device:
            assert device is not None
            return DeviceStore(self.limit_bytes, device)
        if self.directory is not None:
            return DiskStore(self.directory, self.limit_bytes, wanted)
        return MemoryStore(self.limit_bytes)

    def get(self, index: int) -> NDArray[np.uint8] | DeviceImage | None:
        """(h, w, 3) uint8, read-only, C-contiguous: the pixels of a sample, or None where they are not held.

        They stay valid after `close`. On a GPU they are a tensor in `DeviceImage`.
        """
        store = self._store
        return None if store is None else store.get(index)

    def put(self, index: int, pixels: NDArray[np.uint8]) -> NDArray[np.uint8] | None:
        """Takes a copy of a sample's pixels, (h, w, 3) uint8, and returns it as `get` does.

        Where the sample is already held, that is returned. None: it does not fit, or another thread is just taking it.

        Raises:
            LoaderError: the cache is not open, there is no such sample, or these are no such pixels.
        """
        store = self._store
        if store is None:
            raise LoaderError("this DecodedCache is not open: call open(count, contents) first")
        if not 0 <= index < self._identity["samples"]:
            raise LoaderError(f"there is no sample {index} in a cache of {self._identity['samples']}")
        assert not isinstance(store, DeviceStore), "what is on a GPU goes through put_from_device"
        if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size:
            raise LoaderError(f"pixels are (h, w, 3) uint8, not {pixels.shape} {pixels.dtype}")
        return store.put(index, pixels)

    def put_from_device(self, pictures: Mapping[int, torch.Tensor]) -> None:
        """Takes copies of some samples' pixels, (h, w, 3) uint8, made on the current stream of the loader's GPU."""
        if isinstance(self._store, DeviceStore):
            self._store.put(pictures)
            return
        for index, picture in pictures.items():
            self.put(index, picture.cpu().numpy())

    @property
    def stats(self) -> CacheStats:
        """What it holds. On disk: what all processes put there; bytes are the length of the file of pixels."""
        store = self._store
        return CacheStats(0, 0, self.limit_bytes) if store is None else store.stats()

    def close(self) -> None:
        """Lets go of memory and files; what is on disk stays there. It can be opened again."""
        with self._lock:
            self._store = self._source = None
        no_longer_promised(self)

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
        raise LoaderError(f"directory is a path, not {value!r}")
    if os.path.lexists(path) and not os.path.isdir(path):
        raise LoaderError(f"directory {path!r} is not a directory")
    return os.path.abspath(path)
