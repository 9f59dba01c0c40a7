"""MixUp, CutMix, Mosaic and CopyPaste, which combine images and targets of several samples.

MixUp's and CutMix's names, arguments and formulas are torchvision v2's, with two differences. Draws are per sample, not
per batch. The partners of a sample are the next samples of the epoch, not the previous one of the batch. So a result
depends on the epoch's order, but neither on the batch size nor on the number of ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cuaug._runtime.cpus import threads_for
from cuaug._runtime.huge_pages import empty
from cuaug.errors import TransformError
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import parameters
from cuaug.transforms.base import BatchTransform

if TYPE_CHECKING:
    from cuaug.targets.merge import Placement

Sizes = NDArray[np.int64]

# Small images are blended several at once: a NumPy call costs as much as some thousand values.
_CHUNK_VALUES = 1 << 15


class Mix(BatchTransform):
    """Base class of transforms that mix a sample with the next ones, with probability `p`, until an epoch."""

    partners = 1
    keeps_range = True

    def __init__(self, p: float, until_epoch: int | None) -> None:
        self.p = parameters.probability("p", p)
        self.until_epoch = None if until_epoch is None else parameters.integer("until_epoch", until_epoch, 0)

    def draw_acts(self, rng: SampleRNG) -> NDArray[np.bool_]:
        """(N,) bool: the samples to mix. It draws as much whether or not mixing is over."""
        acts = rng.bernoulli(self.p)
        is_over = self.until_epoch is not None and rng.epoch is not None and rng.epoch >= self.until_epoch
        return np.zeros_like(acts) if is_over else acts


class _ClassMix(Mix):
    """Base class: Beta(alpha, alpha) draws the weight of the own sample."""

    def __init__(
        self, alpha: float = 1.0, num_classes: int | None = None, p: float = 1.0, until_epoch: int | None = None
    ) -> None:
        super().__init__(p, until_epoch)
        self.alpha = parameters.positive("alpha", alpha)
        self.num_classes = None if num_classes is None else parameters.integer("num_classes", num_classes, 1)

    def _mix_labels(self, targets: list[Any] | None, weight: NDArray[np.float64]) -> list[Any] | None:
        """N soft labels, mixed from N + 1 labels; `weight`, (N,), is that of each sample's own label."""
        if targets is None:
            return None
        soft = self._to_soft(targets).astype(np.float64)
        mixed = (weight[:, None] * soft[:-1] + (1.0 - weight[:, None]) * soft[1:]).astype(np.float32)
        return [
            torch.from_numpy(row).to(label.device) if isinstance(label, torch.Tensor) else row
            for row, label in zip(mixed, targets, strict=False)
        ]

    def _to_soft(self, labels: list[Any]) -> NDArray[np.float32]:
        """(len(labels), num_classes) soft labels."""
        name, arrays = type(self).__name__, [_to_array(label) for label in labels]
        for label, array in zip(labels, arrays, strict=True):
            if isinstance(label, tuple):  # such as (class, sample number): no vector, even for two classes
                raise TransformError(
                    f"labels of {name} must be integers or vectors of numbers, not tuples: the label is a tuple of "
                    f"{len(label)} fields, {label!r:.100}"
                )
            if array.ndim > 1 or array.dtype.kind not in ("biu" if array.ndim == 0 else "biuf"):
                raise TransformError(f"labels of {name} must be integers or vectors of numbers, not {label!r:.100}")
        if len(shapes := {array.shape for array in arrays}) > 1:
            raise TransformError(f"labels of {name} must have one shape, not {sorted(shapes)}")
        soft = np.stack(arrays)
        if soft.ndim == 1:
            return self._one_hot(soft.astype(np.int64))
        if self.num_classes not in (None, soft.shape[1]):
            raise TransformError(f"labels must have num_classes={self.num_classes} numbers each, not {soft.shape[1]}")
        return soft.astype(np.float32)

    def _one_hot(self, labels: NDArray[np.int64]) -> NDArray[np.float32]:
        if self.num_classes is None:
            raise TransformError(
                f"num_classes of {type(self).__name__} must be given: labels are integers ({labels[0]})"
            )
        invalid = (labels < 0) | (labels >= self.num_classes)
        if invalid.any():
            raise TransformError(
                f"labels must be 0 ... {self.num_classes - 1} (num_classes={self.num_classes}), "
                f"not {labels[invalid][0]}"
            )
        soft = np.zeros((len(labels), self.num_classes), dtype=np.float32)
        soft[np.arange(len(labels)), labels] = 1.0
        return soft


def _to_array(label: Any) -> NDArray[Any]:
    """The label as a NumPy array, of dtype object if it is neither a number nor a vector."""
    if isinstance(label, torch.Tensor):
        label = label.detach().cpu()
        return (label.float() if label.is_floating_point() else label).numpy()
    try:
        return np.asarray(label)
    except ValueError:  # rows of different lengths
        return np.asarray(None)


