"""`Batch`, and `collate`, which merges the labels of its samples."""

from __future__ import annotations

import contextlib
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from cuaug.errors import LoaderError
from cuaug.targets import holds_targets

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["Batch", "collate", "each_tensor", "empty_labels"]

_MISSING: Any = object()


class _Pair(NamedTuple):
    images: Any
    labels: Any


class Batch(_Pair):
    """One batch, which unpacks as `images, labels`.

    Attributes:
        images: (N, C, H, W) on the loader's device. With V views (N, V, C, H, W); with views of several sizes a tuple
            of these, one per size. With `stack=False` a list of N images (C, H, W).
        labels: the labels merged by `collate`, usually a CPU tensor (N, ...).
        indices: (N,) int64 on the CPU, the samples' indices in the source.
        valid: (N,) bool on the CPU. False for padding (`last_batch="pad"`) and for replacements of damaged samples
            (`on_error="replace"`). Over an epoch and all ranks, each undamaged sample is valid once.
        epoch: the epoch's number.
        params(): the applied transforms and parameters of each sample, as in `Compose.trace`; empty lists on copies.
        to(device): a copy of the batch on a device.
        copy_into(images, labels): copies the batch into the static inputs of a CUDA graph.
        normalization: (mean, std) of the chain's last Normalize, which `show` undoes; None if there is none.
    """

    # Set on the instance; None on a copy that other code builds from the two elements alone.
    indices: torch.Tensor = None  # type: ignore[assignment]
    valid: torch.Tensor = None  # type: ignore[assignment]
    epoch: int = None  # type: ignore[assignment]
    params: Callable[[], list[list[dict[str, Any]]]] = None  # type: ignore[assignment]
    normalization: tuple[Sequence[float], Sequence[float]] | None = None

    def __new__(
        cls,
        images: Any,
        labels: Any = _MISSING,
        indices: torch.Tensor | None = None,
        valid: torch.Tensor | None = None,
        epoch: int | None = None,
        params: Callable[[], list[list[dict[str, Any]]]] | None = None,
    ) -> Batch:
        if labels is _MISSING:  # one argument, as for tuple: fastai rebuilds batches by `type(batch)(elements)`
            if isinstance(images, torch.Tensor):
                raise TypeError("labels is missing: Batch(images, labels)")
            images, labels = images
        batch = super().__new__(cls, images, labels)
        params = params or (lambda: [[] for _ in (images if isinstance(images, list) else each_tensor(images)[0])])
        batch.__dict__.update(indices=indices, valid=valid, epoch=epoch, params=params)
        return batch

    def to(self, device: str | torch.device, non_blocking: bool = False) -> Batch:
        """The batch with all its tensors on a device, also those in the labels.

        Lightning and Accelerate call this.
        """
        fields = (*self, self.indices, self.valid)
        images, labels, indices, valid = (_to_device(field, device, non_blocking) for field in fields)
        moved = Batch(images, labels, indices, valid, self.epoch, self.params)
        moved.normalization = self.normalization
        return moved

    def show(self, **options: Any) -> Image:
        """Draw the batch as a grid of pictures, with boxes, masks, keypoints and labels; see `cuaug.show`."""
        from cuaug.drawing import show  # imports PIL

        return show(self, **options)

    def _repr_html_(self) -> str:
        """A notebook's view: the pictures, and a line about them."""
        from cuaug.drawing import to_html

        return to_html(self)

    def copy_into(self, images: Any, labels: torch.Tensor | None = None) -> None:
        """Copies the batch into existing tensors, such as the static inputs of a CUDA graph.

        The copies run on torch's current stream, without synchronization.

        Args:
            images: destination on the GPU, with the shapes, dtypes and memory format of the batch's images; a tuple
                where these are a tuple.
            labels: destination with the shape and dtype of the labels, where they are one tensor.

        Raises:
            LoaderError: a shape or dtype differs (the last batch of an epoch may be smaller: `last_batch="drop"`), or
                the labels are not a tensor.
        """
        sources, targets = each_tensor(self.images), each_tensor(images)
        if len(sources) != len(targets):
            raise LoaderError(f"images has {len(targets)} tensor(s), but the batch has {len(sources)}")
        pairs = [("images", *pair) for pair in zip(sources, targets, strict=True)]
        if labels is not None:
            pairs.append(("labels", self.labels, labels))
        for name, source, target in pairs:
            if not isinstance(source, torch.Tensor):
                raise LoaderError(f"labels of the batch are a {type(source).__name__}, not a tensor: copy its tensors")
            if source.shape != target.shape or source.dtype != target.dtype:
                raise LoaderError(
                    f"{name} is {tuple(target.shape)} {target.dtype}, but the batch has {tuple(source.shape)} "
                    f"{source.dtype}"
                )
        for _, source, target in pairs:
            if target.is_cuda and not source.is_cuda:
                source = source.pin_memory()  # a copy from pageable memory would wait for the stream
            target.copy_(source, non_blocking=True)

    def __reduce__(self) -> Any:
        return Batch, (self.images, self.labels, self.indices, self.valid, self.epoch)

    def __repr__(self) -> str:
        tensors = each_tensor(self.images)
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
        images = f"{len(tensors)} of their own sizes" if isinstance(self.images, list) else shapes
        images += f" {tensors[0].dtype} on {tensors[0].device}" if tensors else ""
        labels = self.labels
        is_tensor = isinstance(labels, torch.Tensor)
        shown = f"{tuple(labels.shape)} {labels.dtype}" if is_tensor else type(labels).__name__
        return f"Batch(images: {images}, labels: {shown}, epoch={self.epoch})"


def each_tensor(images: Any) -> tuple[torch.Tensor, ...]:
    """The tensors of a batch's images: one, one per view size, or one per image."""
    return tuple(images) if isinstance(images, (tuple, list)) else (images,)


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
            raise LoaderError(
                f"labels of one batch are integers that no integer dtype holds, {first!r:.100} the first; "
                f"{array.dtype} would lose digits: return numbers from -2**63 to 2**63 - 1, in arrays of one dtype, or "
                "merge the labels with collate_fn"
            )
        if isinstance(first, list) and all(isinstance(label, list) and _has_text(label) for label in labels):
            return _copy_lists(list(labels))
    elif not any(isinstance(label, (Mapping, tuple, torch.Tensor, np.ndarray, numbers.Number)) for label in labels):
        return list(labels)
    other = next((label for label in labels if _kind(label) != _kind(first)), labels[-1])
    raise LoaderError(
        f"labels of one batch do not make a tensor: {first!r:.100} and {other!r:.100}; return one shape or the same "
        "fields, or merge the labels with collate_fn (collate_fn=list keeps a list)"
    )


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
        raise LoaderError(
            f"collate_fn returned {labels!r:.100}, which cannot be sliced with [:0] for an empty batch. A batch is "
            "empty where all its samples are damaged (use on_error='replace') or fewer samples are left than ranks "
            "(use last_batch='drop' or 'pad')"
        ) from error


def _to_device(value: Any, device: str | torch.device, non_blocking: bool) -> Any:
    """Moves objects that have `to`, also within dicts, lists and tuples."""
    if callable(getattr(value, "to", None)):
        return value.to(device, non_blocking=True) if non_blocking else value.to(device)
    if isinstance(value, dict):
        return {name: _to_device(item, device, non_blocking) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_to_device(item, device, non_blocking) for item in value]
        return items if isinstance(value, list) else type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value


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
