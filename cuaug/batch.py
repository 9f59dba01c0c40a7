"""What a loader yields, and how the labels of its samples become one."""

from __future__ import annotations

import contextlib
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from cuaug.errors import LoaderError
from cuaug.targets import holds_targets

__all__ = ["Batch", "collate", "each_tensor", "none_of"]

_MISSING: Any = object()


class _Pair(NamedTuple):
    images: Any
    labels: Any


class Batch(_Pair):
    """One batch: unpacks as `images, labels`, and says more by name.

    Attributes:
        images: (N, C, H, W) on the loader's device; of several views of each picture (N, V, C, H, W), and of views of
            several sizes a tuple of these, one for each size. With `stack=False` a list of N images (C, H, W).
        labels: what `collate` makes of the N labels: in the common case a CPU tensor whose first axis is N.
        indices: (N,) int64 on the CPU: which samples of the source these are.
        valid: (N,) bool on the CPU: False where a sample fills a place that is not its own, as padding
            (`last_batch="pad"`) or in place of a damaged one (`on_error="replace"`). Over an epoch and all ranks, each
            sample of the epoch is valid once, except damaged ones.
        epoch: the epoch's number.
        params(): what was applied to each sample, as `Compose.trace` tells it; empty lists on copies.
        to(device): the batch there, as trainers move it.
        copy_into(images, labels): for CUDA graphs.
    """

    # Set on the instance; None on a copy that other code makes of the two elements alone.
    indices: torch.Tensor = None  # type: ignore[assignment]
    valid: torch.Tensor = None  # type: ignore[assignment]
    epoch: int = None  # type: ignore[assignment]
    params: Callable[[], list[list[dict[str, Any]]]] = None  # type: ignore[assignment]

    def __new__(
        cls,
        images: Any,
        labels: Any = _MISSING,
        indices: torch.Tensor | None = None,
        valid: torch.Tensor | None = None,
        epoch: int | None = None,
        params: Callable[[], list[list[dict[str, Any]]]] | None = None,
    ) -> Batch:
        if labels is _MISSING:  # as tuple takes them: fastai rebuilds what it has moved by `type(batch)(parts)`
            if isinstance(images, torch.Tensor):
                raise TypeError("a Batch is of images and labels, and here are only images")
            images, labels = images
        batch = super().__new__(cls, images, labels)
        params = params or (lambda: [[] for _ in (images if isinstance(images, list) else each_tensor(images)[0])])
        batch.__dict__.update(indices=indices, valid=valid, epoch=epoch, params=params)
        return batch

    def to(self, device: str | torch.device, non_blocking: bool = False) -> Batch:
        """The batch with all its tensors on a device, those in the labels, `indices` and `valid` as well.

        Lightning and Accelerate call it.
        """
        parts = (*self, self.indices, self.valid)
        images, labels, indices, valid = (_moved(part, device, non_blocking) for part in parts)
        return Batch(images, labels, indices, valid, self.epoch, self.params)

    def copy_into(self, images: Any, labels: torch.Tensor | None = None) -> None:
        """Copies the batch to where it is always expected: the input of a captured CUDA graph has one address.

        On torch's current stream; nothing waits for the GPU.

        Args:
            images: of this batch's shape, type and layout, a tuple where these are one; on the GPU, allocated once.
            labels: likewise, of the labels' shape and type, where they are one tensor.

        Raises:
            LoaderError: a shape or a type differs (the last batch of an epoch may be smaller: `last_batch="drop"`), or
                the labels are not a tensor.
        """
        own, others = each_tensor(self.images), each_tensor(images)
        if len(own) != len(others):
            raise LoaderError(f"images are {len(own)} tensors, and go into {len(others)}")
        pairs = [("images", *pair) for pair in zip(own, others, strict=True)]
        if labels is not None:
            pairs.append(("labels", self.labels, labels))
        for name, ours, theirs in pairs:
            if not isinstance(ours, torch.Tensor):
                raise LoaderError(f"the labels are a {type(ours).__name__} and not a tensor: copy what is in it")
            if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
                raise LoaderError(
                    f"{name} are {tuple(ours.shape)} {ours.dtype}, and go into {tuple(theirs.shape)} {theirs.dtype}"
                )
        for _, ours, theirs in pairs:
            if theirs.is_cuda and not ours.is_cuda:
                ours = ours.pin_memory()  # from pageable memory the copy would wait for all that the stream has to do
            theirs.copy_(ours, non_blocking=True)

    def __reduce__(self) -> Any:
        return Batch, (self.images, self.labels, self.indices, self.valid, self.epoch)

    def __repr__(self) -> str:
        tensors, apart = each_tensor(self.images), isinstance(self.images, list)
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
        images = f"{len(tensors)} of their own sizes" if apart else shapes
        images += f" {tensors[0].dtype} on {tensors[0].device}" if tensors else ""
        return f"Batch(images: {images}, epoch={self.epoch}, indices={self.indices}, valid={self.valid})"


