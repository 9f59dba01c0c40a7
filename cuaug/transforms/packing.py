"""The last step of a chain for images of any size: cut them into patches, or pad them to the batch's largest image.

The kernels write pixels to their place in the batch's one tensor. `Batch.packing` says which image lies where.
"""

from __future__ import annotations

from typing import Any, Literal

from cuaug.errors import TransformError
from cuaug.plan import Layout, PackingFormat, Plan, is_rgb_or_gray
from cuaug.transforms import parameters
from cuaug.transforms.base import Transform, Where

_MAX_SIDE = 255  # kernels/plan.h keeps them in bytes


class PackingTransform(Transform):
    """Base class: images of any size become one tensor. It ends a chain."""

    #: How the images lie in it.
    format: PackingFormat

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        if where is not None:
            raise TransformError(
                f"{type(self).__name__} belongs to the whole batch: move it out of RandomApply and other containers"
            )
        plan.packing = self.format


class Patches(PackingTransform):
    """Cut the images into square patches, one per row of the batch's tensor. It ends a chain.

    The batch's images are (total, values): the patches of all images, one image after the other, without padding;
    values = C * temporal * size * size. `Batch.packing` has their grids and the bounds of each image. `cuaug.decode`
    returns the pair (patches, packing). A call on a tensor of images (N, C, H, W) gives (N, L, values) with L patches
    of each image.

        T.Compose([T.ResizeToMultiple(28), T.Normalize(mean, std), T.Patches(14, merge=2, temporal=2)])  # Qwen2-VL
        T.Compose([T.ResizeToMultiple(16, max_patches=256), T.Patches(16, order="hwc", pad=True)])  # SigLIP 2 NaFlex

    Boxes, masks and keypoints move as without it: they stay in pixels of the image before it is cut.

    Args:
        size: pixels per side of a patch, 1 to 255.
        merge: patches come in blocks of merge * merge, from left to right and from top to bottom, and so do the patches
            of a block: models merge a block into one token.
        temporal: frames of a clip in a patch. An image is repeated to fill it, and so is the last frame of a clip.
        order: "chw" for patches of (C, temporal, size, size), as Qwen-VL's; "hwc" for (temporal, size, size, C), as
            SigLIP 2's.
        pad: whether each image has as many rows as the batch's largest: (N, most patches, values). The rest is 0, and
            `Batch.packing.mask` says where.

    Raises:
        TransformError: an image is no multiple of size * merge pixels high and wide; it has other channels than RGB or
            gray; or other transforms follow.
    """

    def __init__(
        self, size: int, merge: int = 1, temporal: int = 1, order: Literal["chw", "hwc"] = "chw", pad: bool = False
    ) -> None:
        self.size = parameters.integer("size", size, 1, _MAX_SIDE)
        self.merge = parameters.integer("merge", merge, 1, _MAX_SIDE)
        self.temporal = parameters.integer("temporal", temporal, 1, _MAX_SIDE)
        self.order = parameters.one_of("order", order, ("chw", "hwc"))
        self.pad = parameters.flag("pad", pad)
        self.format = PackingFormat(self.size, self.merge, self.temporal, Layout[self.order.upper()], self.pad)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        super().write(plan, where)
        if not is_rgb_or_gray(plan.channels):
            raise TransformError(f"image: Patches takes images of 1 or 3 channels, not {plan.channels}")
        multiple = self.size * self.merge
        heights, widths = plan.sizes
        wrong = ((heights % multiple) | (widths % multiple)).nonzero()[0]
        if len(wrong):
            raise TransformError(
                f"Patches: an image of {heights[wrong[0]]} x {widths[wrong[0]]} pixels (height x width) is no multiple "
                f"of size * merge = {multiple}: put ResizeToMultiple({multiple}) before it"
            )


class PadToLargest(PackingTransform):
    """Pad the images at their right and bottom to the batch's largest height and width. It ends a chain.

    The batch's images are one tensor (N, C, H, W), 0 beyond each image, also after `Normalize`: detectors take it.
    `Batch.packing` has the images' sizes and the mask of their pixels. `cuaug.decode` returns the pair (images,
    packing). In a call all images have one size, and it changes nothing.

    Boxes, masks and keypoints stay in place, masks with the size of their own image.

    Raises:
        TransformError: the input is a clip, or other transforms follow.
    """

    format = PackingFormat()
