"""Arguments that may be dicts by type: torchvision's `fill` and `dtype`.

Keys are torch.Tensor, PIL.Image.Image, the classes of torchvision's `tv_tensors`, and "others".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cuaug.errors import TransformError

__all__ = ["by_kind"]

#: By package and name of the type.
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
    """The values of a dict by type as {"image": ..., "mask": ..., "boxes": ..., "keypoints": ...}.

    Images without an entry have that of "others", else None. Masks have an entry if the dict has one for them, or one
    for images and one for "others".
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
