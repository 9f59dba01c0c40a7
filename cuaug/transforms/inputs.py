"""The arguments of a call: finds the image among them, and puts the result in its place.

A chain takes `(image)`, `(image, *targets)`, or one tuple, list or dict of an image and its targets. One target is the
target itself, several are a tuple or a dict. Those of a batch are split into one per image, and merged again.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from cuaug.errors import TransformError
from cuaug.images.image_types import count_images, is_image, is_typed_image
from cuaug.targets.parse import items_of, moves_with_image, rebuild_container

#: Names in dicts whose values are targets, whatever their shape.
_TARGET_NAMES = frozenset({"boxes", "masks", "mask", "keypoints", "label", "labels", "target", "targets", "images"})


class Inputs:
    """The image and the targets of a call.

    Args:
        arguments: the positional arguments of the call.
        targets: further names in a dict that are no image.

    Attributes:
        image: the image, batch, clip or batch of clips.
        is_batch: whether it holds several images or clips, each with its own target.
        count: the number of its images or clips.
        targets: one target per image, or None.

    Raises:
        TransformError: there is no image, or it is not clear which value is the image.
    """

    def __init__(self, arguments: tuple[Any, ...], targets: Sequence[str] = ()) -> None:
        self._container: Any = arguments
        self._is_bare = len(arguments) == 1
        if self._is_bare and isinstance(arguments[0], (tuple, list, Mapping)):
            self._container, self._is_bare = arguments[0], False
        if isinstance(self._container, Mapping):
            self._key = _find_in_dict(self._container, targets)
            self._others = [key for key in self._container if key != self._key]
        else:
            self._key = 0 if arguments is self._container else _find_in_sequence(self._container)
            self._others = [place for place in range(len(self._container)) if place != self._key]
        self.image = self._container[self._key]
        count = count_images(self.image)
        self.is_batch, self.count = count is not None, 1 if count is None else count
        self._columns = [self._split(key) for key in self._others] if self.is_batch else []
        self.targets = self._targets()

    def _targets(self) -> list[Any] | None:
        if not self._others:
            return None
        is_dict = isinstance(self._container, Mapping)
        if not self.is_batch:
            if is_dict:
                return [{key: self._container[key] for key in self._others}]
            values = [self._container[place] for place in self._others]
            return values if len(values) == 1 else [tuple(values)]
        if is_dict:
            return [dict(zip(self._others, row, strict=True)) for row in zip(*self._columns, strict=True)]
        return list(self._columns[0]) if len(self._columns) == 1 else [*zip(*self._columns, strict=True)]

    def _split(self, key: Any) -> list[Any]:
        """One value per image, of a value that holds those of the whole batch."""
        value, name = self._container[key], self._name(key)
        rows = value if isinstance(value, list) else _label_rows(value)
        if rows is None:
            raise TransformError(
                f"{name} of a batch must be a list of N targets, not {type(value)}; labels may also be a tensor or "
                "array, (N,) or (N, C)"
            )
        if len(rows) != self.count:
            raise TransformError(f"{name} must be one per image: {self.count}, not {len(rows)}")
        return rows

    def _name(self, key: Any) -> str:
        if isinstance(self._container, Mapping):
            return repr(key)
        return "target" if len(self._others) == 1 else f"target[{self._others.index(key)}]"

    def result(self, image: Any, targets: list[Any] | None) -> Any:
        """The transformed image and targets, in the form of the call."""
        if self._is_bare:
            return image
        new = {self._key: image}
        if targets is None:
            pass
        elif self.is_batch:
            rows = targets
            if isinstance(self._container, Mapping):
                rows = [[target[key] for key in self._others] for target in targets]
            elif len(self._others) == 1:
                rows = [[target] for target in targets]
            for number, key in enumerate(self._others):
                value = self._container[key]
                moved = [row[number] for row in rows]
                new[key] = moved if isinstance(value, list) else _restack(value, self._columns[number], moved)
        elif isinstance(self._container, Mapping):
            new |= targets[0]
        else:
            new |= zip(self._others, targets if len(self._others) == 1 else targets[0], strict=True)
        if isinstance(self._container, list):
            return [new[place] for place in range(len(new))]
        return rebuild_container(self._container, {key: new[key] for key, _ in items_of(self._container)})


def _find_in_dict(values: Mapping[Any, Any], targets: Sequence[str]) -> Any:
    """The key of the image: "image"; else of the only typed image; else of the only array or tensor with 3 axes."""
    if "image" in values:
        return "image"
    keys = [key for key in values if key not in _TARGET_NAMES and key not in targets]
    tests: tuple[Callable[[Any], bool], ...] = (
        is_typed_image,
        lambda value: is_image(value) and getattr(value, "ndim", 3) >= 3,
    )
    for test in tests:
        found = [key for key in keys if test(values[key])]
        if len(found) > 1:
            raise TransformError(
                f'image: {" and ".join(map(repr, found))} may be the image: name it "image", and pass further pictures '
                'as {"images": {name: picture}}'
            )
        if found:
            return found[0]
    raise TransformError(f'image: a dict must hold it under "image"; its keys are {list(values)!r:.200}')


def _find_in_sequence(values: Sequence[Any]) -> int:
    """The place of the first image."""
    images = [place for place, value in enumerate(values) if is_image(value)]
    if not images:
        kinds = ", ".join(type(value).__name__ for value in values)
        raise TransformError(f"image: none of the {len(values)} values is an image: they are ({kinds:.200})")
    if isinstance(values, list) and len(images) == len(values) > 1:
        raise TransformError(
            f"image: a list of {len(images)} arrays may be a batch or an image and its targets: stack a batch, call "
            "the chain on each image, or pass (image, target) as a tuple"
        )
    return images[0]


def _label_rows(labels: Any) -> list[Any] | None:
    """The rows of a batch's labels that are one tensor or array, (N,) or (N, C); None: they are not.

    Arrays with more axes may be masks or boxes, which would stay in place.
    """
    if not isinstance(labels, (torch.Tensor, np.ndarray)) or labels.ndim not in (1, 2) or moves_with_image(labels):
        return None
    return list(labels.cpu() if isinstance(labels, torch.Tensor) else labels)


def _restack(original: Any, rows: list[Any], labels: list[Any]) -> Any:
    """One tensor or array, like `original`, of the labels that the chain made of its rows."""
    if all(map(operator.is_, rows, labels)):
        return original
    try:
        if isinstance(original, torch.Tensor):
            return torch.stack([torch.as_tensor(label, device="cpu") for label in labels]).to(original.device)
        return np.stack(labels)
    except (TypeError, ValueError, RuntimeError):
        kinds = ", ".join(sorted({f"{type(label).__name__}{tuple(getattr(label, 'shape', ()))}" for label in labels}))
        raise TransformError(
            f"labels come out of the chain as {kinds}, which do not make one tensor or array: pass them as a list"
        ) from None
