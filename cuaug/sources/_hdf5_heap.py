"""Values of variable length in an HDF5 file, read without HDF5.

HDF5 2.0 keeps such values in global heaps and never returns from some damaged ones. Reading them here also takes no
lock, and tells a value's size before its bytes. Reference: HDF5 File Format Specification, III.E "Global Heap".
"""

from __future__ import annotations

import os
import struct

import numpy as np

from cuaug.errors import DecodeError

__all__ = ["REFERENCE", "Heaps"]

#: What the dataset itself holds in place of each value.
REFERENCE = np.dtype([("length", "<u4"), ("address", "<u8"), ("number", "<u4")])

_HEAP, _OBJECT = struct.Struct("<4sB3xQ"), struct.Struct("<HHxxxxQ")
_USUAL_BYTES = 4096  # the size of a heap of small values; a large value has a heap of its own
_HEAPS_KEPT = 64


class Heaps:
    """The global heaps of one file.

    Args:
        descriptor: of the file, open for reading.
        base: address 0 of the file's format, in bytes from its begin.
    """

    def __init__(self, descriptor: int, base: int) -> None:
        self._descriptor, self._base = descriptor, base
        self._kept: dict[int, dict[int, tuple[int, int]]] = {}

    def read(self, size: int, address: int, number: int) -> bytes:
        """One value.

        Args:
            size: in bytes, as the reference has it.
            address: of the heap.
            number: of the object in the heap.

        Raises:
            DecodeError: the heap is damaged, or holds no such value.
        """
        if size == 0:
            return b""
        objects = self._kept.get(address)
        if objects is None:
            objects = self._objects(address)
            if len(objects) > 1:
                if len(self._kept) >= _HEAPS_KEPT:
                    self._kept.clear()
                self._kept[address] = objects
        offset, found = objects.get(number, (0, 0))
        if found != size:
            raise DecodeError(f"the heap at byte {address} holds no value {number} of {size:,} bytes")
        return self._pread(size, offset)

    def _objects(self, address: int) -> dict[int, tuple[int, int]]:
        """Number -> (offset, size) of each value in a heap."""
        start = self._base + address
        usual = self._pread(_USUAL_BYTES, start, at_least=_HEAP.size)
        signature, version, end = _HEAP.unpack_from(usual)
        if signature != b"GCOL" or version != 1:
            raise DecodeError(f"there is no heap at byte {address}")
        found: dict[int, tuple[int, int]] = {}
        at = _HEAP.size
        while at + _OBJECT.size <= end:
            header = usual[at : at + _OBJECT.size]
            if len(header) < _OBJECT.size:
                header = self._pread(_OBJECT.size, start + at)
            number, _, size = _OBJECT.unpack(header)
            if number == 0:  # the free space at the end
                break
            if number in found or at + _OBJECT.size + size > end:
                raise DecodeError(f"the heap at byte {address} is damaged at its object {number}")
            found[number] = start + at + _OBJECT.size, size
            at += _OBJECT.size + size + -size % 8
        return found

    def _pread(self, size: int, offset: int, at_least: int | None = None) -> bytes:
        """Bytes of the file: `size`, or fewer but `at_least` so many where it ends."""
        least, end = size if at_least is None else at_least, os.fstat(self._descriptor).st_size
        data = os.pread(self._descriptor, size, offset) if offset + least <= end else b""
        if len(data) < least:
            raise DecodeError(f"bytes {offset:,} to {offset + least:,} lie beyond the end of the file")
        return data