class MixUp(_ClassMix):
    """Blend each sample with the next one in epoch order.

    The method is mixup (Zhang et al. 2018). uint8 images are rounded; torchvision takes floats only.

    Integer labels become soft labels: `num_classes` float32 numbers that sum to 1. Labels may also be vectors of one
    number per class, such as the result of another mix. Tuples are refused: a tuple does not say which field is the
    label.

    Labels that are dicts of boxes, instance masks or keypoints keep the instances of both images, as detectors are
    trained (Zhang et al. 2019; YOLO, with alpha=32). All else with one row per instance is concatenated too, and the
    rest stays the sample's own.

    Args:
        alpha: Beta(alpha, alpha) draws the weight of a sample's own image and label.
        num_classes: number of classes; required for integer labels.
        p: probability of mixing a sample. The weight of an unmixed sample is 1.
        until_epoch: the Loader's epoch, counted from 0, from which on no sample is mixed (timm's `mixup_off_epoch`);
            labels stay soft. None: every epoch mixes, as every call does.

    Raises:
        TransformError: a label has another type, or is no class below `num_classes`; or a dict has a class mask.
    """

    reads_targets = True

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        acts = self.draw_acts(rng)
        return {"lam": np.where(acts, rng.beta(self.alpha), 1.0)}

    def run(self, images: Tensor, targets: list[Any] | None, **params: Any) -> tuple[Tensor, list[Any] | None]:
        lam = params["lam"]
        mixed = blend([images[:-1], images[1:]], [lam, 1.0 - lam])
        if targets is None or not any(isinstance(target, Mapping) for target in targets):
            return mixed, self._mix_labels(targets, lam)
        from cuaug.targets import holds_targets, merge  # these need a device, to move masks

        if not any(map(holds_targets, targets)):
            return mixed, self._mix_labels(targets, lam)
        size = int(images.shape[-2]), int(images.shape[-1])
        parsed = merge.parse_targets(type(self).__name__, targets, size, params["target_format"])
        merged = list(targets[:-1])
        for i in np.flatnonzero(lam < 1.0).tolist():
            merged[i] = merge.merge_mixed(parsed[i], parsed[i + 1], size)
        return mixed, merged


class CutMix(_ClassMix):
    """Paste a random box of the next sample in epoch order.

    The method is CutMix (Yun et al. 2019). The box is centered anywhere in the image. Its share of the image is
    1 - lam, with lam from Beta(alpha, alpha), before it is clipped to the image. Labels are mixed by area, and have the
    types that `MixUp` takes.

    Args:
        alpha, num_classes: as for `MixUp`.
        p: probability of mixing a sample. The box of an unmixed sample is empty.
        until_epoch: as for `MixUp`.

    Raises:
        TransformError: a label has another type, or is no class below `num_classes`.
    """

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        acts = self.draw_acts(rng)
        half = 0.5 * np.sqrt(1.0 - rng.beta(self.alpha))
        ends = []
        for sides in (widths, heights):
            center, reach = rng.integers(0, sides - 1), (half * sides).astype(np.int64)
            ends += [np.maximum(center - reach, 0), np.minimum(center + reach, sides)]
        x0, x1, y0, y1 = ends
        return {"box": np.where(acts[:, None], np.stack([x0, y0, x1, y1], axis=1), 0)}

    def run(self, images: Tensor, targets: list[Any] | None, **params: Any) -> tuple[Tensor, list[Any] | None]:
        box, (height, width) = params["box"], images.shape[-2:]
        own_area = 1.0 - (box[:, 2] - box[:, 0]) * (box[:, 3] - box[:, 1]) / (height * width)
        return _paste_boxes(images, box), self._mix_labels(targets, own_area)


def _paste_boxes(images: Tensor, box: NDArray[np.int64]) -> Tensor:
    """(N, ..., H, W): the first N of N + 1 images, each with its box, (N, 4) xyxy, pasted from the next one."""
    if use_numpy(images):
        source = images.numpy()
        result = source[:-1].copy(order="K")
        for i, (x0, y0, x1, y1) in enumerate(box.tolist()):
            result[i, ..., y0:y1, x0:x1] = source[i + 1, ..., y0:y1, x0:x1]
        return torch.from_numpy(result)
    x0, y0, x1, y1 = torch.from_numpy(box).to(images.device).T[:, :, None]
    y, x = (torch.arange(side, device=images.device) for side in images.shape[-2:])
    across, down = (x >= x0) & (x < x1), (y >= y0) & (y < y1)
    inside = down[:, :, None] & across[:, None, :]
    inside = inside.reshape(len(box), *[1] * (images.ndim - 3), *images.shape[-2:])
    return torch.where(inside, images[1:], images[:-1])


