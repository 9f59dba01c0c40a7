"""Labels: selects a record's label fields and decodes them from bytes."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import torch

from cuaug._runtime.npy import decode_npy
from cuaug._runtime.npz import decode_npz
from cuaug.errors import ArgumentError, DecodeError

__all__ = [
    "Classes",
    "Decoder",
    "Decoders",
    "LabelColumns",
    "decode_field",
    "decode_integer",
    "decode_json",
    "decode_npy",
    "decode_text",
    "decoder_for",
    "encode_text",
    "parse_label_fields",
    "to_label_sequence",
]


log = logging.getLogger("cuaug")

#: The argument `classes` of sources: class names in label order; "auto", or None to keep labels that are text.
Classes: TypeAlias = Sequence[str] | Literal["auto"] | None

Decoder = Callable[[bytes], Any]
Decoders = Mapping[str, Decoder]


class LabelColumns(Sequence[dict[str, Any]]):
    """Dict labels stored by column: label i is {name: column[i], ...}."""

    def __init__(self, columns: Mapping[str, Sequence[Any]]) -> None:
        self.columns = dict(columns)
        self._length = len(next(iter(self.columns.values())))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        return {name: column[index] for name, column in self.columns.items()}


def parse_label_fields(label: str | Sequence[str] | None) -> tuple[list[str], bool]:
    """Returns (names of the label's fields, whether the label is a dict).

    Raises:
        LoaderError: `label` is no name, list of names or None.
    """
    names = [] if label is None else [label] if isinstance(label, str) else label
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise ArgumentError(f"label must be a field name, a list of names for dict labels, or None, not {label!r}")
    return list(names), label is not None and not isinstance(label, str)


def to_label_sequence(labels: Iterable[Any]) -> Sequence[Any]:
    """Returns a sequence whose item i is the label of sample i. A pandas Series would look up row names instead.

    Raises:
        LoaderError: the labels have no order.
    """
    if isinstance(labels, (Mapping, set, frozenset)) or not isinstance(labels, Iterable):
        raise ArgumentError(f"labels must be one per sample, in sample order, not a {type(labels).__name__}")
    if isinstance(labels, (Sequence, np.ndarray, torch.Tensor)):
        return labels  # type: ignore[return-value]
    return np.asarray(labels) if hasattr(labels, "__array__") else list(labels)  # type: ignore[return-value]


def encode_text(labels: Sequence[Any], classes: Classes) -> tuple[Any, list[str] | None]:
    """Turns labels that are class names into class numbers.

    Text is class names if its strings repeat: if there are at most two different ones for three samples. Other text,
    such as captions, stays text.

    Args:
        classes: the class names in label order; "auto": the sorted strings, if the labels are class names; None: text
            stays text.

    Returns:
        (labels, class names): int64 numbers and names; or the labels as they are, and `classes` if given.

    Raises:
        LoaderError: a label is not in `classes`.
    """
    if classes is None:
        return labels, None
    if isinstance(classes, str) and classes != "auto":
        raise ArgumentError(f"classes must be a list of names, 'auto' or None, not {classes!r}")
    values = labels.tolist() if isinstance(labels, np.ndarray) and labels.dtype.kind in "UO" else labels
    if not len(values) or isinstance(values, (range, np.ndarray, torch.Tensor)) or set(map(type, values)) != {str}:
        return labels, None if classes == "auto" else list(classes)
    names = sorted(set(values)) if classes == "auto" else list(classes)
    if classes == "auto" and 3 * len(names) > 2 * len(values):
        log.warning(
            "labels are text with %d different strings for %d samples, such as %.60r, and stay text; if they are "
            "classes, give classes=[...], else classes=None",
            *(len(names), len(values), names[0]),
        )
        return values, None
    numbers = {name: number for number, name in enumerate(names)}
    if unknown := set(values) - numbers.keys():
        i = next(i for i, value in enumerate(values) if value in unknown)
        raise ArgumentError(f"labels: entry {i} is {values[i]!r:.100}, which is not in classes, {names!r:.200}")
    return np.fromiter(map(numbers.__getitem__, values), dtype=np.int64, count=len(values)), names


def decode_field(name: str, data: bytes, decode: Decoder) -> Any:
    """Decodes the bytes of one field.

    Raises:
        DecodeError: `decode` refuses the bytes.
    """
    try:
        return decode(data)
    except ValueError as error:  # includes UnicodeDecodeError and JSONDecodeError
        raise DecodeError(f"label {name!r} holds {data[:60]!r:.60}: {error}") from error


def decode_text(data: bytes) -> str:
    """Decodes UTF-8."""
    return str(data, "utf-8")


def decode_integer(text: bytes | str) -> int:
    """Parses an integer within int64: a batch could not hold a larger one as a tensor.

    Raises:
        ValueError: the text is anything else.
    """
    value = int(text)
    if not -(2**63) <= value < 2**63:
        raise ValueError("an integer beyond int64")
    return value


def decode_json(data: bytes) -> Any:
    """Parses JSON; integers are within int64."""
    try:
        return json.loads(data, parse_int=decode_integer)
    except RecursionError as error:
        raise ValueError(f"RecursionError: {error}") from error


_DECODER_BY_EXTENSION: dict[str, Decoder] = {
    **dict.fromkeys(("cls", "cls2", "class", "count", "index", "inx", "id"), decode_integer),
    **dict.fromkeys(("json", "jsn"), decode_json),
    **dict.fromkeys(("txt", "text", "transcript"), decode_text),
    "npy": decode_npy,
    "npz": decode_npz,
}


def decoder_for(extension: str, user_decoders: Decoders) -> Decoder:
    """Returns the decoder of a file key.<extension>: the user's, or the extension's usual one."""
    last = extension.rpartition(".")[2]
    return user_decoders.get(extension) or user_decoders.get(last) or _DECODER_BY_EXTENSION.get(last, bytes)