def each_tensor(images: Any) -> tuple[torch.Tensor, ...]:
    """The tensors of a batch's images: one, as many as its views have sizes, or one for each."""
    return tuple(images) if isinstance(images, (tuple, list)) else (images,)


def collate(labels: Sequence[Any]) -> Any:
    """The labels of N samples as one object, of a kind that depends on what they are and never on chance.

    Numbers, arrays and lists of them become a tensor (N, ...); a dict of fields becomes a dict of collated fields, and
    a tuple a tuple of them; strings and other objects stay a list of N. So do dicts with boxes, masks of instances or
    keypoints, of which each image has its own number; the arrays in them become tensors.

    A tensor's dtype is that of its own batch: int64 where all labels are ints, float64 where some are floats.

    Raises:
        LoaderError: arrays of different shapes, dicts of different fields, tuples of different lengths, or a mixture;
            integers that no integer type holds together.
    """
    first = labels[0]
    kinds = set(map(type, labels))
    if all(issubclass(kind, Mapping) for kind in kinds) and any(map(holds_targets, labels)):
        return [{name: _as_tensor(value) for name, value in label.items()} for label in labels]
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
        with contextlib.suppress(ValueError, TypeError):  # of different shapes, or not numbers
            array = np.asarray(labels)
            if not (array.dtype.kind == "f" and array.size and all(map(_whole, labels))):
                return _native(array)
            raise LoaderError(
                f"labels of one batch, {first!r:.100} the first, are integers, and would become {array.dtype}, which "
                "loses digits: no integer type holds them all; give numbers from -2**63 to 2**63 - 1, in arrays of one "
                "dtype, or say with collate_fn what to make of them"
            )
        if isinstance(first, list) and all(isinstance(label, list) and _holds_text(label) for label in labels):
            return _copied(list(labels))
    elif not any(isinstance(label, (Mapping, tuple, torch.Tensor, np.ndarray, numbers.Number)) for label in labels):
        return list(labels)
    odd = next((label for label in labels if _kind(label) != _kind(first)), labels[-1])
    raise LoaderError(
        f"labels of one batch do not make a tensor: {first!r:.100} and {odd!r:.100}; give them one shape or the same "
        "fields, or say with collate_fn what to make of them (collate_fn=list leaves them as they are)"
    )


def none_of(labels: Any) -> Any:
    """The collated labels of an empty batch, from those of one sample."""
    if isinstance(labels, dict):
        return {name: none_of(field) for name, field in labels.items()}
    if isinstance(labels, tuple):
        fields = [none_of(field) for field in labels]
        return type(labels)(*fields) if hasattr(labels, "_fields") else tuple(fields)
    try:
        return None if labels is None else labels[:0]
    except (TypeError, IndexError) as error:
        raise LoaderError(
            "a batch is empty, as it is where every sample of a batch is damaged (on_error='replace' leaves none "
            "empty), or where fewer samples are left than ranks (last_batch='drop' and 'pad' leave none empty); and "
            f"what collate_fn made of one, {labels!r:.100}, has no part [:0] to stand for none"
        ) from error


def _moved(value: Any, device: str | torch.device, non_blocking: bool) -> Any:
    """Tensors, and others that know how, on the device; also in dicts, lists and tuples."""
    if callable(getattr(value, "to", None)):
        return value.to(device, non_blocking=True) if non_blocking else value.to(device)
    if isinstance(value, dict):
        return {name: _moved(part, device, non_blocking) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        parts = [_moved(part, device, non_blocking) for part in value]
        return parts if isinstance(value, list) else type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def _as_tensor(value: Any) -> Any:
    """A copy, for the consumer to write to: the source or a cache may keep what it gave. Of a list it is shallow."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return _native(np.array(value, order="C"))
    return value.clone() if isinstance(value, torch.Tensor) else list(value) if type(value) is list else value


def _native(array: np.ndarray) -> torch.Tensor:
    """torch knows the processor's byte order only."""
    return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))


def _whole(label: Any) -> bool:
    """Whether it is made of integers alone."""
    return all(map(_whole, label)) if isinstance(label, list) else np.asarray(label).dtype.kind in "biu"


def _copied(label: Any) -> Any:
    """Lists, and lists in them, for the consumer to write to."""
    return [_copied(part) for part in label] if type(label) is list else label


def _holds_text(label: list[Any]) -> bool:
    return any(isinstance(part, str) for part in label)


def _kind(label: Any) -> Any:
    """What two labels have in common if they fit together."""
    if isinstance(label, Mapping):
        return "dict", sorted(map(str, label))
    if isinstance(label, tuple):
        return "tuple", len(label)
    if isinstance(label, torch.Tensor):
        return label.shape, True
    try:
        array = np.asarray(label)
    except (ValueError, TypeError):  # lists of several lengths, or of tensors that NumPy does not take
        return type(label)
    return array.shape, array.dtype.kind in "biufc"
