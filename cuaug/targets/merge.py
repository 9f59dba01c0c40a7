"""Merges the targets of several images, for mosaics and pasted instances."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug.errors import TransformError
from cuaug.targets.fields import Boxes, Field, Keypoints, Masks, UserArray
from cuaug.targets.names import TargetFormat
from cuaug.targets.parse import Group

Array = NDArray[Any]
Bools = NDArray[np.bool_]
Keep = Bools | None
Size = tuple[int, int]  # (height, width)
#: x, y of an image's corner on the merged image, and the xyxy region that the image fills there.
Placement = tuple[int, int, tuple[int, int, int, int]]


def parse_targets(
    name: str, targets: Sequence[Any], size: Size, target_format: Mapping[str, Any]
) -> list[ParsedTarget]:
    """The targets of a batch, for a transform of this name; an error has the number of its target."""
    format, parsed = TargetFormat(**target_format), []
    for i, target in enumerate(targets):
        try:
            parsed.append(ParsedTarget(target, size, format))
        except TransformError as error:
            raise type(error)(f"{name}: {error} (target {i} of the batch)") from None
    return parsed


class ParsedTarget:
    """The target dict of one image to merge.

    Args:
        target: the dict.
        size: (height, width) of its image.
        format: how to read the targets.

    Attributes:
        fields: boxes, masks and keypoints by key.
        boxes: the boxes, or None.
        count: number of instances, or None.

    Raises:
        TransformError: the target is no dict, holds targets in inner dicts, or a target is not valid.
    """

    def __init__(self, target: Any, size: Size, format: TargetFormat) -> None:
        if not isinstance(target, Mapping):
            raise TransformError(f"labels must be dicts of boxes, masks or keypoints, not {target!r:.100}")
        self._target = target
        self._group = Group(target, size, format)
        if self._group.groups:
            raise TransformError(
                f"boxes, masks and keypoints must be in the dict itself, not in its {[*self._group.groups]}"
            )
        self.fields = self._group.fields
        self.boxes = self._group.boxes
        self.count = next((field.count for field in self.fields.values() if field.count is not None), None)

    @property
    def format(self) -> str:
        """The format of its boxes. Boxes merged into it take this format, since a dict has one format."""
        return self.boxes.format if self.boxes is not None else "xyxy"

    @property
    def instance_masks(self) -> Bools:
        """(K, H, W): the pixels of each instance."""
        if "masks" not in self.fields:
            raise TransformError('a target must have "masks" of instances')
        return self.array("masks") != 0

    def array(self, key: Any) -> Array:
        return self.fields[key].array if key in self.fields else UserArray(self._target[key]).array

    def like(self, key: Any, array: Array, size: Size) -> Any:
        """The array in the type of this key's value."""
        return UserArray(self._target[key]).like(array, size)

    def has_rows(self, key: Any) -> bool:
        """Whether the value of this key has one row per instance."""
        if self.count is None:
            return False
        if key in self.fields:
            return self.fields[key].count is not None
        return self._group.has_rows(key, self._target[key], self.count)

    def rebuild(self, keep: Keep, rebuild_field: Callable[[Any, Field, Keep], Any]) -> dict[Any, Any]:
        """The dict with the instances `keep`, (K,), and with new fields.

        Args:
            rebuild_field: takes a key, its field and the instances to keep, or None for fields without instances.
        """
        keys = {id(field): key for key, field in self.fields.items()}
        result: dict[Any, Any] = self._group.rebuild(
            lambda field, rows: rebuild_field(keys[id(field)], field, rows), lambda _: keep
        )
        return result

    def move(self, placement: Placement, size: Size, min_area: float, format: str) -> dict[Any, Any]:
        """The visible part of the target on a merged image.

        Args:
            size: (height, width) of the merged image.
            min_area: boxes with a smaller visible area are dropped.
            format: of the moved boxes.
        """
        x, y, (x0, y0, x1, y1) = placement
        planes: dict[Any, Array] = {}
        keep, corners = None, np.zeros((0, 4))
        for key, field in self.fields.items():
            if isinstance(field, Masks):
                planes[key] = np.zeros((len(field.planes), *size), dtype=np.uint8)
                planes[key][:, y0:y1, x0:x1] = field.planes[:, y0 - y : y1 - y, x0 - x : x1 - x]
                if field.count is not None and self.boxes is None:
                    per_mask = len(field.planes) // max(field.count, 1)
                    keep = any_along(any_along(planes[key], 1, 2).reshape(field.count, per_mask), 1)
        if self.boxes is not None:
            corners = (self.boxes.corners + [x, y, x, y]).clip([x0, y0, x0, y0], [x1, y1, x1, y1])
            sides = corners[:, 2:] - corners[:, :2]
            keep = (sides.min(axis=1) > 0.0) & (sides.prod(axis=1) >= min_area)

        def rebuild_field(key: Any, field: Field, rows: Keep) -> Any:
            if isinstance(field, Masks):
                return field.rebuild(planes[key], rows, size)
            if isinstance(field, Keypoints):
                places = field.places + [x, y]
                visible = ~any_along((places < [x0, y0]) | (places > [x1, y1]), 1)
                return field.rebuild(places, visible, rows, size)
            assert isinstance(field, Boxes) and rows is not None
            return field.rebuild_from_corners(corners, rows, size, format)

        return self.rebuild(keep, rebuild_field)


def merge_mosaic(parsed: Sequence[ParsedTarget], placements: Sequence[Placement], size: Size, min_area: float) -> Any:
    """One target of images that lie side by side on a merged image of that size."""

    def combine_masks(masks: list[Array]) -> Array:
        result = masks[0].copy()
        for mask, (_, _, (x0, y0, x1, y1)) in zip(masks[1:], placements[1:], strict=True):
            result[..., y0:y1, x0:x1] = mask[..., y0:y1, x0:x1]
        return result

    format = parsed[0].format
    moved = [target.move(place, size, min_area, format) for target, place in zip(parsed, placements, strict=True)]
    return _merge(parsed, moved, size, combine_masks)


