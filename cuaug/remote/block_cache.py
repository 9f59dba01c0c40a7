"""Blocks of remote objects in a local folder, shared by the processes of a machine and kept after they end.

| file | content |
|---|---|
| <digest of URL, size and version>-<number>.block | bytes, CRC-32 of each page of 64 KiB, CRC-32 of name and these |
| usage | uint64 length of all blocks, CRC-32 of it; flock for changing it |
| evicting | flock of the one process that removes blocks |

A block gets its name when it is complete. A process that is killed leaves at most a temporary file, which is never read
and is removed by an eviction ten minutes later.

A writer adds the block's length to `usage` before it writes. The folder is only scanned when `usage` passes the limit,
or is missing or damaged. The scan then removes the least recently used blocks down to nine tenths of the limit. Other
processes neither wait for it nor write meanwhile. A block's modification time says when it was last used.

`CachedReader` reads byte ranges of remote objects through this cache. `RemoteOptions` says how shards behind URLs are
read.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import threading
import time
import weakref
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import Any

from cuaug._runtime.arguments import integer, seconds
from cuaug._runtime.disk import TEMPORARY_PREFIX, Directory
from cuaug._runtime.fork import fork_safe_lock, renew_after_fork
from cuaug._runtime.migration_hints import suggests_arguments
from cuaug.errors import ArgumentError
from cuaug.remote.object_store import ObjectStore
from cuaug.remote.transport import Buffer, RemoteObject
from cuaug.remote.urls import is_url

log = logging.getLogger("cuaug")

# A request of 1 MiB takes a connection of object storage about 10 ms, less than an answer's latency of 20 to 80 ms.
# Blocks of 4 MiB would take 40 ms, and with full shuffle transfer 40 times an image of 100 KiB.
_BLOCK_BYTES = 1 << 20
# Reading one image then verifies its pages alone, not 1 MiB, which takes a CPU about 1 ms.
_PAGE_BYTES = 64 << 10
# Times of use are noted to this precision, since each note makes the file system write.
_TOUCH_SECONDS = 10
_ORPHAN_SECONDS = 600
_EVICTED_DIVISOR = 10

_BLOCK_NAME = re.compile(r"[0-9a-f]{32}-\d+\.block")
_TEMPORARY_NAME = re.compile(re.escape(TEMPORARY_PREFIX) + "[0-9a-f]{16}")
_USAGE = Struct("<QI")


class BlockCache:
    """Keeps blocks of remote objects in files of `directory`.

    The lengths of its files stay within `limit_bytes`, and one block more for each thread that writes during an
    eviction. Faults cost only time: a directory or a file that cannot be written ends the writing, a block that is
    damaged or cannot be read is missing, and the first of each is logged.

    Args:
        directory: made if missing, accessible to this user alone.
        block_bytes: bytes of each block but the object's last.

    Attributes:
        is_writable: whether further blocks are kept.
        damaged: blocks whose length or checksums were wrong, or that could not be read.
        dropped: blocks that were not kept: while others were removed, after the writing has ended, or of objects
            without a version.
    """

    def __init__(self, directory: str | os.PathLike[str], limit_bytes: int, *, block_bytes: int = _BLOCK_BYTES) -> None:
        self.path, self.limit_bytes, self.block_bytes = os.path.abspath(directory), limit_bytes, block_bytes
        self.damaged = self.dropped = 0
        self.is_writable = True
        self._lock = fork_safe_lock()
        self._directory: Directory | None = None
        try:
            self._directory = Directory(self.path, make_mode=0o700)
        except OSError as error:
            self._stop_writing(error)
        else:
            weakref.finalize(self, os.close, self._directory.fd).atexit = False  # threads may use it at exit

    def __reduce__(self) -> Any:
        return _make, (self.path, self.limit_bytes, self.block_bytes)

    def read(self, remote: RemoteObject, number: int, start: int, end: int) -> bytes | None:
        """Reads the bytes from `start` to `end` of a block; None if the block is missing or damaged."""
        if self._directory is None:
            return None
        name, size = self._name(remote, number), self._size(remote, number)
        first, last = start // _PAGE_BYTES, -(-end // _PAGE_BYTES)
        try:
            file = self._directory.open(name, os.O_RDONLY)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._count_damaged(error)
            return None
        try:
            status = os.fstat(file)
            trailer = os.pread(file, _trailer_bytes(size), size)
            data = os.pread(file, min(size, last * _PAGE_BYTES) - first * _PAGE_BYTES, first * _PAGE_BYTES)
            is_whole = status.st_size == size + _trailer_bytes(size) and _checksum(name, trailer[:-4]) == trailer[-4:]
            if not is_whole or _page_checksums(data) != trailer[4 * first : 4 * last]:
                self._count_damaged(f"{os.path.join(self.path, name)!r} is damaged")
                return None
            if time.time() - status.st_mtime > _TOUCH_SECONDS:
                with contextlib.suppress(OSError):  # of a read-only folder, in which nothing is evicted either
                    os.utime(file)
        except OSError as error:
            self._count_damaged(error)
            return None
        finally:
            os.close(file)
        return data[start - first * _PAGE_BYTES : end - first * _PAGE_BYTES]

    def write(self, remote: RemoteObject, number: int, data: bytes | memoryview) -> None:
        """Keeps a block, if there is room or room can be made."""
        name, size = self._name(remote, number), self._size(remote, number)
        if self._directory is not None and self.is_writable:
            try:
                if self._reserve(size + _trailer_bytes(size)):
                    checksums = _page_checksums(data)
                    with self._directory.atomic_write(name, mode=0o600, is_durable=False) as file:
                        file.write(data)
                        file.write(checksums + _checksum(name, checksums))
                    return
            except OSError as error:  # the next eviction corrects the usage
                self._stop_writing(error)
        self.count_dropped(1)

    def count_dropped(self, blocks: int) -> None:
        with self._lock:
            self.dropped += blocks

    def _size(self, remote: RemoteObject, number: int) -> int:
        return min(self.block_bytes, remote.size - number * self.block_bytes)

    def _name(self, remote: RemoteObject, number: int) -> str:
        identity = f"1\0{self.block_bytes}\0{remote.url}\0{remote.size}\0{remote.version}"
        return f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}-{number}.block"

    def _count_damaged(self, reason: OSError | str) -> None:
        with self._lock:
            self.damaged += 1
            is_first = self.damaged == 1
        if is_first:
            log.warning("a cached block of a remote shard is requested again, as further ones will be: %s", reason)

    def _stop_writing(self, error: OSError) -> None:
        with self._lock:
            is_first, self.is_writable = self.is_writable, False
        if is_first:
            log.warning("remote shards are read without keeping further blocks in %r: %s", self.path, error)

    # --- the limit ---------------------------------------------------------------------------------------------------

    def _reserve(self, size: int) -> bool:
        """Adds a file's length to the usage; removes other files if needed. Returns whether there is room."""
        if self._add(size):
            return True
        with self._open_directory.locked("evicting", wait=False) as file:
            if file is None:
                return False
            if not self._add(size):  # another process may just have removed some
                self._evict(size)
                return self._add(size)
        return True

    def _add(self, size: int, *, is_forced: bool = False) -> bool:
        """Changes the usage by `size`, within the limit unless forced."""
        with self._open_directory.locked("usage") as file:
            assert file is not None
            total = max(0, self._usage(file) + size)
            if total > self.limit_bytes and not is_forced:
                return False
            _write_usage(file, total)
            return True

    def _usage(self, file: int) -> int:
        """Reads the locked file; counts the folder's files and writes it, if it is new or damaged."""
        record = os.pread(file, _USAGE.size, 0)
        if len(record) == _USAGE.size:
            total, checksum = _USAGE.unpack(record)
            if zlib.crc32(record[:8]) == checksum:
                return int(total)
        total = sum(length for _, length, _ in self._scan())
        _write_usage(file, total)
        return total

    def _evict(self, size: int) -> None:
        """Removes the least recently used blocks, and makes room for `size` bytes."""
        with self._open_directory.locked("usage") as file:
            assert file is not None
            before = self._usage(file)
        files = sorted(self._scan())
        total = sum(length for _, length, _ in files)
        target = self.limit_bytes - max(size, self.limit_bytes // _EVICTED_DIVISOR)
        orphaned_before = time.time() - _ORPHAN_SECONDS
        for used, length, name in files:
            is_temporary = name.startswith(".")
            if used < orphaned_before if is_temporary else total > target:
                self._open_directory.remove(name)
                total -= length
        self._add(total - before, is_forced=True)  # a difference: others may have changed the usage meanwhile

    def _scan(self) -> Iterator[tuple[float, int, str]]:
        """Yields time of use, length and name of each block and temporary file."""
        directory = self._open_directory
        for name in directory.names():
            if _BLOCK_NAME.fullmatch(name) or _TEMPORARY_NAME.fullmatch(name):
                with contextlib.suppress(FileNotFoundError):  # a temporary file gets its name
                    status = os.stat(name, dir_fd=directory.fd, follow_symlinks=False)
                    yield status.st_mtime, status.st_size, name

    @property
    def _open_directory(self) -> Directory:
        assert self._directory is not None
        return self._directory


def _write_usage(file: int, total: int) -> None:
    packed = total.to_bytes(8, "little")
    os.pwrite(file, _USAGE.pack(total, zlib.crc32(packed)), 0)


def _trailer_bytes(size: int) -> int:
    return 4 * (-(-size // _PAGE_BYTES) + 1)


def _page_checksums(data: bytes | memoryview) -> bytes:
    view = memoryview(data)
    return b"".join(
        zlib.crc32(view[at : at + _PAGE_BYTES]).to_bytes(4, "little") for at in range(0, len(view), _PAGE_BYTES)
    )


def _checksum(name: str, checksums: bytes) -> bytes:
    """Checksum of the page checksums; it covers the name, so that a renamed file is no other block."""
    return zlib.crc32(checksums, zlib.crc32(name.encode())).to_bytes(4, "little")


def _make(path: str, limit_bytes: int, block_bytes: int) -> BlockCache:
    return BlockCache(path, limit_bytes, block_bytes=block_bytes)


_POLL_SECONDS = 0.1


class CachedReader:
    """Reads as `ObjectStore.read` does, but requests whole blocks and keeps them in a cache.

    Adjacent missing blocks make one request. Threads of one process that need the same block wait for one request;
    processes do not wait for each other. Objects without a version are requested each time, since nothing tells whether
    a kept block is still theirs. Once the cache keeps no further blocks, missing ranges alone are requested.

    It pickles.
    """

    def __init__(self, store: ObjectStore, cache: BlockCache) -> None:
        self._store, self.cache = store, cache
        self._renew()
        renew_after_fork(self._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()
        self._has_warned = False
        self._requested: dict[tuple[RemoteObject, int], threading.Event] = {}

    def __reduce__(self) -> Any:
        return type(self), (self._store, self.cache)

    @property
    def connections(self) -> int:
        return self._store.connections

    def read(self, remote: RemoteObject, offset: int, size: int, stop: threading.Event | None = None) -> Buffer:
        """Reads one byte range in the calling thread.

        Args:
            stop: ends the wait before a repetition, and for another thread's request.

        Raises:
            ChangedObjectError, OSError: as of `ObjectStore.read`.
        """
        if not size or not 0 <= offset <= offset + size <= remote.size:
            return self._store.read(remote, offset, size, stop)
        if not remote.version:
            self._count_unversioned(remote)
            return self._store.read(remote, offset, size, stop)
        length = self.cache.block_bytes
        parts: dict[int, bytes | None] = {
            i: self._read_kept(remote, i, offset, size) for i in range(offset // length, -(-(offset + size) // length))
        }
        missing = [i for i, part in parts.items() if part is None]
        if missing and not self.cache.is_writable:
            self.cache.count_dropped(len(missing))
            return self._store.read(remote, offset, size, stop)
        own, others = self._claim(remote, missing)
        try:
            for i in own:  # another thread may have kept it just before the claim
                parts[i] = self._read_kept(remote, i, offset, size)
            self._request(remote, [i for i in own if parts[i] is None], parts, offset, size, stop)
        finally:
            self._release(remote, own)
        for i, event in others.items():
            while not event.wait(_POLL_SECONDS):
                if stop is not None and stop.is_set():
                    raise OSError(f"reading {remote.url!r} was stopped")
            parts[i] = self._read_kept(remote, i, offset, size)
        # The other threads' requests have failed, or their blocks were not kept.
        self._request(remote, [i for i in others if parts[i] is None], parts, offset, size, stop)
        return b"".join(part for part in parts.values() if part is not None)

    def _count_unversioned(self, remote: RemoteObject) -> None:
        self.cache.count_dropped(1)
        with self._lock:
            is_first, self._has_warned = not self._has_warned, True
        if is_first:
            log.warning("%r is not cached, as other objects without a version: its server gives none", remote.url)

    def _bounds(self, number: int, offset: int, size: int) -> tuple[int, int]:
        """The part of a block that lies in a range."""
        begin = number * self.cache.block_bytes
        return max(0, offset - begin), min(self.cache.block_bytes, offset + size - begin)

    def _read_kept(self, remote: RemoteObject, number: int, offset: int, size: int) -> bytes | None:
        return self.cache.read(remote, number, *self._bounds(number, offset, size))

    def _claim(self, remote: RemoteObject, numbers: list[int]) -> tuple[list[int], dict[int, threading.Event]]:
        """Returns the blocks that this thread requests, and those that others do."""
        own, others = [], {}
        with self._lock:
            for i in numbers:
                if (event := self._requested.get((remote, i))) is not None:
                    others[i] = event
                else:
                    own.append(i)
                    self._requested[remote, i] = threading.Event()
        return own, others

    def _release(self, remote: RemoteObject, own: list[int]) -> None:
        with self._lock:
            for i in own:
                self._requested.pop((remote, i)).set()

    def _request(
        self,
        remote: RemoteObject,
        numbers: list[int],
        parts: dict[int, bytes | None],
        offset: int,
        size: int,
        stop: threading.Event | None,
    ) -> None:
        """Requests blocks, keeps them, and sets their parts of the range."""
        length = self.cache.block_bytes
        for first, last in _runs(numbers):
            begin = first * length
            data = memoryview(self._store.read(remote, begin, min(last * length, remote.size) - begin, stop))
            for i in range(first, last):
                block = data[i * length - begin :][:length]
                self.cache.write(remote, i, block)
                start, end = self._bounds(i, offset, size)
                parts[i] = bytes(block[start:end])


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Yields (first, last + 1) of each run of successive numbers.

    >>> list(_runs([1, 2, 3, 7, 9, 10]))
    [(1, 4), (7, 8), (9, 11)]
    """
    for i, number in enumerate(numbers):
        if not i or numbers[i - 1] != number - 1:
            first = number
        if i + 1 == len(numbers) or numbers[i + 1] != number + 1:
            yield first, number + 1


_MIN_CACHE_BYTES = 64 << 20


@suggests_arguments
@dataclass(frozen=True, kw_only=True)
class RemoteOptions:
    """How `TarShards` and `TFRecord` read URLs, passed as `remote=`.

    Args:
        storage_options: obstore's of the store, such as {"skip_signature": True} or {"endpoint": ...} for s3; for http
            and https "headers" and "allow_redirects". docs/remote_shards.md lists them. They must pickle if a source is
            to pickle.
        connections: requests at a time, of one source in one process.
        timeout_seconds: limit for reading one byte range, with the repetitions of failed requests.
        readahead_bytes: memory of one iteration for bytes that are requested ahead of their batch. 0: nothing is.
        cache_dir: a local folder that keeps what was read, in blocks of 1 MiB, for later epochs and other processes. It
            is made if missing. None: nothing is kept.
        cache_bytes: limit of the files in `cache_dir`; the least recently used blocks make room. At least 64 MiB.

    Raises:
        ArgumentError: a number is out of range, or `cache_dir` is no local path.
    """

    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)  # may hold credentials
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
