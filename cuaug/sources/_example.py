"""Parses tf.train.Example messages with protobuf, without TensorFlow."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from cuaug._runtime.extras import require_module

__all__ = ["feature_values", "parse_features"]

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
