"""Targets of several images, put together as their images were: in a mosaic, or pasted on each other."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug.errors import TransformError
from cuaug.targets.fields import Boxes, Field, Keypoints, Masks
from cuaug.targets.parse import Group, has_rows
from cuaug.targets.values import Value

__all__ = ["Part", "Place", "in_mosaic", "pasted", "some"]

Array = NDArray[Any]
Bools = NDArray[np.bool_]
Rows = Bools | None
Size = tuple[int, int]  # (height, width)
#: Where the corner of an image lies on another one, x and y, and the part of that which it fills: x0, y0, x1, y1.
Place = tuple[int, int, tuple[int, int, int, int]]


class Part:
    """The target of one of several images that are put together: a dict, read as `Targets` does.

    Args:
        target: the dict.
        size: (height, width) of its image.
        box_format, mask_fill: as for `Targets`.

    Attributes:
        fields: boxes, masks and keypoints by key.
        boxes: those, if there are any.
        count: how many instances it has, or None.

    Raises:
        TransformError: another kind of label, one with targets further within, or a target that is not as it should be.
    """

    def __init__(self, target: Any, size: Size, box_format: str, mask_fill: int) -> None:
        if not isinstance(target, Mapping):
            raise TransformError(f"labels are dicts of boxes, masks or keypoints, not {target!r:.100}")
        self._target = target
        self._group = Group(target, size, box_format, mask_fill)
        if self._group.groups:
            raise TransformError(f"boxes, masks and keypoints are in the dict itself, not in {[*self._group.groups]}")
        self.fields = self._group.fields
        self.boxes = self._group.boxes
        self.count = next((field.count for field in self.fields.values() if field.count is not None), None)

    @property
    def format(self) -> str:
        """Of its boxes; what is joined to them is written in it, since one dict says one format of all."""
        return self.boxes.format if self.boxes is not None else "xyxy"

    @property
    def instances(self) -> Bools:
        """(K, H, W): where each of them is."""
        if "masks" not in self.fields:
            raise TransformError('there are no "masks" of instances in a target')
        return self.array("masks") != 0

    def array(self, key: Any) -> Array:
        return self.fields[key].array if key in self.fields else Value(self._target[key]).array

    def like(self, key: Any, array: Array, size: Size) -> Any:
        """What replaces the value of this key."""
        return Value(self._target[key]).like(array, size)

    def has_rows(self, key: Any) -> bool:
        """Whether what is there has one row for each instance."""
        if self.count is None:
            return False
        if key in self.fields:
            return self.fields[key].count is not None
        return has_rows(key, self._target[key], self.count)

    def rebuilt(self, keep: Rows, moved: Callable[[Any, Field, Rows], Any]) -> dict[Any, Any]:
        """The dict with the instances `keep`, (K,), and what `moved(key, field, keep)` gives for each of `fields`.

        There, `keep` is None where the field is not of instances.
        """
        keys = {id(field): key for key, field in self.fields.items()}

        def of_field(field: Field, rows: Rows) -> Any:
            return moved(keys[id(field)], field, rows)

        made: dict[Any, Any] = self._group.rebuilt(of_field, lambda _: keep)
        return made

    def moved_to(self, place: Place, size: Size, least_area: float, format: str) -> dict[Any, Any]:
        """What is seen of it on an image of that size; boxes with less than `least_area` of them are dropped.

        The others are written in `format`.
        """
        x, y, (x0, y0, x1, y1) = place
        planes: dict[Any, Array] = {}
        keep, corners = None, np.zeros((0, 4))
        for key, field in self.fields.items():
            if isinstance(field, Masks):
                planes[key] = np.zeros((len(field.planes), *size), dtype=np.uint8)
                planes[key][:, y0:y1, x0:x1] = field.planes[:, y0 - y : y1 - y, x0 - x : x1 - x]
                if field.count is not None and self.boxes is None:
                    of_one = len(field.planes) // max(field.count, 1)
                    keep = some(some(planes[key], 1, 2).reshape(field.count, of_one), 1)
        if self.boxes is not None:
            corners = (self.boxes.corners + [x, y, x, y]).clip([x0, y0, x0, y0], [x1, y1, x1, y1])
            sides = corners[:, 2:] - corners[:, :2]
            keep = (sides.min(axis=1) > 0.0) & (sides.prod(axis=1) >= least_area)

        def moved(key: Any, field: Field, rows: Rows) -> Any:
            if isinstance(field, Masks):
                return field.back(planes[key], rows, size)
            if isinstance(field, Keypoints):
                places = field.places + [x, y]
                seen = ~some((places < [x0, y0]) | (places > [x1, y1]), 1)
                return field.back(places, seen, rows, size)
            assert isinstance(field, Boxes) and rows is not None
            return field.back(corners, rows, size, format)

        return self.rebuilt(keep, moved)


def in_mosaic(parts: Sequence[Part], places: Sequence[Place], size: Size, least_area: float) -> Any:
    """One target of images that lie side by side on one of that size."""

    def overlaid(masks: list[Array]) -> Array:
        whole = masks[0].copy()
        for mask, (_, _, (x0, y0, x1, y1)) in zip(masks[1:], places[1:], strict=True):
            whole[..., y0:y1, x0:x1] = mask[..., y0:y1, x0:x1]
        return whole

    format = parts[0].format
    rebuilt = [part.moved_to(place, size, least_area, format) for part, place in zip(parts, places, strict=True)]
    return _joined(parts, rebuilt, size, overlaid)


def pasted(below: Part, above: Part, chosen: Bools, covered: Bools, size: Size) -> Any:
    """One target of what is still seen of `below`, and the `chosen` instances of `above`, which hide what is `covered`.

    Both have masks of instances; size is that of both images.
    """
    seen = below.instances & ~covered
    keep, corners = some(seen, 1, 2), _bounds(seen)

    def cut(key: Any, field: Field, rows: Rows) -> Any:
        if key == "masks":
            return below.like(key, (below.array(key) * ~covered)[keep], size)
        if isinstance(field, Boxes):
            return field.back(corners, keep, size, below.format)
        return _unmoved(field, rows, size, below.format)

    rebuilt = [
        below.rebuilt(keep, cut),
        above.rebuilt(chosen, lambda _, field, rows: _unmoved(field, rows, size, below.format)),
    ]
    for part, one, masks in zip((below, above), rebuilt, (seen[keep], above.instances[chosen]), strict=True):
        if "area" in one and part.has_rows("area"):
            one["area"] = part.like("area", masks.sum(axis=(1, 2)).astype(part.array("area").dtype), size)
    return _joined([below, above], rebuilt, size, lambda masks: np.where(covered, masks[1], masks[0]))


def some(array: Array, *axes: int) -> Bools:
    """Where anything along these axes is not 0."""
    return np.asarray(array.any(axis=axes))


def _unmoved(field: Field, keep: Rows, size: Size, format: str) -> Any:
    """What stays where it is, with the instances `keep`; boxes are written in that format."""
    if isinstance(field, Masks):
        return field.back(field.planes, keep, size)
    if isinstance(field, Keypoints):
        return field.back(field.places, np.ones(len(field.places), dtype=bool), keep, size)
    assert isinstance(field, Boxes) and keep is not None
    return field.back(field.corners, keep, size, format)


def _joined(
    parts: Sequence[Part], rebuilt: Sequence[dict[Any, Any]], size: Size, overlaid: Callable[[list[Array]], Array]
) -> Any:
    """One dict: what has a row for each instance one after the other, masks of classes laid over each other, and the
    rest as in the first.

    Args:
        parts: what was there.
        rebuilt: what has become of each.
        size: (height, width) of the image that they are put together on.
        overlaid: makes one (H, W) mask of those of all parts.

    Raises:
        TransformError: dicts of different keys, or rows of different shapes.
    """
    whole = copy.copy(rebuilt[0])
    if any(other.keys() != whole.keys() for other in rebuilt):
        keys = sorted({key for one in rebuilt for key in one if any(key not in other for other in rebuilt)}, key=str)
        raise TransformError(f"targets that are put together have the same keys, but only some have {keys}")
    for key in whole:
        if all(part.has_rows(key) for part in parts):
            whole[key] = _concatenated(key, [one[key] for one in rebuilt], size)
        elif isinstance(parts[0].fields.get(key), Masks):
            whole[key] = parts[0].like(key, overlaid([Value(one[key]).array for one in rebuilt]), size)
    return whole


def _concatenated(key: Any, values: Sequence[Any], size: Size) -> Any:
    first = values[0]
    if isinstance(first, (list, tuple)):
        rows = itertools.chain(*values)
        return tuple(rows) if isinstance(first, tuple) else [*rows]
    # What has no rows may be of another shape and type.
    filled = [value for value in values if len(value)] or [first]
    if len({np.shape(value)[1:] for value in filled}) > 1:
        shapes = ", ".join(str(np.shape(value)) for value in filled)
        raise TransformError(f"{key} of targets that are put together have rows of one shape, not {shapes}")
    if isinstance(first, torch.Tensor):
        return Value(first).like(np.concatenate([Value(value).array for value in filled]), size)
    return np.concatenate([np.asarray(value) for value in filled])


def _bounds(masks: Bools) -> Array:
    """(K, 4) float64: x0, y0, x1, y1 of (K, H, W) masks; zeros where one is empty."""
    ends = []
    for axis in (1, 2):  # over each column for x, over each row for y
        there = some(masks, axis)
        ends += [there.argmax(axis=1), there.shape[1] - there[:, ::-1].argmax(axis=1)]
    x0, x1, y0, y1 = ends
    return np.where(some(masks, 1, 2)[:, None], np.stack([x0, y0, x1, y1], axis=1), 0).astype(np.float64)
