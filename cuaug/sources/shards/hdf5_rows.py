"""Reads rows of an HDF5 dataset, after checking the stored chunks that hold them.

HDF5 2.0 trusts a file's claims about its chunks, so each stored chunk is checked once, before HDF5 reads it:

- A deflated chunk may inflate to any size, and HDF5 allocates all of it.
- A chunk may hold fewer bytes than its shape needs; HDF5 then returns uninitialized memory.
- A chunk may never have been written; HDF5 then returns zeros, a black image.

Variable-length values are read from the global heaps without HDF5, which never returns from some damaged heaps. Reading
here also takes no lock and knows a value's size before reading it. Reference: HDF5 File Format Specification, III.E
"Global Heap".
"""

from __future__ import annotations

import itertools
import math
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.extras import require_module
from cuaug._runtime.limits import check_bytes
from cuaug.errors import CuaugError, DecodeError, SourceError

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


_DEFLATE, _SHUFFLE, _FLETCHER32 = 1, 2, 3
_FLETCHER32_BYTES = 4
_VARIABLE_LENGTH_FILTERS = {_DEFLATE, _SHUFFLE}  # HDF5 has no checksum for variable-length values
_ELEMENT_KINDS = "biufcSV"
# Filters whose output the file's size does not bound.
_UNBOUNDED = {4: "szip", 5: "n-bit", 6: "scale-offset"}


