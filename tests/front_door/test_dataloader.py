"""Compose in a torch Dataset, in DataLoader workers under fork and spawn."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from cuaug import transforms as T

COUNT = 12


class SameImage(Dataset):
    """The same image at every index: results differ only by their draws."""

    def __init__(self, transform: T.Transform, kind: str = "PIL") -> None:
        self.transform = transform
        self.kind = kind

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        pixels = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)
        return self.transform(Image.fromarray(pixels) if self.kind == "PIL" else pixels), index


def chain(generator: torch.Generator | None = None) -> T.Compose:
    return T.Compose(
        [
            T.RandomResizedCrop(16),
            T.RandomHorizontalFlip(),
            T.ColorJitter(0.4, 0.4, 0.4, 0.1),
            T.ToDtype(torch.float32, scale=True),
        ],
        generator=generator,
    )


def epochs(count: int, transform: T.Compose, workers: int, start: str | None, seed: int) -> list[list[bytes]]:
    """The samples of each epoch, in index order."""
    torch.manual_seed(seed)
    loader = DataLoader(SameImage(transform), batch_size=3, num_workers=workers, multiprocessing_context=start)
    result = []
    for _ in range(count):
        images = torch.cat([images for images, _ in loader])
        assert images.shape == (COUNT, 3, 16, 16) and images.min() >= 0 and images.max() <= 1
        result.append([image.numpy().tobytes() for image in images])
    return result


@pytest.mark.parametrize("start", [None, "fork"])
@pytest.mark.parametrize("explicit", [False, True], ids=["torch's generator", "a generator"])
def test_workers_and_epochs_never_share_draws(start, explicit):
    def run(seed: int) -> list[list[bytes]]:
        generator = torch.Generator().manual_seed(seed) if explicit else None
        return epochs(2, chain(generator), 0 if start is None else 2, start, seed)

    first = run(1)
    every = [image for epoch in first for image in epoch]
    assert len(set(every)) == 2 * COUNT, "some samples had equal draws"
    assert run(1) == first, "the same seed gives the same samples"
    assert not set(every) & {image for epoch in run(2) for image in epoch}


@pytest.mark.slow
@pytest.mark.parametrize("explicit", [False, True], ids=["torch's generator", "a generator"])
def test_spawned_workers(explicit):
    """Everything pickles, including the generator, and gives the same samples as fork."""
    transform = chain(torch.Generator().manual_seed(4) if explicit else None)
    spawned = epochs(1, transform, 2, "spawn", 4)
    assert len(set(spawned[0])) == COUNT
    assert spawned == epochs(1, transform, 2, "fork", 4)


def test_persistent_workers_have_new_draws_each_epoch():
    torch.manual_seed(0)
    transform = chain(torch.Generator().manual_seed(0))
    loader = DataLoader(SameImage(transform, "NumPy"), batch_size=4, num_workers=2, persistent_workers=True)
    images = [image.numpy().tobytes() for _ in range(3) for batch, _ in loader for image in batch]
    assert len(set(images)) == 3 * COUNT


def test_a_generator_survives_pickling_with_its_state():
    transform = chain(torch.Generator().manual_seed(8))
    image = np.random.default_rng(1).integers(0, 256, (30, 30, 3), dtype=np.uint8)
    transform(image)
    copy = pickle.loads(pickle.dumps(transform))
    for _ in range(3):
        np.testing.assert_array_equal(copy(image), transform(image))
