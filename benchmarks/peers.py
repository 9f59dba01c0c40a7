"""The contenders: one small class per loader, all with the same task and the same way to run an epoch.

The task (`Task`) is RandomResizedCrop + horizontal flip + normalise, files to float32 [N, 3, size, size] on the CPU.
A contender is built once, started by its first epoch, and may be iterated any number of times.
"""

from __future__ import annotations

import random
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
from baseline import IMAGENET_MEAN, IMAGENET_STD, PillowImages, random_crop_box, worker_loader

__all__ = ["CONTENDERS", "Contender", "Task"]

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Task:
    """What every contender is asked to do. `samples` must fill whole batches: nothing is dropped or padded."""

    samples: tuple[tuple[str, int], ...]
    batch_size: int = 128
    size: int = 224
    threads: int = 2
    seed: int = 0
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD

    def __post_init__(self) -> None:
        if not self.samples or len(self.samples) % self.batch_size:
            raise ValueError(f"{len(self.samples)} samples do not fill whole batches of {self.batch_size}")


class Contender(ABC):
    """A loader under test."""

    name: ClassVar[str]
    package: ClassVar[str]  # the distribution whose version is reported

    def __init__(self, task: Task) -> None:
        self.task = task

    @abstractmethod
    def epoch(self) -> Iterator[Batch]:
        """One shuffled pass over the files: (float32 [N, 3, size, size], integer [N]) per batch."""

    @abstractmethod
    def close(self) -> None:
        """Stop threads and worker processes."""

    @classmethod
    def version(cls) -> str | None:
        """The installed version, or None."""
        try:
            return version(cls.package)
        except PackageNotFoundError:
            return None


class Cuaug(Contender):
    name, package = "cuaug", "cuaug"

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        import cuaug
        from cuaug import transforms as T

        self.loader = cuaug.Loader(
            list(task.samples),
            transforms=[T.RandomResizedCrop(task.size), T.RandomHorizontalFlip(), T.Normalize(task.mean, task.std)],
            batch_size=task.batch_size,
            shuffle=True,
            seed=task.seed,
            last_batch="drop",
            device="cpu",
            threads=task.threads,
        )

    def epoch(self) -> Iterator[Batch]:
        return iter(self.loader)

    def close(self) -> None:
        self.loader.close()


class Dali(Contender):
    """DALI's CPU pipeline with region decoding, antialiased as the others are; batches leave it without a copy.

    The queue runs on across epochs, as in training. Deeper queues, a reader queue, plain file reading, pinned threads,
    the fast IDCT, whole-image decoding and `resize_crop_mirror` were tried: none was faster beyond the noise.
    """

    name, package = "DALI", "nvidia-dali-cuda120"

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        from nvidia.dali import fn, pipeline_def, types

        @pipeline_def(
            batch_size=task.batch_size,
            num_threads=task.threads,
            device_id=None,
            seed=task.seed,
            prefetch_queue_depth=2,
            exec_dynamic=True,  # outputs own their memory, so handing them over needs no copy
        )
        def chain():  # type: ignore[no-untyped-def]
            files, labels = (list(column) for column in zip(*task.samples, strict=True))
            encoded, label = fn.readers.file(files=files, labels=labels, shuffle_after_epoch=True)
            image = fn.decoders.image_random_crop(encoded, random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3])
            image = fn.resize(image, size=[task.size, task.size], interp_type=types.INTERP_LINEAR, antialias=True)
            image = fn.crop_mirror_normalize(
                image,
                dtype=types.FLOAT,
                output_layout="CHW",
                mean=[255 * value for value in task.mean],
                std=[255 * value for value in task.std],
                mirror=fn.random.coin_flip(),
            )
            return image, label

        self.pipeline = chain()
        self.pipeline.build()

    def epoch(self) -> Iterator[Batch]:
        for _ in range(len(self.task.samples) // self.task.batch_size):
            images, labels = self.pipeline.run()
            yield torch.from_dlpack(images.as_tensor()), torch.from_dlpack(labels.as_tensor()).flatten()

    def close(self) -> None:
        del self.pipeline


class Workers(Contender):
    """A `DataLoader` with as many worker processes as the task has threads."""

    dataset: ClassVar[type[PillowImages]]

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        images = self.dataset(task.samples, task.size, mean=task.mean, std=task.std)
        self.loader = worker_loader(images, task.batch_size, task.threads, seed=task.seed)

    def epoch(self) -> Iterator[Batch]:
        return iter(self.loader)

    def close(self) -> None:
        del self.loader  # the last reference stops the workers


class Pillow(Workers):
    """Antialiased bilinear, crop and resize in one call; decodes whole images, as Pillow must."""

    name, package, dataset = "Pillow", "pillow", PillowImages


class OpenCVImages(PillowImages):
    """The same items by OpenCV. `INTER_LINEAR` does not antialias: less work than the other contenders do."""

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        import cv2

        cv2.setNumThreads(0)  # the workers are the parallelism
        path, label = self.samples[index]
        image = cv2.imread(str(path), cv2.IMREAD_COLOR)
        left, top, right, bottom = random_crop_box(image.shape[1], image.shape[0], self.scale)
        image = cv2.resize(image[top:bottom, left:right], (self.size, self.size), interpolation=cv2.INTER_LINEAR)
        if random.random() < 0.5:
            image = cv2.flip(image, 1)
        planes = np.empty((3, self.size, self.size), np.float32)
        for plane, channel, mean, std in zip(planes, cv2.split(image)[::-1], self.mean, self.std, strict=True):
            np.multiply(channel, np.float32(1 / (255 * std)), out=plane)
            plane -= np.float32(mean / std)
        return torch.from_numpy(planes), label


class OpenCV(Workers):
    name, package, dataset = "OpenCV", "opencv-python-headless", OpenCVImages


CONTENDERS: dict[str, type[Contender]] = {kind.name.lower(): kind for kind in (Cuaug, Dali, Pillow, OpenCV)}
