"""Refuses boxes and masks under the names of other libraries.

They would stay in place while their image moves.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

__all__ = ["foreign_name_error"]

#: Names in Albumentations, COCO, Hugging Face, Pascal VOC, MMDetection and Detectron2.
_BOXES = frozenset({"bbox", "bboxes", "bndbox", "gt_bboxes", "gt_boxes"})
_SEGMENTATIONS = frozenset({"segmentation"})
_ROWS = (np.ndarray, torch.Tensor, list, tuple)


def foreign_name_error(container: Mapping[Any, Any], key: Any, value: Any) -> str | None:
    """The error for boxes or masks under a foreign name in a dict; None: there is nothing to refuse.

    Beside "boxes", or "mask" or "masks", foreign names pass.
    """
    if not isinstance(key, str):
        return None
    if key in _BOXES and "boxes" not in container and _looks_like_boxes(value):
        return (
            'looks like boxes, but only "boxes", (K, 4), move with their image: rename it to "boxes", and set '
            'box_format="xywh" for COCO\'s format; or choose another name for boxes that stay in place'
        )
    if key in _SEGMENTATIONS and not {"mask", "masks"} & container.keys() and _looks_like_segmentation(value):
        return (
            'looks like masks or outlines, but only "masks", (K, H, W), of instances and a "mask", (H, W), of classes '
            "move with their image: convert it to masks; or choose another name for masks that stay in place"
        )
    return None


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


def _looks_like_segmentation(value: Any) -> bool:
    """Whether the value holds polygons, run-length encodings or images."""
    if isinstance(value, (np.ndarray, torch.Tensor)):
        return value.ndim > 1
    if isinstance(value, (list, tuple)):
        return bool(value) and (_has_rows(value[0]) or _looks_like_segmentation(value[0]))
    return "counts" in value if isinstance(value, Mapping) else hasattr(value, "getpixel")


def _has_rows(value: Any) -> bool:
    return isinstance(value, _ROWS) and getattr(value, "ndim", 1) > 0 and len(value) > 0
