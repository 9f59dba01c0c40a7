"""Writes samples into a shard: a tar in WebDataset's layout, or a Parquet file."""

from __future__ import annotations

import base64
import tarfile
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np

from cuaug._runtime.extras import require_module
from cuaug.commands.shard.partial_files import PartialFile
from cuaug.commands.shard.samples import EncodedSample, label_file, to_plain
from cuaug.errors import SourceError

__all__ = ["ParquetFormat", "ShardWriter", "TarFormat"]

_BLOCK_BYTES = 512
_END_BYTES = 2 * _BLOCK_BYTES
# Random access reads a row group as a whole; pages of some megabytes cost little more than a sample each.
_ROW_GROUP_BYTES = 8 << 20


class ShardWriter(Protocol):
    """Writes one shard."""

    def add(self, key: str, sample: EncodedSample) -> str:
        """Writes a sample; returns its name in the paths of the source that reads the shard, after the file's."""
        ...

    def finish(self) -> None:
        """Writes the end of the file."""
        ...

    def abandon(self) -> None:
        """Leaves the file unfinished."""
        ...


class TarFormat:
    """Tars: `key.jpg` and `key.cls` for each sample; see `label_file`."""

    extension = ".tar"

    def encode_label(self, label: Any) -> tuple[str, bytes] | None:
        return label_file(label)

    def stored_bytes(self, sample: EncodedSample) -> int:
        label = () if sample.label is None else (sample.label[1],)
        return sum(_BLOCK_BYTES + _padded(len(data)) for data in (sample.image, *label))

    def label_fields(self, sample: EncodedSample) -> list[str]:
        return [] if sample.label is None else [sample.label[0]]

    def open(self, file: PartialFile) -> ShardWriter:
        return _TarWriter(file)

    def opens_with(self, paths: str, images: Iterable[str], labels: Iterable[str]) -> str:
        """The Python expression that opens the finished set."""
        label = repr(";".join(labels)) if labels else None
        return f"cuaug.sources.TarShards({paths!r}, image={';'.join(images)!r}, label={label})"


class _TarWriter:
    def __init__(self, file: PartialFile) -> None:
        self._file = file

    def add(self, key: str, sample: EncodedSample) -> str:
        name = f"{key}.{sample.extension}"
        self._add(name, sample.image)
        if sample.label is not None:
            extension, data = sample.label
            self._add(f"{key}.{extension}", data)
        return f"/{name}"

    def _add(self, name: str, data: bytes) -> None:
        info = tarfile.TarInfo(name)  # no owner and a modification time of 0: equal samples make equal files
        info.size = len(data)
        self._file.write(info.tobuf(tarfile.GNU_FORMAT))
        self._file.write(data)
        self._file.write(bytes(_padded(len(data)) - len(data)))

    def finish(self) -> None:
        self._file.write(bytes(-(self._file.size + _END_BYTES) % tarfile.RECORDSIZE + _END_BYTES))

    def abandon(self) -> None:
        pass


