"""The targets of a batch. Masks move with the kernels: three byte planes form an image, which moves by whole pixels."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cuaug._runtime.native import BEST_ISA, address, library
from cuaug.devices.cpu import CpuExecutor
from cuaug.errors import TransformError
from cuaug.plan import BOX_FORMATS, BoxesKeypoints, CompiledPlan, Plan
from cuaug.plan.regions import moves
from cuaug.targets.fields import Boxes, Field, Keypoints, Masks, from_corners, to_corners, with_dtype
from cuaug.targets.names import TargetFormat, TargetNameError
from cuaug.targets.parse import Group, moves_with_image, type_may_be_image, type_may_hold_targets


class MaskExecutor:
    """Moves masks as a compiled plan moves their images. Thread-safe."""

    def __init__(self, compiled: CompiledPlan) -> None:
        self._executor = CpuExecutor(compiled.for_masks())
        self._heights, self._widths = compiled.sizes()

    def run(self, sample: int, planes: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Move the byte planes over one image: (M, H, W) to (M, h, w)."""
        count, height, width = planes.shape
        if count % 3 == 2:  # repeat one plane to complete the image
            planes = np.concatenate([planes, planes[-1:]])
        planes = np.ascontiguousarray(planes)
        packed = np.empty((height, width, 3), dtype=np.uint8)
        output = np.empty((int(self._heights[sample]), int(self._widths[sample]), 3), dtype=np.uint8)
        result = np.empty((count, *output.shape[:2]), dtype=np.uint8)
        for first in range(0, count, 3):
            three = planes[first : first + 3]
            step = height * width if len(three) == 3 else 0  # 0: all channels are the one plane
            library.cuaug_interleave(BEST_ISA, 1, address(three), 1, 0, step, height * width, 1, address(packed))
            self._executor.run(sample, packed, output.ctypes.data)
            for channel, plane in enumerate(result[first : first + 3]):
                plane[...] = output[..., channel]
        return result


FieldT = TypeVar("FieldT", bound=Field)

#: Takes the compiled plan; returns a thread-safe function that returns moved target i, in a new container.
Mover = Callable[[CompiledPlan], Callable[[int], Any]]


