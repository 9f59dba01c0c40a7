"""torchvision's conversions of types, which change no pixel.

Chains take PIL images, arrays and tensors as they are, and a Loader makes tensors. So these only say which type comes
out of a call.
"""

from __future__ import annotations

from typing import Any

import torch

from cuaug.errors import TransformError
from cuaug.image_types import is_typed_image
from cuaug.interop import to_tensor
from cuaug.plan import BOX_FORMATS, Plan
from cuaug.transforms import arguments
from cuaug.transforms.base import Transform, Where

__all__ = [
    "RGB",
    "ClampBoundingBoxes",
    "ConvertBoundingBoxFormat",
    "Identity",
    "PILToTensor",
    "ToImage",
    "ToPureTensor",
    "as_pure",
]


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
        self.format = arguments.one_of("format", name, BOX_FORMATS)


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
