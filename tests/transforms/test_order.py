"""Warnings about transforms in a harmful order, when a chain is made."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest
import torch
from PIL import Image

import cuaug
from cuaug import transforms as T
from cuaug.transforms.order import order_problems

NORMALIZE = T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
LEVELS = T.Normalize([123.7, 116.3, 103.5], [58.4, 57.1, 57.4])
BACK = T.Normalize([-2.1, -2.0, -1.8], [4.4, 4.5, 4.4])
FLOAT, SCALED = T.ToDtype(torch.float32), T.ToDtype(torch.float32, scale=True)
AFTER = "comes after Normalize, but needs values in [0, 1]"


def chain_of(*transforms):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return T.Compose(transforms)


@pytest.mark.parametrize(
    ("transforms", "expected"),
    [
        ([NORMALIZE, T.ColorJitter(0.4)], ["ColorJitter " + AFTER]),
        ([NORMALIZE, T.RandAugment(), T.RandomSolarize(0.5)], ["RandAugment " + AFTER, "RandomSolarize " + AFTER]),
        ([NORMALIZE, T.RandomApply([T.RandomPosterize(4)])], ["RandomPosterize " + AFTER]),
        ([T.RandomApply([NORMALIZE]), chain_of(T.RandomGamma())], ["RandomGamma " + AFTER]),
        ([T.RandomChoice([T.Identity(), NORMALIZE]), T.RandomHue(0.1)], ["RandomHue " + AFTER]),
        ([NORMALIZE, T.MultiView([T.RandomInvert(), T.Identity()])], ["RandomInvert " + AFTER]),
        ([NORMALIZE, T.RandomHorizontalFlip(), NORMALIZE], ["Normalize comes twice"]),
        ([FLOAT, NORMALIZE], ["mean and std for values in [0, 1], but ToDtype(dtype=torch.float32) before it"]),
        ([FLOAT, SCALED, NORMALIZE], ["mean and std for values in [0, 1]"]),
        ([SCALED, LEVELS], ["a mean or std above 1, for levels up to 255"]),
    ],
)
def test_a_harmful_order_warns(transforms, expected):
    with pytest.warns(cuaug.ChainWarning) as caught:
        chain = T.Compose(transforms)
    assert len(caught) == len(expected)
    for warning, text in zip(caught, expected, strict=True):
        assert str(warning.message).startswith("transforms: ") and text in str(warning.message)
        assert warning.filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        copies = [copy.deepcopy(chain), pickle.loads(pickle.dumps(chain)), T.Compose([chain, T.Pad(1)])]
        assert all(again.segments for again in copies), "only once, where the chain is made"


@pytest.mark.parametrize(
    "transforms",
    [
        [T.ColorJitter(0.4), NORMALIZE, T.RandomErasing(), T.Resize(20), T.GaussianNoise(), T.GaussianBlur(3)],
        [SCALED, NORMALIZE, T.RandomHorizontalFlip(), T.MixUp(num_classes=3)],
        [FLOAT, LEVELS],
        [LEVELS],
        [NORMALIZE, BACK, T.ColorJitter(0.4), NORMALIZE],
        [NORMALIZE, T.ToDtype(torch.float16), T.ToDtype(torch.float32)],
        [NORMALIZE, lambda images: images, T.ColorJitter(0.4)],
        [T.RandomChoice([NORMALIZE, T.Normalize(0.5, 0.5)])],
        [T.MultiView([chain_of(T.ColorJitter(0.4), NORMALIZE), chain_of(T.RandomSolarize(9), NORMALIZE)])],
        [FLOAT, T.Normalize(0.0, 1.0)],
        [T.AutoAugment(), SCALED, T.ToDtype(torch.uint8, scale=True), T.RandomInvert(), NORMALIZE],
    ],
)
def test_a_harmless_order_does_not_warn(transforms):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chain = T.Compose(transforms)
    assert order_problems(chain.transforms) == []


def test_loaders_warn_their_caller(tmp_path):
    Image.new("RGB", (9, 9)).save(tmp_path / "1.png")
    with pytest.warns(cuaug.ChainWarning, match="RandomInvert") as caught:
        loader = cuaug.Loader([str(tmp_path / "1.png")], [NORMALIZE, T.RandomInvert()], batch_size=1, device="cpu")
    loader.close()
    assert [warning.filename for warning in caught] == [__file__]
