"""Row groups of Parquet files: opened here and remote, decoded ahead of the next batches, and cached."""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import logging
import os
import stat
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.extras import require_module
from cuaug._runtime.fork import fork_safe_lock
from cuaug.errors import DecodeError, SourceError
from cuaug.remote import ObjectStore, RemoteObject
from cuaug.remote.object_store import RemoteFile
from cuaug.remote.urls import is_url
from cuaug.sources.shards.parquet_pages import read_columns

__all__ = ["Footer", "RowGroupCache", "RowGroupReadAhead", "RowGroupReader", "make_cache", "read_footers"]

log = logging.getLogger("cuaug")

_FOOTER_THREADS = 16
# Most footers fit, so that one request reads them.
_TAIL_BYTES = 64 << 10
# The footer of 10,000 row groups of ten columns; pyarrow's parsed footer takes up to 100 times the memory.
_MAX_FOOTER_BYTES = 16 << 20
# Decoded rows for each sample above which the cache warns.
_WASTE = 4

_Key = tuple[int, tuple[str, ...]]  # a row group and its columns


class Footer(NamedTuple):
    """A file's footer.

    Attributes:
        metadata: pyarrow's FileMetaData.
        version: of a local file its size and modification time in ns.
    """

    path: str
    metadata: Any
    version: RemoteObject | tuple[int, int]


def read_footers(paths: Sequence[str], store: ObjectStore) -> list[Footer]:
    """Reads the footers of all files, 16 at a time.

    Raises:
        SourceError: a file cannot be opened, or is no Parquet file.
    """
    with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
        return list(pool.map(functools.partial(_read_footer, store=store), paths))


def _read_footer(path: str, store: ObjectStore) -> Footer:
    pq = _pyarrow_parquet()
    try:
        version = store.open(path) if is_url(path) else _local_version(path)
        with _open(path, version, store) as file:
            metadata = pq.read_metadata(io.BytesIO(_read_tail(file)))
        list(metadata.schema.to_arrow_schema().names)  # raises where names are no text
        return Footer(path, metadata, version)
    except Exception as error:  # file systems and pyarrow raise errors of many types
        raise SourceError(f"{path!r} cannot be read as a Parquet file: {type(error).__name__}: {error}") from error


def _open(path: str, version: RemoteObject | tuple[int, int], store: ObjectStore) -> Any:
    """Opens a file. Local files are not mapped into memory: a truncated map would end the process."""
    if isinstance(version, RemoteObject):
        return RemoteFile(store, version)
    return require_module("pyarrow", "parquet").OSFile(path)


def _read_tail(file: Any) -> bytes:
    """Reads the end of a file with the footer, whose size its last 8 bytes claim."""
    size = file.seek(0, os.SEEK_END)
    tail = b""
    wanted = _TAIL_BYTES
    while len(tail) < min(wanted, size):
        if wanted > _MAX_FOOTER_BYTES:
            raise ValueError(f"its footer claims {wanted:,} bytes, above the limit of {_MAX_FOOTER_BYTES:,}")
        file.seek(-min(wanted, size), os.SEEK_END)
        tail = file.read(min(wanted, size))
        wanted = int.from_bytes(tail[-8:-4], "little") + 8
    return tail


def _local_version(path: str) -> tuple[int, int]:
    """Size and modification time of a regular file: pyarrow would wait at a pipe."""
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", path)
    return status.st_size, status.st_mtime_ns


def _pyarrow_parquet() -> Any:
    return require_module("pyarrow.parquet", "parquet")


class RowGroupReader:
    """Reads columns of one row group; it pickles, and any number of threads may call it.

    Args:
        groups: (footer, number of the row group in its file) of each row group.
        store: reads remote files.
        max_bytes: of the decoded columns of a row group.
    """

    def __init__(self, groups: Sequence[tuple[Footer, int]], store: ObjectStore, max_bytes: int) -> None:
        self._groups, self._store, self._max_bytes = groups, store, max_bytes

    def rows(self, group: int) -> int:
        """Rows of a row group."""
        footer, number = self._groups[group]
        return int(footer.metadata.row_group(number).num_rows)

    def size(self, group: int) -> int:
        """Bytes of a row group with all its columns, as the footer claims them; dictionaries may decode to more."""
        footer, number = self._groups[group]
        return int(footer.metadata.row_group(number).total_byte_size)

    def __call__(self, group: int, columns: Sequence[str]) -> Any:
        """Reads columns as a pyarrow Table.

        Raises:
            DecodeError: the row group is damaged.
            OSError: the file cannot be read, or has changed since its footer was read.
        """
        footer, number = self._groups[group]
        arrow, is_remote = require_module("pyarrow", "parquet"), is_url(footer.path)
        try:
            self._check_version(footer)
            with _open(footer.path, footer.version, self._store) as file:
                table = read_columns(file, footer.metadata, number, columns, self._max_bytes)
            self._check_version(footer)
        except DecodeError as error:
            raise DecodeError(f"row group {number} of {footer.path!r}: {error.cause}") from error
        except arrow.ArrowException as error:
            self._check_version(footer)  # the cause, if the file has changed
            raise DecodeError(f"row group {number} of {footer.path!r} is damaged: {error}") from error
        except OSError as error:
            # pyarrow reports damaged pages as OSError, without an error number.
            if is_remote or error.errno is not None or isinstance(error, _ChangedError):
                raise
            raise DecodeError(f"row group {number} of {footer.path!r} is damaged: {error}") from error
        if table.num_rows != self.rows(group):
            raise DecodeError(
                f"row group {number} of {footer.path!r} is damaged: it holds {table.num_rows} rows, "
                f"the footer claims {self.rows(group)}"
            )
        return table

    def _check_version(self, footer: Footer) -> None:
        """Checks a local file; each request for a remote one does."""
        if not isinstance(footer.version, RemoteObject) and _local_version(footer.path) != footer.version:
            raise _ChangedError(f"{footer.path!r} has changed since its footer was read: make the source again")


