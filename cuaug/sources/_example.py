"""Reads tf.train.Example, a protobuf message, by hand.

    message Example   { Features features = 1; }
    message Features  { map<string, Feature> feature = 1; }    // a map is a list of messages {key = 1; value = 2}
    message Feature   { oneof kind { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3; } }
    message BytesList { repeated bytes value = 1; }
    message FloatList { repeated float value = 1; }            // packed into one field, or one by one
    message Int64List { repeated int64 value = 1; }            // likewise

The wire format is described at https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["features", "values"]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def features(record: bytes) -> dict[str, memoryview]:
    """The features of an Example, each as its message.

    Raises:
        ValueError: it is no Example.
    """
    found: dict[str, memoryview] = {}
    for message in _submessages(memoryview(record), 1):
        for entry in _submessages(message, 1):
            found[str(_last(entry, 1), "utf-8")] = _last(entry, 2)
    return found


def values(feature: memoryview) -> Any:
    """What a feature holds: a list of bytes, a float32 array or an int64 array; an empty list where no kind is set.

    Raises:
        ValueError: it is no Feature.
    """
    found: Any = []
    for number, wire, content in _fields(feature):
        if number not in (1, 2, 3):
            continue
        if wire != _BYTES:
            raise ValueError(f"a feature's list has wire type {wire}")
        if number == 1:
            found = list(map(bytes, _submessages(content, 1)))
        elif number == 2:
            found = _floats(content)
        else:
            found = _integers(content)
    return found


def _floats(message: memoryview) -> Any:
    data = bytearray()
    for number, wire, content in _fields(message):
        if number == 1:
            if wire not in (_BYTES, _FIXED32) or len(content) % 4:
                raise ValueError(f"{len(content)} bytes of wire type {wire} in a list of floats")
            data += content
    return np.frombuffer(bytes(data), dtype="<f4").astype(np.float32)


def _integers(message: memoryview) -> Any:
    found: list[int] = []
    for number, wire, content in _fields(message):
        if number == 1 and wire == _VARINT:
            found.append(content)
        elif number == 1 and wire == _BYTES:
            at = 0
            while at < len(content):
                value, at = _varint(content, at)
                found.append(value)
        elif number == 1:
            raise ValueError(f"wire type {wire} in a list of integers")
    return np.array(found, dtype=np.uint64).astype(np.int64)  # two's complement


def _last(message: memoryview, wanted: int) -> memoryview:
    """Of a field that should come once, the last counts; one that is left out is empty."""
    content = memoryview(b"")
    for content in _submessages(message, wanted):  # noqa: B007
        pass
    return content


def _submessages(message: memoryview, wanted: int) -> Iterator[memoryview]:
    """The contents of all fields of one number, which hold bytes."""
    for number, wire, content in _fields(message):
        if number == wanted:
            if wire != _BYTES:
                raise ValueError(f"field {number} has wire type {wire}, not {_BYTES}")
            yield content


def _fields(message: memoryview) -> Iterator[tuple[int, int, Any]]:
    """(number, wire type, content) of each field: an integer for a varint, else a view of bytes."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        wire = tag & 7
        if wire == _VARINT:
            content, at = _varint(message, at)
            yield tag >> 3, wire, content
            continue
        if wire == _BYTES:
            size, at = _varint(message, at)
        elif wire in (_FIXED32, _FIXED64):
            size = 4 if wire == _FIXED32 else 8
        else:
            raise ValueError(f"wire type {wire} at byte {at}")
        if at + size > len(message):
            raise ValueError(f"a field of {size} bytes at byte {at} of a message of {len(message)}")
        yield tag >> 3, wire, message[at : at + size]
        at += size


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """(value, where it ends): seven bits a byte, the lowest first; the high bit says that more follow."""
    value = 0
    for k in range(10):
        if at + k >= len(message):
            break
        byte = message[at + k]
        value |= (byte & 127) << (7 * k)
        if byte < 128:
            return value & (2**64 - 1), at + k + 1
    raise ValueError(f"no number at byte {at} of a message of {len(message)}")
