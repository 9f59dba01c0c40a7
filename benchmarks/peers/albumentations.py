"""Albumentations in a `DataLoader`, with its own transforms; OpenCV reads, as its documentation advises."""

from __future__ import annotations

import math
import os
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from peers.policy import MAGNITUDE, SIGNED, UNSIGNED
from peers.task import VIEWS, Task
from peers.workers import Workers

__all__ = ["Albumentations", "chain"]


def chain(task: Task) -> Any:
    """The task's transforms as one `Compose`; a list of one per size for views."""
    os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # importing it would ask a server for a newer version
    import albumentations as A
    from albumentations.pytorch import ToTensorV2

    flip, normalize, size = A.HorizontalFlip(p=0.5), A.Normalize(task.mean, task.std), (task.size, task.size)
    if task.chain == "detection":
        return A.Compose([A.Resize(*size), flip, normalize, ToTensorV2()])
    if task.chain == "views":
        crops = [A.RandomResizedCrop((v.size, v.size), scale=v.area, ratio=(3 / 4, 4 / 3)) for v in VIEWS]
        return [A.Compose([crop, flip, normalize, ToTensorV2()]) for crop in crops]
    crop = A.RandomResizedCrop(size, scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3))
    if task.chain == "classification":
        return A.Compose([crop, flip, normalize, ToTensorV2()])
    jitter = A.ColorJitter(brightness=(0.6, 1.4), contrast=(0.6, 1.4), saturation=(0.6, 1.4), hue=(-0.1, 0.1), p=1)
    augment = A.SomeOf(operations(), n=2, replace=True, p=1)
    return A.Compose([crop, flip, jitter, augment, normalize, A.Erasing(p=0.25), ToTensorV2()])


def operations() -> list[Any]:
    """RandAugment's 14 operations at magnitude 9 of 31. Signed ones draw up to the magnitude, not at it."""
    import albumentations as A

    limits = {name: offset * MAGNITUDE for name, (offset, _) in SIGNED.items()}
    shear, shift = math.degrees(math.atan(limits["ShearX"])), limits["TranslateX"]
    neutral: dict[str, Any] = {"brightness": (1, 1), "contrast": (1, 1), "saturation": (1, 1), "hue": (0, 0), "p": 1}
    factor = (1 - limits["Color"], 1 + limits["Color"])
    nearest: dict[str, Any] = {"interpolation": 0, "p": 1}  # cv2.INTER_NEAREST
    return [
        A.NoOp(p=1),
        A.Affine(shear={"x": (-shear, shear), "y": (0, 0)}, **nearest),
        A.Affine(shear={"x": (0, 0), "y": (-shear, shear)}, **nearest),
        A.Affine(translate_percent={"x": (-shift, shift), "y": (0, 0)}, **nearest),
        A.Affine(translate_percent={"x": (0, 0), "y": (-shift, shift)}, **nearest),
        A.Rotate(limits["Rotate"], **nearest),
        A.ColorJitter(**neutral | {"brightness": factor}),  # neutral arguments cost nothing
        A.ColorJitter(**neutral | {"contrast": factor}),
        A.ColorJitter(**neutral | {"saturation": factor}),
        A.Sharpen(alpha=(0, limits["Sharpness"]), lightness=(1, 1), p=1),
        A.Posterize(num_bits=int(UNSIGNED["Posterize"]), p=1),
        A.Solarize(threshold_range=(UNSIGNED["Solarize"] / 255,) * 2, p=1),
        A.AutoContrast(p=1),
        A.Equalize(p=1),
    ]


class AlbumentationsImages(Dataset[tuple[Tensor | list[Tensor], int]]):
    """Items (float32 [C, size, size], label); for views ([float32 [count, C, size, size], ...], label)."""

    def __init__(self, task: Task) -> None:
        self.samples, self.chain = task.samples, chain(task)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Tensor | list[Tensor], int]:
        import cv2

        cv2.setNumThreads(0)  # the workers are the parallelism
        path, label = self.samples[index]
        image = cv2.cvtColor(cv2.imread(path, cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)
        if isinstance(self.chain, list):
            stacks = []
            for view, view_chain in zip(VIEWS, self.chain, strict=True):
                stacks.append(torch.stack([view_chain(image=image)["image"] for _ in range(view.count)]))
            return stacks, label
        return self.chain(image=image)["image"], label


class Albumentations(Workers):
    name, package, module, dataset = "Albumentations", "albumentations", "albumentations", AlbumentationsImages
