"""Row groups of Parquet files: opened here and remote, decoded, and cached."""

from __future__ import annotations

import errno
import functools
import io
import logging
import os
import stat
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from cuaug._runtime.extras import require_module
from cuaug._runtime.fork import PerProcess, fork_safe_lock
from cuaug._runtime.threads import map_in_threads
from cuaug.errors import DecodeError, SourceError
from cuaug.remote import ObjectStore, RemoteObject
from cuaug.remote.object_store import RemoteFile
from cuaug.remote.urls import is_url
from cuaug.sources.shards.parquet_pages import read_columns

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
    return map_in_threads(functools.partial(_read_footer, store=store), paths, _FOOTER_THREADS)


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
        max_bytes: of all tables kept; one table may exceed it.

    Attributes:
        decoded_rows, samples: rows that were decoded for samples, and rows that were asked for.
    """

    def __init__(self, read: RowGroupReader, group_count: int, max_bytes: int) -> None:
        self._read, self._group_count, self._max_bytes = read, group_count, max_bytes
        self._lock = fork_safe_lock()
        self._tables: OrderedDict[_Key, Future[Any]] = OrderedDict()
        self._bytes = self._loads = 0
        self._unread: dict[_Key, int] = {}  # rows of decoded tables that no sample has been read from
        self.decoded_rows = self.samples = 0
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
            if (table := pending.result()) is not None:  # None: the other thread failed; this one finds its own error
                return table

    def peek(self, group: int, columns: tuple[str, ...]) -> Any | None:
        """The table, if it is decoded already."""
        pending = self._tables.get((group, columns))
        return pending.result() if pending is not None and pending.done() else None

    def _load(self, key: _Key, pending: Future[Any]) -> Any:
        try:
            table = self._read(*key)
        except BaseException:
            with self._lock:
                del self._tables[key]
            pending.set_result(None)
            raise
        with self._lock:
            self._bytes += table.nbytes
            self._unread[key] = table.num_rows
            pending.set_result(table)
            for other, done in list(self._tables.items()):
                if self._bytes <= self._max_bytes:
                    break
                if other != key and done.done():
                    del self._tables[other]
                    self._bytes -= done.result().nbytes
        return table

    def count(self, group: int, columns: tuple[str, ...]) -> None:
        """Counts a sample that was read from a table, and the table's rows, once for each time it was decoded."""
        with self._lock:
            rows = self._unread.pop((group, columns), 0)
            self.samples += 1
            self.decoded_rows += rows
            self._loads += rows > 0
            is_wasteful = self._loads > max(32, self._group_count) and self.decoded_rows > _WASTE * self.samples
            is_first, self._has_warned = is_wasteful and not self._has_warned, self._has_warned or is_wasteful
        if is_first:
            log.warning(
                "Parquet: %d rows were decoded for %d samples, since row groups are decoded whole and %d bytes hold "
                "too few of them: use cuaug.ShardSampler(source.shard_sizes, window), raise cache_bytes, or write "
                "smaller row groups",
                *(self.decoded_rows, self.samples, self._max_bytes),
            )


class RowGroupTables:
    """Reads row groups through a cache, as `ReadAhead` reads byte ranges: an object is a row group, its data a table.

    Args:
        cache: this process's.
        columns: of the tables.
    """

    connections = 8  # row groups at a time; each makes several requests

    def __init__(self, cache: PerProcess[RowGroupCache], columns: tuple[str, ...]) -> None:
        self._cache, self._columns = cache, columns

    def read(self, group: int, offset: int, size: int, stop: threading.Event | None = None) -> Any:
        """The table of a whole row group.

        Raises:
            DecodeError, OSError: of `RowGroupReader`.
        """
        return self._cache.get().get(group, self._columns)
