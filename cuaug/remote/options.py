"""`RemoteOptions`: how shards behind URLs are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cuaug.arguments import integer, seconds
from cuaug.remote.object_store import ObjectStore

__all__ = ["RemoteOptions"]


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

    Raises:
        ArgumentError: a number is out of range.
    """

    storage_options: Mapping[str, Any] = field(default_factory=dict)
    protocols: Sequence[str] | None = None
    connections: int = 16
    timeout_seconds: float = 60.0
    readahead_bytes: int = 256 << 20

    def __post_init__(self) -> None:
        integer("connections", self.connections, 1)
        integer("readahead_bytes", self.readahead_bytes, 0)
        seconds("timeout_seconds", self.timeout_seconds)

    def make_store(self) -> ObjectStore:
        """A store with these options."""
        return ObjectStore(self.storage_options, connections=self.connections, timeout_seconds=self.timeout_seconds)
