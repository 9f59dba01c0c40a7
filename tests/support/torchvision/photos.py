"""Images of each kind that both libraries take, and the distance of two results."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from PIL import Image

KINDS = ("uint8", "float", "pil")
#: (H, W): odd, even, tall, wide, and too small for most filters.
SIZES = ((48, 64), (37, 53), (61, 24), (7, 5))


def picture(size: tuple[int, int], kind: str = "uint8", seed: int = 0) -> Any:
    """Colored waves under noise of 12 levels: a tensor (3, H, W), uint8 or float32 in [0, 1], or a PIL image."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[: size[0], : size[1]]
    waves = [np.sin(x / rng.uniform(3, 20) + y / rng.uniform(3, 20) + rng.uniform(0, 6)) for _ in range(3)]
    levels = 128 + 100 * np.stack(waves, axis=-1) + rng.normal(0, 12, (*size, 3))
    pixels = np.clip(np.rint(levels), 0, 255).astype(np.uint8)
    return as_kind(torch.from_numpy(pixels).permute(2, 0, 1).contiguous(), kind)


def as_kind(image: torch.Tensor, kind: str) -> Any:
    """A uint8 tensor (3, H, W) as an image of this kind."""
    if kind == "pil":
        return Image.fromarray(image.permute(1, 2, 0).contiguous().numpy())
    return image.to(torch.float32) / 255 if kind == "float" else image


def levels(image: Any) -> np.ndarray:
    """float64, in uint8 levels; the axes stay as they are."""
    values = np.asarray(image)
    return values.astype(np.float64) * (1.0 if values.dtype == np.uint8 else 255.0)


def difference(got: Any, want: Any) -> np.ndarray:
    """The differences of two images of one kind, shape and dtype, in uint8 levels."""
    assert isinstance(got, Image.Image) == isinstance(want, Image.Image), f"{type(got)}, not {type(want)}"
    ours, theirs = np.asarray(got), np.asarray(want)
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    return np.abs(levels(got) - levels(want))
