"""Transforms that read or drop boxes and keypoints, after torchvision v2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.errors import TransformError
from cuaug.plan import BoxesKeypoints, Plan
from cuaug.plan.regions import first_window_with_box
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import parameters
from cuaug.transforms.base import Transform, Where


class SanitizeBoundingBoxes(Transform):
    """Drop boxes that are too small at this point of the chain.

    The instance's masks, keypoints and labels are dropped with its box, and its rows in other values that are known to
    have one per box: "area", "iscrowd", "scores" and more; docs/targets.md lists them, and
    `Compose(..., instance_fields=...)` adds to them. Images without targets pass unchanged.

    Args:
        min_size: smallest width and height of a box, in pixels.
        min_area: smallest area of a box, in square pixels.
        labels_getter: which values are labels, as in torchvision. "default": the known names. A name. A callable, which
            takes (None, target) and returns a value of the target, a tuple of them, or None. None: labels and all other
            values keep their rows.
        min_visibility: smallest share of a box's original area that is still inside the image (Albumentations).

    Raises:
        TransformError: a value has as many rows as there are boxes, a box is dropped, and nothing says whether the rows
            belong to the boxes.
    """

    def __init__(
        self,
        min_size: float = 1.0,
        min_area: float = 1.0,
        labels_getter: str | Callable[[Any], Any] | None = "default",
        min_visibility: float = 0.0,
    ) -> None:
        self.min_size = parameters.number("min_size", min_size, 0)
        self.min_area = parameters.number("min_area", min_area, 0)
        if not (labels_getter is None or isinstance(labels_getter, str) or callable(labels_getter)):
            raise TransformError(
                f'labels_getter must be "default", a name, a callable or None, not {labels_getter!r}; the share of the '
                "original area is min_visibility=..."
            )
        self.labels_getter = labels_getter
        self.min_visibility = parameters.probability("min_visibility", min_visibility)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        points = plan.points
        if points is None:
            return
        boxes = points.boxes()
        size = boxes[:, 2:] - boxes[:, :2]
        keep = (size >= self.min_size).all(axis=1) & (size.prod(axis=1) >= self.min_area)
        keep &= points.area_fraction >= self.min_visibility
        points.selected &= keep if where is None else keep | ~where[points.box_of]


class RandomIoUCrop(Transform):
    """Crop a random window that overlaps a box (Liu et al. 2016, SSD).

    It draws a smallest intersection over union (IoU) from `sampler_options`, then `trials` windows. It takes the first
    window that contains a box's center and has that IoU with such a box. If none does, it draws another option. An
    option of 1 or more leaves the image as it is, and so do 50 options without a window.

    Boxes whose center lies outside the window become empty. `SanitizeBoundingBoxes` drops them.

    Args:
        min_scale, max_scale: bounds of the window's sides, as shares of the image's.
        min_aspect_ratio, max_aspect_ratio: bounds of the window's width / height.
        sampler_options: smallest IoUs to draw from; None: 0, 0.1, 0.3, 0.5, 0.7, 0.9 and 1.
        trials: windows per option.

    Raises:
        TransformError: the targets of the images have no boxes.
    """

    _MAX_OPTIONS = 50  # torchvision has no limit

    def __init__(
        self,
        min_scale: float = 0.3,
        max_scale: float = 1.0,
        min_aspect_ratio: float = 0.5,
        max_aspect_ratio: float = 2.0,
        sampler_options: Sequence[float] | None = None,
        trials: int = 40,
    ) -> None:
        self.min_scale, self.max_scale = parameters.bounds("min_scale, max_scale", (min_scale, max_scale), high=1.0)
        self.min_aspect_ratio, self.max_aspect_ratio = parameters.bounds(
            "min_aspect_ratio, max_aspect_ratio", (min_aspect_ratio, max_aspect_ratio)
        )
        self.sampler_options = sampler_options
        options = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0) if sampler_options is None else sampler_options
        self._options = np.array(parameters.numbers(options, float))
        if len(self._options) == 0 or not (self._options >= 0).all():
            raise TransformError(f"sampler_options must be numbers of 0 or more, not {sampler_options!r}")
        self.trials = parameters.integer("trials", trials, 1)
        shapes = self.min_scale, self.max_scale, self.min_aspect_ratio, self.max_aspect_ratio
        self._shapes = np.array(shapes, dtype=np.float64)

    def plan(self, plan: Plan, rng: SampleRNG, where: Where = None) -> None:
        rng.next_transform(self)
        if plan.points is None:
            raise TransformError("RandomIoUCrop needs boxes: call the chain with targets, or use labels with boxes")
        acts = np.bincount(plan.points.box_of[plan.points.selected], minlength=len(plan)) > 0
        acts &= True if where is None else where
        found, params = self._windows(rng, plan.points, *plan.sizes, acts)
        plan.perform(self, found, params)

    def _windows(
        self,
        rng: SampleRNG,
        points: BoxesKeypoints,
        heights: NDArray[np.int64],
        widths: NDArray[np.int64],
        acts: NDArray[np.bool_],
    ) -> tuple[NDArray[np.bool_], dict[str, Any]]:
        """(N,) whether a sample gets a window, and the windows; only samples with `acts` get one."""
        found = np.zeros(len(rng), dtype=bool)
        window = np.stack([np.zeros_like(heights), np.zeros_like(widths), heights, widths])
        boxes, pending = points.boxes(), np.flatnonzero(acts)
        rng = rng.select(pending)
        for _ in range(self._MAX_OPTIONS):
            if len(pending) == 0:
                break
            min_iou = self._options[rng.integers(0, len(self._options) - 1)]
            draws = rng.uniform(4 * self.trials).reshape(len(pending), self.trials, 4)
            trying = np.flatnonzero(min_iou < 1.0)
            samples = pending[trying]
            ends = np.stack([np.searchsorted(points.box_of, samples, side) for side in ("left", "right")])
            chosen, hit = first_window_with_box(
                draws[trying],
                heights[samples],
                widths[samples],
                min_iou[trying],
                boxes,
                points.selected,
                ends,
                self._shapes,
            )
            window[:, samples[hit]], found[samples[hit]] = chosen[:, hit], True
            missed = trying[~hit]
            pending, rng = pending[missed], rng.select(missed)
        return found, dict(zip(("top", "left", "height", "width"), window, strict=True))

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        points, (top, left, height, width) = plan.points, (params[k] for k in ("top", "left", "height", "width"))
        if points is not None:
            sample, (x0, y0, x1, y1) = points.box_of, points.boxes().T
            x, y = (x0 + x1) / 2.0 - left[sample], (y0 + y1) / 2.0 - top[sample]
            outside = ~((x > 0) & (x < width[sample]) & (y > 0) & (y < height[sample]))
            outside &= True if where is None else where[sample]
        plan.crop(top, left, height, width, where=where)
        if points is not None:
            points.empty(outside)


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
