"""Parquet files with a column of encoded images, and labels of any type."""

from __future__ import annotations

import bisect
import functools
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.arguments import limit
from cuaug._runtime.extras import require_module
from cuaug._runtime.fork import PerProcess
from cuaug.errors import DecodeError, SourceError
from cuaug.remote import ObjectStore, RemoteObject
from cuaug.remote.urls import check, is_url
from cuaug.sources.labels import parse_label_fields
from cuaug.sources.shards.parquet_pages import row_bytes
from cuaug.sources.shards.remote_shards import RemoteShards
from cuaug.sources.shards.row_groups import (
    Footer,
    RowGroupCache,
    RowGroupReader,
    RowGroupTables,
    read_footers,
)
from cuaug.sources.shards.shards import Paths, expand_braces, expand_paths, match_urls
from cuaug.sources.source import ReadAhead, ReprMixin, cache_key, cached_method, fingerprint, relative_paths


def is_image_type(kind: Any) -> bool:
    """Whether a column of this type holds encoded images: binary, or Hugging Face's struct {bytes, path}."""
    types = require_module("pyarrow", "parquet").types
    if types.is_struct(kind):
        index = kind.get_field_index("bytes")
        return index >= 0 and is_image_type(kind.field(index).type)
    return types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)


#: The remedy for a file of paths, which are not opened: the file may be untrusted.
PATHS_REMEDY = ". Paths in a Parquet file are not opened: give (path, label) pairs to a Loader, docs/sources.md#parquet"


def image_bytes(value: Any) -> bytes:
    """The encoded image of a scalar.

    Raises:
        DecodeError: it is null.
    """
    is_struct = value.is_valid and isinstance(value.type, require_module("pyarrow", "parquet").StructType)
    data = value["bytes"] if is_struct else value
    if data.is_valid:
        return data.as_py()
    path = _to_python(value["path"], "path") if is_struct and value.type.get_field_index("path") >= 0 else None
    hint = "" if path is None else f": the file holds only its path, {path!r:.200}{PATHS_REMEDY}"
    raise DecodeError(f"the image is null{hint}")


def check_label_type(kind: Any, where: str) -> None:
    """Refuses a column's type of which no value can be a label.

    Raises:
        SourceError: a struct has two fields of one name, or a time zone is unknown.
    """
    arrow = require_module("pyarrow", "parquet")
    if arrow.types.is_timestamp(kind):
        try:
            arrow.scalar(0, kind).as_py()
        except Exception as error:  # pyarrow raises errors of several kinds
            raise SourceError(f"{where} has the type {kind}, which cannot be converted: {error}") from error
    fields = [kind.field(i) for i in range(kind.num_fields)]
    if arrow.types.is_struct(kind) and len({field.name for field in fields}) < len(fields):
        raise SourceError(f"{where} has the type {kind}, two fields of one name: write the file with different names")
    for field in fields:
        check_label_type(field.type, where)


def to_label(value: Any, name: str) -> Any:
    """A scalar as a label: numbers, bools and text as in Python; lists of numbers as arrays; structs as dicts.

    Raises:
        DecodeError: it is null, a list holds null, or Python has no such value: a year beyond 9999, text that is no
            UTF-8.
    """
    if not value.is_valid:
        raise DecodeError(f"label {name!r} is null")
    types, kind = require_module("pyarrow", "parquet").types, value.type
    if types.is_struct(kind):
        return {field.name: to_label(value[field.name], f"{name}.{field.name}") for field in kind}
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _to_list(value.values, name)
    return _to_python(value, f"label {name!r}")


def _to_python(value: Any, what: str) -> Any:
    """The Python value of a scalar.

    Raises:
        DecodeError: it has none.
    """
    arrow = require_module("pyarrow", "parquet")
    try:
        result = value.as_py()
        # Times of day wrap, and lose nanoseconds.
        is_exact = not arrow.types.is_time(value.type) or value.equals(arrow.scalar(result, value.type))
    except UnicodeDecodeError as error:
        raise DecodeError(f"{what} is no UTF-8 text: {error}") from error
    except Exception as error:  # pyarrow raises errors of several kinds
        raise DecodeError(f"{what} is a {value.type} without a counterpart in Python: {error}") from error
    if not is_exact:
        raise DecodeError(f"{what} is a {value.type} without a counterpart in Python")
    return result


