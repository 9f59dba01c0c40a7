"""Results of other libraries and of torchvision's formulas for a photo, for parity.py."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from PIL import Image

from tests.references import color, warp

PIL = Image.Resampling
DecodedImage = np.ndarray

# Crops of photos in scikit-image's wheel: (file, rows, columns).
_CROPS = (
    ("astronaut.png", slice(0, 200), slice(130, 330)),
    ("chelsea.png", slice(40, 173), slice(120, 301)),
    ("coffee.png", slice(90, 187), slice(150, 390)),
)


def photos() -> list[DecodedImage]:
    """(H, W, 3) uint8, of three sizes."""
    spec = find_spec("skimage")
    assert spec is not None and spec.origin is not None
    folder = Path(spec.origin).parent / "data"
    return [np.asarray(Image.open(folder / file).convert("RGB"))[rows, columns] for file, rows, columns in _CROPS]


def by_pillow(change: Callable[..., Image.Image], *arguments: Any) -> Callable[[DecodedImage], DecodedImage]:
    return lambda image: np.asarray(change(Image.fromarray(image), *arguments))


def evaluated(image: DecodedImage) -> torch.Tensor:
    """Resize(80), CenterCrop(70), ToTensor and Normalize of torchvision, by Pillow and torch."""
    h, w = image.shape[:2]
    short, long = 80, int(80 * max(h, w) / min(h, w))
    resized = np.array(Image.fromarray(image).resize((short, long) if w <= h else (long, short), PIL.BILINEAR))
    top, left = (round((size - 70) / 2.0) for size in resized.shape[:2])
    levels = torch.from_numpy(resized[top : top + 70, left : left + 70]).permute(2, 0, 1).contiguous()
    mean, std = (torch.tensor(values)[:, None, None] for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    return levels.float().div(255).sub_(mean).div_(std)


def enhanced(kind: Any, factor: float) -> Callable[[DecodedImage], DecodedImage]:
    return lambda image: np.asarray(kind(Image.fromarray(image)).enhance(factor))


def formula(operation: Callable[..., DecodedImage], *arguments: Any) -> Callable[[DecodedImage], DecodedImage]:
    """A reference operation on float64 levels."""
    return lambda image: operation(image.astype(np.float64), *arguments)


def grid_sampled(image: DecodedImage, places: DecodedImage, mode: str) -> DecodedImage:
    """torch's grid_sample at (H, W, 2) points x, y in pixels, in float64; 0 outside."""
    grid = torch.from_numpy(places / image.shape[1::-1] * 2 - 1)[None]
    pixels = torch.from_numpy(image.astype(np.float64)).permute(2, 0, 1)[None]
    sampled = torch.nn.functional.grid_sample(pixels, grid, mode, "zeros", align_corners=False)
    return sampled[0].permute(1, 2, 0).numpy()


def warped(matrix: Callable[[int, int], DecodedImage], mode: str) -> Callable[[DecodedImage], DecodedImage]:
    def run(image: DecodedImage) -> DecodedImage:
        h, w, _ = image.shape
        y, x = np.mgrid[:h, :w] + 0.5
        across, down, depth = np.einsum("ij,jyx->iyx", matrix(h, w), np.stack([x, y, np.ones_like(x)]))
        return grid_sampled(image, np.stack([across / depth, down / depth], axis=-1), mode)

    return run


rotated = warped(lambda h, w: warp.affine(h, w, -30, (0, 0), 1.0, (0, 0)), "bilinear")


def wave(h: int, w: int) -> DecodedImage:
    """A displacement for `functional.elastic`, (1, h, w, 2)."""
    y, x = np.mgrid[:h, :w]
    return 0.05 * np.stack([np.sin(y / 9.0), np.cos(x / 7.0)], axis=-1)[None]


def displaced(image: DecodedImage) -> DecodedImage:
    h, w, _ = image.shape
    centers = np.stack(np.meshgrid(np.arange(w) + 0.5, np.arange(h) + 0.5), axis=-1)
    return grid_sampled(image, centers + wave(h, w)[0] * (w / 2, h / 2), "bilinear")


def interpolated(mode: str, height: int, width: int) -> Callable[[DecodedImage], DecodedImage]:
    def run(image: DecodedImage) -> DecodedImage:
        pixels = torch.from_numpy(image.astype(np.float64)).permute(2, 0, 1)[None]
        size = (height, width)
        resized = torch.nn.functional.interpolate(pixels, size, mode=mode, antialias=True, align_corners=False)
        return resized[0].permute(1, 2, 0).numpy()

    return run


def by_channels(filter: int) -> Callable[[DecodedImage], DecodedImage]:
    """Pillow's resize to 70 x 96 in mode F, which does not round between its passes."""

    def run(image: DecodedImage) -> DecodedImage:
        planes = [Image.fromarray(image[..., c].astype(np.float32)) for c in range(3)]
        return color.levels(np.stack([np.asarray(plane.resize((96, 70), filter)) for plane in planes], axis=2))

    return run


def clahe(image: DecodedImage) -> DecodedImage:
    equalizer = cv2.createCLAHE(2.8, (8, 8))
    return np.stack([equalizer.apply(np.ascontiguousarray(image[..., c])) for c in range(3)], axis=2)


def hsv(image: DecodedImage) -> DecodedImage:
    shifted = cv2.cvtColor(image.astype(np.float32) / 255, cv2.COLOR_RGB2HSV)
    shifted[..., 0] = (shifted[..., 0] + 36) % 360
    return color.levels(255.0 * cv2.cvtColor(shifted, cv2.COLOR_HSV2RGB).astype(np.float64))


def crops(image: DecodedImage, height: int, width: int) -> DecodedImage:
    """(5, height, width, 3): the corners and the center."""
    top, left = (round((n - k) / 2) for n, k in zip(image.shape, (height, width), strict=False))
    corners = [image[:height, :width], image[:height, -width:], image[-height:, :width], image[-height:, -width:]]
    return np.stack([*corners, image[top : top + height, left : left + width]])


def corners(image: DecodedImage) -> DecodedImage:
    return crops(image, 60, 70)


def erased(image: DecodedImage) -> DecodedImage:
    result = image.copy()
    result[20:50, 30:60] = (1, 2, 3)
    return result
