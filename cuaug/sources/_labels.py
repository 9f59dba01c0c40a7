"""Which of a record's fields are the label, and what becomes of their bytes."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.lib import format as npy
from numpy.typing import NDArray

from cuaug.errors import DecodeError, LoaderError

__all__ = [
    "Decoder",
    "Decoders",
    "as_array",
    "as_integer",
    "as_json",
    "as_text",
    "by_extension",
    "by_place",
    "decoded",
    "fields_of",
]

_NPY_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}

Decoder = Callable[[bytes], Any]
Decoders = Mapping[str, Decoder]


def fields_of(label: str | Sequence[str] | None) -> tuple[list[str], bool]:
    """(names of the label's fields, whether the label is a dict of them).

    Raises:
        LoaderError: not a name, a list of names or None.
    """
    names = [] if label is None else [label] if isinstance(label, str) else label
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise LoaderError(f"label is a field's name, a list of names for a dict, or None, not {label!r}")
    return list(names), label is not None and not isinstance(label, str)


def by_place(labels: Iterable[Any]) -> Sequence[Any]:
    """Labels of which labels[i] is that of sample i: a pandas Series would look for a row of that name.

    Raises:
        LoaderError: they have no order.
    """
    if isinstance(labels, (Mapping, set, frozenset)) or not isinstance(labels, Iterable):
        raise LoaderError(f"labels are one for each sample, in the samples' order, not a {type(labels).__name__}")
    if isinstance(labels, (Sequence, np.ndarray, torch.Tensor)):
        return labels  # type: ignore[return-value]
    return np.asarray(labels) if hasattr(labels, "__array__") else list(labels)  # type: ignore[return-value]


def decoded(name: str, data: bytes, decode: Decoder) -> Any:
    """What `decode` makes of a field.

    Raises:
        DecodeError: it does not accept it.
    """
    try:
        return decode(data)
    except ValueError as error:  # a UnicodeDecodeError and a JSONDecodeError are ones as well
        raise DecodeError(f"label {name!r} holds {data[:60]!r:.60}: {error}") from error


def as_text(data: bytes) -> str:
    """Strings are UTF-8."""
    return str(data, "utf-8")


def as_integer(text: bytes | str) -> int:
    """An integer, as int64 holds it: a batch with a larger one would make no tensor.

    Raises:
        ValueError: the text is something else.
    """
    value = int(text)
    if not -(2**63) <= value < 2**63:
        raise ValueError("an integer beyond int64")
    return value


def as_array(data: bytes) -> NDArray[Any]:
    """An array as `np.save` writes it; never a pickle.

    NumPy would allocate for any shape that the header claims.

    Raises:
        ValueError: the data are something else, or fewer than the header claims.
    """
    file = io.BytesIO(data)
    try:
        version = npy.read_magic(file)
        if version not in _NPY_HEADERS:
            raise ValueError(f"version {version} of NumPy's format")
        shape, is_fortran, dtype = _NPY_HEADERS[version](file)
    except ValueError:
        raise
    except Exception as error:  # NumPy reads the header as Python
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if dtype.hasobject:
        raise ValueError("an array of objects, which is a pickle")
    if any(size < 0 for size in shape):
        raise ValueError(f"an array of shape {shape}")
    left = len(data) - file.tell()
    if math.prod(shape) * dtype.itemsize > left:
        raise ValueError(f"an array of type {dtype} and shape {shape} has more than {left} bytes")
    array = np.frombuffer(data, np.uint8, math.prod(shape) * dtype.itemsize, file.tell()).view(dtype)
    return array.reshape(shape, order="F" if is_fortran else "C").copy()


def as_json(data: bytes) -> Any:
    try:
        return json.loads(data, parse_int=as_integer)
    except RecursionError as error:
        raise ValueError(f"RecursionError: {error}") from error


_BY_EXTENSION: dict[str, Decoder] = {
    **dict.fromkeys(("cls", "cls2", "class", "count", "index", "inx", "id"), as_integer),
    **dict.fromkeys(("json", "jsn"), as_json),
    **dict.fromkeys(("txt", "text", "transcript"), as_text),
    "npy": as_array,
}


def by_extension(extension: str, own: Decoders) -> Decoder:
    """The decoder of a file called key.<extension>: one of the user's, or what the extension commonly stands for."""
    last = extension.rpartition(".")[2]
    return own.get(extension) or own.get(last) or _BY_EXTENSION.get(last, bytes)
