"""Labels: selects a record's label fields and decodes them from bytes."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug._runtime.npy import decode_npy, decode_npz
from cuaug.errors import ArgumentError, DecodeError, SourceError
from cuaug.images.image_types import tensor_fault

log = logging.getLogger("cuaug")

#: The argument `classes` of sources: class names in label order; "auto", or None to keep labels that are text.
Classes: TypeAlias = Sequence[str] | Literal["auto"] | None

INT64 = np.iinfo(np.int64)
_INTEGERS = (int, np.integer, np.bool_)
_FLOATS = (float, np.floating)

#: The class names that a source of this process numbered last.
_last_names: Sequence[str] = ()

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


def labels_at(labels: Any, indices: NDArray[np.int64]) -> list[Any] | None:
    """`labels[i]` of each index; None for a type of the user's, whose code may raise an error for one sample."""
    if type(labels) is np.ndarray:
        return list(labels[indices])
    if type(labels) in (list, tuple, range, LabelColumns):
        return [labels[i] for i in indices.tolist()]
    return None


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
    if isinstance(labels, torch.Tensor) and (fault := tensor_fault(labels)):
        raise ArgumentError(f"labels must be a dense tensor, not {fault}")
    if isinstance(labels, (Sequence, np.ndarray, torch.Tensor)):
        return labels  # type: ignore[return-value]
    if hasattr(labels, "isna") and (missing := np.asarray(labels.isna())).any():
        raise SourceError(f"labels, entry {missing.argmax()}: the label is missing: leave the sample out")
    return to_column(list(labels), "labels, entry {}".format) if hasattr(labels, "__array__") else list(labels)


def to_column(values: Sequence[Any], name: Callable[[int], str], hint: str = "") -> Any:
    """A table's column of labels: an exact array of bool, int64 or float64; a list where no value is a number.

    Args:
        values: Python or NumPy values of any type.
        name: names the row of value i, for errors.
        hint: what to do, for errors.

    Raises:
        SourceError: names the first value that does not fit: text among numbers, NaN among integers, or an integer
            beyond int64.
    """
    kinds = set(map(type, values))
    number_kinds = {kind for kind in kinds if issubclass(kind, (*_INTEGERS, *_FLOATS))}
    if not number_kinds:
        return list(values)
    if kinds <= {bool, np.bool_}:
        return np.array(values, dtype=bool)
    if kinds == {float} or (kinds == {int} and max(values) <= INT64.max and min(values) >= INT64.min):
        return np.array(values)
    is_floating = all(issubclass(kind, _FLOATS) for kind in kinds) or any(map(_is_finite_float, values))
    for i, value in enumerate(values):
        fault = None
        if kinds == number_kinds:
            fault = _number_fault(value, is_floating)
        elif type(value) not in number_kinds:
            if isinstance(value, str) and not value.strip():
                raise SourceError(f"{name(i)}: the label is blank: fill it in, or leave the row out{hint}")
            fault = f"{value!r:.100} is not a number, but other values of the column are"
        if fault:
            raise SourceError(f"{name(i)}: {fault}{hint or ': leave the row out, or give the column one type'}")
    return np.array(values, dtype=np.float64 if is_floating else np.int64)


def _number_fault(value: Any, is_floating: bool) -> str | None:
    """Why a column of integers, or of floats, does not hold a number exactly; None: it does."""
    if isinstance(value, _INTEGERS):
        if not INT64.min <= value <= INT64.max:
            return f"an integer of {int(value).bit_length()} bits is beyond int64"
        is_exact = not is_floating or int(float(value)) == value
        return None if is_exact else f"{value} has more digits than float64, which the column's fractions need"
    if not is_floating:
        return f"{value} is no integer, but the other values of the column are"
    return None if float(value) == value or value != value else f"{value} has more digits than float64"


def _is_finite_float(value: Any) -> bool:
    return isinstance(value, _FLOATS) and math.isfinite(value)


def encode_text(
    labels: Sequence[Any], classes: Classes, where: Callable[[int], str] = "labels: entry {}".format
) -> tuple[Any, list[str] | None]:
    """Turns labels that are class names into class numbers.

    Text is class names if its strings repeat: if there are at most two different ones for three samples. Other text,
    such as captions, stays text.

    Args:
        classes: the class names in label order; "auto": the sorted strings, if the labels are class names; None: text
            stays text.
        where: names the place of label i, for errors.

    Returns:
        (labels, class names): int64 numbers and names; or the labels as they are, and `classes` if given.

    Raises:
        LoaderError: a class name is blank, or not in `classes`.
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
    if classes == "auto" and not names[0].strip():
        raise SourceError(f"{where(values.index(names[0]))}: the label is blank: fill it in, or leave the row out")
    if classes == "auto":
        warn_of_other_numbers(names)
    numbers = {name: number for number, name in enumerate(names)}
    if unknown := set(values) - numbers.keys():
        i = next(i for i, value in enumerate(values) if value in unknown)
        raise ArgumentError(f"{where(i)} is {values[i]!r:.100}, which is not in classes, {names!r:.200}")
    return np.fromiter(map(numbers.__getitem__, values), dtype=np.int64, count=len(values)), names


def warn_of_other_numbers(names: Sequence[str]) -> None:
    """Warns if a class got another number in the source before, as where a table of validation lacks a class.

    Args:
        names: class names found in a source's own labels, in label order.
    """
    global _last_names
    before, _last_names = {name: number for number, name in enumerate(_last_names)}, names
    for number, name in enumerate(names):
        if (other := before.get(name, number)) != number:
            log.warning(
                "the class %.100r has label %d, but %d in the source before, which has other classes: give one of them "
                "the names of all, such as classes=train.classes",
                *(name, number, other),
            )
            return


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
