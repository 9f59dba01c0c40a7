"""Reads HDF5's variable-length values from the global heaps, without HDF5.

HDF5 2.0 never returns from some damaged heaps. Reading here also takes no lock and knows a value's size before reading
it. Reference: HDF5 File Format Specification, III.E "Global Heap".
"""

from __future__ import annotations

import os
import struct

import numpy as np

from cuaug.errors import DecodeError

__all__ = ["REFERENCE", "GlobalHeaps"]

#: A dataset's entry for one variable-length value: element count, heap address, object number.
REFERENCE = np.dtype([("length", "<u4"), ("address", "<u8"), ("number", "<u4")])

_HEAP, _OBJECT = struct.Struct("<4sB3xQ"), struct.Struct("<HHxxxxQ")
_SMALL_HEAP_BYTES = 4096  # size of a heap of small values; a large value has its own heap
_MAX_CACHED_HEAPS = 64


class GlobalHeaps:
    """The global heaps of one file.

    Args:
        fd: the file's descriptor, open for reading.
        base: offset of address 0 in the file, in bytes.
    """

    def __init__(self, fd: int, base: int) -> None:
        self._fd, self._base = fd, base
        self._cache: dict[int, dict[int, tuple[int, int]]] = {}

    def read(self, size: int, address: int, number: int) -> bytes:
        """Reads one value.

        Args:
            size: bytes that the reference claims.
            address: the heap's address.
            number: the object's number in the heap.

        Raises:
            DecodeError: the heap is damaged, or holds no such value.
        """
        if size == 0:
            return b""
        objects = self._cache.get(address)
        if objects is None:
            objects = self._objects(address)
            if len(objects) > 1:
                if len(self._cache) >= _MAX_CACHED_HEAPS:
                    self._cache.clear()
                self._cache[address] = objects
        offset, stored_size = objects.get(number, (0, 0))
        if stored_size != size:
            raise DecodeError(f"the heap at byte {address} holds no value {number} of {size:,} bytes")
        return self._pread(size, offset)

    def _objects(self, address: int) -> dict[int, tuple[int, int]]:
        """Returns {number: (offset, size)} of a heap's values."""
        start = self._base + address
        beginning = self._pread(_SMALL_HEAP_BYTES, start, at_least=_HEAP.size)
        signature, version, end = _HEAP.unpack_from(beginning)
        if signature != b"GCOL" or version != 1:
            raise DecodeError(f"there is no heap at byte {address}")
        objects: dict[int, tuple[int, int]] = {}
        at = _HEAP.size
        while at + _OBJECT.size <= end:
            header = beginning[at : at + _OBJECT.size]
            if len(header) < _OBJECT.size:
                header = self._pread(_OBJECT.size, start + at)
            number, _, size = _OBJECT.unpack(header)
            if number == 0:  # the free space at the end
                break
            if number in objects or at + _OBJECT.size + size > end:
                raise DecodeError(f"the heap at byte {address} is damaged at its object {number}")
            objects[number] = start + at + _OBJECT.size, size
            at += _OBJECT.size + size + -size % 8
        return objects

    def _pread(self, size: int, offset: int, at_least: int | None = None) -> bytes:
        """Reads `size` bytes, or at least `at_least` if the file ends before. Checks the file's size first."""
        required = size if at_least is None else at_least
        is_inside = offset + required <= os.fstat(self._fd).st_size
        data = os.pread(self._fd, size, offset) if is_inside else b""
        if len(data) < required:
            raise DecodeError(f"bytes {offset:,} to {offset + required:,} lie beyond the end of the file")
        return data
