"""tf.train.Example, read by protobuf without TensorFlow."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from cuaug.sources._extras import need

__all__ = ["parse_features", "values"]

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
    """The features of an Example: a mapping from their names.

    Raises:
        ValueError: the record is no Example.
        LoaderError: protobuf is not installed.
    """
    example = _example_class()
    try:
        return example.FromString(record).features.feature
    except need("google.protobuf.message", "tfrecord").DecodeError as error:
        raise ValueError(str(error)) from error


def values(feature: Any) -> Any:
    """A list of bytes, a float32 array or an int64 array; an empty list if the feature has no kind.

    Raises:
        ValueError: there is something, but no value: to protobuf, a field of a later version.
    """
    kind = feature.WhichOneof("kind")
    holder = feature if kind is None else getattr(feature, kind)
    found = () if kind is None else holder.value
    if not found and holder.ByteSize():
        raise ValueError("it holds no value of its type")
    return np.array(found, _DTYPES[kind]) if kind in _DTYPES else list(found)


@functools.cache
def _example_class() -> Any:
    """The message class, from a pool of its own: TensorFlow registers the same messages in the default pool."""
    file = need("google.protobuf.descriptor_pb2", "tfrecord").FileDescriptorProto()
    need("google.protobuf.text_format", "tfrecord").Parse(_MESSAGES, file)
    pool = need("google.protobuf.descriptor_pool", "tfrecord").DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    factory = need("google.protobuf.message_factory", "tfrecord")
    return factory.GetMessageClass(pool.FindMessageTypeByName("Example"))