def merge_pasted(below: ParsedTarget, above: ParsedTarget, chosen: Bools, covered: Bools, size: Size) -> Any:
    """One target of the visible part of `below` and the pasted instances of `above`.

    Args:
        below, above: targets with instance masks.
        chosen: (K,) the pasted instances of `above`.
        covered: (H, W) the pixels that they hide.
        size: (H, W) of both images.
    """
    visible = below.instance_masks & ~covered
    keep, corners = any_along(visible, 1, 2), _bounding_boxes(visible)

    def cut(key: Any, field: Field, rows: Keep) -> Any:
        if key == "masks":
            return below.like(key, (below.array(key) * ~covered)[keep], size)
        if isinstance(field, Boxes):
            return field.rebuild_from_corners(corners, keep, size, below.format)
        return _rebuild_unmoved(field, rows, size, below.format)

    rebuilt = [
        below.rebuild(keep, cut),
        above.rebuild(chosen, lambda _, field, rows: _rebuild_unmoved(field, rows, size, below.format)),
    ]
    masks = visible[keep], above.instance_masks[chosen]
    for target, new, instances in zip((below, above), rebuilt, masks, strict=True):
        if "area" in new and target.has_rows("area"):
            areas = instances.sum(axis=(1, 2)).astype(target.array("area").dtype)
            new["area"] = target.like("area", areas, size)
    return _merge([below, above], rebuilt, size, lambda masks: np.where(covered, masks[1], masks[0]))


def merge_mixed(first: ParsedTarget, second: ParsedTarget, size: Size) -> Any:
    """One target with the instances of two images that are blended into one of that size.

    Raises:
        TransformError: a target has a class mask, which two images cannot share.
    """

    def refuse(masks: list[Array]) -> Array:
        raise TransformError(
            "class masks of two images do not blend into one: mix them with CutMix of your own, or leave out MixUp"
        )

    rebuilt = [
        target.rebuild(
            np.ones(target.count or 0, dtype=bool),
            lambda _, field, rows: _rebuild_unmoved(field, rows, size, first.format),
        )
        for target in (first, second)
    ]
    return _merge([first, second], rebuilt, size, refuse)


def any_along(array: Array, *axes: int) -> Bools:
    """Whether any value along the axes is not 0."""
    return np.asarray(array.any(axis=axes))


def _rebuild_unmoved(field: Field, keep: Keep, size: Size, format: str) -> Any:
    """The field in place, with the instances `keep`, and boxes in `format`."""
    if isinstance(field, Masks):
        return field.rebuild(field.planes, keep, size)
    if isinstance(field, Keypoints):
        return field.rebuild(field.places, np.ones(len(field.places), dtype=bool), keep, size)
    assert isinstance(field, Boxes) and keep is not None
    return field.rebuild_from_corners(field.corners, keep, size, format)


def _merge(
    parsed: Sequence[ParsedTarget],
    rebuilt: Sequence[dict[Any, Any]],
    size: Size,
    combine_masks: Callable[[list[Array]], Array],
) -> Any:
    """One dict: values with one row per instance concatenated, class masks combined, the rest from the first dict.

    Args:
        parsed: the original targets.
        rebuilt: the dict that became of each.
        size: (height, width) of the merged image.
        combine_masks: makes one (H, W) class mask of all dicts' masks.

    Raises:
        TransformError: the dicts have different keys, or rows of different shapes.
    """
    result = copy.copy(rebuilt[0])
    if any(other.keys() != result.keys() for other in rebuilt):
        keys = sorted({key for one in rebuilt for key in one if any(key not in other for other in rebuilt)}, key=str)
        raise TransformError(f"targets to merge must have the same keys, but only some have {keys}")
    for key in result:
        if all(target.has_rows(key) for target in parsed):
            result[key] = _concatenate(key, [one[key] for one in rebuilt], size)
        elif isinstance(parsed[0].fields.get(key), Masks):
            result[key] = parsed[0].like(key, combine_masks([UserArray(one[key]).array for one in rebuilt]), size)
    return result


def _concatenate(key: Any, values: Sequence[Any], size: Size) -> Any:
    first = values[0]
    if isinstance(first, (list, tuple)):
        rows = itertools.chain(*values)
        return tuple(rows) if isinstance(first, tuple) else [*rows]
    # An empty value may have another shape and dtype.
    filled = [value for value in values if len(value)] or [first]
    if len({np.shape(value)[1:] for value in filled}) > 1:
        shapes = ", ".join(str(np.shape(value)) for value in filled)
        raise TransformError(f"{key} of targets to merge must have rows of one shape, not {shapes}")
    if isinstance(first, torch.Tensor):
        return UserArray(first).like(np.concatenate([UserArray(value).array for value in filled]), size)
    return np.concatenate([np.asarray(value) for value in filled])


def _bounding_boxes(masks: Bools) -> Array:
    """(K, 4) float64 xyxy of (K, H, W) masks; zeros for an empty mask."""
    ends = []
    for axis in (1, 2):  # over columns for x, over rows for y
        occupied = any_along(masks, axis)
        ends += [occupied.argmax(axis=1), occupied.shape[1] - occupied[:, ::-1].argmax(axis=1)]
    x0, x1, y0, y1 = ends
    is_filled = any_along(masks, 1, 2)[:, None]
    return np.where(is_filled, np.stack([x0, y0, x1, y1], axis=1), 0).astype(np.float64)