def use_numpy(images: Tensor) -> bool:
    """Whether to process images with NumPy, on one thread, as in a Loader's worker thread.

    NumPy's operators start no threads. Chunks of a few images stay in the processor's cache.
    """
    if images.device.type != "cpu" or images.dtype == torch.bfloat16 or images.requires_grad or not len(images):
        return False
    return threads_for(images.nbytes) == 1


def blend(images: Sequence[Tensor], weights: Sequence[NDArray[Any]]) -> Tensor:
    """The weighted sum of K stacks of images, rounded once for uint8.

    Args:
        images: K tensors (N, C, H, W).
        weights: K arrays (N,) or (N, 1, H, W).
    """
    if use_numpy(images[0]):
        return _blend_with_numpy([stack.numpy() for stack in images], weights)
    dtype = images[0].dtype
    work = torch.float64 if dtype == torch.float64 else torch.float32
    total: Tensor | None = None
    for stack, weight in zip(images, weights, strict=True):
        factor = torch.from_numpy(weight).to(stack.device, work)
        # Multiply, then add: a fused multiply-add rounds differently.
        product = stack.to(work) * factor.reshape(*factor.shape, *[1] * (stack.ndim - factor.ndim))
        total = product if total is None else total.add_(product)
    assert total is not None
    return total.to(dtype) if dtype.is_floating_point else total.round_().to(dtype)


@np.errstate(over="ignore", invalid="ignore")  # torch warns of neither
def _blend_with_numpy(images: Sequence[NDArray[Any]], weights: Sequence[NDArray[Any]]) -> Tensor:
    """As `blend`: the same operations in the same order."""
    result = np.empty_like(images[0])
    work = np.float64 if result.dtype == np.float64 else np.float32
    factors = [weight.astype(work).reshape(*weight.shape, *[1] * (result.ndim - weight.ndim)) for weight in weights]
    chunk = max(1, _CHUNK_VALUES // result[0].size)
    totals, products = (np.empty_like(result[:chunk], dtype=work) for _ in range(2))
    for first in range(0, len(result), chunk):
        rows = slice(first, first + chunk)
        total, product = (buffer[: len(result[rows])] for buffer in (totals, products))
        np.multiply(_widen(images[0][rows]), factors[0][rows], out=total, dtype=work)
        for stack, factor in zip(images[1:], factors[1:], strict=True):
            np.multiply(_widen(stack[rows]), factor[rows], out=product, dtype=work)
            np.add(total, product, out=total)
        if result.dtype.kind != "f":
            np.rint(total, out=total)
        if result.dtype == np.float16:
            torch.from_numpy(result[rows]).copy_(torch.from_numpy(total))
        else:
            np.copyto(result[rows], total, casting="unsafe")
    return torch.from_numpy(result)


def _widen(images: NDArray[Any]) -> NDArray[Any]:
    """float16 as float32, by torch, which converts many times faster than NumPy."""
    return torch.from_numpy(images).float().numpy() if images.dtype == np.float16 else images


class Mosaic(Mix):
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
        until_epoch: the Loader's epoch, counted from 0, from which on images are unchanged: the number of epochs less
            ultralytics' `close_mosaic`. `output_size` must be the images' size. None: every epoch has mosaics, as
            every call does.

    Raises:
        TransformError: a label is no dict; or p is below 1 or `until_epoch` is given, and `output_size` is not the
            images' size.
    """

    partners = 3
    has_fill = True
    reads_targets = True
    takes_clips = False

    def __init__(
        self,
        output_size: int | Sequence[int] | None = None,
        start_ratio_range: Sequence[float] = (0.3, 0.7),
        min_bbox_size: float = 0.0,
        fill: parameters.Fill = 0.0,
        p: float = 1.0,
        until_epoch: int | None = None,
    ) -> None:
        super().__init__(p, until_epoch)
        self.output_size = None if output_size is None else parameters.size("output_size", output_size)
        self.start_ratio_range = parameters.bounds("start_ratio_range", start_ratio_range, low=-1.0, high=1.0)
        self.min_bbox_size = parameters.number("min_bbox_size", min_bbox_size, 0)
        self.fill = fill
        self._fill = parameters.fill("fill", fill)

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        acts = self.draw_acts(rng)
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
        if (height, width) != size and (self.until_epoch is not None or not acts.all()):
            raise TransformError(
                f"output_size must be the images' size, {size[0]} x {size[1]}, in {self!r}, which leaves some images "
                "unchanged; or p must be 1, without until_epoch"
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


class CopyPaste(Mix):
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
        until_epoch: as for `Mosaic`.

    Raises:
        TransformError: there are no labels, or a label is no dict with masks.
    """

    reads_targets = True
    takes_clips = False

    def __init__(self, p: float = 0.5, blending: bool = True, until_epoch: int | None = None) -> None:
        super().__init__(p, until_epoch)
        self.blending = blending

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        # The number of instances is not known yet, so each sample draws a seed.
        return {"acts": self.draw_acts(rng), "seed": rng.integers(0, 2**32 - 1)}

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
