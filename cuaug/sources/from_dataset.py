"""A torch Dataset, or any object with `len(dataset)` and `dataset[i]`."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
from torch.utils.data import ConcatDataset, Subset

from cuaug._runtime.per_process import PerProcess
from cuaug.errors import ArgumentError
from cuaug.sources._fingerprint import cache_key, cached_method, fingerprint, relative_paths
from cuaug.sources._items import ItemConverter
from cuaug.sources._labels import Classes, encode_text, parse_label_fields
from cuaug.sources._repr import ReprMixin
from cuaug.sources._subset_concat import leaf_datasets

__all__ = ["FromDataset", "choose_class_names"]


class FromDataset(ReprMixin):
    """The items of a map-style Dataset.

    | item | label |
    |---|---|
    | image | the index |
    | (image, label) | label |
    | (image, label, more, ...) | the tuple (label, more, ...) |
    | dict | `item[label]` |

    An image is a path, encoded bytes, a uint8 array of shape (H, W, 3), (H, W, 1) or (H, W), a uint8 tensor (3, H, W),
    (1, H, W) or (H, W), or a PIL image. Arrays and tensors of one dimension are encoded bytes.

    A Dataset should return paths or bytes if it can: its own decoding is slower and decodes whole images. Hugging
    Face's returns bytes after `dataset.cast_column("image", datasets.Image(decode=False))`. A PIL image is used as
    NumPy sees it: to apply its EXIF orientation, as for files, the Dataset calls `PIL.ImageOps.exif_transpose`.

    Class names come from the Dataset's `classes`, from a `ClassLabel` of Hugging Face's `features`, or from text that
    repeats, as in `Files`, where all labels are known: in `targets`, in `samples`, or in a column of text. Labels that
    are class names become class numbers.

    Several loader threads call `dataset[i]` at once. Use `lock=True` for a Dataset that keeps an open file, as many
    written for worker processes do.

    Args:
        dataset: the Dataset. It must pickle if this is to pickle.
        image: key of the image in items that are dicts.
        label: key of the label in items that are dicts; a list of keys for a dict label; None: a sample's label is its
            index.
        tensor_layout: layout of tensors, "CHW" or "HWC".
        lock: let only one thread at a time call the Dataset.
        classes: class names in label order; "auto": as above; None: labels that are text stay text.
        mode: how PIL images, arrays and tensors become images; the same as the loader's `DecodeOptions(mode=)`.

    Attributes:
        classes: the class names, or None.

    An OSError from the Dataset damages one sample, and so do a PIL image with 32-bit channels and a tensor that is not
    dense (meta, sparse, nested). Any other exception ends the iteration.

    Raises:
        LoaderError: the dataset has no length or no items; from `read`: an item is none of these.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        image: str = "image",
        label: str | Sequence[str] | None = "label",
        tensor_layout: str = "CHW",
        lock: bool = False,
        classes: Classes = "auto",
        mode: Literal["RGB", "L", "RGBA", "unchanged"] = "RGB",
    ) -> None:
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            raise ArgumentError(
                f"dataset must have len() and items by index, unlike {type(dataset).__name__}: for an iterable one use "
                "cuaug.sources.FromIterable(dataset, length)"
            )
        if isinstance(dataset, torch.utils.data.IterableDataset):
            raise ArgumentError(
                f"dataset must have items by index; {type(dataset).__name__} is only iterable: use "
                "cuaug.sources.FromIterable(dataset, length)"
            )
        for leaf in leaf_datasets(dataset):
            if not hasattr(leaf, "__getitem__"):
                raise ArgumentError(
                    f"dataset: {type(dataset).__name__} holds a {type(leaf).__name__}, which has no items by index; "
                    "give a Subset or ConcatDataset of sources to a Loader directly"
                )
        if not len(dataset):
            raise ArgumentError(f"dataset is empty: {type(dataset).__name__} has nothing to load")
        self.dataset = dataset
        self._name = type(dataset).__name__
        self._lock: PerProcess[Any] = PerProcess(threading.Lock if lock else contextlib.nullcontext)
        self.classes = choose_class_names(dataset, label, classes)
        self._converter = ItemConverter(self._name, image, label, tensor_layout, self.classes, mode)
        self.mode = self._converter.mode

    def __len__(self) -> int:
        return len(self.dataset)

    def read(self, index: int) -> tuple[Any, Any]:
        """Returns (path, bytes or uint8 array (H, W[, C]), label)."""
        with self._lock.get():
            item = self.dataset[index]
            return self._converter(item, index)  # PIL reads the file here, under the lock

    def path(self, index: int) -> str:
        """TypeOfDataset[index]"""
        return f"{self._name}[{index}]"

    @cached_method
    def fingerprint(self) -> str | None:
        """The Dataset's `fingerprint()`, or a digest of its type, length and `samples` or `targets`.

        `samples` are (path, label) pairs, as in torchvision. A Subset's digest covers its Dataset and indices, a
        ConcatDataset's its members. None: the Dataset, or one inside it, has none of these.
        """
        return _fingerprint(self.dataset)

    def cache_key(self) -> str | None:
        """The common folder of the Dataset's `samples`, and a digest of modification times of up to 1,000 files.

        None: the Dataset has neither `samples` nor `fingerprint()`. `targets` do not identify images.
        """
        samples = [_samples(member) for member in _members(self.dataset)]
        if None in samples:
            return None
        paths = [path for pairs in samples for path, _ in pairs or ()]
        options = [self._converter.image, self._converter.tensor_layout]
        return cache_key(paths, *options) if paths else fingerprint("cache_key", *options)


