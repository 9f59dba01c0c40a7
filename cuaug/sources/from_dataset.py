"""A torch Dataset, or any object with `len(dataset)` and `dataset[i]`."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import ConcatDataset, Subset

from cuaug._runtime.per_process import PerProcess
from cuaug.arguments import one_of
from cuaug.errors import ArgumentError, DecodeError, SourceError
from cuaug.sources._fingerprint import cache_key, cached_method, fingerprint, relative_paths
from cuaug.sources._labels import Classes, encode_text, parse_label_fields
from cuaug.sources._repr import ReprMixin
from cuaug.sources._subset_concat import leaf_datasets

__all__ = ["FromDataset"]

_MODES = ("RGB", "L", "RGBA", "unchanged")
#: Dtypes of tensors that are images, in 8-bit modes and in mode "unchanged".
_TENSOR_DTYPES = ((torch.uint8,), (torch.uint8, torch.uint16, torch.float32))


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

    An OSError from the Dataset damages one sample, and so does a PIL image with 32-bit channels. Any other exception
    ends the iteration.

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
                f"dataset must have len() and items by index, unlike {type(dataset).__name__}; an iterable one has no "
                "order that could be shuffled or resumed"
            )
        if isinstance(dataset, torch.utils.data.IterableDataset):
            raise ArgumentError(f"dataset must have items by index; {type(dataset).__name__} is only iterable")
        for leaf in leaf_datasets(dataset):
            if not hasattr(leaf, "__getitem__"):
                raise ArgumentError(
                    f"dataset: {type(dataset).__name__} holds a {type(leaf).__name__}, which has no items by index; "
                    "give a Subset or ConcatDataset of sources to a Loader directly"
                )
        if not len(dataset):
            raise ArgumentError(f"dataset is empty: {type(dataset).__name__} has nothing to load")
        if tensor_layout not in ("CHW", "HWC"):
            raise ArgumentError(f"tensor_layout must be 'CHW' or 'HWC', not {tensor_layout!r}")
        self.dataset = dataset
        self.tensor_layout = tensor_layout
        self.mode = one_of("mode", mode, _MODES)
        self._name = type(dataset).__name__
        self._image = image
        self._fields, self._is_dict = parse_label_fields(label)
        self._lock: PerProcess[Any] = PerProcess(threading.Lock if lock else contextlib.nullcontext)
        field = self._fields[0] if len(self._fields) == 1 and not self._is_dict else None
        self.classes = _class_names(dataset, field) if classes == "auto" else None if classes is None else list(classes)
        names = [] if classes is None or self.classes is None else self.classes
        self._class_numbers = {name: number for number, name in enumerate(names) if isinstance(name, str)}

    def __len__(self) -> int:
        return len(self.dataset)

    def read(self, index: int) -> tuple[Any, Any]:
        """Returns (path, bytes or uint8 array (H, W[, C]), label)."""
        with self._lock.get():
            item = self.dataset[index]
            if isinstance(item, Mapping):
                image, label = self._split_dict(item, index)
            elif isinstance(item, (tuple, list)) and item:
                image, label = item[0], tuple(item[1:])
                label = label[0] if len(label) == 1 else label or index
            else:
                image, label = item, index
            if self._class_numbers and isinstance(label, str):
                label = self._class_number(label, index)
            return self._convert_image(image, index), label  # PIL reads the file here, under the lock

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
        options = [self._image, self.tensor_layout]
        return cache_key(paths, *options) if paths else fingerprint("cache_key", *options)

    def _class_number(self, label: str, index: int) -> int:
        number = self._class_numbers.get(label)
        if number is None:
            raise SourceError(
                f"item {index} of {self._name} has the label {label!r:.100}, which is not in its classes, "
                f"{self.classes!r:.200}: give FromDataset(dataset, classes=[...]), or classes=None to keep text"
            )
        return number

    def _split_dict(self, item: Mapping[str, Any], index: int) -> tuple[Any, Any]:
        missing = [name for name in (self._image, *self._fields) if name not in item]
        if missing:
            raise SourceError(
                f"item {index} of {self._name} has no {missing[0]!r}; it has {', '.join(map(repr, item))}: name the "
                "image and the label, FromDataset(dataset, image=..., label=...)"
            )
        values = {name: item[name] for name in self._fields}
        return item[self._image], values if self._is_dict else values[self._fields[0]] if self._fields else index

    def _convert_image(self, image: Any, index: int) -> Any:
        """Converts an image to a path, bytes or an array."""
        if isinstance(image, Mapping) and image.keys() == {"bytes", "path"}:  # Hugging Face's Image(decode=False)
            image = image["path"] if image["bytes"] is None else image["bytes"]
        if isinstance(image, (str, os.PathLike, bytes, bytearray, memoryview)):
            return image
        pillow = sys.modules.get("PIL.Image")  # a PIL image exists only after this import
        if pillow is not None and isinstance(image, pillow.Image):
            if image.mode == "RGB" and self.mode in ("RGB", "unchanged"):
                return np.asarray(image)
            from cuaug.codec import pil_to_rgb8  # imports PIL

            return pil_to_rgb8(image) if self.mode == "RGB" else _pil_pixels(image, self.mode)
        pixels = image
        if isinstance(image, torch.Tensor) and image.dtype in _TENSOR_DTYPES[self.mode == "unchanged"]:
            pixels = image.detach().cpu()
            if self.tensor_layout == "CHW" and pixels.ndim == 3:
                pixels = pixels.permute(1, 2, 0).contiguous()  # twice as fast as in NumPy
            pixels = pixels.numpy()
        if self.mode != "RGB" and isinstance(pixels, np.ndarray):
            return np.ascontiguousarray(pixels)  # the loader checks its channels and dtype
        if isinstance(pixels, np.ndarray) and pixels.dtype == np.uint8:
            shape = pixels.shape
            if len(shape) in (1, 2) or (len(shape) == 3 and shape[2] in (1, 3)):
                return np.ascontiguousarray(pixels)
        raise SourceError(
            f"item {index} of {self._name} has the image {_describe(image)}: it must be a path, encoded bytes, a PIL "
            "image, or uint8 with 1 or 3 channels, an array (H, W, C) or a tensor "
            f"({', '.join(self.tensor_layout)}){self._hint(image)}"
        )

    def _hint(self, image: Any) -> str:
        """How to fix an array or tensor that is no image, if known."""
        dtype = str(getattr(image, "dtype", ""))
        shape: Sequence[int] = getattr(image, "shape", ())
        if "float" in dtype:
            return "; remove ToTensor and other transforms that make floats"
        if dtype not in ("uint8", "torch.uint8") or len(shape) != 3:
            return ""
        if isinstance(image, np.ndarray) and shape[0] in (1, 3):
            return "; let the Dataset return image.transpose(1, 2, 0)"
        if isinstance(image, torch.Tensor) and shape[2 if self.tensor_layout == "CHW" else 0] in (1, 3):
            other = "HWC" if self.tensor_layout == "CHW" else "CHW"
            return f'; if its tensors have that layout: FromDataset(..., tensor_layout="{other}")'
        return ""


def _pil_pixels(image: Any, mode: str) -> NDArray[Any]:
    """A PIL image as an array (H, W[, C]): converted to a mode, or with the channels and depth that it has."""
    if mode != "unchanged":
        if image.mode.startswith("I;16") or image.mode in ("I", "F"):
            raise DecodeError(f"a PIL image of mode {image.mode!r} would lose depth as {mode!r}: use mode='unchanged'")
        return np.asarray(image.convert(mode))
    if image.mode in ("P", "PA"):
        image = image.convert("RGBA" if image.has_transparency_data else "RGB")
    if image.mode not in ("L", "LA", "RGB", "RGBA", "F") and not image.mode.startswith("I;16"):
        raise DecodeError(f"a PIL image of mode {image.mode!r} has no counterpart: let the Dataset convert it")
    return np.asarray(image, dtype=np.uint16) if image.mode.startswith("I;16") else np.asarray(image)


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


def _describe(image: Any) -> str:
    shape, dtype = tuple(getattr(image, "shape", ())), getattr(image, "dtype", None)
    return f"{type(image).__name__} of shape {shape} and type {dtype}" if shape else f"{image!r:.100}"


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
