"""TFRecord files of tf.train.Example messages, parsed with protobuf, without TensorFlow."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import struct
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.extras import require_module
from cuaug._runtime.limits import DEFAULT_MAX_BYTES
from cuaug.errors import DecodeError, SourceError
from cuaug.remote import RemoteOptions
from cuaug.sources.labels import Decoders, decode_field, decode_text
from cuaug.sources.shards.shard_index import Index, IndexFormat, check_spans, file_size, is_string_list, pread
from cuaug.sources.shards.shards import Paths, ShardedSource, open_shards

# tensorflow/core/example/example.proto and feature.proto, as a FileDescriptorProto.
_MESSAGES = """
name: "example.proto" syntax: "proto3"
message_type {
  name: "BytesList" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_BYTES }
}
message_type {
  name: "FloatList" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_FLOAT }
}
message_type {
  name: "Int64List" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_INT64 }
}
message_type {
  name: "Feature"
  field { name: "bytes_list" number: 1 label: LABEL_OPTIONAL type_name: "BytesList" oneof_index: 0 }
  field { name: "float_list" number: 2 label: LABEL_OPTIONAL type_name: "FloatList" oneof_index: 0 }
  field { name: "int64_list" number: 3 label: LABEL_OPTIONAL type_name: "Int64List" oneof_index: 0 }
  oneof_decl { name: "kind" }
}
message_type {
  name: "Features"
  field { name: "feature" number: 1 label: LABEL_REPEATED type_name: "FeatureEntry" }
  nested_type {
    name: "FeatureEntry"
    field { name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
    field { name: "value" number: 2 label: LABEL_OPTIONAL type_name: "Feature" }
    options { map_entry: true }
  }
}
message_type {
  name: "Example" field { name: "features" number: 1 label: LABEL_OPTIONAL type_name: "Features" }
}
"""
_DTYPES = {"float_list": np.float32, "int64_list": np.int64}


def parse_features(record: bytes) -> Any:
    """Parses an Example into a mapping {name: feature}.

    Raises:
        ValueError: the record is no Example.
        LoaderError: protobuf is not installed.
    """
    example = _example_class()
    try:
        return example.FromString(record).features.feature
    except require_module("google.protobuf.message", "tfrecord").DecodeError as error:
        raise ValueError(str(error)) from error


def feature_values(feature: Any) -> Any:
    """Returns a list of bytes, a float32 array or an int64 array; an empty list if the feature has no kind.

    Raises:
        ValueError: the feature holds bytes but no value. protobuf takes them for a field of a later version.
    """
    kind = feature.WhichOneof("kind")
    holder = feature if kind is None else getattr(feature, kind)
    values = () if kind is None else holder.value
    if not values and holder.ByteSize():
        raise ValueError("it holds no value of its type")
    return np.array(values, _DTYPES[kind]) if kind in _DTYPES else list(values)


@functools.cache
def _example_class() -> Any:
    """The Example class, from a separate pool: TensorFlow registers the same messages in the default pool."""
    file = require_module("google.protobuf.descriptor_pb2", "tfrecord").FileDescriptorProto()
    require_module("google.protobuf.text_format", "tfrecord").Parse(_MESSAGES, file)
    pool = require_module("google.protobuf.descriptor_pool", "tfrecord").DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    factory = require_module("google.protobuf.message_factory", "tfrecord")
    return factory.GetMessageClass(pool.FindMessageTypeByName("Example"))


_LENGTH_BYTES, _CRC_BYTES = 8, 4  # a record: length, checksum of the length, data, checksum of the data
_RECORDS_PROBED = 8  # first records of each file, which show the available features


class TFRecord(ShardedSource):
    """tf.train.Example messages in TFRecord files. Needs `pip install ".[tfrecord]"`.

    An index gives random access to the records. It is made when a file is first opened, by reading the records'
    lengths and checksums, and kept beside the file; if that folder is read-only, in CUAUG_CACHE_DIR or ~/.cache/cuaug.

    Args:
        shards: a path, a pattern such as "train-*-of-01024" or "train-{00000..01023}-of-01024", a folder of .tfrecord
            files, or a list of these. The files must be uncompressed.
        image: feature with the encoded image.
        label: feature with the label; a list of features for a dict label; None: a sample's label is its index. One
            number gives a scalar, several an array (int64 or float32). Bytes are UTF-8: one value gives a string,
            several a list of strings.
        decoders: {feature: function from bytes to a label}, for bytes that are no text. It may raise ValueError and
            must pickle if the source is to pickle.
        verify: check each record against its checksum (CRC-32C) when it is read.
        remote: how URLs are read, such as "gs://photos/train-{00000..01023}-of-01024". Only `*` matches names there.

    Raises:
        LoaderError: a file is missing, damaged, truncated or compressed, or its first records lack a feature.
    """

    def __init__(
        self,
        shards: Paths,
        image: str = "image/encoded",
        label: str | Sequence[str] | None = "image/class/label",
        *,
        decoders: Decoders | None = None,
        verify: bool = False,
        remote: RemoteOptions | None = None,
    ) -> None:
        for module in ("google.protobuf", "google_crc32c"):  # fail now, not during an epoch
            require_module(module, "tfrecord")
        opened = open_shards(_FORMAT, shards, (".tfrecord", ".tfrecords"), remote)
        paths, indexes = opened.paths, opened.indexes
        counts = [len(index.arrays["offset"]) for index in indexes]
        super().__init__(_FORMAT.name, opened, counts, image, label, decoders)
        self.verify = verify
        self._offsets = np.concatenate([index.arrays["offset"] for index in indexes])
        self._sizes = np.concatenate([index.arrays["size"] for index in indexes])
        # Refuse a wrong name now, not during an epoch.
        available = sorted({name for index in indexes for name in index.notes["features"]})
        for name in [image, *self.fields]:
            if name not in available:
                raise SourceError(
                    f"the first {_RECORDS_PROBED} records of {paths[0]!r}{' ...' if len(paths) > 1 else ''} have no "
                    f"feature {name!r}; available: {', '.join(map(repr, available[:20]))}"
                )

    def read(self, index: int) -> tuple[bytes, Any]:
        """Returns (encoded image, label).

        Raises:
            DecodeError: the record is damaged, or lacks the image or a label.
            OSError: the file cannot be read, or has changed since it was indexed.
        """
        record = self._record(index)
        images = _feature(record, self.image)
        if not isinstance(images, list) or len(images) != 1:
            kind = "bytes" if isinstance(images, list) else images.dtype
            raise DecodeError(
                f"feature {self.image!r} must be one image in bytes; it has {len(images)} values of type {kind}"
            )
        return images[0], self._label(record, index)

    def encoded_size(self, index: int) -> int:
        """Bytes of the record; the image is most of it."""
        return int(self._sizes[index])

    def label(self, index: int) -> Any:
        """The label alone, as `read` returns it."""
        return self._label(self._record(index), index) if self.fields else index

    def path(self, index: int) -> str:
        """file[record number]"""
        shard, row = self._locate(index)
        return f"{self.paths[shard]}[{row}]"

    def _spans(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        sizes = self._sizes[indices] + _CRC_BYTES * self.verify
        return np.stack([self._shards_of(indices), self._offsets[indices], sizes], axis=-1)[:, None]

    def _record(self, index: int) -> Any:
        """The record's features, by name."""
        shard, _ = self._locate(index)
        size, (part,) = int(self._sizes[index]), self._begin(index, 1)
        data = self._read_range(shard, int(self._offsets[index]), size + _CRC_BYTES * self.verify, part=part)
        if self.verify:
            data, crc = data[:size], data[size:]
            if masked_crc(data) != crc:
                raise DecodeError("the record is damaged: its checksum does not match")
        try:
            return parse_features(data)
        except ValueError as error:
            raise DecodeError(f"the record is damaged, or no tf.train.Example: {error}") from error

    def _label(self, record: Any, index: int) -> Any:
        values = {name: self._label_value(name, _feature(record, name)) for name in self.fields}
        return values if self._is_dict else values[self.fields[0]] if self.fields else index

    def _label_value(self, name: str, values: Any) -> Any:
        if isinstance(values, list):
            values = [decode_field(name, data, self._decoders.get(name, decode_text)) for data in values]
        return values[0] if len(values) == 1 else values


def _feature(record: Any, name: str) -> Any:
    if name not in record:
        raise DecodeError(f"the record has no feature {name!r}; it has {', '.join(map(repr, sorted(record)[:20]))}")
    try:
        return feature_values(record[name])
    except ValueError as error:
        raise DecodeError(f"feature {name!r} is damaged: {error}") from error


def masked_crc(data: bytes) -> bytes:
    """CRC-32C as TFRecord stores it: masked, because a CRC of data that contains CRCs is weak."""
    crc = require_module("google_crc32c", "tfrecord").value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _scan(path: str, file: BinaryIO) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Scans the records' lengths and checksums, and the feature names of the first records."""
    end = file_size(file)
    offsets: list[int] = []
    sizes: list[int] = []
    digest = hashlib.sha256()
    at = 0
    while at < end:
        header = pread(file, _LENGTH_BYTES + _CRC_BYTES, at)
        if len(header) < _LENGTH_BYTES + _CRC_BYTES:
            raise SourceError(f"{path!r} is truncated: it ends in the header of record {len(sizes)}, at byte {at}")
        if masked_crc(header[:_LENGTH_BYTES]) != header[_LENGTH_BYTES:]:
            problem = "is compressed (gzip), which allows no random access: uncompress it"
            if header[:2] != b"\x1f\x8b":
                problem = f"is no TFRecord file, or damaged: record {len(sizes)}, at byte {at}, has a wrong length"
            raise SourceError(f"{path!r} {problem}")
        (size,) = struct.unpack_from("<Q", header)
        start = at + _LENGTH_BYTES + _CRC_BYTES
        at = start + size + _CRC_BYTES
        if at > end:
            raise SourceError(f"{path!r} is truncated: record {len(sizes)} ends at byte {at}, the file at {end}")
        offsets.append(start)
        sizes.append(size)
        digest.update(header)
        digest.update(pread(file, _CRC_BYTES, start + size))
    names = _feature_names(file, offsets[:_RECORDS_PROBED], sizes[:_RECORDS_PROBED])
    if sizes and not names:
        raise SourceError(f"{path!r}: its first records are no tf.train.Example")
    return {"features": names, "digest": digest.hexdigest()}, {
        "offset": np.array(offsets, np.int64),
        "size": np.array(sizes, np.int64),
    }


def _feature_names(file: BinaryIO, offsets: list[int], sizes: list[int]) -> list[str]:
    """The feature names of some records. Skips damaged or too large ones: `read` reports them."""
    names: set[str] = set()
    for offset, size in zip(offsets, sizes, strict=True):
        if size <= DEFAULT_MAX_BYTES:
            with contextlib.suppress(ValueError):
                names.update(parse_features(pread(file, size, offset)))
    return sorted(names)


def _check(index: Index) -> None:
    """Raises ValueError if `_scan` cannot have made this index."""
    check_spans(index.arrays["offset"], index.arrays["size"], _LENGTH_BYTES + _CRC_BYTES, index.stamp.size - _CRC_BYTES)
    if not is_string_list(index.notes["features"]) or not isinstance(index.notes["digest"], str):
        raise ValueError("its notes have wrong types")


_FORMAT = IndexFormat("tfrecord", _scan, {"offset": "<i8", "size": "<i8"}, _check)
