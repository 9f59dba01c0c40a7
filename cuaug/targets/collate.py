"""`collate`, which merges the labels of a batch's samples, and the one dtype that a loader's labels keep."""

from __future__ import annotations

import contextlib
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from cuaug.errors import DecodeError, LoaderError, SourceError
from cuaug.images.image_types import tensor_fault
from cuaug.targets import holds_targets

# Types of which `collate` merges all values.
_PLAIN_TYPES = {bool, float, str, np.bool_, np.int32, np.int64, np.float32, np.float64}


def collate(labels: Sequence[Any]) -> Any:
    """Merges the labels of N samples into one object.

    Numbers, arrays and lists of numbers become a tensor (N, ...). Dicts become a dict of collated fields, tuples a
    tuple of them. Strings and other objects stay a list of N. Dicts with boxes, instance masks or keypoints also stay
    a list, since their number varies; their arrays become tensors.

    The dtype follows the batch: int64 where all labels are ints, float64 where some are floats.

    Raises:
        LoaderError: labels of different kinds, shapes, fields or lengths, or integers that no integer dtype holds.
    """
    first = labels[0]
    kinds = set(map(type, labels))
    if all(issubclass(kind, Mapping) for kind in kinds) and any(map(holds_targets, labels)):
        return [{name: _to_tensor(value) for name, value in label.items()} for label in labels]
    if isinstance(first, Mapping):
        if all(isinstance(label, Mapping) and label.keys() == first.keys() for label in labels):
            return {name: collate([label[name] for label in labels]) for name in first}
    elif isinstance(first, tuple):
        if all(isinstance(label, tuple) and len(label) == len(first) for label in labels):
            fields = [collate(field) for field in zip(*labels, strict=True)]
            return type(first)(*fields) if hasattr(first, "_fields") else tuple(fields)
    elif isinstance(first, torch.Tensor):
        if all(isinstance(label, torch.Tensor) and label.shape == first.shape for label in labels):
            return torch.stack(list(labels))
    elif isinstance(first, (numbers.Number, np.generic, np.ndarray, list)) and not isinstance(first, (str, bytes)):
        with contextlib.suppress(ValueError, TypeError):  # different shapes, or not numbers
            array = np.asarray(labels)
            if not (array.dtype.kind == "f" and array.size and all(map(_is_integer, labels))):
                return _to_native(array)
            raise SourceError(
                f"labels of one batch are integers that no integer dtype holds, {first!r:.100} the first; "
                f"{array.dtype} would lose digits: return numbers from -2**63 to 2**63 - 1, in arrays of one dtype, or "
                "merge the labels with collate_fn"
            )
        if isinstance(first, list) and all(isinstance(label, list) and _has_text(label) for label in labels):
            return _copy_lists(list(labels))
    elif not any(isinstance(label, (Mapping, tuple, torch.Tensor, np.ndarray, numbers.Number)) for label in labels):
        return list(labels)
    other = next((label for label in labels if _kind(label) != _kind(first)), labels[-1])
    raise SourceError(
        f"labels of one batch do not make a tensor: {first!r:.100} and {other!r:.100}; return one shape or the same "
        "fields, or merge the labels with collate_fn (collate_fn=list keeps a list)"
    )


def to_tensors(label: Any) -> Any:
    """A label with tensors in place of its arrays, also in dicts and tuples: what a user's `collate_fn` receives."""
    if isinstance(label, Mapping):
        return {name: to_tensors(value) for name, value in label.items()}
    if isinstance(label, tuple):
        fields = [to_tensors(value) for value in label]
        return type(label)(*fields) if hasattr(label, "_fields") else tuple(fields)
    return _to_tensor(label)


def check_label(label: Any) -> None:
    """Refuses the label of one sample that `collate` cannot merge with any other.

    Raises:
        DecodeError: an integer beyond int64, or a tensor that is not dense.
    """
    if isinstance(label, (int, np.uint64)):
        if not -(2**63) <= label < 2**63:
            raise DecodeError(f"the label holds an integer of {int(label).bit_length()} bits, beyond int64")
    elif isinstance(label, torch.Tensor):
        if fault := tensor_fault(label):
            raise DecodeError(f"the label holds {fault}")
    elif isinstance(label, Mapping):
        for field in label.values():
            check_label(field)
    elif isinstance(label, (list, tuple)):
        kinds = set(map(type, label))  # long lists of numbers are common
        for item in () if kinds <= _PLAIN_TYPES else (min(label), max(label)) if kinds == {int} else label:
            check_label(item)


def empty_labels(labels: Any) -> Any:
    """The labels of an empty batch, from the collated labels of one sample."""
    if isinstance(labels, dict):
        return {name: empty_labels(field) for name, field in labels.items()}
    if isinstance(labels, tuple):
        fields = [empty_labels(field) for field in labels]
        return type(labels)(*fields) if hasattr(labels, "_fields") else tuple(fields)
    try:
        return None if labels is None else labels[:0]
    except (TypeError, IndexError) as error:
        raise SourceError(
            f"collate_fn returned {labels!r:.100}, which cannot be sliced with [:0] for an empty batch. A batch is "
            "empty where all its samples are damaged (use on_error='replace') or fewer samples are left than ranks "
            "(use last_batch='drop' or 'pad')"
        ) from error


