"""Classifies a label's values by name: which move, which stay, and which belong to instances.

A value that may describe geometry, but whose name does not say so, is refused: it would stay in place while its image
moves.
"""

from __future__ import annotations

import numbers
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from cuaug.errors import TransformError

Size = tuple[int, int]  # (height, width)

#: Endings of names of image files.
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".gif", ".ppm", ".pgm", ".jp2")

_ROWS = (np.ndarray, torch.Tensor, list, tuple)

#: Names of boxes in Albumentations, COCO, Hugging Face, Pascal VOC, MMDetection, Detectron2 and torchvision's docs.
_BOXES = frozenset(
    {"box", "bbox", "bboxes", "bndbox", "bounding_box", "bounding_boxes", "gt_bbox", "gt_bboxes", "gt_box", "gt_boxes"}
    | {"proposals", "proposal_boxes", "rois"}
)
_KEYPOINTS = frozenset(
    {"keypoint", "kpt", "kpts", "kps", "gt_keypoints", "landmark", "landmarks", "point", "points", "gt_points"}
)
_OUTLINES = frozenset(
    {"segmentation", "segmentations", "segment", "segments", "polygon", "polygons", "gt_polygons", "contour"}
    | {"contours", "rle", "rles"}
)
#: Names of dense maps, refused whatever their size. Under any other name, arrays of the image's size are.
_MASKS = frozenset(
    {"gt_mask", "gt_masks", "gt_seg_map", "gt_semantic_seg", "seg_map", "seg_mask", "segmentation_map", "label_map"}
    | {"segmentation_mask", "segmentation_masks", "semantic", "semantic_map", "semantic_mask", "instance_mask"}
    | {"instance_masks", "panoptic", "depth", "depth_map", "disparity"}
)
#: Values with one row per instance, in the targets of torchvision, DETR, COCO, Pascal VOC and MMDetection.
_INSTANCE_FIELDS = frozenset(
    {"labels", "label", "class_labels", "gt_labels", "gt_bboxes_labels", "gt_classes", "class_id", "class_ids"}
    | {"category", "category_id", "category_ids", "names", "scores", "score"}
    | {"area", "areas", "iscrowd", "is_crowd", "id", "ids", "annotation_id", "annotation_ids", "instance_id"}
    | {"instance_ids", "track_id", "track_ids", "difficult", "difficulties", "truncated", "occluded", "occlusion"}
    | {"ignore", "gt_ignore_flags", "num_keypoints", "gt_masks", "instance_masks", "bbox", "segmentation"}
)
#: COCO's values in a sample of `wrap_dataset_for_transforms_v2(dataset, target_keys="all")`, and the kind of tv_tensor
#: that it makes of each. Alone, they are refused.
RAW_ANNOTATIONS = {"bbox": "BoundingBoxes", "segmentation": "Mask"}
#: Values that describe the image, whatever their length.
_IMAGE_FIELDS = frozenset(
    {"image_id", "size", "orig_size", "canvas_size", "format", "path"}
    | {"img_shape", "ori_shape", "orig_shape", "pad_shape", "scale_factor", "image_size", "original_size", "img_size"}
)


class TargetNameError(TransformError):
    """A value may describe geometry or instances, but its name does not say so; `on_error` does not apply."""


class TargetFormat(NamedTuple):
    """How targets are read; the settings of `Compose` that say so.

    Attributes:
        box_format: "xyxy", "xywh" or "cxcywh", for boxes without a "format" in their dict.
        relative_boxes: whether boxes are fractions of the image's width and height, which become pixels when they are
            read. None: a transform has moved them, in pixels.
        mask_fill: value of class masks beyond the image; a dict gives it by name, 0 for other names.
        masks: names that move as "mask" and "masks" do.
        pass_through: names that stay in place.
        instance_fields: further names of values with one row per box.
        labels_getter: the argument of `SanitizeBoundingBoxes`.
        mask_dtype: torch dtype that `ToDtype` asks for masks; None: their own.

    A name is the key of a dict at any depth, or the path of keys joined by dots.
    """

    box_format: str = "xyxy"
    relative_boxes: bool | None = False
    mask_fill: float | Mapping[str, float] = 0
    masks: tuple[str, ...] = ()
    pass_through: tuple[str, ...] = ()
    instance_fields: tuple[str, ...] = ()
    labels_getter: Any = "default"
    mask_dtype: Any = None

    def is_mask(self, key: Any, path: str) -> bool:
        return _is_in(self.masks, key, path)

    def passes(self, key: Any, path: str) -> bool:
        return _is_in(self.pass_through, key, path)

    def is_declared_instance(self, key: Any, path: str) -> bool:
        return _is_in(self.instance_fields, key, path) or (key == self.labels_getter != "default")

    def fill_of(self, key: Any, path: str) -> float:
        """The value of a class mask beyond the image."""
        fill = self.mask_fill
        return fill.get(path, fill.get(key, 0)) if isinstance(fill, Mapping) else fill


