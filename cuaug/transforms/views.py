"""Several views of each image, and frames of clips that draw alone or are left out.

A view is made from one decoded image. Each image has one plan row per view. The other transforms of the chain draw once
for all views of an image.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from cuaug.errors import TransformError
from cuaug.images.image_types import is_clip
from cuaug.plan import Plan
from cuaug.sampling.rng import MAX_VIEWS, SampleRNG
from cuaug.transforms import parameters
from cuaug.transforms.base import Transform, Where, check_transforms
from cuaug.transforms.containers import refuse_batch_transforms


class PerFrame(Transform):
    """Apply transforms that draw anew for each frame of a clip.

    Without it, all frames of a clip share their draws; only noise differs from frame to frame.

        T.PerFrame([T.ColorJitter(brightness=0.4), T.RandomErasing()])

    Args:
        transforms: a transform, or several that follow each other.

    Raises:
        TransformError: the input is no clip, or a call's clip has boxes, masks or keypoints, which belong to all of its
            frames, and a transform moves pixels.
    """

    def __init__(self, transforms: Transform | Sequence[Transform]) -> None:
        self.transforms = check_transforms([transforms] if isinstance(transforms, Transform) else transforms)
        refuse_batch_transforms(self, self.transforms)
        if any(transform.views > 1 for transform in self.transforms):
            raise TransformError("transforms of PerFrame must each make one image per frame, not several views")

    def plan(self, plan: Plan, rng: SampleRNG, where: Where = None) -> None:
        if not rng.is_clip:
            raise TransformError(
                "image: PerFrame needs clips: sources.Videos, a tensor (N, T, C, H, W) or a tv_tensors.Video"
            )
        frame_rng = rng.for_frame(plan.frame_numbers, plan.views)
        with plan.separate_frames():
            for transform in self.transforms:
                transform.plan(plan, frame_rng, where)


class UniformTemporalSubsample(Transform):
    """Keep frames at equal distances of each clip.

    Clips are a tensor (N, T, C, H, W), an array (N, T, H, W, C) or a tv_tensors.Video. It acts first, wherever it
    stands in the chain: dropped frames cost nothing. Frame k is number floor(k (T - 1) / (num_samples - 1)), as in
    torchvision; frames repeat where num_samples is above T.

    Args:
        num_samples: number of frames of the result.

    Raises:
        TransformError: the input is no clip, or the transform is in a container that decides per sample.
    """

    def __init__(self, num_samples: int) -> None:
        self.num_samples = parameters.integer("num_samples", num_samples, 1)

    def prepare(self, image: Any) -> Any:
        if not is_clip(image) or 0 in image.shape:
            return image  # `plan` and `open_images` raise
        is_tensor = isinstance(image, torch.Tensor)
        axis = -4 if is_tensor else 1
        # As torchvision: float32, so that the truncated numbers agree.
        numbers = torch.linspace(0, image.shape[axis] - 1, self.num_samples).long()
        if not is_tensor:
            return image[:, numbers.numpy()]
        frames = image.as_subclass(torch.Tensor).index_select(axis, numbers.to(image.device))
        return frames.as_subclass(type(image))

    def plan(self, plan: Plan, rng: SampleRNG, where: Where = None) -> None:
        if not rng.is_clip:
            raise TransformError(
                "image: UniformTemporalSubsample needs clips, a tensor (N, T, C, H, W) or a tv_tensors.Video; a Loader "
                "loads images"
            )
        if where is not None:
            raise TransformError("UniformTemporalSubsample acts on all clips: put it into the chain")


class FiveCrop(Transform):
    """Crop the four corners and the center of the image.

    The order is top left, top right, bottom left, bottom right, center. A batch becomes (N, 5, C, H, W), an image
    (5, C, H, W), a PIL image a tuple of five. The other transforms of the chain act on all five alike.

    Args:
        size: (height, width) of a crop in pixels, or one number for both.
    """

    views = 5

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = parameters.size("size", size)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        check_views(self, plan)
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
        self.vertical_flip = parameters.flag("vertical_flip", vertical_flip)

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
        check_views(self, plan)
        view = np.arange(len(plan)) % self.views
        with plan.separate_views():
            # A chain used for several views is planned once. By id: chains may compare equal, or not be hashable.
            for transform in plan.mutually_exclusive({id(chain): chain for chain in self.transforms}.values()):
                acts = np.array([transform is chain for chain in self.transforms])[view]
                transform.plan(plan, rng.for_view(view), None if acts.all() else acts)


def check_views(transform: Transform, plan: Plan) -> None:
    """Raises a TransformError where the transform cannot make its views, as in a container."""
    if plan.views != transform.views:
        raise TransformError(
            f"{type(transform).__name__} makes {transform.views} images of each, so it cannot be inside RandomApply: "
            "put it into the chain"
        )
