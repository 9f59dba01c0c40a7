"""What boxes and masks are called elsewhere: nothing is read under these names, nor left unmoved in silence."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

__all__ = ["unread"]

#: Of Albumentations, COCO and Hugging Face, Pascal VOC, MMDetection and Detectron2.
_BOXES = frozenset({"bbox", "bboxes", "bndbox", "gt_bboxes", "gt_boxes"})
_SEGMENTS = frozenset({"segmentation"})
_ROWS = (np.ndarray, torch.Tensor, list, tuple)


def unread(container: Mapping[Any, Any], key: Any, value: Any) -> str | None:
    """What to say of boxes or masks that a dict has under a name that is not read; None: they are none.

    Beside those that are read they are the user's own business.
    """
    if not isinstance(key, str):
        return None
    if key in _BOXES and "boxes" not in container and _are_boxes(value):
        return (
            'looks like boxes, and only "boxes", (K, 4), move with their image; their format is said beside them, or '
            'by box_format, as "xywh" for COCO\'s. What is not to be moved needs another name'
        )
    if key in _SEGMENTS and not {"mask", "masks"} & container.keys() and _are_segments(value):
        return (
            'looks like masks or their outlines, and only "masks", (K, H, W), of instances and a "mask", (H, W), of '
            "classes move with their image. What is not to be moved needs another name"
        )
    return None


def _are_boxes(value: Any) -> bool:
    if isinstance(value, Mapping):
        return "xmin" in value
    if not _has_rows(value):
        return False
    return (len(value) == 4 and _begins_with_4(value)) or (_has_rows(value[0]) and _begins_with_4(value[0]))


def _begins_with_4(row: Any) -> bool:
    """Whether a row begins with four numbers; a class may follow."""
    return len(row) >= 4 and all(
        part.ndim == 0 if isinstance(part, torch.Tensor) else isinstance(part, numbers.Number) for part in row[:4]
    )


def _are_segments(value: Any) -> bool:
    """Whether these are polygons, run lengths or pictures."""
    if isinstance(value, (np.ndarray, torch.Tensor)):
        return value.ndim > 1
    if isinstance(value, (list, tuple)):
        return bool(value) and (_has_rows(value[0]) or _are_segments(value[0]))
    return "counts" in value if isinstance(value, Mapping) else hasattr(value, "getpixel")


def _has_rows(value: Any) -> bool:
    return isinstance(value, _ROWS) and getattr(value, "ndim", 1) > 0 and len(value) > 0
