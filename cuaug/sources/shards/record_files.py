"""MosaicML's MDS shards and LitData's chunks: files of records, each found by a table of offsets.

Both formats begin with the number of records and their offsets, uint32. A record begins with the sizes of its fields
of variable size, uint32; then follow the fields. So no library is needed to read them: mosaicml-streaming requires
NumPy before 2.2 and the clients of four clouds, and both decode images that the loader wants encoded.
"""

from __future__ import annotations

import bisect
import itertools
import json
import os
import stat
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from cuaug.errors import DecodeError, SourceError
from cuaug.remote.urls import is_url
from cuaug.sources.file_bytes import open_regular, read_metadata
from cuaug.sources.labels import decode_field, decode_integer, decode_json, decode_text, parse_label_fields
from cuaug.sources.source import ReprMixin, cache_key, cached_method, fingerprint, relative_paths

_FINGERPRINT_RECORDS, _FINGERPRINT_BYTES = 1000, 16 << 20
T = TypeVar("T")


class Field(NamedTuple):
    """A field of every record.

    Attributes:
        kind: its encoding, such as "int" or "jpeg".
        size: in bytes; None: each record tells it.
    """

    name: str
    kind: str
    size: int | None = None


class RecordFile(NamedTuple):
    """A file, its records, and its size in bytes, as the index claims them."""

    path: str
    records: int
    size: int


def _scalar(dtype: str) -> Callable[[bytes], Any]:
    def decode(data: bytes) -> Any:
        if len(data) != np.dtype(dtype).itemsize:
            raise ValueError(f"{len(data)} bytes are no {dtype}")
        return np.frombuffer(data, dtype)[0].item()

    return decode


def _pil_pixels(data: bytes) -> NDArray[np.uint8]:
    """Pixels that PIL's `tobytes` made, after width, height, the length of the mode, and the mode."""
    if len(data) < 12:
        raise ValueError("no header")
    width, height, length = struct.unpack_from("<III", data)
    mode, pixels = data[12 : 12 + length], data[12 + length :]
    channels = {b"L": 1, b"RGB": 3}.get(mode)
    if channels is None or len(pixels) != width * height * channels:
        raise ValueError(f"{len(pixels)} bytes of mode {mode!r} are no {width} x {height} image of mode RGB or L")
    return np.frombuffer(pixels, np.uint8).reshape(height, width, channels)


#: What reading a damaged index.json raises.
_DAMAGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_MAX_NAME = 1000
_WIDTHS = {"int": (8, 16, 32, 64), "uint": (8, 16, 32, 64), "float": (16, 32, 64)}
_DECODERS: Mapping[str, Callable[[bytes], Any]] = {
    "bytes": bytes,
    "jpeg": bytes,
    "png": bytes,
    "pil": _pil_pixels,
    "str": decode_text,
    "json": decode_json,
    "str_int": decode_integer,
    "str_float": float,
    "int": _scalar("<i8"),
    "float": _scalar("<f8"),
    "bool": _scalar("|b1"),
    **{f"{kind}{bits}": _scalar(f"<{kind[0]}{bits // 8}") for kind, widths in _WIDTHS.items() for bits in widths},
}
_IMAGE_KINDS = ("bytes", "jpeg", "png", "pil")


def read_index(folder: str) -> Any:
    """Parses index.json of a folder.

    Raises:
        SourceError: it is missing, or no JSON; or the folder is a URL.
    """
    if is_url(folder):
        raise SourceError(f"{folder!r} is a URL: copy the folder first, since all its files must be local")
    path = os.path.join(folder, "index.json")
    try:
        return json.loads(read_metadata(path))
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path!r} is damaged: {error}") from error


def _read_range(descriptor: int, begin: int, end: int) -> bytes:
    return os.pread(descriptor, end - begin, begin)


def _read_begin(descriptor: int, begin: int, end: int) -> bytes:
    return os.pread(descriptor, min(end - begin, _FINGERPRINT_BYTES), begin)


def path_below(folder: str, name: str) -> str:
    """The path of a file that an index names.

    Raises:
        ValueError: the name leads out of the folder, or no file can have it.
    """
    os.fsencode(name)  # raises for half of a surrogate pair
    if os.path.basename(name) != name or name in ("", ".", "..") or "\0" in name:
        raise ValueError(f"{name!r} is no name of a file in the folder")
    return os.path.join(folder, name)


