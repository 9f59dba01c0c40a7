"""Reads samples of remote shards: from an iteration's read-ahead, or by requests of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.fork import renew_after_fork
from cuaug.remote import ObjectStore, ReadAhead, RemoteObject, Span
from cuaug.remote.read_ahead import RangeReader, read_spans
from cuaug.sources._index import Index, IndexFormat
from cuaug.sources._remote_index import load_remote_indexes

__all__ = ["RemoteShards"]


class RemoteShards:
    """The remote objects of a source. It pickles, without read-ahead.

    Args:
        store: for opening the objects and making their indexes.
        reader: for the samples: the store, or a cache before it.
        readahead_bytes: memory of each read-ahead; 0: none.
    """

    def __init__(self, store: ObjectStore, reader: RangeReader, readahead_bytes: int) -> None:
        self._store, self._reader, self._readahead_bytes = store, reader, readahead_bytes
        self._objects: list[RemoteObject] = []
        self._aheads: list[_SourceReadAhead] = []
        renew_after_fork(self._renew)

    def _renew(self) -> None:
        self._aheads = []  # their threads are the parent's

    def __reduce__(self) -> Any:
        return _restore, (self._store, self._reader, self._readahead_bytes, self._objects)

    def open(self, index_format: IndexFormat, urls: Sequence[str]) -> list[Index]:
        """Opens the objects and loads their indexes, as `load_remote_indexes` does."""
        self._objects, indexes = load_remote_indexes(index_format, urls, self._store)
        return indexes

    @property
    def versions(self) -> list[str]:
        return [remote.version for remote in self._objects]

    def read_ahead(self, batches: Iterable[NDArray[np.int64]], spans: Callable[[int], list[Span]]) -> ReadAhead | None:
        """Starts requesting the samples of these batches; `sample` then takes them from it, until it is closed."""
        if not self._readahead_bytes:
            return None
        ahead = _SourceReadAhead(self._reader, self._objects, batches, spans, self._readahead_bytes)
        ahead.owner = self._aheads
        self._aheads.append(ahead)
        return ahead

    def sample(self, index: int, spans: Callable[[int], list[Span]]) -> Mapping[Span, bytes]:
        """The bytes of a sample, by span.

        Raises:
            OSError: a request fails, or the object has changed.
        """
        for ahead in list(self._aheads):
            if (data := ahead.take(index)) is not None:
                return data
        return read_spans(self._reader, self._objects, spans(index))

    def read(self, span: Span, sample: Mapping[Span, bytes]) -> bytes:
        """The bytes of a span: those of the sample, if it has them, else by a request.

        Raises:
            OSError: as of `sample`.
        """
        data = sample.get(span)
        return self._reader.read(self._objects[span.number], span.offset, span.size) if data is None else data


class _SourceReadAhead(ReadAhead):
    """A read-ahead that its source uses until it is closed."""

    owner: list[_SourceReadAhead]

    def close(self) -> None:
        with contextlib.suppress(ValueError):  # closed before
            self.owner.remove(self)
        super().close()


def _restore(
    store: ObjectStore, reader: RangeReader, readahead_bytes: int, objects: list[RemoteObject]
) -> RemoteShards:
    shards = RemoteShards(store, reader, readahead_bytes)
    shards._objects = objects
    return shards