class _ChangedError(OSError):
    """The file has changed."""


class RowGroupCache:
    """Decoded row groups, least recently used, shared by the threads of a process.

    Args:
        read: (group, columns) -> table.
        group_count: number of row groups in the source.
        max_bytes: of all tables kept; one table may exceed it. Pinned row groups take at most half of it.

    Attributes:
        decoded_rows, samples: rows that were decoded for samples, and rows that were asked for.
        pinned_bytes, max_pinned_bytes: of pinned row groups, now and at most.
    """

    def __init__(self, read: RowGroupReader, group_count: int, max_bytes: int) -> None:
        self._read, self._group_count, self._max_bytes = read, group_count, max_bytes
        self._lock = fork_safe_lock()
        self._tables: OrderedDict[_Key, Future[Any]] = OrderedDict()
        self._bytes = self._loads = 0
        self._unread: dict[_Key, int] = {}  # rows of tables that were read ahead, and that no sample has asked for
        self._pins: dict[int, list[int]] = {}  # [number of pins, bytes] of a row group
        self.decoded_rows = self.samples = self.pinned_bytes = self.max_pinned_bytes = 0
        self._has_warned = False

    def get(self, group: int, columns: tuple[str, ...]) -> Any:
        """The table of these columns; threads that ask for one row group at the same time decode it once."""
        key = group, columns
        while True:
            with self._lock:
                pending, is_owner = self._tables.get(key), False
                if pending is None:
                    pending, is_owner = self._tables.setdefault(key, Future()), True
                self._tables.move_to_end(key)
            if is_owner:
                return self._load(key, pending)
            table = pending.result()
            if table is not None:  # None: the other thread failed, and this one finds its own error
                with self._lock:
                    self._count(self._unread.pop(key, 0))
                return table

    def peek(self, group: int, columns: tuple[str, ...]) -> Any | None:
        """The table, if it is decoded already."""
        pending = self._tables.get((group, columns))
        return pending.result() if pending is not None and pending.done() else None

    def pin(self, group: int) -> bool:
        """Keeps a row group longer than others, once it is decoded. Returns False, and does nothing, without room."""
        with self._lock:
            if group not in self._pins:
                size = self._read.size(group)
                if self.pinned_bytes + size > self._max_bytes // 2:
                    return False
                self._pins[group] = [0, 0]
                self._set_pinned_bytes(group, size)
            self._pins[group][0] += 1
            return True

    def unpin(self, group: int) -> None:
        """Undoes one `pin`."""
        with self._lock:
            self._pins[group][0] -= 1
            if not self._pins[group][0]:
                self._set_pinned_bytes(group, 0)
                del self._pins[group]

    def prefetch(self, group: int, columns: tuple[str, ...]) -> None:
        """Decodes a row group ahead of its samples; an error is left for `get` to find."""
        key, size = (group, columns), self._read.size(group)
        with self._lock:
            if key in self._tables:
                return
            pending = self._tables[key] = Future()
            self._bytes += size  # makes the room now, so that what is being decoded counts
            self._evict(key, pinned=False)
        with contextlib.suppress(Exception):
            self._load(key, pending, reserved=size)

    def _load(self, key: _Key, pending: Future[Any], reserved: int | None = None) -> Any:
        """Decodes a table, for a sample or, with the bytes that are reserved for it, ahead of samples."""
        try:
            table = self._read(*key)
        except BaseException:
            with self._lock:
                self._bytes -= reserved or 0
                del self._tables[key]
            pending.set_result(None)
            raise
        with self._lock:
            self._bytes += table.nbytes - (reserved or 0)
            if reserved is None:
                self._count(table.num_rows)
            else:
                self._unread[key] = table.num_rows
                if key[0] in self._pins:
                    self._set_pinned_bytes(key[0], table.nbytes)
            pending.set_result(table)
            self._evict(key, pinned=False)
            self._evict(key, pinned=True)
        return table

    def _evict(self, kept: _Key, *, pinned: bool) -> None:
        """Drops tables of row groups that are pinned, or not, down to the limit. The caller holds the lock."""
        for key, done in list(self._tables.items()):
            if self._bytes <= self._max_bytes:
                break
            if key != kept and done.done() and (key[0] in self._pins) == pinned:
                del self._tables[key]
                self._unread.pop(key, None)
                self._bytes -= done.result().nbytes

    def _set_pinned_bytes(self, group: int, size: int) -> None:
        self.pinned_bytes += size - self._pins[group][1]
        self.max_pinned_bytes = max(self.max_pinned_bytes, self.pinned_bytes)
        self._pins[group][1] = size

    def _count(self, decoded_rows: int) -> None:
        """Counts a sample, and the rows that were decoded for it. The caller holds the lock."""
        self.samples += 1
        self.decoded_rows += decoded_rows
        self._loads += decoded_rows > 0
        is_wasteful = self._loads > max(32, self._group_count) and self.decoded_rows > _WASTE * self.samples
        if is_wasteful and not self._has_warned:
            self._has_warned = True
            log.warning(
                "Parquet: %d rows were decoded for %d samples, since row groups are decoded whole and %d bytes hold "
                "too few of them: use cuaug.ShardSampler(source.shard_sizes, window), raise cache_bytes, or write "
                "smaller row groups",
                *(self.decoded_rows, self.samples, self._max_bytes),
            )


