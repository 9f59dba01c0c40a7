"""Value ranges: to floats, to bytes, and to zero mean and unit deviation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from cuaug.errors import TransformError
from cuaug.interop import type_of
from cuaug.plan import Plan, Type
from cuaug.transforms import arguments
from cuaug.transforms.base import Transform, Where

__all__ = ["Normalize", "ToDtype"]


class ToDtype(Transform):
    """Converts to a torch dtype: uint8, float16, bfloat16 or float32.

    Args:
        dtype: the type.
        scale: also map [0, 255] of uint8 to [0, 1] of floats, or back.
    """

    def __init__(self, dtype: torch.dtype, scale: bool = False) -> None:
        self.dtype = dtype
        self.scale = scale
        self._type = type_of(dtype)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        if where is not None:
            raise TransformError(
                "ToDtype changes the type, which all images of a batch share: not inside RandomApply or one view of "
                "several, but before or behind; Normalize needs none"
            )
        if self._type == Type.UINT8:
            plan.to_uint8(scale=self.scale)
        else:
            plan.to_float(scale=self.scale)
        plan.target_type = self._type


class Normalize(Transform):
    """(v - mean) / std for each channel. uint8 images are scaled to [0, 1] first.

    Args:
        mean, std: one number, or one per channel, for values in [0, 1]. Those of levels, such as 123.7, want
            `ToDtype(torch.float32)` before, which keeps the levels, or to be divided by 255.
        inplace: taken for torchvision's sake; what comes in is never written to.

    Raises:
        TransformError: std that is not above 0; above 1, of either, where uint8 images are scaled.
    """

    def __init__(self, mean: float | Sequence[float], std: float | Sequence[float], inplace: bool = False) -> None:
        self.inplace = inplace
        self.mean, self.std = list(arguments.channels("mean", mean)), list(arguments.channels("std", std))
        if min(self.std) <= 0.0:
            raise TransformError(f"std must be above 0 in every channel, not {self.std}")

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        for name, values in (("mean", self.mean), ("std", self.std)):
            if max(values) > 1.0 and not plan.is_float:
                raise TransformError(
                    f"{name} is of values in [0, 1], to which uint8 images are scaled first, not {values}: divide mean "
                    "and std by 255, or put ToDtype(torch.float32) before Normalize, which keeps levels as they are"
                )
        plan.normalize(self.mean, self.std, where)
