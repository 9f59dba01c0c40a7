"""A torch Dataset, or anything else with `len(dataset)` and `dataset[i]`."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import ConcatDataset, Subset

from cuaug.errors import LoaderError
from cuaug.sources._fingerprint import cache_key, fingerprint, once, relative
from cuaug.sources._labels import fields_of
from cuaug.sources._per_process import PerProcess
from cuaug.sources._repr import ReprMixin
from cuaug.sources._subset_concat import leaves

__all__ = ["FromDataset"]


class FromDataset(ReprMixin):
    """The items of a map-style Dataset.

    An item is (image, label), (image, label, more, ...), whose label is then a tuple, an image alone, whose label is
    its index, or a dict. The image is a path, encoded bytes, a uint8 array of shape (H, W, 3), (H, W, 1) or (H, W), a
    uint8 tensor (3, H, W), (1, H, W) or (H, W), or a PIL image; arrays and tensors of one dimension are encoded bytes.
    Let the Dataset return paths or bytes where it can: what it decodes itself, it decodes whole, and slower. Hugging
    Face's do after `dataset.cast_column("image", datasets.Image(decode=False))`. A PIL image is taken as NumPy sees it;
    to have it turned by its EXIF orientation, as files are, the Dataset calls `PIL.ImageOps.exif_transpose`.

    `dataset[i]` is called from the loader's threads, several at once. A Dataset that keeps an open file, as many do
    that were written for worker processes, does not bear that: say `lock=True`.

    Args:
        dataset: the Dataset. It must pickle if this is to.
        image: the image's key, of items that are dicts.
        label: the label's key, likewise; a list of keys for a dict label; None: a sample's label is its index.
        tensor_layout: "CHW" or "HWC": how tensors lie.
        lock: let one thread at a time in.

    `classes` are the Dataset's where it has them. An OSError that the Dataset raises is that sample's fault, and so is
    a PIL image with samples of 32 bits; anything else ends the iteration.

    Raises:
        LoaderError: it has no length or no items; from `read`: an item is none of these.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        image: str = "image",
        label: str | Sequence[str] | None = "label",
        tensor_layout: str = "CHW",
        lock: bool = False,
    ) -> None:
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            raise LoaderError(
                f"a data set has len() and items by number, which {type(dataset).__name__} has not; an iterable one "
                "has no order that could be shuffled or resumed"
            )
        if isinstance(dataset, torch.utils.data.IterableDataset):
            raise LoaderError(f"{type(dataset).__name__} is iterable only: it has no items by number")
        for leaf in leaves(dataset):
            if not hasattr(leaf, "__getitem__"):
                raise LoaderError(
                    f"{type(dataset).__name__} holds a {type(leaf).__name__}, which has no items by number; what is "
                    "made of sources, a Loader takes as it is"
                )
        if not len(dataset):
            raise LoaderError(f"there is nothing to load: {type(dataset).__name__} is empty")
        if tensor_layout not in ("CHW", "HWC"):
            raise LoaderError(f"tensor_layout is 'CHW' or 'HWC', not {tensor_layout!r}")
        self.dataset = dataset
        self.tensor_layout = tensor_layout
        self._name = type(dataset).__name__
        self._image = image
        self._fields, self._is_dict = fields_of(label)
        self._lock: PerProcess[Any] = PerProcess(threading.Lock if lock else contextlib.nullcontext)
        classes = getattr(dataset, "classes", None)
        self.classes = list(classes) if isinstance(classes, (list, tuple)) else None

    def __len__(self) -> int:
        return len(self.dataset)

    def read(self, index: int) -> tuple[Any, Any]:
        """(path, bytes or (H, W[, C]) uint8 array, label)"""
        with self._lock.get():
            item = self.dataset[index]
            if isinstance(item, Mapping):
                image, label = self._of_mapping(item, index)
            elif isinstance(item, (tuple, list)) and item:
                image, label = item[0], tuple(item[1:])
                label = label[0] if len(label) == 1 else label or index
            else:
                image, label = item, index
            return self._as_data(image, index), label  # PIL reads the file here

    def path(self, index: int) -> str:
        """TypeOfDataset[index]"""
        return f"{self._name}[{index}]"

    @once
    def fingerprint(self) -> str | None:
        """A digest of what the Dataset says of itself: `fingerprint()`; or else its type, its length, and its
        `samples`, (path, label) pairs as torchvision has them, or `targets`. Of a Subset it is of the Dataset within
        and the indices, of a ConcatDataset of its parts. None where one of these says nothing."""
        return _fingerprint(self.dataset)

    def cache_key(self) -> str | None:
        """The common folder of the Dataset's `samples`, and a digest of when up to 1,000 of them were written. None
        where it has neither such nor a `fingerprint()` of its own: `targets` do not tell which pictures they are of."""
        samples = [_samples(part) for part in _parts(self.dataset)]
        if None in samples:
            return None
        paths = [path for pairs in samples for path, _ in pairs or ()]
        options = [self._image, self.tensor_layout]
        return cache_key(paths, *options) if paths else fingerprint("cache_key", *options)

    def _of_mapping(self, item: Mapping[str, Any], index: int) -> tuple[Any, Any]:
        missing = [name for name in (self._image, *self._fields) if name not in item]
        if missing:
            raise LoaderError(
                f"item {index} of {self._name} has no {missing[0]!r}, but {', '.join(map(repr, item))}: say which are "
                "the image and the label, FromDataset(dataset, image=..., label=...)"
            )
        values = {name: item[name] for name in self._fields}
        return item[self._image], values if self._is_dict else values[self._fields[0]] if self._fields else index

    def _as_data(self, image: Any, index: int) -> Any:
        """What the loader takes."""
        if isinstance(image, Mapping) and image.keys() == {"bytes", "path"}:  # Hugging Face's Image(decode=False)
            image = image["path"] if image["bytes"] is None else image["bytes"]
        if isinstance(image, (str, os.PathLike, bytes, bytearray, memoryview)):
            return image
        pillow = sys.modules.get("PIL.Image")  # whoever has a PIL image has imported it
        if pillow is not None and isinstance(image, pillow.Image):
            if image.mode == "RGB":
                return np.asarray(image)
            from cuaug.codec import to_rgb8  # imports PIL

            return to_rgb8(image)
        pixels = image
        if isinstance(image, torch.Tensor) and image.dtype == torch.uint8:
            pixels = image.detach().cpu()
            if self.tensor_layout == "CHW" and pixels.ndim == 3:
                pixels = pixels.permute(1, 2, 0).contiguous()  # in half of NumPy's time
            pixels = pixels.numpy()
        if isinstance(pixels, np.ndarray) and pixels.dtype == np.uint8:
            shape = pixels.shape
            if len(shape) in (1, 2) or (len(shape) == 3 and shape[2] in (1, 3)):
                return np.ascontiguousarray(pixels)
        raise LoaderError(
            f"item {index} of {self._name} has as its image a {_described(image)}: it should be a path, encoded bytes, "
            "a PIL image, or uint8 with 1 or 3 channels, an array (H, W, C) or a tensor "
            f"({', '.join(self.tensor_layout)}){self._advice(image)}"
        )

    def _advice(self, image: Any) -> str:
        """What would make an image of an array or a tensor that is none, where that is known."""
        dtype = str(getattr(image, "dtype", ""))
        shape: Sequence[int] = getattr(image, "shape", ())
        if "float" in dtype:
            return ", hence without ToTensor or other transforms that make floats"
        if dtype not in ("uint8", "torch.uint8") or len(shape) != 3:
            return ""
        if isinstance(image, np.ndarray) and shape[0] in (1, 3):
            return "; let the Dataset return image.transpose(1, 2, 0)"
        if isinstance(image, torch.Tensor) and shape[2 if self.tensor_layout == "CHW" else 0] in (1, 3):
            other = "HWC" if self.tensor_layout == "CHW" else "CHW"
            return f'; if that is how its tensors lie: FromDataset(..., tensor_layout="{other}")'
        return ""


