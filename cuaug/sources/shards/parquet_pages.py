"""Reads columns of a row group, and stops where they decode to more than the limit, as the footer may be false."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, BinaryIO

from cuaug._runtime.extras import require_module
from cuaug.errors import DecodeError

_BATCH_ROWS = 256  # decoded between two counts


def read_columns(file: BinaryIO, metadata: Any, number: int, columns: Sequence[str], max_bytes: int) -> Any:
    """Reads columns of row group `number` as a pyarrow Table.

    Raises:
        DecodeError: they decode to more than `max_bytes`, counted after every 256 rows.
    """
    arrow, found = require_module("pyarrow", "parquet"), {}
    reader = require_module("pyarrow.parquet", "parquet").ParquetFile(
        file, metadata=metadata, pre_buffer=False, page_checksum_verification=True
    )
    for name in columns:
        batches = []
        # pyarrow's threads are left out: the loader has its own, and a fork would lack them.
        for batch in reader.iter_batches(_BATCH_ROWS, row_groups=[number], columns=[name], use_threads=False):
            batches.append(batch.column(name if name in batch.schema.names else 0))  # of "image.path" the struct
            max_bytes -= batch.nbytes
            if max_bytes < 0:
                raise DecodeError(
                    "its columns decode to more than cache_bytes: write smaller row groups, or raise cache_bytes"
                )
        found[name] = arrow.chunked_array(batches)
    return arrow.table(found)


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
