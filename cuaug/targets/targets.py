"""The targets of a batch: read, attached to its plan, and given back as they came."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cuaug.errors import TransformError
from cuaug.plan import BOX_FORMATS, Plan, Points, Tables
from cuaug.targets.fields import Boxes, Field, Keypoints, Masks
from cuaug.targets.finding import Group, may_hold_targets
from cuaug.targets.masks import MaskProgram

__all__ = ["Targets"]


class Targets:
    """What is to be moved with N images: what is found in their labels, of any kind.

    In a dict, "boxes" are (K, 4), "masks" (K, H, W), "mask" (H, W), and "keypoints" (K, P, 2), (P, 2), or with COCO's v
    as a third number; torchvision's `tv_tensors` are found by their type. Dicts and tuples may lie within each other.
    Everything else is handed through, but for what has one row for each of a dict's boxes where a transform has sorted
    some of these out.

    Coordinates are in pixels from the image's upper left corner; the centre of the first pixel is (0.5, 0.5). What
    reaches out of the image is cut off, at first as well.

    Args:
        targets: N labels.
        heights, widths: (N,), of the images.
        box_format: "xyxy", "xywh" or "cxcywh": of boxes that do not tell it in their dict's "format".
        mask_fill: what masks show where there is no image.

    It is true if there is anything to be moved.

    Raises:
        TransformError: a target that is not as it should be, named.
    """

    def __init__(
        self,
        targets: Sequence[Any],
        heights: ArrayLike,
        widths: ArrayLike,
        *,
        box_format: str = "xyxy",
        mask_fill: int = 0,
    ) -> None:
        if box_format not in BOX_FORMATS:
            raise TransformError(f"box_format is one of {', '.join(map(repr, BOX_FORMATS))}, not {box_format!r}")
        self._heights, self._widths = (np.asarray(sides, dtype=np.int64) for sides in (heights, widths))
        self._groups: list[Group | None] = [None] * len(targets)
        self._targets = targets
        # Most labels are class numbers, of one type or two.
        kinds = {kind for kind in set(map(type, targets)) if may_hold_targets(kind)}
        for i, target in enumerate(targets) if kinds else ():
            if type(target) not in kinds:
                continue
            size = int(self._heights[i]), int(self._widths[i])
            try:
                self._groups[i] = Group((target,), size, box_format, mask_fill)
            except TransformError as error:
                which = f" (target {i} of the batch)" if len(targets) > 1 else ""
                raise TransformError(f"{error}{which}") from None
        #: By the sample's number, of those that have any.
        self._fields = {i: [*group.all_fields()] for i, group in enumerate(self._groups) if group is not None}
        self._points: Points | None = None
        self._rows: dict[int, slice] = {}  # by the id of a field

    def __bool__(self) -> bool:
        return any(self._fields.values())

    def attach(self, plan: Plan) -> None:
        """Has the plan move them."""
        if not self:
            return
        if plan.views > 1:
            raise TransformError("a transform that makes several images of one (FiveCrop, TenCrop) has no targets")
        boxes, box_of = self._flat(Boxes, "corners", 4)
        keypoints, keypoint_of = self._flat(Keypoints, "places", 2)
        points = Points(len(plan), boxes, box_of, keypoints, keypoint_of)
        points.move(np.arange(len(plan)), np.broadcast_to(np.eye(3), (len(plan), 3, 3)), self._heights, self._widths)
        points.kept[points.kept > 0] = 1.0
        plan.points = self._points = points

    def _flat(self, kind: type[Field], values: str, columns: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """The values of all fields of a kind, and which image each is of; notes which rows are a field's."""
        found, of, end = [np.zeros((0, columns))], [np.zeros(0, dtype=np.int64)], 0
        for i, fields in self._fields.items():
            for field, _ in fields:
                if isinstance(field, kind):
                    found.append(getattr(field, values))
                    of.append(np.full(len(found[-1]), i))
                    self._rows[id(field)] = slice(end, end := end + len(found[-1]))
        return np.concatenate(found), np.concatenate(of)

    def mover(self, tables: Tables) -> Callable[[int], Any]:
        """A function that gives what has become of target i, on any thread, once the plan is finished."""
        if not self:
            return self._targets.__getitem__
        points = self._points
        assert points is not None, "attach comes first"
        boxes = points.boxes()
        heights, widths = tables.sizes()
        has_masks = any(isinstance(field, Masks) for fields in self._fields.values() for field, _ in fields)
        masks = MaskProgram(tables) if has_masks else None

        def kept(group: Group) -> NDArray[np.bool_] | None:
            return None if group.boxes is None else points.wanted[self._rows[id(group.boxes)]]

        def target(i: int) -> Any:
            group = self._groups[i]
            if group is None:
                return self._targets[i]
            size = int(heights[i]), int(widths[i])

            def moved(field: Field, keep: NDArray[np.bool_] | None) -> Any:
                if isinstance(field, Masks):
                    assert masks is not None
                    return field.back(masks.run(i, field.planes), keep, size)
                rows = self._rows[id(field)]
                if isinstance(field, Keypoints):
                    return field.back(points.keypoints[rows], points.visible[rows], keep, size)
                assert isinstance(field, Boxes) and keep is not None
                return field.back(boxes[rows], keep, size)

            return group.rebuilt(moved, kept)[0]

        return target

    def moved(self, tables: Tables) -> list[Any]:
        """The N targets: new containers, with what has moved in place of what was given."""
        return [*map(self.mover(tables), range(len(self._groups)))]