class Targets:
    """The boxes, masks and keypoints in the labels of N images.

    A dict may hold "boxes" (K, 4), "masks" (K, H, W) of instances, a "mask" (H, W) of classes, and "keypoints"
    (K, P, 2), (P, 2), or with COCO's v as a third number. torchvision's `tv_tensors` are found by their type, also in
    tuples. Dicts and tuples may be nested. Lists with targets are refused, because a list holds the targets of a batch.

    Values that describe no geometry pass unchanged. Values that may are refused unless their name says that they move,
    or is in `pass_through`: PIL images, arrays of the image's size, and boxes, keypoints, masks and polygons under the
    names of other libraries. If a transform drops boxes, the instance fields in their dict lose the same rows.

    Coordinates are pixels from the image's upper left corner; the center of the first pixel is (0.5, 0.5). Targets are
    clipped to the image, on input too.

    Args:
        targets: N labels of any kind.
        heights, widths: (N,) image sizes in pixels.
        format: the fields of `TargetFormat`.

    `bool(targets)` is whether there is anything to move.

    Raises:
        TransformError: a target is not valid. The error names it.
        TargetNameError: a value may describe geometry, but its name does not say so.
    """

    def __init__(
        self,
        targets: Sequence[Any],
        heights: ArrayLike,
        widths: ArrayLike,
        **format: Any,
    ) -> None:
        target_format = TargetFormat(**format)
        if (box_format := target_format.box_format) not in BOX_FORMATS:
            raise TransformError(f"box_format must be one of {', '.join(map(repr, BOX_FORMATS))}, not {box_format!r}")
        self._heights, self._widths = (np.asarray(sides, dtype=np.int64) for sides in (heights, widths))
        self._groups: list[Group | None] = [None] * len(targets)
        self._targets = targets
        self._mask_dtype = target_format.mask_dtype
        #: Fields by sample number, for samples that may have any.
        self._fields: dict[int, list[tuple[Field, Group]]] = {}
        #: Shapes of arrays like keypoints or boxes without a name, by sample number.
        self._unnamed: dict[int, tuple[int, ...]] = {}
        # Most labels are class numbers, of one or two types.
        kinds = {kind for kind in set(map(type, targets)) if type_may_hold_targets(kind) or type_may_be_image(kind)}
        for i, target in enumerate(targets) if kinds else ():
            size = int(self._heights[i]), int(self._widths[i])
            if type(target) not in kinds or (
                isinstance(target, list) and not moves_with_image(target, size, target_format)
            ):
                continue
            if getattr(target, "ndim", 2) < 2:  # soft labels
                continue
            try:
                group = Group((target,), size, target_format, _labels(target_format.labels_getter, target))
            except TransformError as error:
                raise self._with_number(error, i) from None
            self._groups[i], self._fields[i] = group, group.all_fields()
            if group.unnamed:
                self._unnamed[i] = tuple(group.unnamed[0].shape)
        self._boxes = self._fields_of(Boxes)
        self._corners = self._read_boxes(target_format.relative_boxes)

    def __bool__(self) -> bool:
        return any(self._fields.values())

    def has_fields(self, i: int) -> bool:
        """Whether target i holds boxes, masks or keypoints."""
        return bool(self._fields.get(i))

    def _with_number(self, error: TransformError, i: int) -> TransformError:
        return type(error)(f"{error} (target {i} of the batch)" if len(self._targets) > 1 else str(error))

    def _fields_of(self, kind: type[FieldT]) -> list[tuple[int, FieldT]]:
        """The fields of one class, each with its sample number."""
        return [(i, field) for i, fields in self._fields.items() for field, _ in fields if isinstance(field, kind)]

    def _read_boxes(self, relative: bool | None) -> NDArray[np.float64]:
        """(B, 4) xyxy of all boxes; `relative` as `TargetFormat.relative_boxes`."""
        if relative:
            self._check_boxes(Boxes.scale)
        corners: NDArray[np.float64] | None = None
        with contextlib.suppress(TransformError):  # `_check_boxes` raises it again, with its number
            corners = to_corners([field for _, field in self._boxes])
        if relative is False and (corners is None or (corners <= 1).all(axis=1).any()):
            self._check_boxes(Boxes.refuse_relative)
        if corners is None:
            self._check_boxes(lambda field, size: field.check())
        assert corners is not None
        return corners

    def _check_boxes(self, check: Callable[[Boxes, tuple[int, int]], None]) -> None:
        """Call `check` with each sample's boxes and image size; its errors get the sample's number."""
        for i, field in self._boxes:
            try:
                check(field, (int(self._heights[i]), int(self._widths[i])))
            except TransformError as error:
                raise self._with_number(error, i) from None

    def attach(self, plan: Plan) -> Mover:
        """Let the plan move the boxes and keypoints. Returns the mover, for the compiled plan."""
        if not self:
            return lambda tables: self._targets.__getitem__
        if plan.views > 1:
            raise TransformError(
                "targets cannot move with several views of an image: FiveCrop, TenCrop and MultiView take none"
            )
        keypoints = self._fields_of(Keypoints)
        places = np.concatenate([np.zeros((0, 2)), *(field.places for _, field in keypoints)])
        rows: dict[int, slice] = {}  # in the plan's boxes or keypoints, by the id of a field
        box_of = _assign_rows(rows, self._boxes, [field.count for _, field in self._boxes])
        keypoint_of = _assign_rows(rows, keypoints, [len(field.places) for _, field in keypoints])
        points = BoxesKeypoints(len(plan), self._corners, box_of, places, keypoint_of)
        points.move(np.arange(len(plan)), np.broadcast_to(np.eye(3), (len(plan), 3, 3)), self._heights, self._widths)
        points.area_fraction[points.area_fraction > 0] = 1.0
        plan.points = points
        return functools.partial(self._moved, points, rows)

    def refuse_unnamed(self, plan: Plan, tables: CompiledPlan) -> None:
        """Check that no image moves away from an array like keypoints or boxes that has no name.

        Raises:
            TargetNameError: one does.
        """
        if not self._unnamed:
            return
        still = Plan(self._heights, self._widths).compile().rows[0].repeat(plan.views)
        moving = moves(tables.rows, still).reshape(-1, plan.views)
        shape = next((shape for i, shape in self._unnamed.items() if moving[i].any()), None)
        if shape is not None:
            raise TargetNameError(
                f"the target is an array {shape}, without a name that says whether it moves with its image: pass "
                '{"keypoints": points} or {"boxes": boxes}; other numbers stay in place in a dict, under another name, '
                'such as {"values": numbers}'
            )

    def _moved(self, points: BoxesKeypoints, rows: Mapping[int, slice], tables: CompiledPlan) -> Callable[[int], Any]:
        """As `Mover`."""
        boxes = from_corners([field for _, field in self._boxes], points.boxes())
        heights, widths = (sizes.tolist() for sizes in tables.sizes())
        masks = MaskExecutor(tables) if self._fields_of(Masks) else None
        some_points_are_dropped = not points.keypoint_selected.all()
        lost_boxes = set(points.box_of[~points.selected].tolist())  # sample numbers

        def target(i: int) -> Any:
            group = self._groups[i]
            if group is None:
                return self._targets[i]
            size = heights[i], widths[i]

            def kept_points(field: Keypoints, keep: NDArray[np.bool_] | None = None) -> NDArray[np.bool_] | None:
                selected = points.keypoint_selected[rows[id(field)]]
                return keep if selected.all() else field.kept(selected)

            def kept_instances(group: Group) -> NDArray[np.bool_] | None:
                if some_points_are_dropped and group.boxes is not None:
                    group.refuse_dropped_points(kept_points)
                if group.boxes is None and points.labels_follow_keypoints and (field := group.only_keypoints()):
                    return kept_points(field)
                if group.boxes is None or i not in lost_boxes:
                    return None
                return points.selected[rows[id(group.boxes)]]

            def rebuild_field(field: Field, keep: NDArray[np.bool_] | None) -> Any:
                if isinstance(field, Masks):
                    assert masks is not None
                    moved = field.rebuild(masks.run(i, field.planes), keep, size)
                    return moved if self._mask_dtype is None else with_dtype(moved, self._mask_dtype)
                own = rows[id(field)]
                if isinstance(field, Keypoints):
                    return field.rebuild(points.keypoints[own], points.visible[own], kept_points(field, keep), size)
                assert isinstance(field, Boxes)
                return field.rebuild(boxes[own], keep, size)

            return group.rebuild(rebuild_field, kept_instances)[0]

        return target


def _assign_rows(
    rows: dict[int, slice], fields: Sequence[tuple[int, Field]], counts: Sequence[int]
) -> NDArray[np.int64]:
    """Assign consecutive rows to the fields, by their ids; returns the sample number of each row."""
    ends = itertools.accumulate(counts)
    rows |= {id(field): slice(end - n, end) for (_, field), n, end in zip(fields, counts, ends, strict=True)}
    return np.repeat(np.array([i for i, _ in fields], dtype=np.int64), np.array(counts, dtype=np.int64))


def _labels(labels_getter: Any, target: Any) -> tuple[Any, ...]:
    """The values that a `labels_getter` returns for a sample, whose image does not exist yet."""
    if not callable(labels_getter):
        return ()
    try:
        labels = labels_getter((None, target))
    except Exception as error:
        raise TransformError(
            f"labels_getter raised {type(error).__name__}: {error}; it is called with (None, target) and returns "
            "values of the target, or None"
        ) from error
    return labels if isinstance(labels, tuple) else () if labels is None else (labels,)