def _padded(size: int) -> int:
    return -(-size // _BLOCK_BYTES) * _BLOCK_BYTES


class ParquetFormat:
    """Parquet files: a column `image` of {bytes, path}, and a column for the label or for each field of dict labels.

    Args:
        labels: labels of some samples, from which the columns get their types.
        schema: from `to_json`, instead of labels.

    Raises:
        LoaderError: the labels fit no columns, or pyarrow is missing.
    """

    extension = ".parquet"

    def __init__(self, labels: Iterable[Any] = (), schema: str | None = None) -> None:
        self._pa = require_module("pyarrow", "parquet")
        require_module("pyarrow.parquet", "parquet")
        if schema is None:
            self.schema = self._schema_of([self.encode_label(label) for label in labels])
        else:
            try:
                self.schema = self._pa.ipc.read_schema(self._pa.BufferReader(base64.b64decode(schema)))
            except (self._pa.ArrowException, ValueError, TypeError, OSError) as error:
                raise SourceError(f"the set's plan is damaged: its schema cannot be read: {error}") from error

    def to_json(self) -> str:
        return base64.b64encode(self.schema.serialize()).decode()

    def encode_label(self, label: Any) -> dict[str, Any]:
        """The columns of a label."""
        label = to_plain(label)
        if not isinstance(label, Mapping):
            return {} if label is None else {"label": label}
        if "image" in label or not all(isinstance(key, str) for key in label):
            raise ValueError(f"its label's keys {list(label)!r:.100} must be strings other than 'image', the column")
        return {key: to_plain(value) for key, value in label.items()}

    def stored_bytes(self, sample: EncodedSample) -> int:
        return len(sample.image) + 64

    def label_fields(self, sample: EncodedSample) -> list[str]:
        return [name for name in self.schema.names if name != "image"]

    def open(self, file: PartialFile) -> ShardWriter:
        return _ParquetWriter(self._pa, self.schema, file)

    def opens_with(self, paths: str, images: Iterable[str], labels: Iterable[str]) -> str:
        """The Python expression that opens the finished set."""
        fields = list(labels)
        label = None if not fields else "label" if fields == ["label"] else fields
        return f"cuaug.sources.Parquet({paths!r}, label={label!r})"

    def _schema_of(self, rows: list[dict[str, Any]]) -> Any:
        names = list(rows[0]) if rows else []
        image = self._pa.struct({"bytes": self._pa.binary(), "path": self._pa.string()})
        columns = {"image": image}
        for name in names:
            values = [row.get(name) for row in rows]
            try:
                columns[name] = self._type_of(values)
            except _misfits(self._pa) as error:
                raise SourceError(f"labels {name!r}, such as {values[0]!r:.100}, make no column: {error}") from error
        return self._pa.schema(columns)

    def _type_of(self, values: list[Any]) -> Any:
        if not all(isinstance(value, np.ndarray) for value in values):
            return self._pa.array(list(map(_to_lists, values))).type
        inner = {value.shape[1:] for value in values}
        kind = self._pa.from_numpy_dtype(np.result_type(*values))
        sizes = inner.pop() if len(inner) == 1 else (-1,) * (values[0].ndim - 1)
        for size in reversed(sizes):  # of fixed size, such as 4 coordinates, so that no boxes are (0, 4)
            kind = self._pa.list_(kind, size)
        return self._pa.list_(kind)


class _ParquetWriter:
    def __init__(self, pa: Any, schema: Any, file: PartialFile) -> None:
        self._pa, self._schema, self._file = pa, schema, file
        # Encoded images do not compress, and no two are equal.
        self._writer = pa.parquet.ParquetWriter(
            file, schema, compression="none", use_dictionary=False, write_page_checksum=True
        )
        self._rows: list[dict[str, Any]] = []
        self._bytes = self._count = 0

    def add(self, key: str, sample: EncodedSample) -> str:
        row = {name: _to_lists(value) for name, value in sample.label.items()}
        if unknown := row.keys() - set(self._schema.names):
            raise SourceError(f"the label of sample {key} has the field {min(unknown)!r}, which earlier labels lack")
        self._rows.append({"image": {"bytes": sample.image, "path": f"{key}.{sample.extension}"}, **row})
        self._bytes += len(sample.image)
        self._count += 1
        if self._bytes >= _ROW_GROUP_BYTES:
            self._write()
        return f" row {self._count - 1}"

    def finish(self) -> None:
        self._write()
        self._writer.close()

    def abandon(self) -> None:
        self._writer.is_open = False  # else it writes the file's end when it is collected

    def _write(self) -> None:
        if not self._rows:
            return
        try:
            table = self._pa.Table.from_pylist(self._rows, self._schema)
        except _misfits(self._pa) as error:
            first = self._rows[0]["image"]["path"]
            raise SourceError(
                f"a label of the samples from {first} on fits no column like the others': {error}"
            ) from error
        self._writer.write_table(table, row_group_size=len(self._rows))
        self._rows, self._bytes = [], 0


def _misfits(pa: Any) -> tuple[type[Exception], ...]:
    """The errors of pyarrow for values that fit no column."""
    return pa.ArrowException, ValueError, TypeError, OverflowError


def _to_lists(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value
