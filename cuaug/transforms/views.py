"""Several views of each image, made from one decoded image.

Each image has one plan row per view. The other transforms of the chain draw once for all views of an image.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cuaug.errors import TransformError
from cuaug.plan import Plan
from cuaug.sampling.rng import MAX_VIEWS, SampleRNG
from cuaug.transforms import arguments
from cuaug.transforms.base import Transform, Where, check_transforms
from cuaug.transforms.containers import refuse_batch_transforms

__all__ = ["FiveCrop", "MultiView", "TenCrop"]


class FiveCrop(Transform):
    """Crop the four corners and the center of the image.

    The order is top left, top right, bottom left, bottom right, center. A batch becomes (N, 5, C, H, W), an image
    (5, C, H, W), a PIL image a tuple of five. The other transforms of the chain act on all five alike.

    Args:
        size: (height, width) of a crop in pixels, or one number for both.
    """

    views = 5

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = arguments.size("size", size)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        _check_views(self, plan)
        corner, (height, width) = np.arange(len(plan)) % self.views % 5, self.size
        heights, widths = plan.sizes
        is_center = corner == 4
        top = np.where(is_center, np.rint((heights - height) / 2), np.where(corner >= 2, heights - height, 0))
        left = np.where(is_center, np.rint((widths - width) / 2), np.where(corner % 2 == 1, widths - width, 0))
        plan.crop(top, left, height, width, where)


class TenCrop(FiveCrop):
    """Crop the corners and the center of the image and its flip.

    A batch becomes (N, 10, C, H, W): the crops of `FiveCrop`, then those of the flipped image.

    Args:
        size: (height, width) of a crop in pixels, or one number for both.
        vertical_flip: flip upside down instead of left to right.
    """

    views = 10

    def __init__(self, size: int | Sequence[int], vertical_flip: bool = False) -> None:
        super().__init__(size)
        self.vertical_flip = arguments.flag("vertical_flip", vertical_flip)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        is_flipped = np.arange(len(plan)) % self.views >= 5
        plan.flip(vertical=self.vertical_flip, where=is_flipped if where is None else is_flipped & where)
        super().write(plan, where)


class MultiView(Transform):
    """Make several views of each image, each by its own chain.

    Each view has its own draws, as SimCLR, BYOL and DINO need them. A batch becomes (N, V, C, H, W), an image
    (V, C, H, W), a PIL image a tuple of V. Views of several sizes make a tuple with one such tensor per size, in the
    order of their first views.

    A Loader decodes each image once, and only the region that its views need. The other transforms of the chain act on
    all views of an image alike. A batch transform (`MixUp`, ...) after it needs views of one size.

    Args:
        transforms: V chains, 2 or more, one per view. Each gives its images one size. For two views by one chain,
            write `[chain] * 2`.
    """

    def __init__(self, transforms: Sequence[Transform]) -> None:
        self.transforms = check_transforms(transforms)
        refuse_batch_transforms(self, self.transforms)
        self.views  # noqa: B018 - raises if the number of views is not valid

    @property
    def views(self) -> int:  # type: ignore[override]
        if not 2 <= (count := len(self.transforms)) <= MAX_VIEWS:
            raise TransformError(f"transforms of MultiView must be for 2 to {MAX_VIEWS} views, not {count}")
        if any(transform.views > 1 for transform in self.transforms):
            raise TransformError("transforms of MultiView must each make one image per image, not several")
        return len(self.transforms)

    def plan(self, plan: Plan, rng: SampleRNG, where: Where = None) -> None:
        _check_views(self, plan)
        view = np.arange(len(plan)) % self.views
        with plan.separate_views():
            # A chain used for several views is planned once. By id: chains may compare equal, or not be hashable.
            for transform in plan.mutually_exclusive({id(chain): chain for chain in self.transforms}.values()):
                acts = np.array([transform is chain for chain in self.transforms])[view]
                transform.plan(plan, rng.for_view(view), None if acts.all() else acts)


def _check_views(transform: Transform, plan: Plan) -> None:
    if plan.views != transform.views:
        raise TransformError(
            f"{type(transform).__name__} makes {transform.views} images of each, so it cannot be inside RandomApply: "
            "put it into the chain"
        )
