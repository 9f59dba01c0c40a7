"""Transforms of keypoints, after torchvision v2."""

from __future__ import annotations

from typing import Any

import numpy as np

from cuaug.plan import Plan
from cuaug.transforms.base import Transform, Where

__all__ = ["ClampKeyPoints"]


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