def make_cache(read: RowGroupReader, group_count: int, max_bytes: int) -> Callable[[], RowGroupCache]:
    """A function that makes a cache, and pickles."""
    return functools.partial(RowGroupCache, read, group_count, max_bytes)


_THREADS = 8
# `close` waits this long for row groups that are being read; their threads end with them.
_CLOSE_SECONDS = 1.0


class RowGroupReadAhead:
    """Asks the cache for row groups in the order in which batches need them.

    A row group is pinned in the cache from its request until the last planned batch that needs it is finished. Requests
    wait while the cache has no room for another pinned one; samples never wait for them.

    Args:
        columns: that samples read.
        batches: indices of the samples of each batch, in order.
        groups_of: the distinct row groups of samples, in the order of need.

    `close` it: it has threads.
    """

    def __init__(
        self,
        cache: RowGroupCache,
        columns: tuple[str, ...],
        batches: Iterable[NDArray[np.int64]],
        groups_of: Callable[[NDArray[np.int64]], list[int]],
    ) -> None:
        self._cache, self._columns, self._groups_of = cache, columns, groups_of
        self._batches: Iterator[tuple[int, NDArray[np.int64]]] = enumerate(batches)
        self._number, self._groups = -1, deque[int]()  # the batch that is planned, and its groups that are not
        self._last_batch: dict[int, int] = {}  # of each pinned group, among the planned batches
        self._finished = 0
        self._is_closed = False
        self._lock = threading.Lock()
        self._has_room = threading.Condition(self._lock)
        self._threads = [
            threading.Thread(target=self._work, name=f"cuaug-parquet-{i}", daemon=True) for i in range(_THREADS)
        ]
        try:
            for thread in self._threads:
                thread.start()
        except BaseException:  # a Ctrl-C, or too many threads
            self._end()
            raise

    def finish(self, batches: int) -> None:
        """Unpins the row groups that only the first `batches` batches need."""
        with self._lock:
            self._finished = batches
            for group in [group for group, last in self._last_batch.items() if last < batches]:
                del self._last_batch[group]
                self._cache.unpin(group)
            self._has_room.notify_all()

    def close(self) -> None:
        """Ends the threads, and unpins all row groups; the cache keeps them while it has room."""
        if sys.is_finalizing():  # the interpreter has ended the threads, perhaps with the lock
            return
        self._end()
        end = time.monotonic() + _CLOSE_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _end(self) -> None:
        with self._lock:
            self._is_closed = True
            for group in self._last_batch:
                self._cache.unpin(group)
            self._last_batch.clear()
            self._has_room.notify_all()

    def _work(self) -> None:
        while (group := self._next()) is not None:
            self._cache.prefetch(group, self._columns)

    def _next(self) -> int | None:
        """Pins the next row group once there is room for it; None at the end."""
        with self._lock:
            while not self._is_closed:
                if not self._groups or self._number < self._finished:
                    entry = next(self._batches, None)
                    if entry is None:
                        return None
                    self._number, self._groups = entry[0], deque(self._groups_of(entry[1]))
                elif self._groups[0] in self._last_batch:
                    self._last_batch[self._groups.popleft()] = self._number
                elif self._cache.pin(self._groups[0]):
                    self._last_batch[self._groups[0]] = self._number
                    return self._groups.popleft()
                else:
                    self._has_room.wait()
            return None
