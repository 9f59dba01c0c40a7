"""Transforms of keypoints, after torchvision v2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cuaug.errors import TransformError
from cuaug.plan import Plan
from cuaug.transforms.base import Transform, Where

__all__ = ["ClampKeyPoints", "SanitizeKeyPoints"]


class ClampKeyPoints(Transform):
    """Move keypoints that left the image to its nearest pixel: x to [0, W - 1], y to [0, H - 1], as in torchvision.

    Points with COCO's v that left the image become 0, 0, 0 all the same.
    """

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        points = plan.points
        if points is None:
            return
        heights, widths = plan.sizes
        last = np.stack([widths, heights], axis=1)[points.keypoint_of] - 1.0
        clamped = np.clip(np.nan_to_num(points.keypoints), 0.0, last)
        chosen = np.ones(len(clamped), dtype=bool) if where is None else where[points.keypoint_of]
        points.keypoints[chosen] = clamped[chosen]


class SanitizeKeyPoints(Transform):
    """Drop keypoints that are outside the image at this point of the chain: x in [0, W), y in [0, H) stay.

    Of points (P, 2) each is dropped alone. Of instances (K, P, 2), those with a point outside are dropped. Points with
    COCO's v of 0 do not count.

    Args:
        labels_getter: which values lose the same rows, as in torchvision. None: no other values. "default": the known
            names of `SanitizeBoundingBoxes`. A name, or a callable that takes (None, target) and returns values of it.

    Raises:
        TransformError: the keypoints stand beside boxes, whose rows would no longer fit: use `SanitizeBoundingBoxes`.
    """

    def __init__(self, labels_getter: str | Callable[[Any], Any] | None = None) -> None:
        if not (labels_getter is None or isinstance(labels_getter, str) or callable(labels_getter)):
            raise TransformError(f'labels_getter must be "default", a name, a callable or None, not {labels_getter!r}')
        self.labels_getter = labels_getter

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        points = plan.points
        if points is None:
            return
        heights, widths = plan.sizes
        size = np.stack([widths, heights], axis=1)[points.keypoint_of]
        inside = ((points.keypoints >= 0.0) & (points.keypoints < size)).all(axis=1)
        points.keypoint_selected &= inside if where is None else inside | ~where[points.keypoint_of]
        points.labels_follow_keypoints |= self.labels_getter is not None