def _to_list(values: Any, name: str) -> Any:
    """An array (n, ...) of numbers, or a list where items are no numbers or differ in length."""
    types, kind = require_module("pyarrow", "parquet").types, values.type
    if values.null_count:
        raise DecodeError(f"label {name!r} holds null")
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        return np.array(values.to_numpy(zero_copy_only=False))  # a copy: a view would keep the row group in memory
    if types.is_fixed_size_list(kind) and not len(values):
        return _empty(kind)
    items = [to_label(value, name) for value in values]
    shapes = {item.shape if isinstance(item, np.ndarray) else None for item in items}
    return np.stack(items) if len(shapes) == 1 and None not in shapes else items


def _empty(kind: Any) -> Any:
    """No items of a list type of fixed size: of boxes an array (0, 4), of masks (0, H, W); of text a list."""
    types, sizes = require_module("pyarrow", "parquet").types, [0]
    while types.is_fixed_size_list(kind):
        sizes.append(kind.list_size)
        kind = kind.value_type
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    return np.empty(sizes, kind.to_pandas_dtype()) if is_number else []


def to_hashable(column: Any) -> Any:
    """A column as an array of numbers or a list, for fingerprints."""
    types, kind = require_module("pyarrow", "parquet").types, column.type
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    return column.to_numpy() if is_number and not column.null_count else column.to_pylist()


# Rows that files of any size may have: of identical images, which a dictionary holds once.
_MIN_ROWS = 1 << 20


