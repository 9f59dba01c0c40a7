"""Recognizes images and their kinds: PIL images, arrays, tensors, and torchvision's tv_tensors."""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np
import torch

_TARGET_KINDS = ("BoundingBoxes", "KeyPoints", "Mask")


def is_typed_image(value: Any) -> bool:
    """Whether the type says that a value is an image: a PIL image, or torchvision's Image or Video."""
    pillow = sys.modules.get("PIL.Image")  # imported already if the user has a PIL image
    if pillow is not None and isinstance(value, pillow.Image):
        return True
    return isinstance(value, torch.Tensor) and tv_tensor_kind(type(value)) in ("Image", "Video")


def is_image(value: Any) -> bool:
    """Whether a value is a PIL image, an array, or a tensor that is no target of torchvision's."""
    if isinstance(value, torch.Tensor):
        return tv_tensor_kind(type(value)) in (None, "Image", "Video")
    return isinstance(value, np.ndarray) or hasattr(value, "__cuda_array_interface__") or is_typed_image(value)


def is_image_type(type_: type) -> bool:
    """Whether images may have a type: tensors, arrays, PIL images, and torchvision's Image and Video."""
    pillow = sys.modules.get("PIL.Image")
    if pillow is not None and issubclass(type_, pillow.Image):
        return True
    if issubclass(type_, np.ndarray):
        return True
    return issubclass(type_, torch.Tensor) and tv_tensor_kind(type_) in (None, "Image", "Video")


@functools.lru_cache(maxsize=64)
def tv_tensor_kind(type_: type) -> str | None:
    """The class of torchvision's tv_tensors that a type is or derives from; None: it is none."""
    module = sys.modules.get("torchvision.tv_tensors")  # a tv_tensor exists only if this was imported
    if module is None or not issubclass(type_, torch.Tensor):
        return None
    kinds = ("Image", "Video", *_TARGET_KINDS)
    return next((kind for kind in kinds if issubclass(type_, getattr(module, kind, ()))), None)


def tv_target_kind(type_: type) -> str | None:
    """The same for types of targets: BoundingBoxes, KeyPoints or Mask; None: it is none of these."""
    kind = tv_tensor_kind(type_)
    return kind if kind in _TARGET_KINDS else None


def tensor_fault(tensor: torch.Tensor) -> str | None:
    """Why the values of a tensor cannot be read or would lose their gradient, for errors; None: no reason."""
    if tensor.is_nested:
        return "a nested tensor"
    if tensor.layout != torch.strided:
        return f"a tensor of layout {tensor.layout}: pass tensor.to_dense()"
    if tensor.device.type not in ("cpu", "cuda"):
        return f"a tensor on {tensor.device}, which is neither the CPU nor a CUDA device"
    if tensor.requires_grad and torch.is_grad_enabled():
        return "one with a gradient, as no gradient flows through transforms: pass tensor.detach() or use no_grad()"
    return None


def is_clip(value: Any) -> bool:
    """Whether a value is one clip, a tv_tensors.Video of 4 axes, or several clips, with 5 axes."""
    return getattr(value, "ndim", 0) == 5 or is_video(value)


def count_images(value: Any) -> int | None:
    """The number of images or clips in a batch of them; None: one image or clip."""
    ndim = 0 if getattr(value, "is_nested", False) else getattr(value, "ndim", 0)  # a nested tensor has no shape
    return len(value) if ndim == 5 or (ndim == 4 and not is_video(value)) else None


def is_video(value: Any) -> bool:
    """Whether a value is a tv_tensors.Video."""
    return isinstance(value, torch.Tensor) and tv_tensor_kind(type(value)) == "Video"
