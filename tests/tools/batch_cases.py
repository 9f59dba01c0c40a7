"""Formulas of batch transforms, crops and detection transforms, beside those of cases.py, for parity.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from cuaug import transforms as T
from tests.references import auto, filters, masks, sampling
from tests.support.tolerances import EXACT, ROUNDING_LEVELS, TWICE_ROUNDED_LEVELS, Tolerance
from tests.tools.peer_outputs import DecodedImage, crops

#: The instance in targets: top, left, bottom, right.
INSTANCE = (9, 6, 30, 27)


class BatchCase(NamedTuple):
    """A transform, and its formula: `image(images, i, **params)` is the result for image i of (N, H, W, 3) levels."""

    transform: T.Transform
    image: Callable[..., DecodedImage]
    tolerance: Tolerance
    targets: bool = False


def five(image: DecodedImage) -> DecodedImage:
    return crops(image, 20, 30)


def mixed(images: DecodedImage, i: int, lam: float) -> DecodedImage:
    return lam * images[i] + (1 - lam) * images[(i + 1) % len(images)]


def cut(images: DecodedImage, i: int, box: Sequence[int]) -> DecodedImage:
    x0, y0, x1, y1 = box
    result = images[i].copy()
    result[y0:y1, x0:x1] = images[(i + 1) % len(images), y0:y1, x0:x1]
    return result


def mosaic(images: DecodedImage, i: int, top: int, left: int, **_: Any) -> DecodedImage:
    n, h, w, _channels = images.shape
    rows = [np.concatenate([images[(i + q + k) % n] for k in (0, 1)], axis=1) for q in (0, 2)]
    return np.concatenate(rows)[top : top + h, left : left + w]


def pasted(images: DecodedImage, i: int, **_: Any) -> DecodedImage:
    """CopyPaste always draws the only instance."""
    covered = np.repeat(masks.inside(*images.shape[1:3], INSTANCE)[..., None], 3, axis=2).astype(np.float64)
    share = filters.gaussian_blur(covered, (5, 5), 2.0)
    return share * images[(i + 1) % len(images)] + (1 - share) * images[i]


def augmented(images: DecodedImage, i: int, weights: DecodedImage, operation: Any, magnitude: Any) -> DecodedImage:
    total = weights[0] * images[i]
    for weight, names, magnitudes in zip(weights[1:], operation, magnitude, strict=True):
        total = total + weight * auto.steps(images[i], names, magnitudes, filter="bilinear")
    return total


def window(images: DecodedImage, i: int, **params: int) -> DecodedImage:
    return sampling.crop(images[i], *(int(params[name]) for name in ("top", "left", "height", "width")))


BATCH_CASES = {
    "FiveCrop": BatchCase(T.FiveCrop((20, 30)), lambda images, i: five(images[i]), EXACT),
    "TenCrop": BatchCase(
        T.TenCrop((20, 30)), lambda images, i: np.concatenate([five(images[i]), five(images[i][:, ::-1])]), EXACT
    ),
    "MixUp": BatchCase(T.MixUp(), mixed, ROUNDING_LEVELS),
    "CutMix": BatchCase(T.CutMix(), cut, EXACT),
    "Mosaic": BatchCase(T.Mosaic(), mosaic, EXACT),
    "CopyPaste": BatchCase(T.CopyPaste(1.0), pasted, ROUNDING_LEVELS, targets=True),
    # One operation per chain: a second one might see levels at its threshold.
    "AugMix": BatchCase(T.AugMix(chain_depth=1), augmented, TWICE_ROUNDED_LEVELS),
    "RandomIoUCrop": BatchCase(T.RandomIoUCrop(sampler_options=[0.1]), window, EXACT, targets=True),
}


def pairs(name: str, images: DecodedImage) -> list[tuple[DecodedImage, DecodedImage]]:
    """The actual and the expected result for each image."""
    transform, reference, _, with_targets = BATCH_CASES[name]
    partners = getattr(transform, "partners", 0)
    batches = (
        [images] if partners else [images[i : i + 1] for i in range(len(images))]
    )  # crops may have different sizes
    result = []
    for seed, batch in enumerate(batches):
        top, left, bottom, right = INSTANCE
        target = {
            "boxes": np.array([[left, top, right, bottom]], dtype=np.float32),
            "masks": masks.inside(*batch.shape[1:3], INSTANCE)[None],
        }
        chain = T.Compose([transform], generator=torch.Generator().manual_seed(seed))
        images_out, params = chain.trace(batch, [target] * len(batch)) if with_targets else chain.trace(batch)
        images_out = images_out[0] if with_targets else images_out
        floats = batch.astype(np.float64)
        result += [(images_out[i], reference(floats, i, **step["params"])) for i, (step,) in enumerate(params)]
    return [(got, np.clip(want, 0, 255)) for got, want in result]