def _is_in(names: tuple[str, ...], key: Any, path: str) -> bool:
    return bool(names) and isinstance(key, str) and (key in names or path in names)


# --- instances --------------------------------------------------------------------------------------------------------


def row_count(value: Any) -> int | None:
    """The rows of an array, tensor, list or plain tuple; None for other types."""
    if isinstance(value, (np.ndarray, torch.Tensor)):
        return len(value) if value.ndim else None
    return len(value) if isinstance(value, list) or type(value) is tuple else None


def is_instance_field(
    key: Any, value: Any, path: str, count: int, format: TargetFormat, labels: Sequence[Any] = ()
) -> bool:
    """Whether a value has one row for each of `count` instances.

    Tuples of numbers under an unknown name do not: they are mostly sizes.

    Args:
        path: the keys that lead to the value, joined by dots.
        labels: the values that the format's `labels_getter` returned.

    Raises:
        TargetNameError: the value has as many rows, but nothing says whether they belong to the instances.
    """
    rows = row_count(value)
    if any(value is label for label in labels) or format.is_declared_instance(key, path):
        if rows != count:
            raise TransformError(f"{path} must have one row for each of {count} boxes, not {rows} rows")
        return True
    if rows != count or key in _IMAGE_FIELDS or format.passes(key, path) or format.labels_getter is None:
        return False
    if isinstance(key, str) and key.lower() in _INSTANCE_FIELDS:
        return True
    if type(value) is tuple and _is_size(value):
        return False
    raise ambiguous_rows(key, path, count)


def ambiguous_rows(key: Any, path: str, count: int) -> TargetNameError:
    """The error for a value that may or may not have one row per box, where boxes are dropped or merged."""
    if not isinstance(key, str):
        return TargetNameError(
            f"{path} holds {count} rows beside {count} boxes, some of which are dropped: pass a dict, with the labels "
            'under "labels", or say which they are by SanitizeBoundingBoxes(labels_getter=...)'
        )
    return TargetNameError(
        f"{path} has {count} rows like the boxes beside it, some of which are dropped: if each row belongs to a box, "
        f"use Compose(..., instance_fields=({key!r},)); if not, Compose(..., pass_through=({key!r},)) or a dict of its "
        "own"
    )


def is_instance_name(key: Any, path: str, format: TargetFormat) -> bool:
    """Whether a name says that its value has one row per instance."""
    return (isinstance(key, str) and key.lower() in _INSTANCE_FIELDS) or format.is_declared_instance(key, path)


def _is_size(value: tuple[Any, ...]) -> bool:
    return bool(value) and all(
        isinstance(item, numbers.Number) or (type(item) is tuple and _is_size(item)) for item in value
    )


# --- geometry under other names ---------------------------------------------------------------------------------------


def unknown_geometry(key: Any, value: Any, size: Size | None) -> str | None:
    """The geometry that a badly named value may describe, and the remedy; else None.

    Args:
        key: its key in a dict, or position in a tuple.
        size: (height, width) of the image; None: unknown, and only names and types tell.
    """
    if isinstance(key, str):
        if (rule := _RULES.get(key.lower())) is not None and rule.fits(value):
            return f"{rule.text}; {_stay(key)}"
        if isinstance(value, bytes) and key.lower().endswith(IMAGE_SUFFIXES):
            return f"is an image file: if it is a mask, use Compose(..., masks=({key!r},)); {_stay(key)}"
    shown = _picture(value, size)
    if shown is None:
        return None
    if not isinstance(key, str):
        return (
            f"is {shown}, without a name that says whether it moves with its image: pass a class mask as "
            '{"mask": mask}, another picture that moves as {"images": {"other": picture}}, and one that stays in place '
            "in a dict, under a name of Compose(..., pass_through=(name,))"
        )
    remedy = f'if it moves as a mask, name it "mask" or use Compose(..., masks=({key!r},))'
    return f'is {shown}: {remedy}; if it is a further picture, pass it as "images": {{{key!r}: picture}}; {_stay(key)}'


