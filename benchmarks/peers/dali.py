"""DALI's pipelines, with antialiased resizes and batches that are handed over without a copy.

The CPU's decodes regions. The GPU's decodes whole images by the hardware engine and CUDA kernels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import torch

from peers.task import VIEWS, Batch, Contender, Task, View

__all__ = ["Dali", "DaliOnGpu"]


def decode(encoded: Any, task: Task) -> Any:
    """Decode and resize; chains with a crop decode only its region."""
    from nvidia.dali import fn, types

    if task.chain == "detection":
        image = fn.decoders.image(encoded)
    else:
        image = fn.decoders.image_random_crop(encoded, random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3])
    return fn.resize(image, size=[task.size, task.size], interp_type=types.INTERP_LINEAR, antialias=True)


def crop(image: Any, view: View) -> Any:
    """Make one view of a decoded image."""
    from nvidia.dali import fn, types

    return fn.random_resized_crop(
        image, size=view.size, random_area=list(view.area), interp_type=types.INTERP_LINEAR, antialias=True
    )


def augment(image: Any, task: Task) -> Any:
    """Apply ColorJitter in one operator, then DALI's RandAugment with torchvision's ranges and fill."""
    from nvidia.dali import fn, types
    from nvidia.dali.auto_aug import rand_augment

    def factor() -> Any:
        return fn.random.uniform(range=[0.6, 1.4])

    hue = fn.random.uniform(range=[-36.0, 36.0])
    image = fn.color_twist(image, brightness=factor(), contrast=factor(), saturation=factor(), hue=hue)
    return rand_augment.rand_augment(
        image,
        n=2,
        m=9,
        shape=(task.size, task.size),
        fill_value=0,
        interp_type=types.INTERP_NN,
        max_translate_rel=150 / 331,
    )


def erase(image: Any) -> Any:
    """Apply RandomErasing(0.25) to a CHW image. Rectangles that do not fit are clipped, not drawn again."""
    from nvidia.dali import fn

    area = fn.random.uniform(range=[0.02, 0.33])
    ratio = fn.random.uniform(range=[math.log(0.3), math.log(3.3)])
    anchor = fn.random.uniform(range=[0.0, 1.0], shape=[2])
    # log(side) = (log(area) +- log(ratio)) / 2. DALI graphs have no exp, hence e ** x.
    height, width = math.e ** (ratio / 2.0) * area**0.5, math.e ** (-ratio / 2.0) * area**0.5
    sides = fn.stack(height, width)
    return fn.erase(
        image,
        anchor=anchor * (1.0 - sides),
        shape=sides * fn.random.coin_flip(probability=0.25),
        axis_names="HW",
        normalized=True,
        fill_value=0.0,
    )


class Dali(Contender):
    name, package, module = "DALI", "nvidia-dali-cuda120", "nvidia.dali"
    device: ClassVar[str] = "cpu"

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        from nvidia.dali import fn, pipeline_def, types

        # Outside the pipeline's function, which DALI rewrites for conditionals.
        files, labels = (list(column) for column in zip(*task.samples, strict=True))
        make_image, on_gpu = self.make_image, self.device != "cpu"
        mean, std = [255 * value for value in task.mean], [255 * value for value in task.std]

        @pipeline_def(
            batch_size=task.batch_size,
            num_threads=task.threads,
            device_id=torch.cuda.current_device() if on_gpu else None,
            seed=task.seed,
            prefetch_queue_depth=2,
            exec_dynamic=True,  # outputs own their memory, so no copy is needed
            enable_conditionals=task.chain == "heavy",  # used by its RandAugment
        )
        def chain():  # type: ignore[no-untyped-def]
            encoded, label = fn.readers.file(files=files, labels=labels, shuffle_after_epoch=True)
            if on_gpu:
                label = label.gpu()

            def normalize(image: Any) -> Any:
                return fn.crop_mirror_normalize(
                    image,
                    dtype=types.FLOAT,
                    output_layout="CHW",
                    mean=mean,
                    std=std,
                    mirror=fn.random.coin_flip(),
                )

            if task.chain == "views":
                image = fn.decoders.image(encoded)
                views = [normalize(crop(image, view)) for view in VIEWS for _ in range(view.count)]
                return *views, label
            image = make_image(encoded)
            if task.chain == "heavy":
                return erase(normalize(augment(image, task))), label
            return normalize(image), label

        self.pipeline = chain()
        self.pipeline.build()

    def make_image(self, encoded: Any) -> Any:
        """The image at the task's size."""
        return decode(encoded, self.task)

    def epoch(self) -> Iterator[Batch]:
        """The queue continues across epochs, as in training."""
        for _ in range(len(self.task.samples) // self.task.batch_size):
            *images, labels = (torch.from_dlpack(output.as_tensor()) for output in self.pipeline.run())
            yield images if len(images) > 1 else images[0], labels.flatten()

    def close(self) -> None:
        del self.pipeline


class DaliOnGpu(Dali):
    """The classification chain, with the chroma upsampling and the engine's share of `gpu_dali.py`'s fastest run."""

    device = "mixed"  # "cpu" in a dry run, which has no GPU
    chains = ("classification",)

    def make_image(self, encoded: Any) -> Any:
        from nvidia.dali import fn

        image = fn.decoders.image(encoded, device=self.device, hw_decoder_load=0.9, jpeg_fancy_upsampling=True)
        return crop(image, View(1, self.task.size, (0.08, 1.0)))
