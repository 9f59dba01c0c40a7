"""Mosaic and CopyPaste, which combine images and targets of several samples.

The partners of a sample are the next ones in epoch order. So a result depends neither on the batch size nor on the
number of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cuaug._runtime.huge_pages import empty
from cuaug.errors import TransformError
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import arguments
from cuaug.transforms.base import BatchTransform
from cuaug.transforms.mixes import blend, use_numpy

if TYPE_CHECKING:
    from cuaug.targets.merge import Placement

__all__ = ["CopyPaste", "Mosaic"]

Sizes = NDArray[np.int64]


class Mosaic(BatchTransform):
    """Combine four images into a grid, seen through a window.

    The transform follows YOLO and Kornia's `RandomMosaic`. The sample's image is at the upper left. The next three in
    epoch order are to its right, below it and at the lower right. The window begins inside the sample's image. For
    YOLO's mosaic, give `output_size` of twice the images' size and `start_ratio_range=(-0.5, 0.5)`.

    Labels are dicts. Boxes, masks and keypoints move with their image, are clipped to its visible part, and are
    concatenated. So is all else with one row per instance. The rest stays the sample's own. Boxes without a visible
    part are dropped; without boxes, empty masks are.

    Args:
        output_size: (height, width) of the window in pixels, or one number for both; None: the images' size.
        start_ratio_range: (lower, upper) bounds, from -1 to 1, of the window's start, as a share of the image's sides.
        min_bbox_size: smallest visible area of a box, in square pixels.
        fill: value beside the images: a number or one per channel, in image units.
        p: probability, per sample. The other samples are unchanged, so with p below 1 `output_size` must be the
            images' size.

    Raises:
        TransformError: a label is no dict, or p is below 1 and `output_size` is not the images' size.
    """

    partners = 3
    has_fill = True
    keeps_range = True
    reads_targets = True
    takes_clips = False

    def __init__(
        self,
        output_size: int | Sequence[int] | None = None,
        start_ratio_range: Sequence[float] = (0.3, 0.7),
        min_bbox_size: float = 0.0,
        fill: arguments.Fill = 0.0,
        p: float = 1.0,
    ) -> None:
        self.output_size = None if output_size is None else arguments.size("output_size", output_size)
        self.start_ratio_range = arguments.bounds("start_ratio_range", start_ratio_range, low=-1.0, high=1.0)
        self.min_bbox_size = arguments.number("min_bbox_size", min_bbox_size, 0)
        self.fill = fill
        self._fill = arguments.fill("fill", fill)
        self.p = arguments.probability("p", p)

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        acts = rng.bernoulli(self.p)
        start = np.floor(rng.uniform(2, *self.start_ratio_range) * np.stack([heights, widths], axis=1))
        top, left = start.astype(np.int64).T
        return {"acts": acts, "top": top, "left": left}

    def run(self, images: Tensor, targets: list[Any] | None, **params: Any) -> tuple[Tensor, list[Any] | None]:
        from cuaug.targets import merge  # it needs a device, to move masks

        if images.ndim != 4:
            raise TransformError(
                f"images of Mosaic must be (N, C, H, W), not {tuple(images.shape)}: it cannot follow several views"
            )
        acts, size = params["acts"], (int(images.shape[-2]), int(images.shape[-1]))
        height, width = self.output_size or size
        if (height, width) != size and not acts.all():
            raise TransformError(
                f"output_size must be the images' size, {size[0]} x {size[1]}, in {self!r}, which leaves some images "
                "unchanged; or p must be 1"
            )
        # Rounded and saturated, as the fill of Pad.
        color = self._fill if images.is_floating_point() else np.clip(np.floor(np.add(self._fill, 0.5)), 0, 255)
        fill = torch.tensor(color, dtype=images.dtype, device=images.device).reshape(-1, 1, 1)
        if len(fill) not in (1, images.shape[1]):
            raise TransformError(f"fill must be a number or one per channel, {images.shape[1]}, not {self.fill!r}")
        result = empty((len(acts), images.shape[1], height, width), images.dtype, images.device)
        tensors: Sequence[Any] = images, result, fill
        # In a Loader's worker thread NumPy copies, because it starts no threads.
        source, output, background = [tensor.numpy() for tensor in tensors] if use_numpy(images) else tensors
        merged, parsed = None, None
        if targets is not None:
            merged = list(targets[: len(acts)])
            parsed = merge.parse_targets(type(self).__name__, targets, size, params["target_format"])
        for i, (does, top, left) in enumerate(zip(*(params[k].tolist() for k in ("acts", "top", "left")), strict=True)):
            if not does:
                output[i] = source[i]
                continue
            placements = _grid_placements(size, (height, width), top, left)
            if sum((x1 - x0) * (y1 - y0) for _, _, (x0, y0, x1, y1) in placements) < height * width:
                output[i] = background
            for cell, (x, y, (x0, y0, x1, y1)) in enumerate(placements):
                output[i, :, y0:y1, x0:x1] = source[i + cell, :, y0 - y : y1 - y, x0 - x : x1 - x]
            if merged is not None and parsed is not None:
                merged[i] = merge.merge_mosaic(parsed[i : i + 4], placements, (height, width), self.min_bbox_size)
        return result, merged


class CopyPaste(BatchTransform):
    """Paste instances of the next sample in epoch order.

    The method is Simple Copy-Paste (Ghiasi et al. 2021), as in torchvision's reference scripts. Of K instances it draws
    one K times, and pastes all that were drawn. Masks below lose their hidden pixels, and their boxes and "area" are
    recomputed. Hidden instances are dropped. All else with one row per instance follows, and the rest stays the
    sample's own.

    Labels are dicts with "masks", (K, H, W), and optionally "boxes", "labels" and others. The pasted sample is the next
    one before its own paste, and keeps its position.

    Args:
        p: probability, per sample.
        blending: blur the edge of pasted instances with a Gaussian of 5 x 5 pixels and sigma 2, in the image only.

    Raises:
        TransformError: there are no labels, or a label is no dict with masks.
    """

    partners = 1
    keeps_range = True
    reads_targets = True
    takes_clips = False

    def __init__(self, p: float = 0.5, blending: bool = True) -> None:
        self.p = arguments.probability("p", p)
        self.blending = blending

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        # The number of instances is not known yet, so each sample draws a seed.
        return {"acts": rng.bernoulli(self.p), "seed": rng.integers(0, 2**32 - 1)}

    def run(self, images: Tensor, targets: list[Any] | None, **params: Any) -> tuple[Tensor, list[Any] | None]:
        from cuaug.targets import merge

        if targets is None:
            raise TransformError("CopyPaste needs masks: call the chain with targets, or use labels with masks")
        acts, size = params["acts"], (int(images.shape[-2]), int(images.shape[-1]))
        parsed = merge.parse_targets(type(self).__name__, targets, size, params["target_format"])
        alpha, merged = np.zeros((len(acts), 1, *size), dtype=np.float32), list(targets[: len(acts)])
        for i in np.flatnonzero(acts).tolist():
            masks = parsed[i + 1].instance_masks
            drawn = np.floor(SampleRNG(int(params["seed"][i]), 0, np.arange(len(masks))).uniform() * len(masks))
            chosen = np.isin(np.arange(len(masks)), drawn) & merge.any_along(masks, 1, 2)
            covered = merge.any_along(masks[chosen], 0)
            merged[i] = merge.merge_pasted(parsed[i], parsed[i + 1], chosen, covered, size)
            alpha[i] = _blur_edge(covered) if self.blending else covered
        return blend([images[:-1], images[1:]], [1.0 - alpha, alpha]), merged


def _blur_edge(mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """torchvision's gaussian_blur with kernel size 5 and sigma 2."""
    weights = np.exp(-0.5 * (np.arange(-2, 3) / 2.0) ** 2)
    weights /= weights.sum()
    result = mask.astype(np.float64)
    for axis in (0, 1):
        pad_width = [(2, 2) if k == axis else (0, 0) for k in (0, 1)]
        rows = np.moveaxis(np.pad(result, pad_width, mode="reflect"), axis, 0)
        total = sum(weight * rows[k : k + result.shape[axis]] for k, weight in enumerate(weights))
        result = np.moveaxis(np.asarray(total), 0, axis)
    return result.clip(0.0, 1.0)


def _grid_placements(size: tuple[int, int], window: tuple[int, int], top: int, left: int) -> list[Placement]:
    """The placements of the four images in the window."""
    (height, width), (rows, columns) = size, window
    placements: list[Placement] = []
    for cell in range(4):
        x, y = (cell % 2) * width - left, (cell // 2) * height - top
        x0, y0, x1, y1 = max(x, 0), max(y, 0), min(x + width, columns), min(y + height, rows)
        placements.append((x, y, (x0, y0, max(x0, x1), max(y0, y1))))
    return placements
