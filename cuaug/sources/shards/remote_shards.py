"""Samples and indexes of remote shards.

Samples come from an iteration's read-ahead, or by requests of their own. An index comes from the local cache or from
beside the shard, or is made by range requests.

An index is kept in CUAUG_CACHE_DIR or ~/.cache/cuaug, by the shard's URL, size and version. One beside the shard,
`<url>.cuaug-index`, counts if the shard's size, beginning and end are those of the local file that it was made from.
"""

from __future__ import annotations

import contextlib
import logging
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.fork import renew_after_fork
from cuaug._runtime.threads import map_in_threads
from cuaug.errors import SourceError
from cuaug.remote import Buffer, ObjectStore, Part, ReadAhead, RemoteObject
from cuaug.remote.object_store import RemoteFile
from cuaug.remote.read_ahead import RangeReader, SpansOf, read_spans
from cuaug.sources.shards import shard_index
from cuaug.sources.shards.shard_index import Index, IndexFormat, Stamp

log = logging.getLogger("cuaug")


def load_remote_indexes(
    index_format: IndexFormat, urls: Sequence[str], store: ObjectStore
) -> tuple[list[RemoteObject], list[Index]]:
    """Opens the objects, and loads their indexes, several at a time.

    Raises:
        LoaderError: an object cannot be read; also errors of `scan`.
    """
    try:
        found = map_in_threads(lambda url: _load(index_format, url, store), urls, store.connections)
    except OSError as error:
        raise SourceError(str(error)) from error
    return [remote for remote, _ in found], [index for _, index in found]


def _load(index_format: IndexFormat, url: str, store: ObjectStore) -> tuple[RemoteObject, Index]:
    remote = store.open(url)
    stamp = Stamp(remote.size, 0, zlib.crc32(f"{url}\0{remote.version}".encode()))
    index = shard_index.load_cached(index_format, url, stamp)
    if index is None:
        index = _load_beside(index_format, remote, store, stamp)
        if index is None:
            file = cast(BinaryIO, RemoteFile(store, remote))
            index = Index(stamp, *index_format.scan(url, file))
            log.info("made the index of %s", url)
        shard_index.keep_cached(index_format, url, index)
    return remote, index


def _load_beside(index_format: IndexFormat, remote: RemoteObject, store: ObjectStore, stamp: Stamp) -> Index | None:
    """Reads the index beside a shard, if there is one and it fits."""
    try:
        beside = store.open(remote.url + shard_index.SUFFIX)
        if beside.size > shard_index.max_index_bytes(remote.size):
            return None
        tail = max(0, remote.size - shard_index.TAIL_BYTES)
        ranges = [(0, min(shard_index.HEAD_BYTES, remote.size)), (tail, remote.size - tail)]
        head, end = store.read_ranges(remote, ranges)
        data = bytes(store.read(beside, 0, beside.size))
    except OSError:  # mostly: no such object. A shard that cannot be read is reported by its scan.
        return None
    checksum = zlib.crc32(end, zlib.crc32(head))
    try:
        return shard_index.unpack(
            index_format, stamp, data, lambda kept: (kept.size, kept.checksum) == (remote.size, checksum)
        )
    except ValueError as error:
        log.warning("the index of %s is damaged and is made again: %s", remote.url, error)
        return None


class RemoteShards:
    """The remote objects of a source. It pickles, without read-ahead.

    Args:
        store: for opening the objects and making their indexes.
        reader: for the samples: the store, or a cache before it.
        readahead_bytes: memory of each read-ahead; 0: none.
        objects: what `reader` reads, if `open` is not to be called.
    """

    def __init__(
        self, store: ObjectStore, reader: RangeReader, readahead_bytes: int, objects: Sequence[Any] = ()
    ) -> None:
        self._store, self._reader, self._readahead_bytes, self._objects = store, reader, readahead_bytes, objects
        self._renew()
        renew_after_fork(self._renew)

    def _renew(self) -> None:
        self._aheads: list[ReadAhead] = []  # after a fork, their threads are the parent's
        self._max_held_bytes = 0

    def __reduce__(self) -> Any:
        return type(self), (self._store, self._reader, self._readahead_bytes, self._objects)

    def open(self, index_format: IndexFormat, urls: Sequence[str]) -> list[Index]:
        """Opens the objects and loads their indexes, as `load_remote_indexes` does."""
        self._objects, indexes = load_remote_indexes(index_format, urls, self._store)
        return indexes

    @property
    def versions(self) -> list[str]:
        return [remote.version for remote in self._objects]

    def read_ahead(self, batches: Iterable[NDArray[np.int64]], spans: SpansOf) -> ReadAhead | None:
        """Starts requesting the samples of these batches; `sample` then takes them from it, until it is closed."""
        if not self._readahead_bytes:
            return None
        ahead = ReadAhead(self._reader, self._objects, batches, spans, self._readahead_bytes, self._forget)
        self._aheads.append(ahead)
        return ahead

    def _forget(self, ahead: ReadAhead) -> None:
        self.counts()
        with contextlib.suppress(ValueError):  # closed before
            self._aheads.remove(ahead)

    def counts(self) -> dict[str, int]:
        """Counts of requests, and memory of read-aheads, as `Stats.remote`."""
        aheads, store = list(self._aheads), self._store
        self._max_held_bytes = max([self._max_held_bytes, *(ahead.max_held_bytes for ahead in aheads)])
        return {
            "requests": store.requests,
            "bytes": store.received_bytes,
            "repeated": store.repeated,
            "held_bytes": sum(ahead.held_bytes for ahead in aheads),
            "max_held_bytes": self._max_held_bytes,
        }

    @property
    def reads_ahead(self) -> bool:
        return self._readahead_bytes > 0

    def arrived(self, indices: NDArray[np.int64]) -> list[list[Part] | None]:
        """Takes the samples that have all spans, and have arrived: the part with each span; None for others."""
        taken: list[list[Part] | None] = [None] * len(indices)
        for ahead in list(self._aheads):
            rest = [i for i, parts in enumerate(taken) if parts is None]
            for i, parts in zip(rest, ahead.take_arrived(indices[rest].tolist()), strict=True):
                taken[i] = parts
        return taken

    def sample(self, index: int, spans: SpansOf) -> list[Part | None]:
        """The part that holds each span of a sample; None for a span that it lacks.

        Raises:
            OSError: a request fails, or the object has changed.
        """
        for ahead in list(self._aheads):
            if (parts := ahead.take(index)) is not None:
                return parts
        return read_spans(self._reader, self._objects, spans(np.array([index]))[0])

    def read(self, shard: int, offset: int, size: int) -> Buffer:
        """Requests a byte range.

        Raises:
            OSError: as of `sample`.
        """
        return self._reader.read(self._objects[shard], offset, size)
