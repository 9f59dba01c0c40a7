"""Two samples mixed into one: images and labels, each sample with the one that follows it in the epoch's order.

Names, arguments and formulas are torchvision v2's, but what it draws for a batch is drawn for each sample, and the
partner is the next sample of the epoch, not the one before in the batch: what a sample becomes depends on the epoch's
order, and neither on the batch size nor on the number of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
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

__all__ = ["CutMix", "MixUp", "blend", "by_numpy"]

Sizes = NDArray[np.int64]

# Small images are blended several at once: each call of NumPy's costs as much as some thousand values.
_VALUES_AT_ONCE = 1 << 15


class _Mix(BatchTransform):
    """What share of a sample is its own is drawn from Beta(alpha, alpha)."""

    partners = 1
    keeps_range = True

    def __init__(self, alpha: float = 1.0, num_classes: int | None = None, p: float = 1.0) -> None:
        self.alpha = arguments.positive("alpha", alpha)
        self.num_classes = None if num_classes is None else arguments.whole("num_classes", num_classes, 1)
        self.p = arguments.probability("p", p)

    def _labels(self, targets: list[Any] | None, share: NDArray[np.float64]) -> list[Any] | None:
        """Soft labels: `share`, (N,), of each one's own."""
        if targets is None:
            return None
        soft = self._soft(targets).astype(np.float64)
        mixed = (share[:, None] * soft[:-1] + (1.0 - share[:, None]) * soft[1:]).astype(np.float32)
        return [
            torch.from_numpy(row).to(label.device) if isinstance(label, torch.Tensor) else row
            for row, label in zip(mixed, targets, strict=False)
        ]

    def _soft(self, labels: list[Any]) -> NDArray[np.float32]:
        """(len(labels), classes): a number for each class."""
        name, arrays = type(self).__name__, [_plain(label) for label in labels]
        for label, array in zip(labels, arrays, strict=True):
            if isinstance(label, tuple):  # as (class, number of the sample): no vector, even for two classes
                raise TransformError(
                    f"the label is a tuple of {len(label)} fields, {label!r:.100}; {name} needs one that is an integer "
                    "or a vector of numbers"
                )
            if array.ndim > 1 or array.dtype.kind not in ("biu" if array.ndim == 0 else "biuf"):
                raise TransformError(f"{name} mixes labels that are integers or vectors of numbers, not {label!r:.100}")
        if len(shapes := {array.shape for array in arrays}) > 1:
            raise TransformError(f"{name} mixes labels of one shape, not of {sorted(shapes)}")
        soft = np.stack(arrays)
        if soft.ndim == 1:
            return self._one_hot(soft.astype(np.int64))
        if self.num_classes not in (None, soft.shape[1]):
            raise TransformError(f"labels have num_classes, {self.num_classes}, numbers each, not {soft.shape[1]}")
        return soft.astype(np.float32)

    def _one_hot(self, labels: NDArray[np.int64]) -> NDArray[np.float32]:
        if self.num_classes is None:
            raise TransformError(f"{type(self).__name__} needs num_classes where labels are integers, as {labels[0]}")
        bad = (labels < 0) | (labels >= self.num_classes)
        if bad.any():
            raise TransformError(
                f"labels must be 0 ... {self.num_classes - 1} (num_classes={self.num_classes}), not {labels[bad][0]}"
            )
        soft = np.zeros((len(labels), self.num_classes), dtype=np.float32)
        soft[np.arange(len(labels)), labels] = 1.0
        return soft


def _plain(label: Any) -> NDArray[Any]:
    """As a NumPy array; of objects, where it is no number and no vector."""
    if isinstance(label, torch.Tensor):
        label = label.detach().cpu()
        return (label.float() if label.is_floating_point() else label).numpy()
    try:
        return np.asarray(label)
    except ValueError:  # rows of different lengths
        return np.asarray(None)


class MixUp(_Mix):
    """A weighted mean of each sample and the next one in the epoch's order (Zhang et al. 2018).

    Labels that are integers become soft ones: `num_classes` float32 numbers that add up to 1; those that are vectors of
    a number for each class, as of another mix before, are mixed. Tuples are refused: of their fields one is the label.
    Images in uint8 are rounded (torchvision takes floats only).

    Args:
        alpha: the weight of a sample's own image and label is drawn from Beta(alpha, alpha).
        num_classes: needed where labels are integers.
        p: how likely a sample is mixed; the others' weight is 1.

    Raises:
        TransformError: labels of another kind, or of no such class.
    """

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        acts = rng.bernoulli(self.p)
        return {"lam": np.where(acts, rng.beta(self.alpha), 1.0)}

    def run(self, images: Tensor, targets: list[Any] | None, **params: Any) -> tuple[Tensor, list[Any] | None]:
        lam = params["lam"]
        return blend([images[:-1], images[1:]], [lam, 1.0 - lam]), self._labels(targets, lam)


