"""Pillow in a `DataLoader`: whole images decoded, crop and antialiased resize in one call."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import numpy as np
import torch
from baseline import PillowImages
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from peers.policy import draw_erasing, draw_operations, shift_matrix
from peers.task import VIEWS, Task
from peers.workers import Workers

__all__ = ["Pillow"]

ENHANCERS = {
    "Brightness": ImageEnhance.Brightness,
    "Color": ImageEnhance.Color,
    "Contrast": ImageEnhance.Contrast,
    "Sharpness": ImageEnhance.Sharpness,
}


class ResizedImages(PillowImages):
    """Whole images, resized."""

    def augment(self, image: Image.Image) -> Image.Image:
        image = image.resize((self.size, self.size), Image.Resampling.BILINEAR)
        return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if random.random() < 0.5 else image


class ViewsOfImages(PillowImages):
    """Items ([float32 [count, C, size, size], ...], label)."""

    def __getitem__(self, index: int) -> Any:
        path, label = self.samples[index]
        with Image.open(path) as image:
            image = image.convert("RGB")
        stacks = []
        for view in VIEWS:
            single = dataclasses.replace(self, size=view.size, scale=view.area)
            images = [single.normalize(np.array(single.augment(image))) for _ in range(view.count)]
            stacks.append(torch.stack(images))
        return stacks, label


class HeavyImages(PillowImages):
    """Crops with ColorJitter, RandAugment and RandomErasing."""

    def augment(self, image: Image.Image) -> Image.Image:
        image = super().augment(image)
        for name, value in draw_operations(self.size):
            image = apply_operation(image, name, value)
        return image

    def normalize(self, pixels: np.ndarray) -> Tensor:
        planes = super().normalize(pixels)
        rectangle = draw_erasing(self.size)
        if rectangle is not None:
            planes[:, rectangle[0], rectangle[1]] = 0
        return planes


def apply_operation(image: Image.Image, name: str, value: float) -> Image.Image:
    """Apply one of `policy`'s operations."""
    if name in ENHANCERS:
        return ENHANCERS[name](image).enhance(value)
    if name == "Hue":
        hue, saturation, brightness = image.convert("HSV").split()
        shift = round(value * 255)
        hue = hue.point([(level + shift) % 256 for level in range(256)])
        return Image.merge("HSV", (hue, saturation, brightness)).convert("RGB")
    if name == "Posterize":
        return ImageOps.posterize(image, int(value))
    if name == "Solarize":
        return ImageOps.solarize(image, int(value))
    if name == "AutoContrast":
        return ImageOps.autocontrast(image)
    if name == "Equalize":
        return ImageOps.equalize(image)
    if name == "Identity":
        return image
    matrix = shift_matrix(name, value, image.width)
    return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.NEAREST)


DATASETS = {"classification": PillowImages, "heavy": HeavyImages, "detection": ResizedImages, "views": ViewsOfImages}


class Pillow(Workers):
    name, package, module = "Pillow", "pillow", "PIL"

    @staticmethod
    def dataset(task: Task) -> PillowImages:
        return DATASETS[task.chain](task.samples, task.size, mean=task.mean, std=task.std)
