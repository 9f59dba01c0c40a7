"""Masks and further pictures in labels, which a Loader reads before it plans."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from cuaug.targets.names import TargetFormat
from cuaug.targets.parse import is_mapping, items_of, rebuild_container

__all__ = ["is_file", "is_pil", "read_masks"]


def is_file(value: Any) -> bool:
    """Whether a value is a path, or a file's bytes."""
    return isinstance(value, (str, bytes, os.PathLike))


def is_pil(value: Any) -> bool:
    pillow = sys.modules.get("PIL.Image")  # a PIL image exists only if this was imported
    return pillow is not None and isinstance(value, pillow.Image)


def read_masks(label: Any, format: TargetFormat, read: Callable[[Any], Any], path: tuple[str, ...] = ()) -> Any:
    """A label whose mask files and PIL masks became arrays; the label itself if it has none.

    Args:
        format: says which names are masks.
        read: makes an array of a path, bytes or a PIL image.
        path: the keys that lead to the label.
    """
    has_names = is_mapping(label)
    if not has_names and not isinstance(label, tuple):
        return label
    new: dict[Any, Any] = {}
    for key, value in items_of(label):
        inner_path = (*path, str(key)) if has_names else path
        name = ".".join(inner_path)
        if has_names and format.passes(key, name):
            continue
        if has_names and (key == "mask" or format.is_mask(key, name)):
            if is_file(value) or is_pil(value):
                new[key] = read(value)
        elif (inner := read_masks(value, format, read, inner_path)) is not value:
            new[key] = inner
    return rebuild_container(label, {**dict(items_of(label)), **new}) if new else label