class CutMix(_Mix):
    """A rectangle of each image is taken from the next one in the epoch's order (Yun et al. 2019).

    The box's centre is drawn anywhere in the image, and its sides so that its share of the image is 1 - lam, lam drawn
    from Beta(alpha, alpha); what of it lies outside is cut off. Labels are mixed by the areas. Which labels it takes is
    what `MixUp` says.

    Args:
        alpha, num_classes: as for `MixUp`.
        p: how likely a sample is mixed; the others' boxes are empty.

    Raises:
        TransformError: labels of another kind, or of no such class.
    """

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        acts = rng.bernoulli(self.p)
        half = 0.5 * np.sqrt(1.0 - rng.beta(self.alpha))
        ends = []
        for sides in (widths, heights):
            middle, reach = rng.integers(0, sides - 1), (half * sides).astype(np.int64)
            ends += [np.maximum(middle - reach, 0), np.minimum(middle + reach, sides)]
        x0, x1, y0, y1 = ends
        return {"box": np.where(acts[:, None], np.stack([x0, y0, x1, y1], axis=1), 0)}

    def run(self, images: Tensor, targets: list[Any] | None, **params: Any) -> tuple[Tensor, list[Any] | None]:
        box, (height, width) = params["box"], images.shape[-2:]
        share = 1.0 - (box[:, 2] - box[:, 0]) * (box[:, 3] - box[:, 1]) / (height * width)
        return _with_boxes(images, box), self._labels(targets, share)


def _with_boxes(images: Tensor, box: NDArray[np.int64]) -> Tensor:
    """(N, ..., H, W): each of the first N of N + 1 images, with its box, (N, 4), from the one that follows."""
    if by_numpy(images):
        given = images.numpy()
        made = given[:-1].copy(order="K")
        for i, (x0, y0, x1, y1) in enumerate(box.tolist()):
            made[i, ..., y0:y1, x0:x1] = given[i + 1, ..., y0:y1, x0:x1]
        return torch.from_numpy(made)
    x0, y0, x1, y1 = torch.from_numpy(box).to(images.device).T[:, :, None]
    y, x = (torch.arange(side, device=images.device) for side in images.shape[-2:])
    across, down = (x >= x0) & (x < x1), (y >= y0) & (y < y1)
    inside = down[:, :, None] & across[:, None, :]
    inside = inside.reshape(len(box), *[1] * (images.ndim - 3), *images.shape[-2:])
    return torch.where(inside, images[1:], images[:-1])


def by_numpy(images: Tensor) -> bool:
    """Whether one thread alone is to work on them, as in a loader: NumPy's operators take no further ones.

    They go image by image, or by a few small ones, which stays in the processor's cache.
    """
    if images.device.type != "cpu" or images.dtype == torch.bfloat16 or images.requires_grad or not len(images):
        return False
    return threads_for(images.nbytes) == 1


def blend(parts: Sequence[Tensor], weights: Sequence[NDArray[Any]]) -> Tensor:
    """The sum of some images each, (N, C, H, W), by weights (N,) or (N, 1, H, W); rounded once where they are uint8."""
    if by_numpy(parts[0]):
        return _blend_by_numpy([part.numpy() for part in parts], weights)
    dtype = parts[0].dtype
    work = torch.float64 if dtype == torch.float64 else torch.float32
    total: Tensor | None = None
    for part, weight in zip(parts, weights, strict=True):
        factor = torch.from_numpy(weight).to(part.device, work)
        # In two steps, as multiplying and adding at once rounds otherwise, here and there.
        product = part.to(work) * factor.reshape(*factor.shape, *[1] * (part.ndim - factor.ndim))
        total = product if total is None else total.add_(product)
    assert total is not None
    return total.to(dtype) if dtype.is_floating_point else total.round_().to(dtype)


@np.errstate(over="ignore", invalid="ignore")  # torch warns of neither
def _blend_by_numpy(parts: Sequence[NDArray[Any]], weights: Sequence[NDArray[Any]]) -> Tensor:
    """What `blend` makes, by the same operations in the same order."""
    made = np.empty_like(parts[0])
    work = np.float64 if made.dtype == np.float64 else np.float32
    factors = [weight.astype(work).reshape(*weight.shape, *[1] * (made.ndim - weight.ndim)) for weight in weights]
    some = max(1, _VALUES_AT_ONCE // made[0].size)
    totals, products = (np.empty_like(made[:some], dtype=work) for _ in range(2))
    for first in range(0, len(made), some):
        rows = slice(first, first + some)
        total, product = (memory[: len(made[rows])] for memory in (totals, products))
        np.multiply(_wide(parts[0][rows]), factors[0][rows], out=total, dtype=work)
        for part, factor in zip(parts[1:], factors[1:], strict=True):
            np.multiply(_wide(part[rows]), factor[rows], out=product, dtype=work)
            np.add(total, product, out=total)
        if made.dtype.kind != "f":
            np.rint(total, out=total)
        if made.dtype == np.float16:
            torch.from_numpy(made[rows]).copy_(torch.from_numpy(total))
        else:
            np.copyto(made[rows], total, casting="unsafe")
    return torch.from_numpy(made)


def _wide(images: NDArray[Any]) -> NDArray[Any]:
    """float16 as float32, in a fraction of the time that NumPy takes to convert it."""
    return torch.from_numpy(images).float().numpy() if images.dtype == np.float16 else images
