"""MixUp and CutMix, which mix each sample with the next one.

Names, arguments and formulas are torchvision v2's, with two differences. Draws are per sample, not per batch. The
partner is the next sample of the epoch, not the previous one of the batch. So a result depends on the epoch's order,
but neither on the batch size nor on the number of ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cuaug._runtime.intraop import threads_for
from cuaug.errors import TransformError
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import arguments
from cuaug.transforms.base import BatchTransform

__all__ = ["CutMix", "MixUp", "blend", "use_numpy"]

Sizes = NDArray[np.int64]

# Small images are blended several at once: a NumPy call costs as much as some thousand values.
_CHUNK_VALUES = 1 << 15


class _Mix(BatchTransform):
    """Base class: Beta(alpha, alpha) draws the weight of the own sample."""

    partners = 1
    keeps_range = True

    def __init__(self, alpha: float = 1.0, num_classes: int | None = None, p: float = 1.0) -> None:
        self.alpha = arguments.positive("alpha", alpha)
        self.num_classes = None if num_classes is None else arguments.integer("num_classes", num_classes, 1)
        self.p = arguments.probability("p", p)

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


class MixUp(_Mix):
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

    Raises:
        TransformError: a label has another type, or is no class below `num_classes`; or a dict has a class mask.
    """

    reads_targets = True

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        acts = rng.bernoulli(self.p)
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


class CutMix(_Mix):
    """Paste a random box of the next sample in epoch order.

    The method is CutMix (Yun et al. 2019). The box is centered anywhere in the image. Its share of the image is
    1 - lam, with lam from Beta(alpha, alpha), before it is clipped to the image. Labels are mixed by area, and have the
    types that `MixUp` takes.

    Args:
        alpha, num_classes: as for `MixUp`.
        p: probability of mixing a sample. The box of an unmixed sample is empty.

    Raises:
        TransformError: a label has another type, or is no class below `num_classes`.
    """

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        acts = rng.bernoulli(self.p)
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