def _stay(key: str) -> str:
    return f"if it stays in place, use Compose(..., pass_through=({key!r},))"


class _Rule(NamedTuple):
    """Values of this kind are refused under these names."""

    fits: Callable[[Any], bool]
    text: str


def _looks_like_boxes(value: Any) -> bool:
    if isinstance(value, Mapping):
        return "xmin" in value
    if not _has_rows(value):
        return False
    return (len(value) == 4 and _starts_with_four_numbers(value)) or (
        _has_rows(value[0]) and _starts_with_four_numbers(value[0])
    )


def _starts_with_four_numbers(row: Any) -> bool:
    """Whether a row starts with four numbers; a class may follow."""
    return len(row) >= 4 and all(
        item.ndim == 0 if isinstance(item, torch.Tensor) else isinstance(item, numbers.Number) for item in row[:4]
    )


def _looks_like_points(value: Any) -> bool:
    """Whether the value holds two numbers or more."""
    while _has_rows(value):
        if len(value) > 1 and not _has_rows(value[0]):
            return isinstance(value[0], (numbers.Number, torch.Tensor))
        value = value[0]
    return False


def _looks_like_segmentation(value: Any) -> bool:
    """Whether the value holds polygons, run-length encodings or images."""
    if isinstance(value, (np.ndarray, torch.Tensor)):
        return value.ndim > 1
    if isinstance(value, (list, tuple)):
        return bool(value) and (_has_rows(value[0]) or _looks_like_segmentation(value[0]))
    return "counts" in value if isinstance(value, Mapping) else hasattr(value, "getpixel")


def _looks_like_mask(value: Any) -> bool:
    """Whether the value holds masks, or is the path of one."""
    if isinstance(value, (str, os.PathLike)):
        return os.fsdecode(value).lower().endswith(IMAGE_SUFFIXES)
    return _looks_like_segmentation(value)


def _has_rows(value: Any) -> bool:
    return isinstance(value, _ROWS) and getattr(value, "ndim", 1) > 0 and len(value) > 0


def _picture(value: Any, size: Size | None) -> str | None:
    """Names a value that is an image, or an array of the image's size; None: it is neither."""
    type_ = type(value)
    if type_ in (int, float, str, bool, type(None), list, tuple, dict):
        return None
    modules = sys.modules  # a PIL image or a tv_tensor exists only if its module was imported
    if (pillow := modules.get("PIL.Image")) is not None and isinstance(value, pillow.Image):
        return "a PIL image"
    if (tv_tensors := modules.get("torchvision.tv_tensors")) is not None and isinstance(
        value, tuple(getattr(tv_tensors, kind) for kind in ("Image", "Video") if hasattr(tv_tensors, kind))
    ):
        return f"a tv_tensors.{type_.__name__}"
    shape = getattr(value, "shape", None)
    if size is None or not isinstance(shape, tuple) or len(shape) < 2:
        return None
    if size not in (tuple(shape[:2]), tuple(shape[-2:]), tuple(shape[-3:-1])):
        return None
    kind = "a tensor" if isinstance(value, torch.Tensor) else "an array"
    return f"{kind} of its image's size, {size[0]} x {size[1]}, with shape {tuple(shape)}"


_RULES: dict[str, _Rule] = {
    **dict.fromkeys(
        _BOXES,
        _Rule(
            _looks_like_boxes,
            'looks like boxes, but only "boxes", (K, 4), move with their image: rename it to "boxes", and set '
            'box_format="xywh" for COCO\'s format',
        ),
    ),
    **dict.fromkeys(
        _KEYPOINTS,
        _Rule(
            _looks_like_points,
            'looks like keypoints, but only "keypoints", (P, 2 or 3) or (K, P, 2 or 3), move with their image: rename '
            'it to "keypoints"',
        ),
    ),
    **dict.fromkeys(
        _OUTLINES,
        _Rule(
            _looks_like_mask,
            'looks like masks or outlines, but only "masks", (K, H, W), of instances and a "mask", (H, W), of classes '
            "move with their image: convert it to masks",
        ),
    ),
    **dict.fromkeys(
        _MASKS,
        _Rule(
            _looks_like_mask,
            'looks like a mask, but only "masks", (K, H, W), of instances and a "mask", (H, W), of classes move with '
            "their image: rename it, or list its name in Compose(..., masks=(name,))",
        ),
    ),
}
