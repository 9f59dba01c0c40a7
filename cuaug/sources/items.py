"""Items of Datasets: splits them into image and label, and converts images to paths, bytes or arrays."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug._runtime.arguments import one_of
from cuaug.errors import DecodeError, SourceError
from cuaug.images.image_types import tensor_fault
from cuaug.sources.labels import parse_label_fields

_MODES = ("RGB", "L", "RGBA", "unchanged")
#: Dtypes of tensors that are images, in 8-bit modes and in mode "unchanged".
_TENSOR_DTYPES = ((torch.uint8,), (torch.uint8, torch.uint16, torch.float32))


class ItemConverter:
    """Makes (path, bytes or array, label) of an item; `FromDataset` describes the items and the arguments.

    Args:
        name: of the Dataset, for errors.
        names: class names, which become class numbers; None: text stays text.
    """

    def __init__(
        self,
        name: str,
        image: str,
        label: str | Sequence[str] | None,
        names: Sequence[Any] | None,
        mode: str,
    ) -> None:
        self.image, self.mode = image, one_of("mode", mode, _MODES)
        self._name, self.classes = name, names
        self._fields, self._is_dict = parse_label_fields(label)
        pairs = enumerate(names or ())
        self._class_numbers = {name: number for number, name in pairs if isinstance(name, str)}

    def __call__(self, item: Any, index: int) -> tuple[Any, Any]:
        """Returns (path, bytes or uint8 array (H, W[, C]), label).

        Raises:
            SourceError: the item has no image or label, or its image is none.
            DecodeError: a PIL image has 32-bit channels, or a tensor is not dense.
        """
        if isinstance(item, Mapping):
            image, label = self._split_dict(item, index)
        elif isinstance(item, (tuple, list)) and item:
            image, label = item[0], tuple(item[1:])
            label = label[0] if len(label) == 1 else label or index
        else:
            image, label = item, index
        if self._class_numbers and isinstance(label, str):
            label = self._class_number(label, index)
        return self._convert_image(image, index), label

    def _class_number(self, label: str, index: int) -> int:
        number = self._class_numbers.get(label)
        if number is None:
            raise SourceError(
                f"item {index} of {self._name} has the label {label!r:.100}, which is not in its classes, "
                f"{self.classes!r:.200}: give FromDataset(dataset, classes=[...]), or classes=None to keep text"
            )
        return number

    def _split_dict(self, item: Mapping[str, Any], index: int) -> tuple[Any, Any]:
        missing = [name for name in (self.image, *self._fields) if name not in item]
        if missing:
            raise SourceError(
                f"item {index} of {self._name} has no {missing[0]!r}; it has {', '.join(map(repr, item))}: name the "
                "image and the label, FromDataset(dataset, image=..., label=...)"
            )
        values = {name: item[name] for name in self._fields}
        return item[self.image], values if self._is_dict else values[self._fields[0]] if self._fields else index

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
        if isinstance(image, torch.Tensor) and (fault := tensor_fault(image)):
            raise DecodeError(f"the image must be a dense tensor, not {fault}")
        pixels = image
        if isinstance(image, torch.Tensor) and image.dtype in _TENSOR_DTYPES[self.mode == "unchanged"]:
            pixels = image.detach().cpu().resolve_neg()
            if pixels.ndim == 3:
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
            f"(C, H, W){_hint(image)}"
        )


def _hint(image: Any) -> str:
    """How to fix an array or tensor that is no image, if known."""
    dtype = str(getattr(image, "dtype", ""))
    shape: Sequence[int] = getattr(image, "shape", ())
    if "float" in dtype:
        return "; remove ToTensor and other transforms that make floats"
    if dtype not in ("uint8", "torch.uint8") or len(shape) != 3:
        return ""
    if isinstance(image, np.ndarray) and shape[0] in (1, 3):
        return "; let the Dataset return image.transpose(1, 2, 0)"
    if isinstance(image, torch.Tensor) and shape[2] in (1, 3):
        return "; let the Dataset return image.permute(2, 0, 1)"
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


def _describe(image: Any) -> str:
    shape, dtype = tuple(getattr(image, "shape", ())), getattr(image, "dtype", None)
    return f"{type(image).__name__} of shape {shape} and type {dtype}" if shape else f"{image!r:.100}"
