"""Images of several samples put together, with their boxes, masks and keypoints: for detection and segmentation.

The others are the samples that follow in the epoch's order, so that what a sample becomes depends neither on the batch
size nor on the number of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cuaug.errors import TransformError
from cuaug.interop import empty
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import arguments
from cuaug.transforms.base import BatchTransform
from cuaug.transforms.mixes import blend, by_numpy

if TYPE_CHECKING:
    from cuaug.targets.merge import Part, Place

__all__ = ["CopyPaste", "Mosaic"]

Sizes = NDArray[np.int64]


class Mosaic(BatchTransform):
    """Four images in a grid of 2 x 2, seen through a window (YOLO's; Kornia's RandomMosaic).

    The sample itself is at the upper left; to the right, below and at the lower right are the three that follow in the
    epoch's order. The window begins within the sample's image, at a part of its sides drawn from `start_ratio_range`.
    YOLO's own mosaic, twice as large, is `output_size` of twice the images' and (-0.5, 0.5).

    Labels are dicts. Their boxes, masks and keypoints are moved, cut where their image ends and put together, and so is
    all else that has a row for each instance; the rest stays the sample's own. Boxes of which nothing is left are
    dropped, and masks without boxes that are empty.

    Args:
        output_size: of the window: an integer, or (height, width); None: that of the images.
        start_ratio_range: (lower, upper), -1 to 1.
        min_bbox_size: the least area of what is left of a box, in square pixels.
        fill: what the window shows beside the images: a number or one per channel, in image units.
        p: how likely it acts on a sample; the others stay as they are, so that below 1 `output_size` is the images'.

    Raises:
        TransformError: labels that are no dicts; p below 1 and images of another size than `output_size`.
    """

    partners = 3
    has_fill = True
    keeps_range = True
    reads_targets = True

    def __init__(
        self,
        output_size: int | Sequence[int] | None = None,
        start_ratio_range: Sequence[float] = (0.3, 0.7),
        min_bbox_size: float = 0.0,
        fill: float | Sequence[float] = 0.0,
        p: float = 1.0,
    ) -> None:
        self.output_size = None if output_size is None else arguments.pair("output_size", output_size)
        self.start_ratio_range = arguments.span("start_ratio_range", start_ratio_range, low=-1.0, high=1.0)
        self.min_bbox_size = arguments.number("min_bbox_size", min_bbox_size, 0)
        self.fill = arguments.color("fill", fill)
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
                f"Mosaic takes images (N, C, H, W), not {tuple(images.shape)}: several views of each cannot precede it"
            )
        acts, size = params["acts"], (int(images.shape[-2]), int(images.shape[-1]))
        height, width = self.output_size or size
        if (height, width) != size and not acts.all():
            raise TransformError(
                f"{self!r} leaves some images as they are, {size[0]} x {size[1]}: p is 1, or output_size as large"
            )
        # As padding is: rounded and saturated.
        color = self.fill if images.is_floating_point() else np.clip(np.floor(np.add(self.fill, 0.5)), 0, 255)
        fill = torch.tensor(color, dtype=images.dtype, device=images.device).reshape(-1, 1, 1)
        if len(fill) not in (1, images.shape[1]):
            raise TransformError(f"fill has a number for each channel, {images.shape[1]}, not {self.fill!r}")
        made = empty((len(acts), images.shape[1], height, width), images.dtype, images.device)
        tensors: Sequence[Any] = images, made, fill
        # In a loader's thread NumPy copies, which takes no further threads.
        given, to, around = [x.numpy() for x in tensors] if by_numpy(images) else tensors
        mixed = None if targets is None else list(targets[: len(acts)])
        parts = None if targets is None else _parts(self, targets, size, params["box_format"], params["mask_fill"])
        for i, (does, top, left) in enumerate(zip(*(params[k].tolist() for k in ("acts", "top", "left")), strict=True)):
            if not does:
                to[i] = given[i]
                continue
            places = _places(size, (height, width), top, left)
            if sum((x1 - x0) * (y1 - y0) for _, _, (x0, y0, x1, y1) in places) < height * width:
                to[i] = around
            for q, (x, y, (x0, y0, x1, y1)) in enumerate(places):
                to[i, :, y0:y1, x0:x1] = given[i + q, :, y0 - y : y1 - y, x0 - x : x1 - x]
            if mixed is not None and parts is not None:
                mixed[i] = merge.in_mosaic(parts[i : i + 4], places, (height, width), self.min_bbox_size)
        return made, mixed


class CopyPaste(BatchTransform):
    """Pastes some instances of the next image in the epoch's order, by their masks (Ghiasi et al. 2021).

    As torchvision's reference scripts: of K instances it draws K times one, and pastes those that were drawn. Masks
    below them lose what is hidden, and boxes are then drawn around their masks anew; instances of which nothing is left
    are dropped. An "area" is counted anew, all else that has a row for each instance goes with it, and the rest stays
    the sample's own.

    Labels are dicts with "masks", (K, H, W), and maybe "boxes", "labels" and others. What is pasted is the next sample
    as it was before anything was pasted on it, in its place.

    Args:
        p: how likely something is pasted on a sample.
        blending: softens the edge of what is pasted, by a Gaussian of 5 x 5 pixels and sigma 2, in the image alone.

    Raises:
        TransformError: no labels, or one that is no dict with masks.
    """

    partners = 1
    keeps_range = True
    reads_targets = True

    def __init__(self, p: float = 0.5, blending: bool = True) -> None:
        self.p = arguments.probability("p", p)
        self.blending = blending

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        # How many instances there are is not known yet: what is drawn is a seed of their draws.
        return {"acts": rng.bernoulli(self.p), "seed": rng.integers(0, 2**32 - 1)}

    def run(self, images: Tensor, targets: list[Any] | None, **params: Any) -> tuple[Tensor, list[Any] | None]:
        from cuaug.targets import merge

        if targets is None:
            raise TransformError("CopyPaste needs masks: call the chain with targets, or have labels with masks")
        acts, size = params["acts"], (int(images.shape[-2]), int(images.shape[-1]))
        parts = _parts(self, targets, size, params["box_format"], params["mask_fill"])
        share, mixed = np.zeros((len(acts), 1, *size), dtype=np.float32), list(targets[: len(acts)])
        for i in np.flatnonzero(acts).tolist():
            masks = parts[i + 1].instances
            drawn = np.floor(SampleRNG(int(params["seed"][i]), 0, np.arange(len(masks))).uniform() * len(masks))
            chosen = np.isin(np.arange(len(masks)), drawn) & merge.some(masks, 1, 2)
            covered = merge.some(masks[chosen], 0)
            mixed[i] = merge.pasted(parts[i], parts[i + 1], chosen, covered, size)
            share[i] = _softened(covered) if self.blending else covered
        return blend([images[:-1], images[1:]], [1.0 - share, share]), mixed


def _softened(covered: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Torchvision's gaussian_blur with a kernel of 5 and a sigma of 2."""
    taps = np.exp(-0.5 * (np.arange(-2, 3) / 2.0) ** 2)
    share = covered.astype(np.float64)
    for axis in (0, 1):
        width = [(2, 2) if k == axis else (0, 0) for k in (0, 1)]
        rows = np.moveaxis(np.pad(share, width, mode="reflect"), axis, 0)
        total = sum(tap * rows[k : k + share.shape[axis]] for k, tap in enumerate(taps / taps.sum()))
        share = np.moveaxis(np.asarray(total), 0, axis)
    return share.clip(0.0, 1.0)


def _parts(
    transform: BatchTransform, targets: list[Any], size: tuple[int, int], box_format: str, mask_fill: int
) -> list[Part]:
    """The targets, read."""
    from cuaug.targets.merge import Part

    parts = []
    for i, target in enumerate(targets):
        try:
            parts.append(Part(target, size, box_format, mask_fill))
        except TransformError as error:
            raise TransformError(f"{type(transform).__name__}: {error} (target {i} of the batch)") from None
    return parts


def _places(size: tuple[int, int], window: tuple[int, int], top: int, left: int) -> list[Place]:
    """Of each of the four: where its corner lies in the window, x and y, and what of the window it fills."""
    (height, width), (rows, columns) = size, window
    places: list[Place] = []
    for q in range(4):
        x, y = (q % 2) * width - left, (q // 2) * height - top
        x0, y0, x1, y1 = max(x, 0), max(y, 0), min(x + width, columns), min(y + height, rows)
        places.append((x, y, (x0, y0, max(x0, x1), max(y0, y1))))
    return places
