"""Reads columns of a row group within a memory limit: page headers tell the decoded size before pyarrow decodes.

A footer's sizes leave out what a dictionary expands to, and any of them may be false. pyarrow reads a column chunk by
one call of the file's `read`, where `_ChunkFile` adds up its page headers:
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from typing import Any, BinaryIO

from cuaug._runtime.extras import require_module
from cuaug.errors import DecodeError

__all__ = ["read_columns", "row_bytes"]

# Of a number with its levels and offset; of text without its bytes, also the pointers of pyarrow's decoders.
_NUMBER_BYTES, _TEXT_BYTES = 16, 32
_MIN_LIMIT = 16 << 20  # so that the estimates refuse no small row group
_DATA, _DICTIONARY, _DATA_V2 = 5, 7, 8  # fields of a page header
_PLAIN_DICTIONARY, _RLE_DICTIONARY, _DELTA_BYTE_ARRAY = 2, 8, 7  # encodings
_DAMAGE = (AttributeError, LookupError, RecursionError, TypeError, ValueError)


def read_columns(file: BinaryIO, metadata: Any, number: int, columns: Sequence[str], max_bytes: int) -> Any:
    """Reads columns of row group `number` as a pyarrow Table.

    Raises:
        DecodeError: they would decode to more than `max_bytes` and 16 MiB, or a page header is damaged.
    """
    found, max_bytes = {}, max(max_bytes, _MIN_LIMIT)
    for name in columns:
        table = _read_column(file, metadata, number, name, max_bytes)
        max_bytes -= table.nbytes
        found[name] = table.column(name if name in table.column_names else 0)  # of "image.path" the struct
    return require_module("pyarrow", "parquet").table(found)


def row_bytes(kind: Any) -> int:
    """Bytes that each row of an Arrow type takes even if it is null: of text and lists an offset."""
    types = require_module("pyarrow", "parquet").types
    if types.is_fixed_size_list(kind):
        return int(kind.list_size) * row_bytes(kind.value_type)
    if types.is_struct(kind):
        return sum(row_bytes(field.type) for field in kind)
    try:
        return -(-int(kind.bit_width) // 8)
    except ValueError:  # its size varies
        return 8


def _item_bytes(kind: Any) -> int:
    """Bytes that one null in a list may take: pyarrow fills a null list of fixed size with zeros."""
    types = require_module("pyarrow", "parquet").types
    inner = [kind.field(i).type for i in range(kind.num_fields)]
    is_list = inner and not types.is_struct(kind) and not types.is_fixed_size_list(kind)
    return max([0, *map(_item_bytes, inner), *(map(row_bytes, inner) if is_list else ())])


def _read_column(file: BinaryIO, metadata: Any, number: int, name: str, max_bytes: int) -> Any:
    leaves = [metadata.schema.column(i) for i in range(len(metadata.schema))]
    leaves = [leaf for leaf in leaves if leaf.path == name or leaf.path.startswith(f"{name}.")]
    texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
    kinds = [field.type for field in metadata.schema.to_arrow_schema() if f"{name}.".startswith(f"{field.name}.")]
    value_bytes = _TEXT_BYTES if texts else _NUMBER_BYTES
    value_bytes += max([0, *(leaf.length for leaf in leaves), *map(_item_bytes, kinds)])

    chunks = _ChunkFile(file, max_bytes, value_bytes, counts_dictionaries=bool(texts))

    def read(**options: Any) -> Any:
        reader = require_module("pyarrow.parquet", "parquet").ParquetFile(
            chunks, metadata=metadata, pre_buffer=False, page_checksum_verification=True, **options
        )
        # pyarrow's threads are left out: the loader has its own, and a fork would lack them.
        return reader.read_row_group(number, columns=[name], use_threads=False)

    with contextlib.suppress(_DictionaryError):
        return read()
    # Most values may be smaller than their dictionary: pyarrow's default writes up to 1,024 images as one.
    chunks.counts_dictionaries = False
    table = read(read_dictionary=texts)
    _check(sum(map(_text_bytes, table.columns)), max_bytes)
    return table


class _DictionaryError(Exception):
    """The values would be too large if each were as large as the dictionary."""


class _ChunkFile(io.RawIOBase):
    """A file that measures each column chunk that is read from it.

    Args:
        max_bytes: of all chunks, decoded.
        value_bytes: that each value takes at most, apart from text.
        counts_dictionaries: count each value of a dictionary as large as the whole dictionary.
    """

    def __init__(self, file: BinaryIO, max_bytes: int, value_bytes: int, *, counts_dictionaries: bool) -> None:
        super().__init__()
        self._file, self._max_bytes, self._value_bytes = file, max_bytes, value_bytes
        self.counts_dictionaries = counts_dictionaries
        self._chunks: dict[int, Any] = {}
        self._decoded = self._expanded = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def read(self, size: int = -1) -> Any:
        _check(size, self._max_bytes)
        at = self.tell()
        if at not in self._chunks:
            # Of a local file in pyarrow's memory, which it reuses: new memory of this size takes longer than the read.
            self._chunks[at] = getattr(self._file, "read_buffer", self._file.read)(size)
            self._measure(memoryview(self._chunks[at]).cast("B"))
        if self.counts_dictionaries and self._decoded + self._expanded > self._max_bytes:
            raise _DictionaryError
        return self._chunks[at]

    def _measure(self, data: memoryview) -> None:
        try:
            self._add_pages(data)
        except DecodeError:
            raise
        except _DAMAGE as error:
            raise DecodeError(f"a page header is damaged: {error!r}") from error

    def _add_pages(self, data: memoryview) -> None:
        at = dictionary_bytes = 0
        while at < len(data):
            header, at = _parse_struct(data, at)
            size, stored = header[2], header[3]
            if min(size, stored) < 0:
                raise ValueError("a page has a negative size")
            at += stored
            self._decoded += size
            if _DICTIONARY in header:
                dictionary_bytes = max(dictionary_bytes, size)
            for kind in {_DATA, _DICTIONARY, _DATA_V2} & header.keys():
                values = header[kind][1]
                if values < 0:
                    raise ValueError("a page has a negative number of values")
                self._decoded += values * self._value_bytes
                encoding = header[kind][4 if kind == _DATA_V2 else 2]
                if encoding == _DELTA_BYTE_ARRAY:  # each value may repeat all bytes of the page
                    self._decoded += values * size
                elif kind != _DICTIONARY and encoding in (_PLAIN_DICTIONARY, _RLE_DICTIONARY):
                    self._expanded += values * dictionary_bytes
            _check(self._decoded, self._max_bytes)


def _check(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise DecodeError(
            f"its columns may decode to {size:,} bytes, above cache_bytes: write smaller row groups, or raise "
            "cache_bytes"
        )


def _text_bytes(array: Any) -> int:
    """Bytes of the text and binary values of an array whose dictionaries are not expanded yet."""
    arrow = require_module("pyarrow", "parquet")
    if isinstance(array, arrow.ChunkedArray):
        return sum(map(_text_bytes, array.chunks))
    kind = array.type
    if isinstance(array, arrow.DictionaryArray):
        lengths = require_module("pyarrow.compute", "parquet").binary_length(array.dictionary)
        return lengths.take(array.indices).sum().as_py() or 0
    if isinstance(array, arrow.MapArray):
        return _text_bytes(array.keys) + _text_bytes(array.items)
    if isinstance(array, arrow.StructArray):
        return sum(map(_text_bytes, array.flatten()))
    return _text_bytes(array.flatten()) if arrow.types.is_nested(kind) else 0


def _parse_struct(data: memoryview, at: int) -> tuple[dict[int, Any], int]:
    """Parses a struct of Thrift's compact protocol; returns ({field number: value}, where it ends)."""
    fields: dict[int, Any] = {}
    number = 0
    while byte := data[at]:
        at += 1
        if byte >> 4:
            number += byte >> 4
        else:
            number, at = _parse_integer(data, at)
        if number in fields:  # pyarrow would take another one of the two
            raise ValueError(f"field {number} is given twice")
        fields[number], at = _parse_value(byte & 15, data, at)
    return fields, at + 1


def _parse_value(kind: int, data: memoryview, at: int) -> tuple[Any, int]:
    if kind in (1, 2):
        return kind == 1, at
    if kind == 3:
        return data[at], at + 1
    if kind in (4, 5, 6):
        return _parse_integer(data, at)
    if kind == 8:
        size, at = _parse_varint(data, at)
        return data[at : at + size], at + size
    if kind == 12:
        return _parse_struct(data, at)
    raise ValueError(f"a field has the type {kind}, which page headers do not have")


def _parse_integer(data: memoryview, at: int) -> tuple[int, int]:
    value, at = _parse_varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _parse_varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("an integer has more than 64 bits")
