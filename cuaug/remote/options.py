"""`RemoteOptions`: how shards behind URLs are read."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cuaug.arguments import integer, seconds
from cuaug.errors import ArgumentError
from cuaug.remote.block_cache import BlockCache
from cuaug.remote.cached_reader import CachedReader
from cuaug.remote.object_store import ObjectStore
from cuaug.remote.urls import is_url

__all__ = ["RemoteOptions"]

_MIN_CACHE_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class RemoteOptions:
    """How `TarShards` and `TFRecord` read URLs, passed as `remote=`.

    Args:
        storage_options: for fsspec's file system, such as {"anon": True} or {"endpoint_url": ...} for s3. obstore gets
            the same ones where it knows them.
        protocols: protocols that the URLs may have. None: http, https, s3 and gs.
        connections: requests at a time, of one source in one process.
        timeout_seconds: limit for reading one byte range, with the repetitions of failed requests.
        readahead_bytes: memory of one iteration for bytes that are requested ahead of their batch. 0: nothing is.
        cache_dir: a local folder that keeps what was read, in blocks of 1 MiB, for later epochs and other processes. It
            is made if missing. None: nothing is kept.
        cache_bytes: limit of the files in `cache_dir`; the least recently used blocks make room. At least 64 MiB.

    Raises:
        ArgumentError: a number is out of range, or `cache_dir` is no local path.
    """

    storage_options: Mapping[str, Any] = field(default_factory=dict)
    protocols: Sequence[str] | None = None
    connections: int = 64
    timeout_seconds: float = 60.0
    readahead_bytes: int = 256 << 20
    cache_dir: str | os.PathLike[str] | None = None
    cache_bytes: int = 64 << 30

    def __post_init__(self) -> None:
        integer("connections", self.connections, 1)
        integer("readahead_bytes", self.readahead_bytes, 0)
        integer("cache_bytes", self.cache_bytes, _MIN_CACHE_BYTES)
        seconds("timeout_seconds", self.timeout_seconds)
        folder = self.cache_dir
        is_path = isinstance(folder, (str, os.PathLike)) and folder != "" and not is_url(os.fspath(folder))
        if folder is not None and not is_path:
            raise ArgumentError(f"cache_dir must be a local folder or None, not {folder!r}")

    def make_store(self) -> ObjectStore:
        """A store with these options."""
        return ObjectStore(self.storage_options, connections=self.connections, timeout_seconds=self.timeout_seconds)

    def make_reader(self, store: ObjectStore) -> ObjectStore | CachedReader:
        """Reads through the cache, if there is one, else from the store."""
        if self.cache_dir is None:
            return store
        return CachedReader(store, BlockCache(self.cache_dir, self.cache_bytes))