class RecordSource(ReprMixin):
    """Records of several files.

    Args:
        kind: kind of the files, for the fingerprint.
        files: at least one.
        fields: of each record, in order.
        image: name of the field with the image.
        label: name of the field with the label; a list of names; or None.

    Attributes:
        paths: the files.
        shard_sizes: records of each file, for `ShardSampler`.

    Raises:
        SourceError: a file is missing or of another size than the index claims, or a field is missing or of a kind
            that is not read.
    """

    #: Labels come from the data, so the Loader opens no path in them.
    label_path_names: frozenset[str] = frozenset()

    def __init__(
        self,
        kind: str,
        files: Sequence[RecordFile],
        fields: Sequence[Field],
        image: str,
        label: str | Sequence[str] | None,
    ) -> None:
        self._kind, self._files, self._all_fields = kind, list(files), list(fields)
        self.image = image
        self.fields, self._is_dict = parse_label_fields(label)
        self.paths = [file.path for file in files]
        self.shard_sizes = [file.records for file in files]
        self._ends = list(itertools.accumulate(self.shard_sizes))
        self._stamps = [self._check_file(file) for file in files]
        if not self._ends or not self._ends[-1]:
            raise SourceError(f"the index of {kind} files has no samples: there is nothing to load")
        self._places = {field.name: i for i, field in enumerate(fields)}
        for name in (image, *self.fields):
            self._check_field(name)
        self._offsets: dict[int, NDArray[np.uint32]] = {}

    def __len__(self) -> int:
        return self._ends[-1]

    def read(self, index: int) -> tuple[Any, Any]:
        """Returns (encoded image or uint8 array (H, W, C), label).

        Raises:
            DecodeError: the record is damaged.
            OSError: the file cannot be read, or has changed since the source was made.
        """
        fields = self._split(self._record(*self._locate(index), _read_range))
        image = self._decode(self.image, fields)
        labels = {name: self._decode(name, fields) for name in self.fields}
        return image, labels if self._is_dict else labels[self.fields[0]] if self.fields else index

    def encoded_size(self, index: int) -> int:
        """Bytes of the record; the image is most of it.

        Raises:
            DecodeError: the record is damaged.
            OSError: the file cannot be read, or has changed since the source was made.
        """
        return self._record(*self._locate(index), lambda _, begin, end: end - begin)

    def path(self, index: int) -> str:
        """shard.00000.mds record 12"""
        file, row = self._locate(index)
        return f"{self.paths[file]} record {row}"

    @cached_method
    def fingerprint(self) -> str:
        """Digest of the files' names and sizes, the fields, and the first 16 MiB of up to 1,000 records."""
        sizes = [[file.records, file.size] for file in self._files]
        fields = [list(map(str, field)) for field in self._all_fields]
        chosen = range(0, len(self), -(-len(self) // _FINGERPRINT_RECORDS))
        names = [self.image, self.fields, self._is_dict]
        records = map(self._record_or_none, chosen)
        return fingerprint(self._kind, relative_paths(self.paths), sizes, fields, names, records)

    def cache_key(self) -> str:
        """The files' folder, and a digest of their modification times."""
        return cache_key(self.paths, self.image)

    def _check_file(self, file: RecordFile) -> tuple[int, int]:
        try:
            status = os.stat(file.path)
        except OSError as error:
            raise SourceError(f"cannot read {file.path!r}: {error.strerror}; all files must be local") from error
        if not stat.S_ISREG(status.st_mode):
            raise SourceError(f"{file.path!r} is no regular file")
        if status.st_size != file.size:
            raise SourceError(
                f"{file.path!r} has {status.st_size} bytes, but the index claims {file.size}: it is truncated, or "
                "belongs to another index"
            )
        if file.records < 0 or 4 * (file.records + 2) > file.size:
            raise SourceError(f"{file.path!r} has {file.size} bytes, too few for the index's {file.records} records")
        return status.st_size, status.st_mtime_ns

    def _check_field(self, name: str) -> None:
        if name not in self._places:
            raise SourceError(
                f"{self.paths[0]!r} has no field {name!r}; it has {', '.join(map(repr, self._places))}: give image= "
                "and label="
            )
        kind = self._all_fields[self._places[name]].kind
        kinds = _IMAGE_KINDS if name == self.image else _DECODERS
        if kind not in kinds:
            raise SourceError(
                f"{self.paths[0]!r}: field {name!r} has the encoding {kind!r}; {', '.join(kinds)} are read. Give the "
                "library's own Dataset to cuaug.sources.FromDataset or FromIterable"
            )

    def _locate(self, index: int) -> tuple[int, int]:
        file = bisect.bisect_right(self._ends, index)
        return file, index - (self._ends[file - 1] if file else 0)

    def _record(self, file: int, row: int, use: Callable[[int, int, int], T]) -> T:
        """Calls `use` with the file's descriptor and the beginning and end of a record."""
        descriptor = open_regular(self.paths[file], os.O_RDONLY)
        try:
            status = os.fstat(descriptor)
            if (status.st_size, status.st_mtime_ns) != self._stamps[file]:
                raise OSError(f"{self.paths[file]!r} has changed since its index was read: make the source again")
            offsets = self._offsets.get(file)
            if offsets is None:
                count = self._files[file].records
                offsets = np.frombuffer(os.pread(descriptor, 4 * (count + 1), 4), "<u4")
                self._offsets[file] = offsets
            begin, end = map(int, offsets[row : row + 2])
            if not 4 * (len(offsets) + 1) <= begin <= end <= status.st_size:
                raise DecodeError(f"record {row} lies at bytes {begin} to {end} of {status.st_size}")
            return use(descriptor, begin, end)
        finally:
            os.close(descriptor)

    def _record_or_none(self, index: int) -> bytes | None:
        try:
            return self._record(*self._locate(index), _read_begin)
        except DecodeError:  # `read` reports it; the fingerprint goes on
            return None

    def _split(self, record: bytes) -> list[bytes]:
        """The bytes of each field."""
        if not record and self._kind == "litdata":
            raise DecodeError(
                "the record is empty: litdata stores dicts of bytes, numbers and text as Arrow tables where pyarrow "
                "is installed, which cuaug does not read; write the set again, and return tuples from the function"
            )
        count = sum(field.size is None for field in self._all_fields)
        if len(record) < 4 * count:
            raise DecodeError(f"the record has {len(record)} bytes, too few for the sizes of {count} fields")
        given = iter(struct.unpack_from(f"<{count}I", record))
        sizes = [next(given) if field.size is None else field.size for field in self._all_fields]
        if 4 * count + sum(sizes) != len(record):
            raise DecodeError(f"the record has {len(record)} bytes, its fields {4 * count + sum(sizes)}")
        ends = [4 * count, *itertools.accumulate(sizes, initial=4 * count)][1:]
        return [record[begin:end] for begin, end in itertools.pairwise(ends)]

    def _decode(self, name: str, fields: Sequence[bytes]) -> Any:
        place = self._places[name]
        return decode_field(name, fields[place], _DECODERS[self._all_fields[place].kind])


class Mds(RecordSource):
    """Samples in MDS shards of mosaicml-streaming, from a local folder that holds all of them.

        source = cuaug.sources.Mds("imagenet/train", image="image", label="label")
        loader = cuaug.Loader(source, chain, batch_size=256, shuffle=True)

    Images are read as they are stored, in a column of "jpeg", "png", "bytes" or "pil". mosaicml-streaming is not
    needed. Columns of "pkl" can run code and are refused, as are compressed shards without their uncompressed files.

    Args:
        folder: the folder with index.json.
        image: column with the image.
        label: column with the label: a number, text or JSON; a list of columns for dict labels with these keys; None:
            a sample's label is its index.

    Raises:
        LoaderError: the index or a shard is missing, truncated or of another format, or a column is missing or of an
            encoding that is not read.
    """

    def __init__(
        self, folder: str | os.PathLike[str], image: str = "image", label: str | Sequence[str] | None = "label"
    ) -> None:
        folder = os.fspath(folder)
        try:
            shards = read_index(folder)["shards"]
            columns = [_columns(shard) for shard in shards]
            files = [
                RecordFile(
                    path_below(folder, shard["raw_data"]["basename"]),
                    int(shard["samples"]),
                    int(shard["raw_data"]["bytes"]),
                )
                for shard in shards
            ]
        except _DAMAGE as error:
            raise SourceError(f"{folder!r}: index.json is no index of MDS shards: {error!r}") from error
        for shard, file, fields in zip(shards, files, columns, strict=True):
            if shard.get("compression") and not os.path.exists(file.path):
                raise SourceError(f"{file.path!r} is compressed ({shard['compression']}): decompress the shards first")
            if fields != columns[0]:
                raise SourceError(f"{file.path!r} has other columns than {files[0].path!r}")
        super().__init__("mds", files, columns[0] if columns else [], image, label)


def _columns(shard: Any) -> list[Field]:
    if (shard["format"], shard["version"]) != ("mds", 2):
        raise ValueError(f"format {shard['format']!r}, version {shard['version']!r}; MDS version 2 is read")
    columns = zip(shard["column_names"], shard["column_encodings"], shard["column_sizes"], strict=True)
    return [Field(str(name), str(kind), int(size) if size else None) for name, kind, size in columns]


# Other kinds of these names differ from MDS's.
_KINDS = ("bool", "bytes", "float", "int", "jpeg", "pil", "str")


class LitData(RecordSource):
    """Samples in chunks that `litdata.optimize` wrote, from a local folder that holds all of them.

        source = cuaug.sources.LitData("imagenet/train", image="image", label="label")
        loader = cuaug.Loader(source, chain, batch_size=256, shuffle=True)

    Images are read as they are stored, as "jpeg", "bytes" or "pil". litdata is not needed. Compressed and encrypted
    chunks are refused. Arrow tables are not read: litdata stores dicts of bytes, numbers and text as such where pyarrow
    is installed.

    Args:
        folder: the folder with index.json.
        image: name of the image in a sample. Samples that are dicts have their keys as names, nested ones such as
            "a.b"; samples that are tuples or lists have "0", "1", ....
        label: name of the label: a number, bool or text; a list of names for dict labels with these keys; None: a
            sample's label is its index.

    Raises:
        LoaderError: the index or a chunk is missing, truncated, compressed or encrypted, or a name is missing or of an
            encoding that is not read.
    """

    def __init__(
        self, folder: str | os.PathLike[str], image: str = "image", label: str | Sequence[str] | None = "label"
    ) -> None:
        folder = os.fspath(folder)
        index = read_index(folder)
        try:
            config = index["config"]
            for name in ("compression", "encryption"):
                if config.get(name):
                    raise SourceError(f"{folder!r}: the chunks have {name} ({config[name]}): write them without")
            if config.get("item_loader", "PyTreeLoader") != "PyTreeLoader":
                raise ValueError(f"item_loader is {config['item_loader']!r}")
            names = list(_names(json.loads(config["data_spec"])[1]))
            kinds = [kind.partition(":")[0] for kind in config["data_format"]]
            fields = [
                Field(name, kind if kind in _KINDS else f"LitData {kind}")
                for name, kind in zip(names, kinds, strict=True)
            ]
            files = []
            for chunk in index["chunks"]:
                path = path_below(folder, os.path.basename(chunk["filename"]))
                size = _file_size(path, int(chunk["chunk_bytes"]))
                files.append(RecordFile(path, int(chunk["chunk_size"]), size))
        except _DAMAGE as error:
            raise SourceError(f"{folder!r}: index.json is no index of LitData chunks: {error!r}") from error
        super().__init__("litdata", files, fields, image, label)


def _file_size(path: str, claimed: int) -> int:
    """The size of a chunk; some versions of litdata claim it without the chunk's header."""
    return max(claimed, os.path.getsize(path) if os.path.exists(path) else 0)


def _names(spec: Any, prefix: str = "") -> Iterator[str]:
    """The names of a sample's values, in the order of their storage."""
    if len(prefix) > _MAX_NAME:  # each value within repeats it
        raise ValueError(f"a name has more than {_MAX_NAME} characters")
    if spec["type"] is None:
        yield prefix.removesuffix(".") or "0"
        return
    children = spec["children_spec"]
    keys = json.loads(spec["context"]) if spec["type"].endswith("dict") else range(len(children))
    for key, child in zip(keys, children, strict=True):
        yield from _names(child, f"{prefix}{key}.")