def _described(image: Any) -> str:
    shape, dtype = tuple(getattr(image, "shape", ())), getattr(image, "dtype", None)
    return f"{type(image).__name__} of shape {shape} and type {dtype}" if shape else f"{image!r:.100}"


def _fingerprint(dataset: Any) -> str | None:
    if _knows_itself(dataset):
        return str(dataset.fingerprint())
    if isinstance(dataset, Subset):
        inner = _fingerprint(dataset.dataset)
        return None if inner is None else fingerprint("subset", inner, dataset.indices)
    if isinstance(dataset, ConcatDataset):
        parts = [_fingerprint(part) for part in dataset.datasets]
        return None if None in parts else fingerprint("concatenated", parts)
    classes = getattr(dataset, "classes", None)
    about = [type(dataset).__name__, len(dataset), list(classes) if isinstance(classes, (list, tuple)) else None]
    samples, targets = _samples(dataset), getattr(dataset, "targets", None)
    if samples is not None:
        return fingerprint("dataset", *about, relative([path for path, _ in samples]), [label for _, label in samples])
    return None if targets is None else fingerprint("dataset", *about, targets)


def _parts(dataset: Any) -> Iterator[Any]:
    """The Datasets that Subsets and ConcatDatasets are made of, but for those that know themselves."""
    if _knows_itself(dataset):
        return
    if isinstance(dataset, Subset):
        yield from _parts(dataset.dataset)
    elif isinstance(dataset, ConcatDataset):
        for part in dataset.datasets:
            yield from _parts(part)
    else:
        yield dataset


def _knows_itself(dataset: Any) -> bool:
    return callable(getattr(dataset, "fingerprint", None))


def _samples(dataset: Any) -> list[tuple[str, Any]] | None:
    """Its (path, label) pairs, one for each item, where it has them as torchvision does."""
    samples = getattr(dataset, "samples", None)
    if not isinstance(samples, list) or len(samples) != len(dataset) or not _are_pairs(samples):
        return None
    return [(os.fspath(path), label) for path, label in samples]


def _are_pairs(samples: Sequence[Any]) -> bool:
    return all(
        isinstance(sample, (tuple, list)) and len(sample) == 2 and isinstance(sample[0], (str, os.PathLike))
        for sample in samples
    )