class Rows:
    """The rows of one dataset [N, ...]: `rows[i]` is a number, an array or bytes.

    Args:
        name: the dataset's name in errors.
        dataset: an h5py.Dataset.
        max_bytes: limit on one chunk and on one variable-length value.

    Attributes:
        shape, dtype: as in h5py.
        is_variable: values are of variable length.
        row_bytes: size of each row; 0 for variable length.

    Raises:
        LoaderError: the dataset cannot be read safely.
    """

    def __init__(self, name: str, dataset: Any, max_bytes: int) -> None:
        self.dataset, self.shape, self.dtype = dataset, dataset.shape, dataset.dtype
        self._fd = dataset.file.id.get_vfd_handle()
        _check_storage(name, dataset, max_bytes, os.fstat(self._fd).st_size)
        self.is_variable = self.dtype.kind == "O"
        self._item_bytes = REFERENCE.itemsize if self.is_variable else dataset.id.get_type().get_size()
        self._element = _element_dtype(name, dataset) if self.is_variable else self.dtype
        if self._element.names or self._element.base.kind not in _ELEMENT_KINDS:
            raise SourceError(f"{name} has type {self.dtype}: it must hold numbers, strings or opaque bytes")
        self.row_bytes = 0 if self.is_variable else self._item_bytes * math.prod((self.shape or ())[1:])
        self._max_bytes = max_bytes
        self._chunks: tuple[int, ...] = dataset.chunks or ()
        self._filters = _filter_codes(dataset)
        self._is_checked = bytearray(-(-self.shape[0] // self._chunks[0]) if self._chunks else 0)
        self._references: dict[int, NDArray[Any]] = {}  # by row of chunks
        self._offset: int | None = None if self._chunks else dataset.id.get_offset()
        self._heaps = GlobalHeaps(self._fd, dataset.file.userblock_size)

    def __len__(self) -> int:
        return self.shape[0] if self.shape else 0

    def __getitem__(self, index: int) -> Any:
        """Reads one row.

        Raises:
            IndexError: there is no such row.
            DecodeError: the row is damaged or was never written.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        return self._read(range(index, index + 1))[0]

    def slices(self, count: int) -> Iterator[Any]:
        """Yields all rows, `count` at a time; for rows that cannot be read, the error's text."""
        for start in range(0, len(self), count):
            try:
                yield self._read(range(start, min(start + count, len(self))))
            except DecodeError as error:
                yield error.cause

    def value_bytes(self, index: int) -> int:
        """Size of a row, without reading it.

        Raises:
            DecodeError: the row is damaged.
        """
        if not self.is_variable:
            return self.row_bytes
        return self._guard(lambda: self._reference(index)[0] * self._element.itemsize)

    def _read(self, rows: range) -> Any:
        return self._guard(lambda: self._read_variable(rows) if self.is_variable else self._read_fixed(rows))

    def _guard(self, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except CuaugError:
            raise
        except Exception as error:  # a damaged file makes h5py raise any exception
            raise DecodeError(f"HDF5 cannot read it: {type(error).__name__}: {error}") from error

    def _read_fixed(self, rows: range) -> Any:
        if self._chunks:
            step = self._chunks[0]
            for row in range(rows.start // step, (rows.stop - 1) // step + 1):
                if not self._is_checked[row]:
                    for _ in self._stored_chunks(row):
                        pass
                    self._is_checked[row] = 1
        return self.dataset[rows.start : rows.stop]

    def _read_variable(self, rows: range) -> list[Any]:
        values = []
        for index in rows:
            length, address, number = self._reference(index)
            size = length * self._element.itemsize
            check_bytes(size, self._max_bytes)
            data = self._heaps.read(size, address, number)
            values.append(data if self._element.kind == "S" else np.frombuffer(data, self._element).copy())
        return values

    def _reference(self, index: int) -> tuple[int, int, int]:
        """Returns (element count, heap address, object number) of a variable-length value."""
        if self._offset is not None:
            data = os.pread(self._fd, REFERENCE.itemsize, self._offset + index * REFERENCE.itemsize)
            return np.frombuffer(data, REFERENCE)[0].item()
        row, i = divmod(index, self._chunks[0])
        if row not in self._references:
            (data,) = self._stored_chunks(row)
            self._references[row] = np.frombuffer(data, REFERENCE)
        return self._references[row][i].item()

    def _stored_chunks(self, row: int) -> Iterator[bytes]:
        """Yields each stored chunk in a row of chunks, decompressed but not unshuffled.

        Raises:
            DecodeError: a chunk's size does not fit its shape.
        """
        size = self._item_bytes * math.prod(self._chunks)
        buffer = np.empty(size + size // 8 + 4096, np.uint8)  # incompressible data grow a little
        columns = (range(0, n, step) for n, step in zip(self.shape[1:], self._chunks[1:], strict=True))
        for offsets in itertools.product([row * self._chunks[0]], *columns):
            skipped_filters, data = self.dataset.id.read_direct_chunk(offsets, out=buffer)
            yield self._undo_filters(bytes(data), skipped_filters, size)

    def _undo_filters(self, data: bytes, skipped_filters: int, size: int) -> bytes:
        for i, code in reversed(list(enumerate(self._filters))):
            if skipped_filters >> i & 1:
                continue
            if code == _FLETCHER32:
                data = data[:-_FLETCHER32_BYTES]  # HDF5 verifies it
            elif code == _DEFLATE:  # one byte too many reveals a larger chunk
                data = zlib.decompressobj().decompress(data, size + _FLETCHER32_BYTES * len(self._filters) + 1)
            elif code != _SHUFFLE:
                return data  # only HDF5 can decompress it
            elif self.is_variable:
                raise DecodeError("a stored chunk is shuffled, which HDF5 never does to variable-length values")
        if len(data) != size:
            raise DecodeError(f"a stored chunk has {len(data):,} bytes, its shape needs {size:,}")
        return data


def _element_dtype(name: str, dataset: Any) -> np.dtype[Any]:
    """The dtype of the elements of variable-length values."""
    h5py = require_module("h5py", "hdf5")
    layout = dataset.id.get_create_plist().get_layout()
    is_supported = (
        layout in (h5py.h5d.CONTIGUOUS, h5py.h5d.CHUNKED)
        and set(_filter_codes(dataset)) <= _VARIABLE_LENGTH_FILTERS
        and dataset.ndim == 1
        and dataset.file.id.get_create_plist().get_sizes() == (8, 8)
    )
    if not is_supported:
        raise SourceError(
            f"{name} holds variable-length values in an unsupported form: the dataset must have one dimension, be "
            "contiguous or chunked, and be compressed by gzip or not at all"
        )
    element = np.dtype("S1") if h5py.check_string_dtype(dataset.dtype) else h5py.check_vlen_dtype(dataset.dtype)
    return np.dtype(object) if element is None else np.dtype(element)


def _check_storage(name: str, dataset: Any, max_bytes: int, file_bytes: int) -> None:
    """Refuses datasets in external files, too large chunks, unsafe filters, and data that were never written.

    Args:
        name: the dataset's name in errors.
        file_bytes: size of the dataset's file.

    Raises:
        LoaderError: as above.
    """
    if dataset.id.get_create_plist().get_external_count():
        raise SourceError(f"{name} keeps its data in other files (external storage): write them into the file")
    if not dataset.size:
        return
    if dataset.chunks:
        size = dataset.id.get_type().get_size() * math.prod(dataset.chunks)
        if size > max_bytes:
            raise SourceError(f"one chunk of {name} has {size:,} bytes, above the limit max_bytes={max_bytes:,}")
        compressors = [code for code in _filter_codes(dataset) if code not in (_SHUFFLE, _FLETCHER32)]
        for code in compressors:
            if code in _UNBOUNDED:
                raise SourceError(f"{name} is compressed by {_UNBOUNDED[code]}, which is unsafe: use gzip or LZF")
        if len(compressors) > 1:
            raise SourceError(f"{name} is compressed {len(compressors)} times: compress it once")
    chunks = math.prod(-(-n // step) for n, step in zip(dataset.shape, dataset.chunks or dataset.shape, strict=True))
    if chunks > file_bytes or not dataset.id.get_storage_size():
        raise SourceError(f"{name} has shape {dataset.shape}, but was never written")


def _filter_codes(dataset: Any) -> list[int]:
    """The codes of a dataset's filters, in the order of application."""
    properties = dataset.id.get_create_plist()
    return [properties.get_filter(i)[0] for i in range(properties.get_nfilters())]
