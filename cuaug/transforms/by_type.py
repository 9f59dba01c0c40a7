"""Resolves the dicts that torchvision accepts for `fill` and `dtype`, such as {Image: 127, Mask: 0, "others": None}.

Keys are torch.Tensor, PIL.Image.Image, the classes of `torchvision.tv_tensors`, and "others".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cuaug.errors import TransformError

__all__ = ["by_kind"]

#: Each type, as (package, class name), and its kind of target.
_KINDS = {
    ("torch", "Tensor"): "image",
    ("PIL", "Image"): "image",
    ("torchvision", "Image"): "image",
    ("torchvision", "Video"): "image",
    ("torchvision", "Mask"): "mask",
    ("torchvision", "BoundingBoxes"): "boxes",
    ("torchvision", "KeyPoints"): "keypoints",
}


def by_kind(name: str, values: Mapping[Any, Any]) -> dict[str, Any]:
    """Converts {type: value} to {"image": ..., "mask": ..., "boxes": ..., "keypoints": ...}.

    "image" is always present: images without a key take the value of "others", or None. "mask" is present if the dict
    names masks, or names both images and "others". "boxes" and "keypoints" are present only if the dict names them.

    Args:
        name: the argument, for errors.
        values: the user's dict.

    Raises:
        TransformError: a key is no such type, or two types of one kind have different values.
    """
    kinds: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(key, str) and key == "others":
            continue
        kind = _KINDS.get((key.__module__.partition(".")[0], key.__name__)) if isinstance(key, type) else None
        if kind is None:
            raise TransformError(
                f'{name} must have types as keys, torch.Tensor or those of torchvision.tv_tensors, or "others", not '
                f"{key!r}"
            )
        if kind in kinds and kinds[kind] != value:
            raise TransformError(f"{name} must have one value for all types of {kind}, not {kinds[kind]!r}, {value!r}")
        kinds[kind] = value
    if "image" in kinds and "others" in values:
        kinds.setdefault("mask", values["others"])
    kinds.setdefault("image", values.get("others"))
    return kinds
