"""A loader on the CUDA pipeline gives the CPU's pixels with pixel functions."""

from __future__ import annotations

import torch

import cuaug
from cuaug import transforms as T
from cuaug.ops import noise


@cuaug.op
def grainy(pixel, amount):
    return pixel + amount * noise()


@cuaug.op
def vignette(pixel, x, y, strength):
    return pixel * (1 - strength * (x * x + y * y))


@cuaug.op(radius=1)
def sharpened(image):
    return 2 * image[0, 0] - (image[-1, 0] + image[1, 0] + image[0, -1] + image[0, 1]) / 4


def test_loaders_on_both_pipelines_give_the_same_pixels(equal_loaders, image_files):
    """The CPU's loader runs compiled code from some batch on, where there is a compiler."""
    chain = [
        T.RandomResizedCrop(24),
        vignette(strength=cuaug.uniform(0, 1), p=0.5),
        T.RandomHorizontalFlip(),
        sharpened(p=0.5),
        grainy(amount=cuaug.choice([0.0, 0.1])),
        T.Normalize([0.5] * 3, [0.2] * 3),
    ]
    loader = equal_loaders(image_files, chain, epochs=2, batch_size=4, dtype=torch.float16)
    batches = list(loader)
    assert all(batch.images.std() > 0.5 for batch in batches)
    assert loader.replay(epoch=2, step=3).digest == batches[3].digest
