"""The usual baseline: a torch `DataLoader` whose workers decode and augment with Pillow.

The demo and the benchmarks compare against it. It reimplements torchvision's RandomResizedCrop, horizontal flip,
optional ColorJitter, scaling to [0, 1] and normalization, one image at a time in the worker processes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageEnhance
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

__all__ = ["IMAGENET_MEAN", "IMAGENET_STD", "PillowImages", "random_crop_box", "worker_loader"]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
Sample = tuple[str | Path, int]
Box = tuple[int, int, int, int]


def random_crop_box(
    width: int, height: int, scale: tuple[float, float] = (0.08, 1.0), ratio: tuple[float, float] = (3 / 4, 4 / 3)
) -> Box:
    """RandomResizedCrop's rectangle as (left, top, right, bottom), with torchvision's ten tries and its fallback."""
    for _ in range(10):
        area = width * height * random.uniform(*scale)
        aspect = math.exp(random.uniform(math.log(ratio[0]), math.log(ratio[1])))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            left, top = random.randint(0, width - w), random.randint(0, height - h)
            return left, top, left + w, top + h
    aspect = min(max(width / height, ratio[0]), ratio[1])
    w, h = min(width, round(height * aspect)), min(height, round(width / aspect))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


@dataclass(frozen=True)
class PillowImages(Dataset[tuple[Tensor, int]]):
    """Images decoded and augmented with Pillow; an item is (float32 [C, size, size], label)."""

    samples: Sequence[Sample]
    size: int
    scale: tuple[float, float] = (0.08, 1.0)
    jitter: tuple[float, float, float] | None = None  # brightness, contrast, saturation
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        path, label = self.samples[index]
        with Image.open(path) as image:
            pixels = self.augment(image.convert("RGB"))
        return self.normalize(np.array(pixels)), label

    def augment(self, image: Image.Image) -> Image.Image:
        """Crop and resize in one call (the fastest way in Pillow), flip, jitter."""
        box = random_crop_box(*image.size, scale=self.scale)
        image = image.resize((self.size, self.size), Image.Resampling.BILINEAR, box=box)
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        if self.jitter is not None:
            enhancers = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)
            for enhancer, strength in random.sample(list(zip(enhancers, self.jitter, strict=True)), 3):
                image = enhancer(image).enhance(random.uniform(1 - strength, 1 + strength))
        return image

    def normalize(self, pixels: np.ndarray) -> Tensor:
        """uint8 [H, W, C] -> normalized float32 [C, H, W]."""
        mean, std = torch.tensor(self.mean)[:, None, None], torch.tensor(self.std)[:, None, None]
        planes = torch.from_numpy(pixels).permute(2, 0, 1).contiguous()
        return planes.to(torch.float32).mul_(1 / (255 * std)).sub_(mean / std)


def worker_loader(
    dataset: Dataset, batch_size: int, workers: int, *, shuffle: bool = True, seed: int = 0, drop_last: bool = True
) -> DataLoader:
    """A `DataLoader` tuned for speed: persistent workers, spawned instead of forked."""
    return DataLoader(
        dataset,
        batch_size,
        shuffle=shuffle,
        drop_last=drop_last,
        num_workers=workers,
        persistent_workers=workers > 0,
        multiprocessing_context="spawn" if workers else None,
        generator=torch.Generator().manual_seed(seed),
    )
