"""Further pictures of the samples of a call: the chain runs again for each, with the same parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from cuaug.errors import TransformError
from cuaug.images.interop import InputImages, open_images
from cuaug.targets.label_files import KeyPath, is_file, put_pictures, take_pictures
from cuaug.targets.names import TargetFormat
from cuaug.transforms.base import BatchTransform, Transform


class Pictures:
    """The further pictures of N targets, by their key paths.

    Args:
        targets: N targets.
        target_format: the keyword arguments of `Targets`.

    Attributes:
        targets: the targets without their pictures.

    Raises:
        TransformError: the targets have pictures of different names.
    """

    def __init__(self, targets: Sequence[Any], target_format: Mapping[str, Any]) -> None:
        format = TargetFormat(**target_format)
        pairs = [take_pictures(target, format) for target in targets]
        self.targets = [target for target, _ in pairs]
        self._pictures = [pictures for _, pictures in pairs]
        self.paths = list(self._pictures[0]) if pairs else []
        for i, pictures in enumerate(self._pictures):
            if pictures.keys() != self._pictures[0].keys():
                names = [sorted(".".join(map(str, path)) for path in found) for found in (self._pictures[0], pictures)]
                raise TransformError(
                    f"images must have the same names in all targets of a batch: target 0 has {names[0]}, target {i} "
                    f"has {names[1]}"
                )

    def open(self, path: KeyPath, height: int, width: int) -> InputImages:
        """The N pictures of a path, which have the size of their images.

        Raises:
            TransformError: a picture has another size, or the pictures of a batch do not stack.
        """
        name, pictures = ".".join(map(str, path)), [found[path] for found in self._pictures]
        if any(map(is_file, pictures)):
            raise TransformError(
                f"{name} is a file, and only a Loader reads files: pass a tensor, an array or a PIL image"
            )
        try:
            opened = open_images(pictures[0] if len(pictures) == 1 else _stack(pictures))
        except TransformError as error:
            raise TransformError(f"{name}: {error}") from None
        size = tuple(opened.images.shape[1:3])
        if len(opened.images) != len(pictures):
            raise TransformError(f"{name} must be one picture, not a batch of {len(opened.images)}")
        if size != (height, width):
            raise TransformError(
                f"{name} must have the size of its image, {height} x {width}, not {size[0]} x {size[1]} (height x "
                "width): the same crop would show other places"
            )
        return opened

    def put(self, targets: Sequence[Any], path: KeyPath, result: Any) -> list[Any]:
        """The targets with the finished pictures of a path."""
        if len(targets) == 1:
            return [put_pictures(targets[0], {path: result})]
        is_flat = getattr(self._pictures[0][path], "ndim", 3) == 2 and result.shape[-1] == 1
        rows = [row[..., 0] if is_flat else row for row in result]
        return [put_pictures(target, {path: row}) for target, row in zip(targets, rows, strict=True)]


def _stack(pictures: Sequence[Any]) -> Any:
    """One batch of pictures, (N, C, H, W) or (N, H, W, C)."""
    first = pictures[0]
    if len({(type(picture), getattr(picture, "shape", ())) for picture in pictures}) == 1:
        if isinstance(first, torch.Tensor):
            return torch.stack([*pictures])
        if isinstance(first, np.ndarray):
            return np.stack([picture[..., None] if picture.ndim == 2 else picture for picture in pictures])
    kinds = sorted({f"{type(picture).__name__}{tuple(getattr(picture, 'shape', ()))}" for picture in pictures})
    raise TransformError(f"pictures of a batch must be tensors or arrays of one shape, not {', '.join(kinds)}")


def refuse_pictures(segments: Sequence[Transform]) -> None:
    """Raise a TransformError if a chain cannot move further pictures."""
    for segment in segments:
        if isinstance(segment, BatchTransform):
            raise TransformError(
                f"images: {segment!r:.100} acts on finished batches and does not take further pictures: use chains "
                "without MixUp, CutMix, Mosaic, CopyPaste and Lambda"
            )
    if getattr(segments[0], "packing", None) is not None:
        raise TransformError("images: Patches, Tiles and PadToLargest do not take further pictures")
    if segments[0].views > 1:
        raise TransformError("images: FiveCrop, TenCrop and MultiView do not take further pictures")
