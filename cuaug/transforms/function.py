"""A function of your own in a chain."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cuaug.errors import TransformError
from cuaug.transforms.base import BatchTransform

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Lambda"]


class Lambda(BatchTransform):
    """Any function of a batch of images.

    Args:
        function: takes a tensor (N, C, H, W), uint8 or floating point, on the device that the chain runs on, and
            returns a tensor whose first axis is N; the last of a chain may return anything of that length that a tensor
            can hold. On CUDA it runs on the current stream. It must not write to what it gets.

    What comes before it is one plan, what follows it another: values are rounded in between where they are uint8.
    Nothing is known of what it does to places in the image: boxes, masks and keypoints stay where they are.
    """

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        if not callable(function):
            raise TransformError(f"function is a function of a batch of images, not {function!r}")
        self.function = function

    def run(self, images: Tensor, targets: list[Any] | None, **params: Any) -> tuple[Tensor, list[Any] | None]:
        return self.function(images), targets

    def __repr__(self) -> str:
        return f"Lambda(function={getattr(self.function, '__qualname__', self.function)})"
