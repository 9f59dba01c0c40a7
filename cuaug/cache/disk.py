"""Decoded pixels in a directory, which several processes may share and which outlives them.

    contents.json   what the cache is of; written last when a cache is made
    index           a record for each sample: state, CRC-32 of sample, size and pixels, height, width, where these begin
    pixels          pictures one behind the other; its length says how much of it is given out
    lock            held while room is given out and while a record is written; holds the length that `pixels` must have

Everything goes through read() and write(), whose failure is an error. A map would end the process (SIGBUS) where the
disk fails or a file is cut short.

Pixels are written before their record, and the record's state after the rest of it: whoever dies in between loses the
room it was given and nothing else. After a crash of the machine the record may have reached the disk and its pixels
not. So the first time that a process reads what it did not write, it compares the checksum. Later it need not: `pixels`
never shrinks, and no process adds to it where it has shrunk.

All files must be trusted (_runtime/trusted_files.py): pixels decide what a model learns. Where this user may not write
them, on a read-only mount or as files of root, what they hold is read, without a lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import weakref
import zlib
from collections.abc import Iterator
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.trusted_files import Directory, UntrustedError
from cuaug.cache.blocks import Blocks
from cuaug.cache.identity import differences
from cuaug.cache.limits import CacheStats
from cuaug.errors import LoaderError

__all__ = ["DiskStore"]

log = logging.getLogger("cuaug")

VERSION = 3
_KEY = Struct("<QII")  # sample, height, width
_RECORD = Struct("<?3xIIIQ")  # ready, checksum, height, width, offset
_LENGTH = Struct("<Q")
_MAX_CONTENTS_BYTES = 1 << 20


class _DamagedError(OSError):
    """A file of the cache is not as the cache wrote it."""


class DiskStore:
    """One process's hold on a cache in `directory`, which is made where there is none.

    Whatever goes wrong once it is open costs time alone: samples are decoded as without a cache. A fault of writing
    keeps the process from adding samples, a fault of reading from using the cache; each logs one warning.

    Raises:
        LoaderError: the directory cannot be used, is not trusted, or holds a damaged cache or one of something else.
    """

    def __init__(self, directory: str, limit_bytes: int, identity: dict[str, Any]) -> None:
        self._path, self._limit_bytes, self._count = directory, limit_bytes, identity["samples"]
        self._blocks = Blocks()
        self._is_full = self._is_off = self._warned = False
        try:
            self._directory = Directory(directory, make=0o755)
            weakref.finalize(self, os.close, self._directory.fd).atexit = False
            self._read_only = self._may("pixels", os.R_OK) and not self._may("pixels", os.W_OK)
            with self._locked() as lock:
                self._agree({"version": VERSION, **identity}, lock)
                self._index_file, self._pixel_file = self._open("index"), self._open("pixels")
                if os.fstat(self._index_file).st_size != self._count * _RECORD.size:
                    raise self._damaged("its index has a wrong length")
                if self._length() < (_promised(lock) or 0):
                    raise self._damaged("its pixels were cut short")
        except UntrustedError as error:
            raise LoaderError(
                f"cannot trust the cache in {directory!r}: {error}; give a directory of your own, or delete this one"
            ) from error
        except OSError as error:
            raise LoaderError(f"cannot keep a cache of {limit_bytes} bytes in {directory!r}: {error}") from error
        # Of each sample the record whose pixels this process has written or compared with their checksum.
        self._checked = bytearray(self._count * _RECORD.size)

    # --- the directory ----------------------------------------------------------------------------------------------

    def _may(self, name: str, how: int) -> bool:
        return os.access(name, how, dir_fd=self._directory.fd, effective_ids=True, follow_symlinks=False)

    def _open(self, name: str) -> int:
        """Closed when no thread holds the store any more: one that did could write to another file of its number."""
        file = self._directory.open(name, os.O_RDONLY if self._read_only else os.O_RDWR)
        weakref.finalize(self, os.close, file).atexit = False  # threads may use it at exit
        return file

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int | None]:
        """Alone among the threads and processes that use the directory. Yields the open file `lock`.

        The file is opened anew each time, since this kind of lock belongs to the opening: so it holds off other
        threads, other stores and forked children alike. The system lets go of it for whoever is killed. Other users
        may not even read it: reading is enough to lock it, for ever.
        """
        if self._read_only:  # and so is every file: there is nothing to be alone for
            yield None
            return
        file = self._directory.open("lock", os.O_RDWR | os.O_CREAT, mode=0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # closing is not enough where a fork has copied it meanwhile
            os.close(file)

    def _agree(self, wanted: dict[str, Any], lock: int | None) -> None:
        """Checks that the cache here is the one wanted, or makes an empty one."""
        try:
            there = json.loads(self._directory.read("contents.json", limit=_MAX_CONTENTS_BYTES))
        except FileNotFoundError:
            self._make(wanted, lock)
            return
        except (ValueError, RecursionError):
            there = None
        if not isinstance(there, dict):
            raise self._damaged("its contents.json is no JSON object")
        differ = differences(there, wanted)
        if differ:
            raise LoaderError(
                f"{self._path!r} holds another decoded cache: {differ}; "
                "delete it if it is not needed, or give another directory"
            )

    def _make(self, contents: dict[str, Any], lock: int | None) -> None:
        # A process that was killed here has left the files, and a length in the lock. Others' files stay.
        if _promised(lock) is None and (self._may("index", os.F_OK) or self._may("pixels", os.F_OK)):
            raise LoaderError(f"{self._path!r} holds an index or pixels and no decoded cache: give an empty directory")
        if lock is not None:
            _write(lock, _LENGTH.pack(0), 0)
        for name, size in (("index", contents["samples"] * _RECORD.size), ("pixels", 0)):
            with contextlib.suppress(FileNotFoundError):  # not cut short: another process may have it open
                os.unlink(name, dir_fd=self._directory.fd)
            file = self._directory.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            try:
                os.truncate(file, size)
                mode = os.fstat(file).st_mode
            finally:
                os.close(file)
        with self._directory.replacing("contents.json", mode=mode) as new:
            new.write(json.dumps(contents, indent=1).encode())
            new.flush()
            os.fsync(new.fileno())

    def _damaged(self, how: str) -> LoaderError:
        return LoaderError(f"the cache in {self._path!r} is damaged: {how}; delete it")

    # --- samples ----------------------------------------------------------------------------------------------------

    def get(self, index: int) -> NDArray[np.uint8] | None:
        if self._is_off or not 0 <= index < self._count:
            return None
        try:
            record = self._record(index)
            ready, checksum, height, width, offset = _RECORD.unpack(record)
            if not ready:
                return None
            size = 3 * height * width
            if size == 0 or offset + size > self._length():  # before memory is taken for it
                raise _DamagedError(f"the record of sample {index} lies outside the pixels")
            pixels = self._blocks.empty(size)
            _read_into(pixels.data, self._pixel_file, offset)
        except (OSError, MemoryError) as error:
            self._turn_off(error)
            return None
        pixels.flags.writeable = False
        pixels = pixels.reshape(height, width, 3)
        own = slice(index * _RECORD.size, (index + 1) * _RECORD.size)
        if self._checked[own] != record:
            if _checksum(index, pixels) != checksum:
                self._drop(index)
                return None
            self._checked[own] = record
        return pixels

    def put(self, index: int, pixels: NDArray[np.uint8]) -> NDArray[np.uint8] | None:
        view = self.get(index)
        if view is not None or self._is_full or self._is_off:
            return view
        if self._read_only:
            self._give_up("it cannot be written to")
            return None
        pixels = np.ascontiguousarray(pixels)
        try:
            offset = self._take(pixels.nbytes)
            if offset is None:
                return None
            _write(self._pixel_file, pixels.reshape(-1).data, offset)
            self._publish(index, pixels, offset)
        except _DamagedError as error:
            self._turn_off(error)
        except OSError as error:
            self._give_up(error.strerror or str(error))
        return self.get(index)

    def _record(self, index: int) -> bytes:
        record = os.pread(self._index_file, _RECORD.size, index * _RECORD.size)
        if len(record) < _RECORD.size:
            raise _DamagedError("its index was cut short")
        return record

    def _length(self) -> int:
        """Of the file of pixels: as much of it is given out."""
        return os.fstat(self._pixel_file).st_size

    def _take(self, size: int) -> int | None:
        """Where `size` bytes may be written: on the disk they are reserved. None: above the limit."""
        with self._locked() as lock:
            offset = self._length()
            if offset < (_promised(lock) or 0):
                raise _DamagedError("its pixels were cut short")
            if offset + size > self._limit_bytes:
                return None
            try:
                os.posix_fallocate(self._pixel_file, offset, size)
            except OSError:
                os.ftruncate(self._pixel_file, offset)  # it may have got a part
                raise
            assert lock is not None  # a store that may only read takes nothing
            _write(lock, _LENGTH.pack(offset + size), 0)
        return offset

    def _publish(self, index: int, pixels: NDArray[np.uint8], offset: int) -> None:
        height, width, _ = pixels.shape
        record = _RECORD.pack(True, _checksum(index, pixels), height, width, offset)
        at = index * _RECORD.size
        with self._locked():
            if self._record(index)[0]:  # somebody was first: theirs is as good, and this room is lost
                return
            _write(self._index_file, record[1:], at + 1)
            _write(self._index_file, record[:1], at)
            self._checked[at : at + _RECORD.size] = record

    def _drop(self, index: int) -> None:
        if not self._warned:
            self._warned = True
            log.warning(
                "the decoded cache in %r has pixels that do not match their checksum, of sample %d and perhaps others; "
                "they are made anew",
                self._path,
                index,
            )
        if self._read_only:
            return
        try:
            _write(self._index_file, b"\0", index * _RECORD.size)
        except OSError as error:
            self._give_up(error.strerror or str(error))

    def _give_up(self, why: str) -> None:
        if not self._is_full:
            self._is_full = True
            log.warning("the decoded cache in %r takes no more samples: %s", self._path, why)

    def _turn_off(self, error: Exception) -> None:
        if not self._is_off:
            self._is_off = True
            log.warning(
                "the decoded cache in %r cannot be read and is not used any more by this process, which decodes all "
                "samples: %s; delete it if this happens again",
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
            self._turn_off(error)
        return CacheStats(samples, self._length(), self._limit_bytes)


def _checksum(index: int, pixels: NDArray[np.uint8]) -> int:
    height, width, _ = pixels.shape
    return zlib.crc32(pixels.data, zlib.crc32(_KEY.pack(index, height, width)))


def _promised(lock: int | None) -> int | None:
    """The length that the file of pixels must have; None where nothing says so."""
    data = b"" if lock is None else os.pread(lock, _LENGTH.size, 0)
    return _LENGTH.unpack(data)[0] if len(data) == _LENGTH.size else None


def _read_into(memory: memoryview, file: int, offset: int) -> None:
    """Fills memory from a file, which the system may do in several parts.

    Raises:
        _DamagedError: the file ends before.
        OSError: the disk fails.
    """
    while memory.nbytes:
        size = os.preadv(file, [memory], offset)
        if not size:
            raise _DamagedError("its pixels were cut short")
        memory, offset = memory[size:], offset + size


def _write(file: int, data: bytes | memoryview, offset: int) -> None:
    """All of `data`, which the system may take in several parts."""
    view = memoryview(data)
    while view.nbytes:
        written = os.pwrite(file, view, offset)
        view, offset = view[written:], offset + written