class Parquet(ReprMixin):
    """Rows of Parquet files, local or remote. Needs `pip install ".[parquet]"`.

        source = Parquet("data/*.parquet", image="image", label="label")
        loader = cuaug.Loader(source, chain, sampler=cuaug.ShardSampler(source.shard_sizes, 2000))

    A row group is decoded whole, and kept in a cache that all threads share. With `ShardSampler` each row group is
    decoded once while its window passes, if the window's images fit into `cache_bytes`. With `shuffle=True` and a
    source beyond `cache_bytes`, nearly each sample decodes a row group; the log warns of it once. Of remote files, the
    row groups of the next batches are read ahead.

    Local files may be untrusted as far as pyarrow checks them. Checksums of pages are verified where a file has them.

    Args:
        files: a path, a pattern, a folder of .parquet files, or a list of these; also URLs. HTTP servers list no
            patterns and folders.
        image: column with encoded images: binary, or Hugging Face's struct of `bytes` and `path`.
        label: column with the labels: numbers, strings, bools, lists, structs; a list of columns for dict labels with
            these keys; None: a sample's label is its index. Lists of numbers become arrays, structs dicts.
        storage_options: as of `RemoteOptions`. They must pickle if this is to pickle.
        cache_bytes: limit on the decoded row groups in memory, and on one row group with all its columns. Each thread
            may hold one more, with its stored bytes. Read-ahead of remote files holds up to half as much besides.

    Attributes:
        paths: the files.
        shard_sizes: rows of each row group, for `ShardSampler`.
        classes: names of the labels 0, 1, ... from Hugging Face's schema; None: unknown.

    Raises:
        LoaderError: a file is missing, damaged or empty, lacks a column, has columns of other types than the first
            file, a row group larger than `cache_bytes`, or more rows than bytes.
    """

    #: Labels come from the data, so the Loader opens no path in them.
    label_path_names: frozenset[str] = frozenset()

    def __init__(
        self,
        files: Paths,
        image: str = "image",
        label: str | Sequence[str] | None = "label",
        *,
        storage_options: Mapping[str, Any] | None = None,
        cache_bytes: int = 1 << 30,
    ) -> None:
        require_module("pyarrow.parquet", "parquet")
        self.image = image
        self.fields, self._is_dict = parse_label_fields(label)
        self._columns = (image, *(name for name in self.fields if name != image))
        store = ObjectStore(storage_options)
        self.paths = _find_files(files, store)
        footers = read_footers(self.paths, store)
        schema = footers[0].metadata.schema.to_arrow_schema()
        for footer in footers:
            self._check_columns(footer, footer.metadata.schema.to_arrow_schema(), schema)
        groups = [(footer, number) for footer in footers for number in range(footer.metadata.num_row_groups)]
        image_type = schema.field(image).type
        self._has_paths = "path" in [image_type.field(i).name for i in range(image_type.num_fields)]
        self.classes = _class_names(schema.metadata or {}, self.fields[0]) if self._is_single_label else None
        max_bytes = limit("cache_bytes", cache_bytes, 1)
        self._reader = RowGroupReader(groups, store, max_bytes)
        self.shard_sizes = [self._reader.rows(group) for group in range(len(groups))]
        self._ends = list(itertools.accumulate(self.shard_sizes))
        if not self._ends or not self._ends[-1]:
            raise SourceError(f"{self.paths[0]!r}{' ...' if len(self.paths) > 1 else ''} has no rows: nothing to load")
        self._check_rows(footers)
        smallest_row = sum(row_bytes(schema.field(name).type) for name in self._columns)
        for footer, number in groups:
            self._check_size(footer, number, smallest_row, max_bytes)
        self._group_files = list(
            itertools.chain.from_iterable([i] * footer.metadata.num_row_groups for i, footer in enumerate(footers))
        )
        self._group_bytes = np.array([self._reader.size(group) for group in range(len(groups))])
        rows_before = [0, *itertools.accumulate(footer.metadata.num_rows for footer in footers)]
        self._file_starts = rows_before[:-1]
        self._stamps = [[str(o.size), o.version] for footer in footers if isinstance(o := footer.version, RemoteObject)]
        self._cache = PerProcess(functools.partial(RowGroupCache, self._reader, len(groups), max_bytes))
        tables = RowGroupTables(self._cache, self._columns)
        self._remote = RemoteShards(store, tables, max_bytes // 2, range(len(groups))) if self._stamps else None

    def __len__(self) -> int:
        return self._ends[-1]

    def read(self, index: int) -> tuple[bytes, Any]:
        """Returns (encoded image, label).

        Raises:
            DecodeError: the image or a label is null, or the row group is damaged.
            OSError: the file cannot be read, or has changed since the source was made.
        """
        group, row = self._locate(index)
        cache = self._cache.get()
        if self._remote is None:
            table = cache.get(group, self._columns)
        else:
            (part,) = self._remote.sample(index, self._spans)
            table = part.data  # type: ignore[union-attr]  # no sample lacks its row group
        cache.count(group, self._columns)
        return image_bytes(table.column(self.image)[row]), self._label(table, row, index)

    def read_ahead(self, batches: Iterable[NDArray[np.int64]]) -> ReadAhead | None:
        """Decodes the row groups of these batches in advance, if a file is remote: see `Source`."""
        return None if self._remote is None else self._remote.read_ahead(batches, self._spans)

    def remote_counts(self) -> dict[str, int]:
        """Counts of requests, and memory of read-aheads, as `Stats.remote`; empty for local files."""
        return {} if self._remote is None else self._remote.counts()

    def label(self, index: int) -> Any:
        """The label alone, as `read` returns it; it does not read images."""
        if not self.fields:
            return index
        group, row = self._locate(index)
        cache, columns = self._cache.get(), self._columns
        if (table := cache.peek(group, columns)) is None:
            columns = tuple(self.fields)
            table = cache.get(group, columns)
            cache.count(group, columns)
        return self._label(table, row, index)

    def path(self, index: int) -> str:
        """file.parquet row 12"""
        group, _ = self._locate(index)
        file = self._group_files[group]
        return f"{self.paths[file]} row {index - self._file_starts[file]}"

    @cached_method
    def fingerprint(self) -> str:
        """Digest of the files' names, the rows and all labels, which it reads; of Hugging Face's images also paths."""
        names = [f"{self.image}.path"] if self._has_paths else []
        shape = [self.image, self.fields, self._is_dict, self.shard_sizes]
        return fingerprint("parquet", relative_paths(self.paths), shape, self._columns_of_all_groups(names))

    def cache_key(self) -> str:
        """The files' folder, and a digest of their modification times or ETags."""
        return cache_key(self.paths, self.image, self._stamps)

    @property
    def _is_single_label(self) -> bool:
        return bool(self.fields) and not self._is_dict

    def _locate(self, index: int) -> tuple[int, int]:
        """Returns (row group, row in it)."""
        group = bisect.bisect_right(self._ends, index)
        return group, index - (self._ends[group - 1] if group else 0)

    def _spans(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """The row groups of samples, in the form of `SpansOf`."""
        groups = np.searchsorted(self._ends, indices, side="right")
        return np.stack([groups, np.zeros_like(groups), self._group_bytes[groups]], axis=1)[:, None]

    def _label(self, table: Any, row: int, index: int) -> Any:
        values = {name: to_label(table.column(name)[row], name) for name in self.fields}
        return values if self._is_dict else values[self.fields[0]] if self.fields else index

    def _columns_of_all_groups(self, names: list[str]) -> Iterator[Any]:
        columns = [*self.fields, *names]
        for group in range(len(self.shard_sizes)) if columns else ():
            try:
                yield [to_hashable(column) for column in self._reader(group, columns).columns]
            except Exception:  # `read` reports damaged pages, and values without a counterpart in Python
                yield None

    def _check_columns(self, footer: Footer, schema: Any, first: Any) -> None:
        for name in self._columns:
            if name not in schema.names:
                raise SourceError(
                    f"{footer.path!r} has no column {name!r}; it has {', '.join(map(repr, schema.names))}: give "
                    "Parquet(files, image=..., label=...)"
                )
            if (count := schema.names.count(name)) > 1:
                raise SourceError(f"{footer.path!r} has {count} columns {name!r}: write the file with different names")
            kind = schema.field(name).type
            if kind != first.field(name).type:
                raise SourceError(
                    f"{footer.path!r}: column {name!r} has the type {kind}, and {first.field(name).type} in "
                    f"{self.paths[0]!r}"
                )
            if name in self.fields:
                check_label_type(kind, f"{footer.path!r}: column {name!r}")
            if name == self.image and not is_image_type(kind):
                is_text = str(kind) in ("string", "large_string", "string_view")
                raise SourceError(
                    f"{footer.path!r}: column {name!r} has the type {kind}: images are encoded bytes, a binary column "
                    f"or a struct with a binary field 'bytes'{PATHS_REMEDY if is_text else ''}"
                )

    def _check_rows(self, footers: Sequence[Footer]) -> None:
        """Refuses files of nothing but claims: an order of samples takes 8 bytes for each row."""
        size = sum(o.size if isinstance(o := footer.version, RemoteObject) else o[0] for footer in footers)
        if self._ends[-1] > max(size, _MIN_ROWS) or min(self.shard_sizes) < 0:
            raise SourceError(
                f"{self.paths[0]!r}{' ...' if len(self.paths) > 1 else ''} claims {self._ends[-1]:,} rows in {size:,} "
                "bytes, less than one byte for each image: write only rows that have an image"
            )

    def _check_size(self, footer: Footer, number: int, smallest_row: int, max_bytes: int) -> None:
        # The size of all columns: pyarrow ends the process if it is asked for one column whose entry is damaged.
        group = footer.metadata.row_group(number)
        size = max(group.total_byte_size, group.num_rows * smallest_row)
        if size > max_bytes:
            raise SourceError(
                f"{footer.path!r}: row group {number} has {group.num_rows} rows of {size:,} bytes, "
                f"above cache_bytes={max_bytes:,}: write smaller row groups, such as "
                "pyarrow.parquet.write_table(..., row_group_size=500), or raise cache_bytes"
            )


def _find_files(files: Paths, store: ObjectStore) -> list[str]:
    """Lists local files as `expand_paths`, and URLs as `match_urls`; braces expand."""
    names = [files] if isinstance(files, (str, os.PathLike)) else files
    if not isinstance(names, Iterable):
        raise SourceError(f"files must be a path, a pattern or a list of these, not {files!r:.100}")
    paths: list[str] = []
    for name in [os.fspath(name) for name in names]:
        if is_url(name):
            urls = list(expand_braces(name))
            check(urls)
            paths += [path for url in urls for path in match_urls(url, store, ".parquet")]
        else:
            paths += expand_paths(name, ".parquet")
    return paths or expand_paths([], ".parquet")


def _class_names(metadata: Mapping[bytes, bytes], label: str) -> list[str] | None:
    """The names of Hugging Face's `ClassLabel`, from the schema's metadata."""
    try:
        feature = json.loads(metadata[b"huggingface"])["info"]["features"][label]
    except (LookupError, RecursionError, TypeError, ValueError):  # written by another program
        return None
    names = feature.get("names") if isinstance(feature, dict) else None
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else None
