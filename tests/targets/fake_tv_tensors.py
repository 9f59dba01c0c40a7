"""A fake torchvision.tv_tensors: tensor subclasses with the documented attributes and `wrap`, and nothing else.

torchvision is not installed for the tests.
"""

from __future__ import annotations

import types
from enum import Enum
from typing import Any

import torch


class BoundingBoxFormat(Enum):
    XYXY = "XYXY"
    XYWH = "XYWH"
    CXCYWH = "CXCYWH"
    XYWHR = "XYWHR"


class TVTensor(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Operations return plain tensors, as in torchvision."""
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


class BoundingBoxes(TVTensor):
    format: BoundingBoxFormat
    canvas_size: tuple[int, int]

    def __new__(cls, data: Any, *, format: Any, canvas_size: tuple[int, int]) -> BoundingBoxes:
        boxes = torch.as_tensor(data).as_subclass(cls)
        boxes.format = BoundingBoxFormat[format.upper()] if isinstance(format, str) else format
        boxes.canvas_size = canvas_size
        return boxes


class Mask(TVTensor):
    def __new__(cls, data: Any) -> Mask:
        return torch.as_tensor(data).as_subclass(cls)


class KeyPoints(TVTensor):
    canvas_size: tuple[int, int]

    def __new__(cls, data: Any, *, canvas_size: tuple[int, int]) -> KeyPoints:
        points = torch.as_tensor(data).as_subclass(cls)
        points.canvas_size = canvas_size
        return points


def wrap(wrappee: torch.Tensor, *, like: Any, **kwargs: Any) -> Any:
    """Wrap a plain tensor in the class of `like`; boxes take `format` and `canvas_size`, points `canvas_size`."""
    assert type(wrappee) is torch.Tensor
    if isinstance(like, BoundingBoxes):
        return BoundingBoxes(
            wrappee,
            format=kwargs.get("format", like.format),
            canvas_size=kwargs.get("canvas_size", like.canvas_size),
        )
    if isinstance(like, KeyPoints):
        return KeyPoints(wrappee, canvas_size=kwargs.get("canvas_size", like.canvas_size))
    assert not kwargs
    return wrappee.as_subclass(type(like))


def module() -> types.ModuleType:
    fake = types.ModuleType("torchvision.tv_tensors")
    vars(fake).update(
        BoundingBoxes=BoundingBoxes, Mask=Mask, KeyPoints=KeyPoints, BoundingBoxFormat=BoundingBoxFormat, wrap=wrap
    )
    return fake
