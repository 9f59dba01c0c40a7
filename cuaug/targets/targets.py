"""The targets of a batch: read, attached to its plan, and given back as they came."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cuaug.errors import TransformError
from cuaug.plan import BOX_FORMATS, BoxesKeypoints, CompiledPlan, Plan
from cuaug.targets.fields import Boxes, Field, Keypoints, Masks, corners_of, written
from cuaug.targets.masks import MaskProgram
from cuaug.targets.parse import Group, may_be_picture, may_hold_targets, may_move

__all__ = ["Targets"]

FieldOfKind = TypeVar("FieldOfKind", bound=Field)


class Targets:
    """What is to be moved with N images: what is found in their labels, of any kind.

    In a dict, "boxes" are (K, 4), "masks" (K, H, W), "mask" (H, W), and "keypoints" (K, P, 2), (P, 2), or with COCO's v
    as a third number; torchvision's `tv_tensors` are found by their type. Dicts and tuples may lie within each other.
    In a list, which is what several images have, they are refused.

    Everything else is handed through, but for what has one row for each of a dict's boxes where a transform has sorted
    some of these out. An array of the image's own size and a PIL image are refused where no name tells what they are,
    and boxes, masks and polygons that have the names of other libraries ("bbox", "bboxes", "segmentation", ...).

    Coordinates are in pixels from the image's upper left corner; the centre of the first pixel is (0.5, 0.5). What
    reaches out of the image is cut off, at first as well.

    Args:
        targets: N labels.
        heights, widths: (N,), of the images.
        box_format: "xyxy", "xywh" or "cxcywh": of boxes that do not tell it in their dict's "format".
        mask_fill: what masks of classes show where there is no image; those of instances show 0.

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
        #: By the sample's number, of those that may have any.
        self._fields: dict[int, list[tuple[Field, Group]]] = {}
        # Most labels are class numbers, of one type or two.
        kinds = {kind for kind in set(map(type, targets)) if may_hold_targets(kind) or may_be_picture(kind)}
        for i, target in enumerate(targets) if kinds else ():
            if type(target) not in kinds or (isinstance(target, list) and not may_move(target)):
                continue
            if getattr(target, "ndim", 2) < 2:  # soft labels
                continue
            size = int(self._heights[i]), int(self._widths[i])
            try:
                group = Group((target,), size, box_format, mask_fill)
            except TransformError as error:
                raise self._named(error, i) from None
            self._groups[i], self._fields[i] = group, group.all_fields()
        self._boxes = self._all(Boxes)
        self._corners = self._read_boxes()
        self._points: BoxesKeypoints | None = None
        self._rows: dict[int, slice] = {}  # by the id of a field

    def __bool__(self) -> bool:
        return any(self._fields.values())

    def _named(self, error: TransformError, i: int) -> TransformError:
        return TransformError(f"{error} (target {i} of the batch)" if len(self._targets) > 1 else str(error))

    def _all(self, kind: type[FieldOfKind]) -> list[tuple[int, FieldOfKind]]:
        """The fields of a kind, and which image each is of."""
        return [(i, field) for i, fields in self._fields.items() for field, _ in fields if isinstance(field, kind)]

    def _read_boxes(self) -> NDArray[np.float64]:
        """(B, 4): the corners of all boxes."""
        try:
            return corners_of([field for _, field in self._boxes])
        except TransformError:
            for i, field in self._boxes:
                try:
                    field.refuse_bad()
                except TransformError as error:
                    raise self._named(error, i) from None
            raise

    def attach(self, plan: Plan) -> None:
        """Has the plan move them."""
        if not self:
            return
        if plan.views > 1:
            raise TransformError(
                "a transform that makes several images of one (FiveCrop, TenCrop, MultiView) has no targets"
            )
        keypoints = self._all(Keypoints)
        places = np.concatenate([np.zeros((0, 2)), *(field.places for _, field in keypoints)])
        box_of = self._place(self._boxes, [field.count for _, field in self._boxes])
        keypoint_of = self._place(keypoints, [len(field.places) for _, field in keypoints])
        points = BoxesKeypoints(len(plan), self._corners, box_of, places, keypoint_of)
        points.move(np.arange(len(plan)), np.broadcast_to(np.eye(3), (len(plan), 3, 3)), self._heights, self._widths)
        points.area_fraction[points.area_fraction > 0] = 1.0
        plan.points = self._points = points

    def _place(self, fields: Sequence[tuple[int, Field]], counts: Sequence[int]) -> NDArray[np.int64]:
        """Which image each row is of, where fields have so many rows in turn; notes which rows are a field's."""
        ends = itertools.accumulate(counts)
        self._rows |= {id(field): slice(end - n, end) for (_, field), n, end in zip(fields, counts, ends, strict=True)}
        return np.repeat(np.array([i for i, _ in fields], dtype=np.int64), np.array(counts, dtype=np.int64))

    def mover(self, tables: CompiledPlan) -> Callable[[int], Any]:
        """A function that gives what has become of target i, on any thread, once the plan is finished."""
        if not self:
            return self._targets.__getitem__
        points = self._points
        assert points is not None, "attach comes first"
        boxes = written([field for _, field in self._boxes], points.boxes())
        heights, widths = (sizes.tolist() for sizes in tables.sizes())
        masks = MaskProgram(tables) if self._all(Masks) else None

        sorted_out = set(points.box_of[~points.selected].tolist())  # images that have lost boxes: mostly few or none

        def target(i: int) -> Any:
            group = self._groups[i]
            if group is None:
                return self._targets[i]
            size = heights[i], widths[i]

            def kept(group: Group) -> NDArray[np.bool_] | None:
                if group.boxes is None or i not in sorted_out:
                    return None
                return points.selected[self._rows[id(group.boxes)]]

            def moved(field: Field, keep: NDArray[np.bool_] | None) -> Any:
                if isinstance(field, Masks):
                    assert masks is not None
                    return field.back(masks.run(i, field.planes), keep, size)
                rows = self._rows[id(field)]
                if isinstance(field, Keypoints):
                    return field.back(points.keypoints[rows], points.visible[rows], keep, size)
                assert isinstance(field, Boxes)
                return field.written(boxes[rows], keep, size)

            return group.rebuilt(moved, kept)[0]

        return target

    def moved(self, tables: CompiledPlan) -> list[Any]:
        """The N targets: new containers, with what has moved in place of what was given."""
        return [*map(self.mover(tables), range(len(self._groups)))]
