"""Masks and further pictures in labels, which a Loader reads before it plans."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from cuaug.errors import TransformError
from cuaug.targets.names import TargetFormat
from cuaug.targets.parse import is_mapping, items_of, rebuild_container

#: The keys that lead to a picture: (..., "images", name).
KeyPath = tuple[Any, ...]


def is_file(value: Any) -> bool:
    """Whether a value is a path, or a file's bytes."""
    return isinstance(value, (str, bytes, os.PathLike))


def is_pil(value: Any) -> bool:
    pillow = sys.modules.get("PIL.Image")  # a PIL image exists only if this was imported
    return pillow is not None and isinstance(value, pillow.Image)


def read_masks(label: Any, format: TargetFormat, read: Callable[[Any, Any], Any], path: tuple[str, ...] = ()) -> Any:
    """A label whose mask files and PIL masks became arrays; the label itself if it has none.

    Args:
        format: says which names are masks.
        read: makes an array of a key and its path, bytes or PIL image.
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
                new[key] = read(key, value)
        elif (inner := read_masks(value, format, read, inner_path)) is not value:
            new[key] = inner
    return rebuild_container(label, {**dict(items_of(label)), **new}) if new else label


def take_pictures(label: Any, format: TargetFormat, path: KeyPath = ()) -> tuple[Any, dict[KeyPath, Any]]:
    """A label without its further pictures, and these.

    Further pictures are the values of a dict under "images", in a dict at any depth. They take the same parameters as
    the sample's image.

    Raises:
        TransformError: a value under "images" is no picture.
    """
    has_names = is_mapping(label)
    pictures: dict[KeyPath, Any] = {}
    if not has_names and not isinstance(label, tuple):
        return label, pictures
    new: dict[Any, Any] = {}
    for key, value in items_of(label):
        inner_path = (*path, key)
        if has_names and format.passes(key, ".".join(map(str, inner_path))):
            continue
        if has_names and key == "images" and is_mapping(value):
            for name, picture in value.items():
                if not (is_file(picture) or is_pil(picture) or getattr(picture, "ndim", 0) > 1):
                    raise TransformError(
                        f"{'.'.join(map(str, inner_path))}.{name} must be a further picture of the sample, a tensor, "
                        f"an array or a PIL image, and in a Loader a file, not {picture!r:.100}; if it is none, use "
                        "Compose(..., pass_through=('images',))"
                    )
                pictures[(*inner_path, name)] = picture
            new[key] = {}
        else:
            inner, found = take_pictures(value, format, inner_path)
            if found:
                new[key] = inner
                pictures |= found
    return rebuild_container(label, {**dict(items_of(label)), **new}) if new else label, pictures


def put_pictures(label: Any, pictures: Mapping[KeyPath, Any]) -> Any:
    """A label with pictures at their paths."""
    for (key, *rest), picture in pictures.items():
        values = dict(items_of(label))
        values[key] = put_pictures(values[key], {tuple(rest): picture}) if rest else picture
        label = rebuild_container(label, values)
    return label
