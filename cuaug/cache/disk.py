"""Decoded pixels in a directory, which several processes may share and which outlives them.

    contents.json   what the cache is of; written last when a cache is made
    index           a record for each sample: state, CRC-32 of size and pixels, height, width, where these begin
    pixels          pictures one behind the other; its length says how much of it is given out
    lock            held while room is given out and while a record is written

The pixels are mapped to be read, and only where there are any. Everything else goes through read() and write(), whose
failure is an error: on a full disk a store into a map, and on tmpfs even a look at a hole, ends the process (SIGBUS).

Pixels are written before their record, and the record's state after the rest of it: whoever dies in between loses the
room it was given and nothing else. After a crash of the machine the record may have reached the disk and its pixels
not. So the first time that a process reads what it did not write, it compares the checksum.

Where the files cannot be written to, on a read-only mount or as another user's, what they hold is read, without a lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import sys
import zlib
from collections.abc import Iterator
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.cache.identity import differences
from cuaug.cache.limits import CacheStats
from cuaug.cache.maps import read_only_map
from cuaug.errors import LoaderError
from cuaug.gone import libc, when_gone

__all__ = ["DiskStore"]

log = logging.getLogger("cuaug")

VERSION = 2
_SIZE = Struct("<II")
_RECORD = Struct("<?3xIIIQ")  # ready, checksum, height, width, offset


class DiskStore:
    """One process's hold on a cache in `directory`, which is made where there is none.

    Raises:
        LoaderError: the directory cannot be used, or holds a cache of something else.
    """

    def __init__(self, directory: str, limit_bytes: int, identity: dict[str, Any]) -> None:
        if limit_bytes > sys.maxsize:
            raise LoaderError(f"a cache in {directory!r} takes at most {sys.maxsize} bytes, not {limit_bytes}")
        self._directory, self._limit_bytes = directory, limit_bytes
        self._given_up = self._warned = False
        pixels = self._path("pixels")  # on a read-only mount, or of another user
        self._read_only = os.access(pixels, os.R_OK) and not os.access(pixels, os.W_OK)
        count = identity["samples"]
        try:
            os.makedirs(directory, exist_ok=True)
            with self._locked():
                self._agree({"version": VERSION, **identity})
                self._index_file, self._pixel_file = self._open("index"), self._open("pixels")
            if os.fstat(self._index_file).st_size != count * _RECORD.size:
                raise self._damaged()
            self._pixels = read_only_map(self._pixel_file, max(limit_bytes, self._length()))
        except OSError as error:
            raise LoaderError(f"cannot keep a cache of {limit_bytes} bytes in {directory!r}: {error}") from error
        self._checked = np.zeros(count, dtype=bool).data  # of each sample, whether this process may trust its pixels

    # --- the directory ----------------------------------------------------------------------------------------------

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def _open(self, name: str) -> int:
        """Closed when no thread holds the store any more: one that did could write to another file of its number."""
        file = os.open(self._path(name), (os.O_RDONLY if self._read_only else os.O_RDWR) | os.O_CLOEXEC)
        when_gone(self, libc.close, file)
        return file

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone among the threads and processes that use the directory.

        The file is opened anew each time, since this kind of lock belongs to the opening: so it holds off other
        threads, other stores and forked children alike. The system lets go of it for whoever is killed.
        """
        if self._read_only:  # and so is every file: there is nothing to be alone for
            yield
            return
        file = os.open(self._path("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # closing is not enough where a fork has copied it meanwhile
            os.close(file)

    def _agree(self, wanted: dict[str, Any]) -> None:
        """Checks that the cache here is the one wanted, or makes an empty one."""
        try:
            with open(self._path("contents.json"), encoding="utf-8") as file:
                there = json.load(file)
        except FileNotFoundError:
            self._make(wanted)
            return
        except ValueError:
            there = None
        differ = differences(there if isinstance(there, dict) else {}, wanted)
        if differ:
            raise LoaderError(
                f"{self._directory!r} holds another decoded cache: {differ}; "
                "delete it if it is not needed, or give another directory"
            )

    def _make(self, contents: dict[str, Any]) -> None:
        for name, size in (("index", contents["samples"] * _RECORD.size), ("pixels", 0)):
            with contextlib.suppress(FileNotFoundError):  # not cut: who has it mapped would end by SIGBUS
                os.remove(self._path(name))
            with open(self._path(name), "xb") as empty:
                empty.truncate(size)
        new = self._path("contents.json.new")
        with open(new, "w", encoding="utf-8") as file:
            json.dump(contents, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self._path("contents.json"))

    def _damaged(self) -> LoaderError:
        return LoaderError(f"the cache in {self._directory!r} is damaged: its index has a wrong length; delete it")

    # --- samples ----------------------------------------------------------------------------------------------------

    def get(self, index: int) -> NDArray[np.uint8] | None:
        ready, checksum, height, width, offset = self._record(index)
        if not ready:
            return None
        end = offset + 3 * height * width
        pixels = self._pixels[offset:end]
        seen = len(pixels) == end - offset  # or else beyond this process's limit, and within another's
        if not self._checked[index]:
            empty = height == 0 or width == 0  # there is no such picture, and nothing to compare
            if empty or end > self._length() or (seen and _checksum(height, width, pixels) != checksum):
                self._drop(index)
                return None
            self._checked[index] = True
        return pixels.reshape(height, width, 3) if seen else None

    def put(self, index: int, pixels: NDArray[np.uint8]) -> NDArray[np.uint8] | None:
        view = self.get(index)
        if view is not None or self._given_up:
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
        except OSError as error:
            self._give_up(error.strerror)
            return None
        return self.get(index)

    def _record(self, index: int) -> tuple[Any, ...]:
        record = os.pread(self._index_file, _RECORD.size, index * _RECORD.size)
        if len(record) < _RECORD.size:
            raise self._damaged()
        return _RECORD.unpack(record)

    def _length(self) -> int:
        """Of the file of pixels: as much of it is given out."""
        return os.fstat(self._pixel_file).st_size

    def _take(self, size: int) -> int | None:
        """Where `size` bytes may be written: on the disk they are reserved. None: above the limit."""
        with self._locked():
            offset = self._length()
            if offset + size > self._limit_bytes:
                return None
            try:
                os.posix_fallocate(self._pixel_file, offset, size)
            except OSError:
                os.ftruncate(self._pixel_file, offset)  # it may have got a part
                raise
        return offset

    def _publish(self, index: int, pixels: NDArray[np.uint8], offset: int) -> None:
        height, width, _ = pixels.shape
        record = memoryview(_RECORD.pack(True, _checksum(height, width, pixels), height, width, offset))
        at = index * _RECORD.size
        with self._locked():
            if self._record(index)[0]:  # somebody was first: theirs is as good, and this room is lost
                return
            _write(self._index_file, record[1:], at + 1)
            _write(self._index_file, record[:1], at)
            self._checked[index] = True

    def _drop(self, index: int) -> None:
        if not self._warned:
            self._warned = True
            log.warning(
                "the decoded cache in %r has pixels that do not match their checksum, of sample %d and perhaps others; "
                "they are made anew",
                self._directory,
                index,
            )
        if self._read_only:
            return
        try:
            _write(self._index_file, memoryview(b"\0"), index * _RECORD.size)
        except OSError as error:
            self._give_up(error.strerror)

    def _give_up(self, why: str | None) -> None:
        if not self._given_up:
            self._given_up = True
            log.warning("the decoded cache in %r takes no more samples: %s", self._directory, why)

    def stats(self) -> CacheStats:
        """Reads the whole index: some milliseconds for a million samples."""
        samples, at, step = 0, 0, _RECORD.size << 16
        while part := os.pread(self._index_file, step, at):
            samples, at = samples + part[:: _RECORD.size].count(1), at + step
        return CacheStats(samples, self._length(), self._limit_bytes)


def _checksum(height: int, width: int, pixels: NDArray[np.uint8]) -> int:
    return zlib.crc32(pixels.data, zlib.crc32(_SIZE.pack(height, width)))


def _write(file: int, data: memoryview, offset: int) -> None:
    """All of `data`, which the system may take in several parts."""
    while data.nbytes:
        written = os.pwrite(file, data, offset)
        data, offset = data[written:], offset + written
