"""Transforms for detection: a crop that looks at boxes, and one that sorts boxes out. Both need targets to act.

Names, arguments and meaning are torchvision v2's, drawn for each sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.errors import TransformError
from cuaug.plan import BoxesKeypoints, Plan
from cuaug.plan.geometry import first_holding
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import arguments
from cuaug.transforms.base import Transform, Where

__all__ = ["RandomIoUCrop", "SanitizeBoundingBoxes"]


class SanitizeBoundingBoxes(Transform):
    """Drops boxes that are too small, at its place in the chain, and with each what else its instance has.

    That is every array, tensor and list of the boxes' dict that has one row for each of them: labels, masks, keypoints.
    Of images without targets nothing is dropped.

    Args:
        min_size: the least width and height, in pixels.
        min_area: in square pixels.
        min_visibility: the least share of a box's area that is still in the image, of what was there at first;
            Albumentations'.
    """

    def __init__(self, min_size: float = 1.0, min_area: float = 1.0, min_visibility: float = 0.0) -> None:
        self.min_size = arguments.number("min_size", min_size, 0)
        self.min_area = arguments.number("min_area", min_area, 0)
        self.min_visibility = arguments.probability("min_visibility", min_visibility)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        points = plan.points
        if points is None:
            return
        boxes = points.boxes()
        size = boxes[:, 2:] - boxes[:, :2]
        good = (size >= self.min_size).all(axis=1) & (size.prod(axis=1) >= self.min_area)
        good &= points.kept >= self.min_visibility
        points.wanted &= good if where is None else good | ~where[points.box_of]


class RandomIoUCrop(Transform):
    """A window that has enough in common with a box (Liu et al. 2016, SSD).

    It draws how much that is, from `sampler_options`, and then `trials` windows; it takes the first that has a box's
    centre in it, and with such a box an intersection over union of at least that. Where none has, it draws again how
    much. An option of 1 or more leaves the image as it is.

    Boxes whose centre lies outside of the window become empty: `SanitizeBoundingBoxes` drops them.

    Args:
        min_scale, max_scale: of the window's sides, in parts of the image's.
        min_aspect_ratio, max_aspect_ratio: of the window's width / height.
        sampler_options: least intersections over union; None: 0, 0.1, 0.3, 0.5, 0.7, 0.9 and 1.
        trials: windows for each option.

    Raises:
        TransformError: when run on images without boxes in their targets.
    """

    # Options that are drawn before the image stays as it is; torchvision draws for ever.
    _MOST_OPTIONS = 50

    def __init__(
        self,
        min_scale: float = 0.3,
        max_scale: float = 1.0,
        min_aspect_ratio: float = 0.5,
        max_aspect_ratio: float = 2.0,
        sampler_options: Sequence[float] | None = None,
        trials: int = 40,
    ) -> None:
        self.min_scale, self.max_scale = arguments.span("min_scale, max_scale", (min_scale, max_scale), high=1.0)
        self.min_aspect_ratio, self.max_aspect_ratio = arguments.span(
            "min_aspect_ratio, max_aspect_ratio", (min_aspect_ratio, max_aspect_ratio)
        )
        self.sampler_options = sampler_options
        options = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0) if sampler_options is None else sampler_options
        self._options = np.array(arguments.values(options, float))
        if len(self._options) == 0 or not (self._options >= 0).all():
            raise TransformError(f"sampler_options are numbers of 0 or more, not {sampler_options!r}")
        self.trials = arguments.whole("trials", trials, 1)
        shapes = self.min_scale, self.max_scale, self.min_aspect_ratio, self.max_aspect_ratio
        self._shapes = np.array(shapes, dtype=np.float64)

    def plan(self, plan: Plan, rng: SampleRNG, where: Where = None) -> None:
        rng.next_transform()
        if plan.points is None:
            raise TransformError("RandomIoUCrop needs boxes: call the chain with targets, or have labels with boxes")
        acts = np.bincount(plan.points.box_of[plan.points.wanted], minlength=len(plan)) > 0
        acts &= True if where is None else where
        found, params = self._windows(rng, plan.points, *plan.sizes, acts)
        plan.perform(self, found, params)

    def _windows(
        self,
        rng: SampleRNG,
        points: BoxesKeypoints,
        heights: NDArray[np.int64],
        widths: NDArray[np.int64],
        open: NDArray[np.bool_],
    ) -> tuple[NDArray[np.bool_], dict[str, Any]]:
        """(N,) for which of the `open` samples a window was found, and where."""
        found = np.zeros(len(rng), dtype=bool)
        window = np.stack([np.zeros_like(heights), np.zeros_like(widths), heights, widths])
        boxes, rows = points.boxes(), np.flatnonzero(open)
        rng = rng.select(rows)
        for _ in range(self._MOST_OPTIONS):
            if len(rows) == 0:
                break
            least = self._options[rng.integers(0, len(self._options) - 1)]
            numbers = rng.uniform(4 * self.trials).reshape(len(rows), self.trials, 4)
            looks = np.flatnonzero(least < 1.0)
            of = rows[looks]
            ends = np.stack([np.searchsorted(points.box_of, of, side) for side in ("left", "right")])
            chosen, hit = first_holding(
                numbers[looks], heights[of], widths[of], least[looks], boxes, points.wanted, ends, self._shapes
            )
            window[:, of[hit]], found[of[hit]] = chosen[:, hit], True
            again = looks[~hit]
            rows, rng = rows[again], rng.select(again)
        return found, dict(zip(("top", "left", "height", "width"), window, strict=True))

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        points, (top, left, height, width) = plan.points, (params[k] for k in ("top", "left", "height", "width"))
        if points is not None:
            of, (x0, y0, x1, y1) = points.box_of, points.boxes().T
            x, y = (x0 + x1) / 2.0 - left[of], (y0 + y1) / 2.0 - top[of]
            lost = ~((x > 0) & (x < width[of]) & (y > 0) & (y < height[of]))
            lost &= True if where is None else where[of]
        plan.crop(top, left, height, width, where=where)
        if points is not None:
            points.empty(lost)
