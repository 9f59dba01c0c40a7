"""Folders of images: samples, labels and orientation beside torchvision's ImageFolder."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageOps
from torchvision.datasets import ImageFolder

import cuaug
from tests.support.torchvision.photos import picture


@pytest.fixture
def folder(tmp_path):
    """Two classes of two PNGs each; the second of each class has an EXIF orientation of 6 (a quarter turn)."""
    for label in ("cat", "dog"):
        (tmp_path / label).mkdir()
        for k in range(2):
            exif = Image.Exif()
            exif[0x0112] = 6 if k else 1
            picture((20 + k, 31), "pil", seed=k).save(tmp_path / label / f"{k}.png", exif=exif)
    return tmp_path


@pytest.mark.parametrize("apply_exif", [False, True])
def test_orientation(folder, apply_exif):
    """ImageFolder does not turn images; cuaug does, unless it is told not to."""
    dataset = ImageFolder(folder)
    loader = cuaug.Loader(
        folder, batch_size=4, device="cpu", stack=False, decode=cuaug.DecodeOptions(apply_exif=apply_exif), seed=0
    )
    images, labels = next(iter(loader))
    assert loader.class_to_idx == dataset.class_to_idx and labels.tolist() == dataset.targets
    turned = 0
    for image, (path, _) in zip(images, dataset.samples, strict=True):
        want = dataset.loader(path)
        if apply_exif:
            with Image.open(path) as file:
                want = ImageOps.exif_transpose(file).convert("RGB")
        turned += want.size != dataset.loader(path).size
        np.testing.assert_array_equal(image.permute(1, 2, 0).numpy(), np.asarray(want))
    assert turned == (2 if apply_exif else 0)