def choose_class_names(dataset: Any, label: str | Sequence[str] | None, classes: Classes) -> list[str] | None:
    """The names of the labels 0, 1, ...: the given ones, or with "auto" the Dataset's own for its one label."""
    if classes != "auto":
        return None if classes is None else list(classes)
    fields, is_dict = parse_label_fields(label)
    return _class_names(dataset, fields[0] if len(fields) == 1 and not is_dict else None)


def _class_names(dataset: Any, field: str | None) -> list[str] | None:
    """The class names that all innermost Datasets have in common.

    Args:
        field: the label's key in items that are dicts.
    """
    leaves = list(leaf_datasets(dataset))
    found = [_own_class_names(leaf, field) for leaf in leaves]
    return found[0] if found.count(found[0]) == len(found) else None


def _own_class_names(dataset: Any, field: str | None) -> list[str] | None:
    classes = getattr(dataset, "classes", None)
    if isinstance(classes, (list, tuple)):
        return list(classes)
    features = getattr(dataset, "features", None)
    if field is not None and isinstance(features, Mapping) and field in features:
        if isinstance(names := getattr(features[field], "names", None), (list, tuple)):
            return list(names)
        if getattr(features[field], "dtype", None) in ("string", "large_string") and hasattr(dataset, "unique"):
            names = dataset.unique(field)
            return sorted(names) if all(names) and 3 * len(names) <= 2 * len(dataset) else None
    samples, targets = _samples(dataset), getattr(dataset, "targets", None)
    labels = targets if samples is None else [label for _, label in samples]
    if not isinstance(labels, (list, tuple)) or len(labels) != len(dataset):
        return None
    return encode_text(labels, "auto")[1]


def _fingerprint(dataset: Any) -> str | None:
    if _has_fingerprint(dataset):
        return str(dataset.fingerprint())
    if isinstance(dataset, Subset):
        whole = _fingerprint(dataset.dataset)
        return None if whole is None else fingerprint("subset", whole, dataset.indices)
    if isinstance(dataset, ConcatDataset):
        members = [_fingerprint(member) for member in dataset.datasets]
        return None if None in members else fingerprint("concatenated", members)
    classes = getattr(dataset, "classes", None)
    common = [type(dataset).__name__, len(dataset), list(classes) if isinstance(classes, (list, tuple)) else None]
    samples, targets = _samples(dataset), getattr(dataset, "targets", None)
    if samples is not None:
        return fingerprint(
            "dataset", *common, relative_paths([path for path, _ in samples]), [label for _, label in samples]
        )
    return None if targets is None else fingerprint("dataset", *common, targets)


def _members(dataset: Any) -> Iterator[Any]:
    """The innermost Datasets of Subsets and ConcatDatasets, without any that have a `fingerprint()`."""
    if _has_fingerprint(dataset):
        return
    if isinstance(dataset, Subset):
        yield from _members(dataset.dataset)
    elif isinstance(dataset, ConcatDataset):
        for member in dataset.datasets:
            yield from _members(member)
    else:
        yield dataset


def _has_fingerprint(dataset: Any) -> bool:
    return callable(getattr(dataset, "fingerprint", None))


def _samples(dataset: Any) -> list[tuple[str, Any]] | None:
    """The Dataset's (path, label) pairs, one per item, if it has them as in torchvision."""
    samples = getattr(dataset, "samples", None)
    if not isinstance(samples, list) or len(samples) != len(dataset):
        return None
    if not all(isinstance(s, (tuple, list)) and len(s) == 2 and isinstance(s[0], (str, os.PathLike)) for s in samples):
        return None
    return [(os.fspath(path), label) for path, label in samples]
