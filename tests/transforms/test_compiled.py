"""Transforms and functions inside code compiled by torch.compile."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from cuaug import functional as F
from cuaug import transforms as T
from cuaug.plan import Plan
from cuaug.plan.layout import OpCode

CHAIN = T.Compose([T.RandomResizedCrop(8), T.ColorJitter(0.4, 0.4), T.Normalize(0.5, 0.5)])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: T.RandomHorizontalFlip()(x),
        lambda x: CHAIN(x) * 2,
        lambda x: CHAIN.replay(CHAIN.trace(x)[1], x),
        lambda x: T.MixUp(num_classes=4)(x, torch.arange(4))[1],
        lambda x: F.rotate(F.resize(x, [8, 8]), 30.0),
        lambda x: F.gaussian_noise(x) + F.five_crop(x, 9)[0].sum(),
    ],
    ids=["transform", "chain", "replay", "labels", "functional", "functional of several"],
)
def test_compiled_code_gives_the_same_results(function):
    """The graph breaks at the call, and continues after it."""
    x = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (4, 3, 27, 36), dtype=np.uint8))
    compiled = torch.compile(lambda x: function(x).float().cumsum(-1), backend="eager")
    for seed in range(2):
        torch.manual_seed(seed)
        got = compiled(x)
        torch.manual_seed(seed)
        assert torch.equal(got, function(x).float().cumsum(-1))


X = torch.from_numpy(np.random.default_rng(1).integers(0, 256, (2, 3, 20, 26), dtype=np.uint8))
CORNERS = [(1, 2), (22, 0), (25, 19), (0, 17)]
#: Arguments of each function after the image.
ARGUMENTS = {
    "adjust_brightness": ((1.3,), {}),
    "adjust_contrast": ((1.3,), {}),
    "adjust_gamma": ((0.7,), {"gain": 1.1}),
    "adjust_hue": ((0.1,), {}),
    "adjust_saturation": ((0.4,), {}),
    "adjust_sharpness": ((2,), {}),
    "affine": ((20, [3, 2], 1.1, 5.0), {"interpolation": T.InterpolationMode.BILINEAR, "fill": (1, 2, 3)}),
    "autocontrast": ((), {}),
    "center_crop": (((30, 11),), {"fill": 114}),
    "clahe": ((), {}),
    "convert_color": ((), {}),
    "crop": ((-2, 3, 7, 40), {}),
    "elastic": ((torch.rand(1, 20, 26, 2) / 9,), {}),
    "equalize": ((), {}),
    "erase": ((2, 3, 4, 5, torch.full((3, 4, 5), 99.0)), {}),
    "five_crop": ((9,), {}),
    "gaussian_blur": ((5, [1.0, 2.0]), {}),
    "gaussian_noise": ((), {"sigma": 0.2}),
    "grayscale_to_rgb": ((), {}),
    "horizontal_flip": ((), {}),
    "invert": ((), {}),
    "jpeg": ((40,), {}),
    "lut": ((np.arange(256)[::-1].copy(),), {}),
    "matrix": ((np.eye(3, 4) * 0.5,), {}),
    "median_blur": ((3,), {}),
    "motion_blur": ((5, 30.0), {"direction": np.float64(0.5)}),
    "normalize": (([0.5, 0.4, 0.3], torch.tensor([0.2, 0.3, 0.4])), {}),
    "pad": (([1, -2, 3, 0],), {"padding_mode": "reflect"}),
    "permute_channels": (([2, 0, 1],), {}),
    "perspective": ((CORNERS, CORNERS[1:] + CORNERS[:1]), {}),
    "posterize": ((3,), {}),
    "resize": ((12,), {"interpolation": 1, "max_size": 13}),
    "resized_crop": ((1, 2, 9, 9, (7, 11)), {}),
    "rgb_to_grayscale": ((), {}),
    "rot90": ((1,), {}),
    "rotate": ((30,), {"expand": True}),
    "solarize": ((100,), {}),
    "ten_crop": (((5, 8),), {"vertical_flip": True}),
    "to_dtype": ((torch.float32,), {"scale": True}),
    "vertical_flip": ((), {}),
}


#: Operations that are random for each pixel, that users write, or of chains with `pillow`: transforms alone run them.
TRANSFORMS_ONLY = {
    *("ERASE_NOISE", "MASK", "GRID", "SHOT_NOISE", "NORMALIZE"),
    *(code.name for code in OpCode if "FUNCTION" in code.name),
}


def test_every_function_is_listed():
    assert set(ARGUMENTS) == set(F.__all__)


def test_every_operation_has_a_function(monkeypatch):
    """docs/design.md, "... a point operation", says where it goes."""
    append, appended = Plan.append, []
    monkeypatch.setattr(Plan, "append", lambda plan, ops, where=None: appended.append(ops) or append(plan, ops, where))
    for name, (args, kwargs) in ARGUMENTS.items():
        getattr(F, name)(X, *args, **kwargs)
    F.erase(X, 2, 3, 4, 5, 9)  # above, pixels of its own
    run = {OpCode(code).name for ops in appended for code in ops["code"]}
    assert run == {code.name for code in OpCode} - TRANSFORMS_ONLY


def test_the_import_of_functions_does_not_import_the_compiler():
    code = "import sys, cuaug.functional; assert 'torch._dynamo' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
