"""Conversion of dtypes and value ranges, and torchvision's conversions of types, which change no pixel.

Chains take PIL images, arrays and tensors as they are, and a Loader makes tensors. So the latter only say which type
comes out of a call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from cuaug.errors import TransformError
from cuaug.images.image_types import is_typed_image
from cuaug.images.interop import to_tensor, type_of
from cuaug.plan import BOX_FORMATS, Plan, Type
from cuaug.transforms import parameters
from cuaug.transforms.base import Transform, Where
from cuaug.transforms.parameters import by_kind


class ToDtype(Transform):
    """Convert the images to a dtype, optionally scaling the values.

    Args:
        dtype: torch.uint8, float16, bfloat16 or float32; or a dict by type, as torchvision's: the images' dtype, the
            masks' (any dtype), and None for "others", which keep theirs.
        scale: also map uint8 [0, 255] to float [0, 1], or back.
    """

    def __init__(self, dtype: torch.dtype | Mapping[Any, torch.dtype | None], scale: bool = False) -> None:
        self.dtype = dtype
        self.scale = scale
        #: The dtype of masks, which a chain takes over; None: their own.
        self.mask_dtype = None
        images = self._by_type(dtype) if isinstance(dtype, Mapping) else dtype
        #: The type of images; None: their own.
        self.image_type = None if images is None and isinstance(dtype, Mapping) else type_of(images)

    def _by_type(self, dtypes: Mapping[Any, Any]) -> Any:
        kinds = by_kind("dtype", dtypes)
        for kind in ("boxes", "keypoints"):
            if kinds.get(kind) is not None:
                raise TransformError(f"dtype of {kind} must be None, not {kinds[kind]}: they keep their dtype")
        if dtypes.get("others") is not None:
            raise TransformError(
                f'dtype["others"] must be None, not {dtypes["others"]}: give images a key, such as torch.Tensor'
            )
        self.mask_dtype = kinds.get("mask")
        if not isinstance(self.mask_dtype, (torch.dtype, type(None))):
            raise TransformError(f"dtype of masks must be a torch.dtype or None, not {self.mask_dtype!r}")
        return kinds["image"]

    def range_after(self, is_float: bool, normalized: bool) -> tuple[bool, bool]:
        if self.image_type is None:
            return is_float, normalized
        to_float = self.image_type != Type.UINT8  # from float to float, values stay as they are, whatever `scale`
        return to_float, to_float and (normalized if is_float else not self.scale)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        if self.image_type is None:
            return
        if where is not None:
            raise TransformError(
                "dtype belongs to the whole batch: move ToDtype out of RandomApply, or before or after MultiView. "
                "Normalize needs no ToDtype"
            )
        if self.image_type == Type.UINT8:
            plan.to_uint8(scale=self.scale)
        else:
            plan.to_float(scale=self.scale)
        plan.target_type = self.image_type


class Normalize(Transform):
    """Normalize each channel: (v - mean) / std.

    uint8 images are scaled to [0, 1] first. With `pillow` of the chain, the result has every bit of
    torchvision's `ToTensor` and `Normalize`; see `Compose`.

    Args:
        mean, std: a number, or one per channel, for values in [0, 1]. Divide a mean in levels, such as 123.7, by 255,
            or put `ToDtype(torch.float32)` before, which keeps levels.
        inplace: accepted for torchvision's sake; the input is never written to.

    Raises:
        TransformError: a std is not above 0, or a mean or std is above 1 where uint8 images are scaled.
    """

    def __init__(self, mean: float | Sequence[float], std: float | Sequence[float], inplace: bool = False) -> None:
        self.inplace = inplace
        self.mean = list(parameters.channel_values("mean", mean))
        self.std = list(parameters.channel_values("std", std))
        if min(self.std) <= 0.0:
            raise TransformError(f"std must be above 0 in every channel, not {self.std}")

    def range_after(self, is_float: bool, normalized: bool) -> tuple[bool, bool]:
        return True, True

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        for name, values in (("mean", self.mean), ("std", self.std)):
            if max(values) > 1.0 and not plan.is_float:
                raise TransformError(
                    f"{name} must be at most 1, not {values}: Normalize scales uint8 images to [0, 1] first. Divide "
                    "mean and std by 255, or put ToDtype(torch.float32) before Normalize, which keeps levels"
                )
        plan.normalize(self.mean, self.std, where)


class Identity(Transform):
    """Change nothing."""

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        pass


class _Conversion(Transform):
    """Base class: acts on the input or the result of a whole call, wherever it stands in the chain."""

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        if where is not None:
            raise TransformError(
                f"{type(self).__name__} acts on the whole batch: move it out of RandomApply and other containers"
            )


class ToImage(_Conversion):
    """Make a torch tensor (C, H, W) of a PIL image or an array.

    The values stay as they are. Batches of arrays (N, H, W, C) become (N, C, H, W). Tensors stay tensors, and a
    tv_tensors.Image stays one; torchvision makes a tv_tensors.Image of all inputs. In a Loader, images are tensors.
    """

    def prepare(self, image: Any) -> Any:
        return to_tensor(image)


class PILToTensor(_Conversion):
    """Make a torch tensor (C, H, W) of a PIL image.

    The values stay as they are. Other inputs stay as they are. In a Loader, images are tensors.
    """

    def prepare(self, image: Any) -> Any:
        return to_tensor(image) if is_typed_image(image) else image


class ToPureTensor(_Conversion):
    """Make plain tensors of torchvision's tv_tensors, images and targets."""


class RGB(Transform):
    """Make three equal channels of gray images; images of three channels stay as they are.

    Raises:
        TransformError: the images have another number of channels.
    """

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        if plan.channels not in (1, 3):
            raise TransformError(f"image: RGB takes images of 1 or 3 channels, not {plan.channels}")
        if plan.channels == 1 and where is not None:
            raise TransformError("RGB changes the channels of the whole batch: move it out of RandomApply")
        plan.channels = 3


class ConvertBoundingBoxFormat(_Conversion):
    """Convert the boxes of all targets to another format.

    A "format" beside the boxes and the format of tv_tensors.BoundingBoxes change with them. Transforms do not depend on
    the format, so the place in the chain does not matter.

    Args:
        format: "xyxy", "xywh" or "cxcywh", in any case, or torchvision's `BoundingBoxFormat`.
    """

    def __init__(self, format: Any) -> None:
        name = str(getattr(format, "value", format)).lower()
        self.format = parameters.one_of("format", name, BOX_FORMATS)


class ClampBoundingBoxes(_Conversion):
    """Clip boxes to the image. Chains always do, so it changes nothing.

    Args:
        clamping_mode: accepted for torchvision's sake: "auto", "soft" or "hard", which are the same for upright boxes.
    """

    def __init__(self, clamping_mode: str | None = "auto") -> None:
        if clamping_mode not in ("auto", "soft", "hard"):
            raise TransformError(
                f'clamping_mode must be "auto", "soft" or "hard", not {clamping_mode!r}: boxes are always clipped'
            )
        self.clamping_mode = clamping_mode


def as_pure(value: Any) -> Any:
    """A plain tensor, or a tuple of them, of tv_tensors; other values unchanged."""
    if isinstance(value, tuple):
        return tuple(map(as_pure, value))
    return value.as_subclass(torch.Tensor) if isinstance(value, torch.Tensor) else value
