"""Transforms of clips: several frames that share their draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from cuaug.errors import TransformError
from cuaug.image_types import is_clip
from cuaug.plan import Plan
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import arguments
from cuaug.transforms.base import Transform, Where, check_transforms
from cuaug.transforms.containers import refuse_batch_transforms

__all__ = ["PerFrame", "UniformTemporalSubsample"]


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
        self.num_samples = arguments.integer("num_samples", num_samples, 1)

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
