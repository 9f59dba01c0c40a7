"""Indexes of remote shards: read from the local cache or from beside the shard, or made by range requests.

An index is kept in CUAUG_CACHE_DIR or ~/.cache/cuaug, by the shard's URL, size and version. One beside the shard,
`<url>.cuaug-index`, counts if the shard's size, beginning and end are those of the local file that it was made from.
"""

from __future__ import annotations

import logging
import queue
import threading
import zlib
from collections.abc import Sequence
from typing import BinaryIO, cast

from cuaug.errors import SourceError
from cuaug.remote import ObjectStore, RemoteObject
from cuaug.remote.file import RemoteFile
from cuaug.sources import _index
from cuaug.sources._index import Index, IndexFormat, Stamp

__all__ = ["load_remote_indexes"]

log = logging.getLogger("cuaug")


def load_remote_indexes(
    index_format: IndexFormat, urls: Sequence[str], store: ObjectStore
) -> tuple[list[RemoteObject], list[Index]]:
    """Opens the objects, and loads their indexes, several at a time.

    Raises:
        LoaderError: an object cannot be read; also errors of `scan`.
    """
    found: dict[int, tuple[RemoteObject, Index]] = {}
    errors: list[BaseException] = []
    pending: queue.SimpleQueue[int] = queue.SimpleQueue()
    for i in range(len(urls)):
        pending.put(i)

    def work() -> None:
        while not errors:
            try:
                i = pending.get_nowait()
            except queue.Empty:
                return
            try:
                found[i] = _load(index_format, urls[i], store)
            except OSError as error:
                errors.append(SourceError(str(error)))
            except BaseException as error:
                errors.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(store.connections, len(urls)) - 1)]
    for thread in threads:
        thread.start()
    try:
        work()
        for thread in threads:
            thread.join()
    except BaseException as error:  # a Ctrl-C
        errors.append(error)
        raise
    if errors:
        raise errors[0]
    return [found[i][0] for i in range(len(urls))], [found[i][1] for i in range(len(urls))]


def _load(index_format: IndexFormat, url: str, store: ObjectStore) -> tuple[RemoteObject, Index]:
    remote = store.open(url)
    stamp = Stamp(remote.size, 0, zlib.crc32(f"{url}\0{remote.version}".encode()))
    index = _index.load_cached(index_format, url, stamp)
    if index is None:
        index = _load_beside(index_format, remote, store, stamp)
        if index is None:
            file = cast(BinaryIO, RemoteFile(store, remote))
            index = Index(stamp, *index_format.scan(url, file))
            log.info("made the index of %s", url)
        _index.keep_cached(index_format, url, index)
    return remote, index


def _load_beside(index_format: IndexFormat, remote: RemoteObject, store: ObjectStore, stamp: Stamp) -> Index | None:
    """Reads the index beside a shard, if there is one and it fits."""
    try:
        beside = store.open(remote.url + _index.SUFFIX)
        if beside.size > _index.max_index_bytes(remote.size):
            return None
        tail = max(0, remote.size - _index.TAIL_BYTES)
        ranges = [(0, min(_index.HEAD_BYTES, remote.size)), (tail, remote.size - tail)]
        head, end = store.read_ranges(remote, ranges)
        data = bytes(store.read(beside, 0, beside.size))
    except OSError:  # mostly: no such object. A shard that cannot be read is reported by its scan.
        return None
    checksum = zlib.crc32(end, zlib.crc32(head))
    try:
        return _index.unpack(
            index_format, stamp, data, lambda kept: (kept.size, kept.checksum) == (remote.size, checksum)
        )
    except ValueError as error:
        log.warning("the index of %s is damaged and is made again: %s", remote.url, error)
        return None
