"""OpenCV in a `DataLoader`, by `INTER_LINEAR`, which does not antialias: less work than most contenders do."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import torch
from baseline import random_crop_box
from torch import Tensor
from torch.utils.data import Dataset

from peers.policy import draw_erasing, draw_operations, shift_matrix
from peers.task import VIEWS, Task
from peers.workers import Workers

__all__ = ["OpenCV"]

LEVELS = np.arange(256, dtype=np.float32)
SMOOTHING = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32) / 13  # Pillow's ImageFilter.SMOOTH


@dataclass(frozen=True)
class OpenCVImages(Dataset[tuple[Tensor | list[Tensor], int]]):
    """Files read, decoded and augmented by OpenCV, in BGR until the end.

    Items are (float32 [C, size, size], label); for views ([float32 [count, C, size, size], ...], label).
    """

    task: Task

    def __len__(self) -> int:
        return len(self.task.samples)

    def __getitem__(self, index: int) -> tuple[Tensor | list[Tensor], int]:
        import cv2

        cv2.setNumThreads(0)  # the workers are the parallelism
        task = self.task
        path, label = task.samples[index]
        image = cv2.imread(path, cv2.IMREAD_COLOR)
        if task.chain == "views":
            stacks = [np.empty((view.count, 3, view.size, view.size), np.float32) for view in VIEWS]
            for view, stack in zip(VIEWS, stacks, strict=True):
                for planes in stack:
                    self._normalize(self._resize(image, view.size, view.area), planes)
            return [torch.from_numpy(stack) for stack in stacks], label
        image = self._resize(image, task.size, None if task.chain == "detection" else (0.08, 1.0))
        if task.chain == "heavy":
            for name, value in draw_operations(task.size):
                image = apply_operation(image, name, value)
        planes = np.empty((3, task.size, task.size), np.float32)
        self._normalize(image, planes)
        rectangle = draw_erasing(task.size) if task.chain == "heavy" else None
        if rectangle is not None:
            planes[:, rectangle[0], rectangle[1]] = 0
        return torch.from_numpy(planes), label

    def _resize(self, image: np.ndarray, size: int, area: tuple[float, float] | None) -> np.ndarray:
        """Crop a random part within the fractions `area`, if given; resize; flip at random."""
        import cv2

        if area is not None:
            left, top, right, bottom = random_crop_box(image.shape[1], image.shape[0], area)
            image = image[top:bottom, left:right]
        image = cv2.resize(image, (size, size), interpolation=cv2.INTER_LINEAR)
        return cv2.flip(image, 1) if random.random() < 0.5 else image

    def _normalize(self, image: np.ndarray, planes: np.ndarray) -> None:
        import cv2

        for plane, channel, mean, std in zip(
            planes, cv2.split(image)[::-1], self.task.mean, self.task.std, strict=True
        ):
            np.multiply(channel, np.float32(1 / (255 * std)), out=plane)
            plane -= np.float32(mean / std)


def apply_operation(image: np.ndarray, name: str, value: float) -> np.ndarray:
    """Apply one of `policy`'s operations to uint8 [H, W, 3] BGR, by a look-up table where possible."""
    import cv2

    if name == "Identity":
        return image
    if name == "Brightness":
        return cv2.LUT(image, _table(LEVELS * value))
    if name == "Contrast":
        mean = cv2.mean(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY))[0]
        return cv2.LUT(image, _table(mean + (LEVELS - mean) * value))
    if name == "Color":
        gray = cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), cv2.COLOR_GRAY2BGR)
        return cv2.addWeighted(image, value, gray, 1 - value, 0)
    if name == "Sharpness":
        return cv2.addWeighted(image, value, cv2.filter2D(image, -1, SMOOTHING), 1 - value, 0)
    if name == "Hue":
        hsv = cv2.cvtColor(image, cv2.COLOR_BGR2HSV)  # hue from 0 to 179
        levels = np.arange(256, dtype=np.uint8)
        table = np.stack([((LEVELS + round(180 * value)) % 180).astype(np.uint8), levels, levels], axis=-1)
        return cv2.cvtColor(cv2.LUT(hsv, table[None]), cv2.COLOR_HSV2BGR)
    if name == "Posterize":
        return cv2.LUT(image, (np.arange(256) & (256 - 2 ** (8 - int(value)))).astype(np.uint8))
    if name == "Solarize":
        return cv2.LUT(image, np.where(value > LEVELS, LEVELS, 255 - LEVELS).astype(np.uint8))
    if name == "AutoContrast":
        return cv2.merge([cv2.LUT(channel, _stretched(channel)) for channel in cv2.split(image)])
    if name == "Equalize":
        return cv2.merge([cv2.equalizeHist(channel) for channel in cv2.split(image)])
    matrix = np.array(shift_matrix(name, value, len(image))).reshape(2, 3)
    return cv2.warpAffine(image, matrix, (len(image), len(image)), flags=cv2.INTER_NEAREST | cv2.WARP_INVERSE_MAP)


def _table(levels: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(levels), 0, 255).astype(np.uint8)


def _stretched(channel: np.ndarray) -> np.ndarray:
    import cv2

    low, high, _, _ = cv2.minMaxLoc(channel)
    return _table((LEVELS - low) * (255 / (high - low)) if high > low else LEVELS)


class OpenCV(Workers):
    name, package, module, dataset = "OpenCV", "opencv-python-headless", "cv2", OpenCVImages
