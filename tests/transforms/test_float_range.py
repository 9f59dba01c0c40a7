"""Float images beyond [0, 1] warn where an operation knows where white is."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import cuaug
from cuaug import functional as F
from cuaug import transforms as T
from cuaug.sources import FromDataset

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
LEVELS = np.random.default_rng(0).integers(0, 256, (40, 50, 3)).astype(np.float32)
MESSAGE = r"image: it has float values beyond 1.*divide it by 255, or pass uint8"
#: Operations that saturate at white or measure from it, or take [0, 1].
OF_WHITE: dict[str, Callable[[Any], Any]] = {
    "brightness": lambda x: F.adjust_brightness(x, 1.2),
    "contrast": lambda x: F.adjust_contrast(x, 1.2),
    "hue": lambda x: F.adjust_hue(x, 0.1),
    "gamma": lambda x: F.adjust_gamma(x, 2.0),
    "invert": lambda x: F.invert(x),
    "posterize": lambda x: F.posterize(x, 3),
    "solarize": lambda x: F.solarize(x, 0.5),
    "equalize": lambda x: F.equalize(x),
    "autocontrast": lambda x: F.autocontrast(x),
    "noise": lambda x: T.GaussianNoise()(x),
    "shot noise": lambda x: T.ShotNoise()(x),
    "clahe": lambda x: T.CLAHE()(x),
    "look-up table": lambda x: T.LUT(np.arange(256))(x),
    "sharpness": lambda x: F.adjust_sharpness(x, 2.0),
    "normalize": lambda x: T.Normalize(MEAN, STD)(x),
    "to uint8": lambda x: T.ToDtype(torch.uint8, scale=True)(x),
    "chain": lambda x: T.Compose([T.Resize((20, 20)), T.RandomHorizontalFlip(), T.ColorJitter(0.4)])(x),
}
#: Operations that take any values.
OF_ANY: dict[str, Callable[[Any], Any]] = {
    "geometry": lambda x: T.Compose([T.RandomResizedCrop(20), T.RandomRotation(30), T.GaussianBlur(3)])(x),
    "normalize levels": lambda x: T.Normalize([123.7, 116.3, 103.5], [58.4, 57.1, 57.4])(x),
    "normalize around 0": lambda x: T.Normalize([0.0] * 3, [255.0] * 3)(x),
    "unscaled uint8": lambda x: T.Compose([T.ToDtype(torch.uint8), T.ColorJitter(0.4)])(x),
    "erase": lambda x: T.RandomErasing(1.0)(x),
}


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy, lambda x: torch.from_numpy(x).double()])
@pytest.mark.parametrize("name", OF_WHITE)
def test_levels_warn(name, kind):
    image = kind(LEVELS if kind is np.asarray else LEVELS.transpose(2, 0, 1).copy())
    with pytest.warns(cuaug.ChainWarning, match=MESSAGE) as caught:
        OF_WHITE[name](image)
    assert len(caught) == 1 and caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        OF_WHITE[name](image / 255)
        OF_WHITE[name](image / 255 * 1.1)  # the overshoot of a bicubic resize


@pytest.mark.parametrize("name", OF_ANY)
def test_operations_of_any_values_do_not(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        OF_ANY[name](LEVELS)


def test_uint8_and_uint16_do_not():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for dtype in (np.uint8, np.uint16):
            for call in OF_WHITE.values():
                call((LEVELS * (1 if dtype == np.uint8 else 257)).astype(dtype))


def test_python_shows_the_warning_once():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for factor in (1.0, 0.9, 0.8):
            F.invert(LEVELS * factor)
    assert len(caught) == 1


@pytest.mark.parametrize(("scale", "warns"), [(1.0, True), (1 / 255, False)])
def test_a_loader_warns(scale, warns):
    source = FromDataset([(LEVELS * np.float32(scale), 0)] * 4, mode="unchanged")
    options = {"device": "cpu", "batch_size": 2, "decode": cuaug.DecodeOptions(mode="unchanged")}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with cuaug.Loader(source, [T.Normalize(MEAN, STD)], **options) as loader:
            list(loader)
    assert (cuaug.ChainWarning in [warning.category for warning in caught]) == warns