class LabelDtypes:
    """The dtypes of a loader's labels: one per field, for all batches.

    A list of numbers, `labels` of a source, tells the dtype of all batches; else the first batch does.

    Args:
        declared: the labels of all samples, if the source has them.
    """

    def __init__(self, declared: Any = None) -> None:
        self._declared = declared
        self._dtypes: dict[tuple[Any, ...], torch.dtype] | None = None

    def unify(self, labels: Any, indices: torch.Tensor) -> Any:
        """Labels of a batch, as `collate` merges them, in the dtypes of the batches before.

        Integers become the floats that other labels are.

        Raises:
            SourceError: labels that the dtype so far does not hold. It names the sample.
        """
        if self._dtypes is None:
            self._dtypes, declared, self._declared = {}, _dtype_of_numbers(self._declared), None
            # Mixes turn numbers into rows of floats.
            if declared is not None and isinstance(labels, torch.Tensor) and labels.ndim == 1:
                self._dtypes = {(): declared} if _holds(declared, labels.dtype) else {}
        return self._unify((), labels, indices)

    def _unify(self, path: tuple[Any, ...], labels: Any, indices: torch.Tensor) -> Any:
        assert self._dtypes is not None
        if type(labels) is dict:
            return {name: self._unify((*path, name), field, indices) for name, field in labels.items()}
        if isinstance(labels, tuple):
            fields = [self._unify((*path, k), field, indices) for k, field in enumerate(labels)]
            return type(labels)(*fields) if hasattr(labels, "_fields") else tuple(fields)
        if not isinstance(labels, torch.Tensor):
            return labels
        is_empty = not labels.shape[0]  # `len` of a tensor is slow
        dtype = self._dtypes.get(path, labels.dtype) if is_empty else self._dtypes.setdefault(path, labels.dtype)
        if labels.dtype == dtype:
            return labels
        if is_empty or _holds(dtype, labels.dtype):
            return labels.to(dtype)
        changed = [not torch.equal(label.to(dtype).to(label.dtype), label) for label in labels]
        first = changed.index(True) if True in changed else 0
        field = "".join(f"[{name!r}]" for name in path)
        raise SourceError(
            f"labels{field} are {dtype} so far, but sample {int(indices[first])} has {labels[first].tolist()!r:.100}, "
            f"{labels.dtype}: give all labels of a data set one type, or merge them with collate_fn"
        )


def _dtype_of_numbers(labels: Any) -> torch.dtype | None:
    """The dtype of all these numbers together; None: they are no plain numbers."""
    if isinstance(labels, range):
        return torch.int64
    if not isinstance(labels, (list, tuple, np.ndarray, torch.Tensor)) or not len(labels):
        return None
    if not isinstance(labels, torch.Tensor):
        kinds = {labels.dtype.type} if isinstance(labels, np.ndarray) else set(map(type, labels))
        if not all(issubclass(kind, (numbers.Real, np.bool_)) for kind in kinds):
            return None
        try:
            return collate(list(labels)).dtype
        except LoaderError:  # integers that no dtype holds: their batch raises the error
            return None
    return labels.dtype if labels.ndim == 1 else None


def _holds(dtype: torch.dtype, other: torch.dtype) -> bool:
    """Whether a dtype holds all values of another."""
    if other.is_floating_point or not dtype.is_floating_point:
        return torch.promote_types(dtype, other) == dtype
    return dtype == torch.float64 or other == torch.bool  # 64-bit integers in float64 as NumPy promotes them


def _to_tensor(value: Any) -> Any:
    """A copy for the consumer to write to: the source or a cache may keep the original. Lists are copied shallowly."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return _to_native(np.array(value, order="C"))
    return value.clone() if isinstance(value, torch.Tensor) else list(value) if type(value) is list else value


def _to_native(array: np.ndarray) -> torch.Tensor:
    """A tensor in native byte order, which torch requires."""
    return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))


def _is_integer(label: Any) -> bool:
    """Whether a label or all items of a nested list are integers."""
    return all(map(_is_integer, label)) if isinstance(label, list) else np.asarray(label).dtype.kind in "biu"


def _copy_lists(label: Any) -> Any:
    """A copy of nested lists that the consumer may write to."""
    return [_copy_lists(item) for item in label] if type(label) is list else label


def _has_text(label: list[Any]) -> bool:
    return any(isinstance(item, str) for item in label)


def _kind(label: Any) -> Any:
    """Equal for two labels that can be merged."""
    if isinstance(label, Mapping):
        return "dict", sorted(map(str, label))
    if isinstance(label, tuple):
        return "tuple", len(label)
    if isinstance(label, torch.Tensor):
        return label.shape, True
    try:
        array = np.asarray(label)
    except (ValueError, TypeError):  # ragged lists, or lists of tensors that NumPy rejects
        return type(label)
    return array.shape, array.dtype.kind in "biufc"
