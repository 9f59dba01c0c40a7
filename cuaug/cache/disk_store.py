"""`DiskStore`: decoded pixels in a directory, shared by processes and kept after they end.

| file | content | written |
|---|---|---|
| contents.json | identity of the dataset and the format version | last, when the cache is made |
| index | 24 bytes per sample: ready, CRC-32, height, width, offset in `pixels` | after the pixels, `ready` last |
| pixels | images one after the other, (h, w, 3) uint8; its length is the space allocated so far | before the record |
| lock | flock for allocating and for writing records; uint64 minimum length of `pixels` | on each allocation |

All numbers are little-endian. A process that dies while adding a sample loses the space it allocated and nothing else.

All access uses read() and write(), so a failing disk is an error. A memory map would end the process (SIGBUS).

After a crash of the machine, a record may be on disk without its pixels. So a process verifies the checksum the first
time it reads a sample that it did not write. Once is enough: `pixels` never shrinks, and no process extends a `pixels`
that has shrunk.

All files must be trusted (_runtime/disk.py): pixels decide what a model learns. If this user cannot write them
(a read-only mount, files of root), they are read without a lock.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import weakref
import zlib
from collections import deque
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.disk import Directory, UntrustedError
from cuaug._runtime.fork import fork_safe_lock
from cuaug._runtime.huge_pages import pages
from cuaug.cache.cache_limits import CacheStats, differences
from cuaug.errors import LoaderError, SourceError

# Limit on reusable bytes per power of two of the buffer size.
_MAX_REUSABLE_BYTES = 1 << 30
# Buffers tried per request, oldest first: these are most likely free.
_MAX_TRIES = 8


class ImageBuffers:
    """Hands out memory, reusing buffers whose arrays are all freed.

    Reading an image into fresh memory takes several times as long as reading it: the system maps and clears every page
    on first touch. Nothing runs when an array is freed, so no Python code runs in a finalizer.
    """

    def __init__(self) -> None:
        self._lent: dict[int, deque[tuple[weakref.ref[NDArray[np.uint8]], memoryview]]] = {}
        self._lock = fork_safe_lock()

    def empty(self, size: int) -> NDArray[np.uint8]:
        """Returns an uninitialized (size,) uint8 array.

        Raises:
            MemoryError: the system does not have that much.
        """
        bits = (size - 1).bit_length()
        with self._lock:
            lent = self._lent.setdefault(bits, deque(maxlen=max(1, _MAX_REUSABLE_BYTES >> bits)))
            buffer = None
            for _ in range(min(len(lent), _MAX_TRIES)):
                user, candidate = lent.popleft()
                if user() is None:
                    buffer = candidate
                    break
                lent.append((user, candidate))
            if buffer is None:
                buffer = pages(1 << bits).data  # untouched pages take no memory
            # All views of this array keep it alive, since its base is no array.
            array = np.frombuffer(buffer, dtype=np.uint8, count=size)
            lent.append((weakref.ref(array), buffer))
        return array


log = logging.getLogger("cuaug")

VERSION = 3
_KEY = Struct("<QII")  # sample number, height, width: the checksum covers them and the pixels
_RECORD = Struct("<?3xIIIQ")  # ready, checksum, height, width, offset
_LENGTH = Struct("<Q")
_MAX_CONTENTS_BYTES = 1 << 20


class _DamagedError(OSError):
    """A file of the cache is damaged."""


class DiskStore:
    """Keeps decoded images in files of `directory`, shared by all processes of the machine.

    It grows up to `limit_bytes` of pixels; 24 bytes per sample come on top, in the directory and in each process. The
    files outlive the process. After opening, faults cost only time, since samples are then decoded as without a cache:
    a write error ends adding samples, a read error ends using the cache, and each logs one warning.

    Raises:
        LoaderError: the directory cannot be used, is not trusted, or holds a damaged cache or another dataset's.
    """

    def __init__(self, directory: str, limit_bytes: int, identity: dict[str, Any]) -> None:
        self._path, self._limit_bytes, self._count = directory, limit_bytes, identity["samples"]
        self._buffers = ImageBuffers()
        self._is_full = self._is_disabled = self._has_warned = False
        try:
            self._directory = Directory(directory, make_mode=0o755)
            weakref.finalize(self, os.close, self._directory.fd).atexit = False  # threads may use it at exit
            self._read_only = self._has_access("pixels", os.R_OK) and not self._has_access("pixels", os.W_OK)
            with self._locked() as lock:
                self._check_or_make({"version": VERSION, **identity}, lock)
                self._index_file, self._pixel_file = self._open("index"), self._open("pixels")
                if os.fstat(self._index_file).st_size != self._count * _RECORD.size:
                    raise self._damaged("its index has a wrong length")
                if self._length() < (_required_length(lock) or 0):
                    raise self._damaged("its pixels were truncated")
        except UntrustedError as error:
            raise SourceError(
                f"directory: the cache in {directory!r} is not trusted: {error}; use your own directory or delete it"
            ) from error
        except OSError as error:
            raise SourceError(f"directory {directory!r} cannot hold a cache: {error}") from error
        # Records whose pixels this process has written or verified.
        self._verified = bytearray(self._count * _RECORD.size)

    # --- the directory ----------------------------------------------------------------------------------------------

    def _has_access(self, name: str, mode: int) -> bool:
        return os.access(name, mode, dir_fd=self._directory.fd, effective_ids=True, follow_symlinks=False)

    def _open(self, name: str) -> int:
        """Opens a file that stays open as long as any thread holds the store: its descriptor could be reused."""
        file = self._directory.open(name, os.O_RDONLY if self._read_only else os.O_RDWR)
        weakref.finalize(self, os.close, file).atexit = False  # threads may use it at exit
        return file

    def _locked(self) -> contextlib.AbstractContextManager[int | None]:
        """Holds the lock against all other threads and processes; its value is the open file `lock`."""
        return contextlib.nullcontext() if self._read_only else self._directory.locked("lock")  # no file can change

    def _check_or_make(self, expected: dict[str, Any], lock: int | None) -> None:
        """Checks the identity of the cache here, or makes an empty cache."""
        try:
            found = json.loads(self._directory.read("contents.json", limit=_MAX_CONTENTS_BYTES))
        except FileNotFoundError:
            self._make(expected, lock)
            return
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise self._damaged("its contents.json is no JSON object")
        difference = differences(found, expected)
        if difference:
            raise SourceError(
                f"directory {self._path!r} holds another decoded cache: {difference}; "
                "delete it if it is not needed, or give another directory"
            )

    def _make(self, contents: dict[str, Any], lock: int | None) -> None:
        # A process killed here leaves files and a length in the lock. Without that length the files are not ours.
        if _required_length(lock) is None and (
            self._has_access("index", os.F_OK) or self._has_access("pixels", os.F_OK)
        ):
            raise SourceError(
                f"directory {self._path!r} holds an index or pixels but no cache: give an empty directory"
            )
        if lock is not None:
            _write(lock, _LENGTH.pack(0), 0)
        for name, size in (("index", contents["samples"] * _RECORD.size), ("pixels", 0)):
            self._directory.remove(name)  # not truncated: another process may have it open
            file = self._directory.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            try:
                os.truncate(file, size)
                mode = os.fstat(file).st_mode
            finally:
                os.close(file)
        with self._directory.atomic_write("contents.json", mode=mode) as new:
            new.write(json.dumps(contents, indent=1).encode())

    def _damaged(self, reason: str) -> LoaderError:
        return SourceError(f"directory: the cache in {self._path!r} is damaged: {reason}; delete it")

    # --- samples ----------------------------------------------------------------------------------------------------

    def get(self, index: int) -> NDArray[np.uint8] | None:
        if self._is_disabled or not 0 <= index < self._count:
            return None
        try:
            record = self._record(index)
            ready, checksum, height, width, offset = _RECORD.unpack(record)
            if not ready:
                return None
            size = 3 * height * width
            if size == 0 or offset + size > self._length():  # check before allocating
                raise _DamagedError(f"the record of sample {index} lies outside the pixels")
            pixels = self._buffers.empty(size)
            _read_into(pixels.data, self._pixel_file, offset)
        except (OSError, MemoryError) as error:
            self._disable(error)
            return None
        pixels.flags.writeable = False
        pixels = pixels.reshape(height, width, 3)
        record_bytes = slice(index * _RECORD.size, (index + 1) * _RECORD.size)
        if self._verified[record_bytes] != record:
            if _checksum(index, pixels) != checksum:
                self._drop(index)
                return None
            self._verified[record_bytes] = record
        return pixels

    def put(self, index: int, pixels: NDArray[np.uint8]) -> NDArray[np.uint8] | None:
        view = self.get(index)
        if view is not None or self._is_full or self._is_disabled:
            return view
        if self._read_only:
            self._stop_adding("it cannot be written to")
            return None
        pixels = np.ascontiguousarray(pixels)
        try:
            offset = self._allocate(pixels.nbytes)
            if offset is None:
                return None
            _write(self._pixel_file, pixels.reshape(-1).data, offset)
            self._write_record(index, pixels, offset)
        except _DamagedError as error:
            self._disable(error)
        except OSError as error:
            self._stop_adding(error.strerror or str(error))
        return self.get(index)

    def _record(self, index: int) -> bytes:
        record = os.pread(self._index_file, _RECORD.size, index * _RECORD.size)
        if len(record) < _RECORD.size:
            raise _DamagedError("its index was truncated")
        return record

    def _length(self) -> int:
        """Length of the pixel file: the space allocated so far."""
        return os.fstat(self._pixel_file).st_size

    def _allocate(self, size: int) -> int | None:
        """Reserves `size` bytes on disk and returns their offset; None: above the limit."""
        with self._locked() as lock:
            offset = self._length()
            if offset < (_required_length(lock) or 0):
                raise _DamagedError("its pixels were truncated")
            if offset + size > self._limit_bytes:
                return None
            try:
                os.posix_fallocate(self._pixel_file, offset, size)
            except OSError:
                os.ftruncate(self._pixel_file, offset)  # it may have allocated some
                raise
            assert lock is not None  # a read-only store never allocates
            _write(lock, _LENGTH.pack(offset + size), 0)
        return offset

    def _write_record(self, index: int, pixels: NDArray[np.uint8], offset: int) -> None:
        height, width, _ = pixels.shape
        record = _RECORD.pack(True, _checksum(index, pixels), height, width, offset)
        at = index * _RECORD.size
        with self._locked():
            if self._record(index)[0]:  # another process was first; our space is lost
                return
            _write(self._index_file, record[1:], at + 1)
            _write(self._index_file, record[:1], at)
            self._verified[at : at + _RECORD.size] = record

    def _drop(self, index: int) -> None:
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "the decoded cache in %r has pixels that do not match their checksum, of sample %d and perhaps others; "
                "these samples are decoded again",
                self._path,
                index,
            )
        if self._read_only:
            return
        try:
            _write(self._index_file, b"\0", index * _RECORD.size)
        except OSError as error:
            self._stop_adding(error.strerror or str(error))

    def _stop_adding(self, reason: str) -> None:
        if not self._is_full:
            self._is_full = True
            log.warning("the decoded cache in %r takes no more samples: %s", self._path, reason)

    def _disable(self, error: Exception) -> None:
        if not self._is_disabled:
            self._is_disabled = True
            log.warning(
                "the decoded cache in %r cannot be read; this process stops using it and decodes all samples: %s; "
                "delete it if this happens again",
                self._path,
                str(error) or type(error).__name__,
            )

    def stats(self) -> CacheStats:
        """Reads the whole index: some milliseconds for a million samples."""
        samples, end, step = 0, self._count * _RECORD.size, _RECORD.size << 16
        try:
            for at in range(0, end, step):
                samples += os.pread(self._index_file, min(step, end - at), at)[:: _RECORD.size].count(1)
        except OSError as error:
            self._disable(error)
        return CacheStats(samples, self._length(), self._limit_bytes)


def _checksum(index: int, pixels: NDArray[np.uint8]) -> int:
    height, width, _ = pixels.shape
    return zlib.crc32(pixels.data, zlib.crc32(_KEY.pack(index, height, width)))


def _required_length(lock: int | None) -> int | None:
    """Minimum length of the pixel file, from the lock file; None: unknown."""
    data = b"" if lock is None else os.pread(lock, _LENGTH.size, 0)
    return _LENGTH.unpack(data)[0] if len(data) == _LENGTH.size else None


def _read_into(memory: memoryview, file: int, offset: int) -> None:
    """Fills memory from a file; the system may return short reads.

    Raises:
        _DamagedError: the file is too short.
        OSError: the disk fails.
    """
    while memory.nbytes:
        size = os.preadv(file, [memory], offset)
        if not size:
            raise _DamagedError("its pixels were truncated")
        memory, offset = memory[size:], offset + size


def _write(file: int, data: bytes | memoryview, offset: int) -> None:
    """Writes all of `data`; the system may write it in several parts."""
    view = memoryview(data)
    while view.nbytes:
        written = os.pwrite(file, view, offset)
        view, offset = view[written:], offset + written
