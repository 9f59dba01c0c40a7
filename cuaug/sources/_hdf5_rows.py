"""Rows of an HDF5 dataset, checked before HDF5 reads them.

HDF5 2.0 trusts what a file says about its chunks, so we check each stored chunk once, before HDF5 reads it:
- A deflated chunk may inflate to any size. HDF5 allocates all of it.
- A chunk may hold fewer bytes than its shape needs. HDF5 then returns memory that nobody wrote.
- A chunk may never have been written. HDF5 then returns zeros, which are a black picture.
"""

from __future__ import annotations

import itertools
import math
import os
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.errors import CuaugError, DecodeError, LoaderError
from cuaug.limits import check_bytes
from cuaug.sources._extras import need
from cuaug.sources._hdf5_heap import REFERENCE, Heaps

__all__ = ["Rows", "check_storage", "filters_of"]

_DEFLATE, _SHUFFLE, _FLETCHER32 = 1, 2, 3
_FLETCHER32_BYTES = 4
_FOR_VARIABLE = {_DEFLATE, _SHUFFLE}  # HDF5 has no checksum for these values
_KINDS = "biufcSV"
# Nothing in the file's size limits the output of these.
_UNBOUNDED = {4: "szip", 5: "n-bit", 6: "scale-offset"}


class Rows:
    """The rows of one dataset [N, ...]: `rows[i]` is a number, an array or bytes.

    Args:
        name: names the dataset in errors.
        dataset: an h5py.Dataset.
        max_bytes: limit on one chunk, and on one value of variable length.

    Attributes:
        shape, dtype: as h5py has them.
        is_variable: each value has its own length.
        row_bytes: the size of each row; 0 if each has its own.

    Raises:
        LoaderError: the dataset cannot be read safely.
    """

    def __init__(self, name: str, dataset: Any, max_bytes: int) -> None:
        self.dataset, self.shape, self.dtype = dataset, dataset.shape, dataset.dtype
        self._descriptor = dataset.file.id.get_vfd_handle()
        check_storage(name, dataset, max_bytes, os.fstat(self._descriptor).st_size)
        self.is_variable = self.dtype.kind == "O"
        self._item_bytes = REFERENCE.itemsize if self.is_variable else dataset.id.get_type().get_size()
        self._element = _element(name, dataset) if self.is_variable else self.dtype
        if self._element.names or self._element.base.kind not in _KINDS:
            raise LoaderError(f"{name} has type {self.dtype}: it should hold numbers, strings or opaque bytes")
        self.row_bytes = 0 if self.is_variable else self._item_bytes * math.prod((self.shape or ())[1:])
        self._max_bytes = max_bytes
        self._chunks: tuple[int, ...] = dataset.chunks or ()
        self._filters = filters_of(dataset)
        self._checked = bytearray(-(-self.shape[0] // self._chunks[0]) if self._chunks else 0)
        self._references: dict[int, NDArray[Any]] = {}  # by row of chunks
        self._offset: int | None = None if self._chunks or dataset.is_virtual else dataset.id.get_offset()
        self._heaps = Heaps(self._descriptor, dataset.file.userblock_size)

    def __len__(self) -> int:
        return self.shape[0] if self.shape else 0

    def __getitem__(self, index: int) -> Any:
        """One row.

        Raises:
            IndexError: there is no such row.
            DecodeError: the row is damaged or was never written.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        return self._some(range(index, index + 1))[0]

    def parts(self, count: int) -> Iterator[Any]:
        """All rows, `count` at a time; the text of the error in place of rows that cannot be read."""
        for start in range(0, len(self), count):
            try:
                yield self._some(range(start, min(start + count, len(self))))
            except DecodeError as error:
                yield error.cause

    def value_bytes(self, index: int) -> int:
        """Size of a row, without reading it.

        Raises:
            DecodeError: the row is damaged.
        """
        if not self.is_variable:
            return self.row_bytes
        return self._guarded(lambda: self._reference(index)[0] * self._element.itemsize)

    def _some(self, rows: range) -> Any:
        return self._guarded(lambda: self._values(rows) if self.is_variable else self._arrays(rows))

    def _guarded(self, read: Any) -> Any:
        try:
            return read()
        except CuaugError:
            raise
        except Exception as error:  # a damaged file makes h5py raise any
            raise DecodeError(f"HDF5 cannot read it: {type(error).__name__}: {error}") from error

    def _arrays(self, rows: range) -> Any:
        if self._chunks:
            step = self._chunks[0]
            for row in range(rows.start // step, (rows.stop - 1) // step + 1):
                if not self._checked[row]:
                    for _ in self._stored(row):
                        pass
                    self._checked[row] = 1
        return self.dataset[rows.start : rows.stop]

    def _values(self, rows: range) -> list[Any]:
        values = []
        for index in rows:
            length, address, number = self._reference(index)
            check_bytes(length * self._element.itemsize, self._max_bytes)
            data = self._heaps.read(length * self._element.itemsize, address, number)
            values.append(data if self._element.kind == "S" else np.frombuffer(data, self._element).copy())
        return values

    def _reference(self, index: int) -> tuple[int, int, int]:
        """A value of variable length: how many elements, address of the heap, number in it."""
        if self._offset is not None:
            data = os.pread(self._descriptor, REFERENCE.itemsize, self._offset + index * REFERENCE.itemsize)
            return np.frombuffer(data, REFERENCE)[0].item()
        row, place = divmod(index, self._chunks[0])
        if row not in self._references:
            (data,) = self._stored(row)
            self._references[row] = np.frombuffer(data, REFERENCE)
        return self._references[row][place].item()

    def _stored(self, row: int) -> Iterator[bytes]:
        """The bytes of each chunk in a row of chunks, without filters if only their number matters.

        Raises:
            DecodeError: a chunk has another size than it should.
        """
        size = self._item_bytes * math.prod(self._chunks)
        buffer = np.empty(size + size // 8 + 4096, np.uint8)  # what cannot be compressed grows a little
        columns = (range(0, n, step) for n, step in zip(self.shape[1:], self._chunks[1:], strict=True))
        for offsets in itertools.product([row * self._chunks[0]], *columns):
            mask, data = self.dataset.id.read_direct_chunk(offsets, out=buffer)
            yield self._unfiltered(bytes(data), mask, size)

    def _unfiltered(self, data: bytes, mask: int, size: int) -> bytes:
        for i, code in reversed(list(enumerate(self._filters))):
            if mask >> i & 1:  # this chunk went around the filter
                continue
            if code == _FLETCHER32:
                data = data[:-_FLETCHER32_BYTES]  # HDF5 compares it
            elif code == _DEFLATE:  # one byte too many is enough to tell
                data = zlib.decompressobj().decompress(data, size + _FLETCHER32_BYTES * len(self._filters) + 1)
            elif code != _SHUFFLE:
                return data  # only HDF5 can decompress it
            elif self.is_variable:
                raise DecodeError("a stored chunk is shuffled, which HDF5 never does to values of variable length")
        if len(data) != size:
            raise DecodeError(f"a stored chunk has {len(data):,} bytes, its shape needs {size:,}")
        return data


def _element(name: str, dataset: Any) -> np.dtype[Any]:
    """The type of the elements of values of variable length."""
    h5py = need("h5py", "hdf5")
    properties = dataset.id.get_create_plist()
    codes = filters_of(dataset)
    plain = properties.get_layout() in (h5py.h5d.CONTIGUOUS, h5py.h5d.CHUNKED) and set(codes) <= _FOR_VARIABLE
    if not plain or dataset.ndim != 1 or dataset.file.id.get_create_plist().get_sizes() != (8, 8):
        raise LoaderError(
            f"{name} holds values of variable length in a form that is not read: the dataset should have one "
            "dimension, be contiguous or chunked, and compressed by gzip or not at all"
        )
    element = np.dtype("S1") if h5py.check_string_dtype(dataset.dtype) else h5py.check_vlen_dtype(dataset.dtype)
    return np.dtype(object) if element is None else np.dtype(element)


def check_storage(name: str, dataset: Any, max_bytes: int, file_bytes: int) -> None:
    """Refuses a dataset that HDF5 would look for in other files, or would allocate too much for.

    Args:
        name: names the dataset in errors.
        file_bytes: size of the dataset's file.

    Raises:
        LoaderError: as above.
    """
    properties = dataset.id.get_create_plist()
    if properties.get_external_count():
        raise LoaderError(f"{name} keeps its data in other files (external storage): write them into the file")
    if dataset.is_virtual or not dataset.size:
        return
    if dataset.chunks:
        size = dataset.id.get_type().get_size() * math.prod(dataset.chunks)
        if size > max_bytes:
            raise LoaderError(f"one chunk of {name} has {size:,} bytes, above the limit max_bytes={max_bytes:,}")
        _check_filters(name, filters_of(dataset))
    chunks = math.prod(-(-n // step) for n, step in zip(dataset.shape, dataset.chunks or dataset.shape, strict=True))
    if chunks > file_bytes or not dataset.id.get_storage_size():
        raise LoaderError(f"{name} has shape {dataset.shape}, but was never written")


def filters_of(dataset: Any) -> list[int]:
    """The codes of a dataset's filters, in the order in which they were applied."""
    properties = dataset.id.get_create_plist()
    return [properties.get_filter(i)[0] for i in range(properties.get_nfilters())]


def _check_filters(name: str, codes: list[int]) -> None:
    compressors = [code for code in codes if code not in (_SHUFFLE, _FLETCHER32)]
    for code in compressors:
        if code in _UNBOUNDED:
            raise LoaderError(f"{name} is compressed by {_UNBOUNDED[code]}, which is not read safely: use gzip or LZF")
    if len(compressors) > 1:
        raise LoaderError(f"{name} is compressed {len(compressors)} times: compress it once")
