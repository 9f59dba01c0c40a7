"""What makes several images of each, from one decoding: crops at given places, and views that draw apart.

Each image has as many rows of the plan in turn as there are to be views of it. Whatever else is in the chain draws
once for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cuaug.errors import TransformError
from cuaug.plan import Plan
from cuaug.sampling.rng import MAX_VIEWS, SampleRNG
from cuaug.transforms import arguments
from cuaug.transforms.base import Transform, Where, members
from cuaug.transforms.containers import check_planned

__all__ = ["FiveCrop", "MultiView", "TenCrop"]


class FiveCrop(Transform):
    """Five images of each: the windows at the top left, top right, bottom left, bottom right, and in the middle.

    A batch becomes (N, 5, C, H, W), an image (5, C, H, W), a PIL image a tuple of five. Whatever else is in the chain
    does the same to all five.

    Args:
        size: (height, width), or one number for both.
    """

    views = 5

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = arguments.pair("size", size)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        _check_views(self, plan)
        number, (height, width) = np.arange(len(plan)) % self.views % 5, self.size
        heights, widths = plan.sizes
        middle = number == 4
        down = np.where(middle, np.rint((heights - height) / 2), np.where(number >= 2, heights - height, 0))
        across = np.where(middle, np.rint((widths - width) / 2), np.where(number % 2 == 1, widths - width, 0))
        plan.crop(down, across, height, width, where)


class TenCrop(FiveCrop):
    """`FiveCrop`, and the same five of the mirrored image: (N, 10, C, H, W).

    Args:
        size: (height, width), or one number for both.
        vertical_flip: mirror top and bottom instead of left and right.
    """

    views = 10

    def __init__(self, size: int | Sequence[int], vertical_flip: bool = False) -> None:
        super().__init__(size)
        self.vertical_flip = arguments.flag("vertical_flip", vertical_flip)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        mirrored = np.arange(len(plan)) % self.views >= 5
        plan.flip(vertical=self.vertical_flip, where=mirrored if where is None else mirrored & where)
        super().write(plan, where)


class MultiView(Transform):
    """Several views of each image, each by a chain and draws of its own: for SimCLR, BYOL, DINO and their like.

    A batch becomes (N, V, C, H, W), an image (V, C, H, W), a PIL image a tuple of V. Where views have several sizes, it
    becomes a tuple of these, one for each size, sizes in the order of their first views. A loader reads and decodes
    each picture once, and of it no more than its views need. What stands before or behind this in a chain does the same
    to all views of an image; a function of whole batches (`MixUp`, ...) behind it takes views of one size alone.

    Args:
        transforms: V of them, 2 or more, one for each view, each of which leaves images of one size; `[chain] * 2` for
            two views by the same chain.
    """

    def __init__(self, transforms: Sequence[Transform]) -> None:
        self.transforms = members(transforms)
        check_planned(self, self.transforms)
        self.views  # noqa: B018 - which checks that there are some

    @property
    def views(self) -> int:  # type: ignore[override]
        if not 2 <= (count := len(self.transforms)) <= MAX_VIEWS:
            raise TransformError(f"MultiView has transforms of at least two views and at most {MAX_VIEWS}, not {count}")
        if any(transform.views > 1 for transform in self.transforms):
            raise TransformError("a view is one image: nothing in MultiView can make several")
        return len(self.transforms)

    def plan(self, plan: Plan, rng: SampleRNG, where: Where = None) -> None:
        _check_views(self, plan)
        view = np.arange(len(plan)) % self.views
        with plan.views_apart():
            # The same one for several views is planned once; others may equal it, as data classes do, or not hash.
            for transform in plan.each_exclusively({id(one): one for one in self.transforms}.values()):
                acts = np.array([transform is one for one in self.transforms])[view]
                transform.plan(plan, rng.for_view(view), None if acts.all() else acts)


def _check_views(transform: Transform, plan: Plan) -> None:
    if plan.views != transform.views:
        name = type(transform).__name__
        raise TransformError(f"{name} makes {transform.views} images of each: not inside RandomApply")
