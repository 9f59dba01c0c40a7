"""Converts targets when the chain is done: the format of their boxes, and tv_tensors to plain tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from cuaug.images.image_types import tv_target_kind
from cuaug.targets.fields import Boxes
from cuaug.targets.names import TargetFormat
from cuaug.targets.parse import container_format, is_mapping, items_of, rebuild_container


class TargetConversion(NamedTuple):
    """The form of targets at the end of a chain.

    Attributes:
        box_format: format of all boxes; None: their own.
        is_pure: tv_tensors become plain tensors.
    """

    box_format: str | None = None
    is_pure: bool = False

    def __bool__(self) -> bool:
        return self.box_format is not None or self.is_pure

    def convert(self, target: Any, format: TargetFormat, path: tuple[str, ...] = ()) -> Any:
        """A target with its boxes and tv_tensors converted; `format` says how it is read."""
        if tv_target_kind(type(target)) is not None:
            return self._convert_tv_tensor(target)
        if not (is_mapping(target) or isinstance(target, tuple)):
            return target
        new = dict(items_of(target))
        own_format = container_format(target, format.box_format)
        for key, value in items_of(target):
            inner = (*path, str(key)) if is_mapping(target) else path
            if format.passes(key, ".".join(inner)):
                continue
            if self.box_format and key == "boxes" and is_mapping(target) and _is_plain(value):
                new[key] = Boxes(value, ".".join(inner), own_format).in_format(self.box_format)
            else:
                new[key] = self.convert(value, format, inner)
        if (
            self.box_format
            and is_mapping(target)
            and _is_plain(target.get("boxes"))
            and target.get("format") is not None
        ):
            new["format"] = _like(target["format"], self.box_format)
        if all(new[key] is value for key, value in items_of(target)):
            return target
        return rebuild_container(target, new)

    def _convert_tv_tensor(self, value: torch.Tensor) -> torch.Tensor:
        if self.box_format is not None and tv_target_kind(type(value)) == "BoundingBoxes":
            own: Any = value
            value = Boxes(value, "boxes", own.format.value.lower()).in_format(self.box_format)
        return value.as_subclass(torch.Tensor) if self.is_pure else value


def map_types(function: Callable[[Any], Any], value: Any, types: tuple[type, ...]) -> Any:
    """A target in which `function` replaces each value of these types, in dicts, tuples and lists at any depth."""
    if isinstance(value, types):
        return function(value)
    if isinstance(value, list):
        return [map_types(function, item, types) for item in value]
    if not (is_mapping(value) or isinstance(value, tuple)):
        return value
    return rebuild_container(value, {key: map_types(function, item, types) for key, item in items_of(value)})


def _is_plain(boxes: Any) -> bool:
    """Whether boxes are numbers that do not know their format."""
    return isinstance(boxes, (np.ndarray, torch.Tensor, list, tuple)) and tv_target_kind(type(boxes)) is None


def _like(format: Any, name: str) -> Any:
    """A format's name in the type and the case of the user's."""
    if not isinstance(format, str):
        return type(format)[name.upper()]
    return name.upper() if format.isupper() else name
