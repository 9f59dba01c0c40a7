"""Transforms and functions inside code compiled by torch.compile."""

from __future__ import annotations

import io
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.library import opcheck

from cuaug import functional as F
from cuaug import transforms as T
from cuaug.functional import operator

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


# --- functions as operators -------------------------------------------------------------------------------------------

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


def operands(name, image):
    """The operator's arguments for a call, as if the compiler made it."""
    args, kwargs = ARGUMENTS[name]
    tensors = []
    plain = [operator._without_tensors(list(values), tensors) for values in (args, kwargs.values())]
    return image, name, operator._encode(name, plain[0], tuple(kwargs), plain[1]), tensors


def variants():
    yield X
    yield X[0].float() / 255
    yield X.contiguous(memory_format=torch.channels_last)
    yield (X / 255).to(torch.float16)


def test_every_function_is_listed():
    assert set(ARGUMENTS) == set(F.__all__)


@pytest.mark.parametrize("name", F.__all__)
def test_the_operator_and_its_fake_equal_the_function(name):
    args, kwargs = ARGUMENTS[name]
    for image in variants():
        if name == "solarize" and image.dtype != torch.uint8:
            continue  # the threshold is in levels
        torch.manual_seed(3)
        want = getattr(F, name)(image, *args, **kwargs)
        torch.manual_seed(3)
        got = torch.ops.cuaug.functional(*operands(name, image))
        for one, other in zip(got, want if isinstance(want, tuple) else (want,), strict=True):
            assert torch.equal(one, other) and one.stride() == other.stride()
        opcheck(
            torch.ops.cuaug.functional.default, operands(name, image), test_utils=("test_schema", "test_faketensor")
        )


@pytest.mark.parametrize("name", ["resize", "normalize", "ten_crop", "lut"])
def test_opcheck(name):
    opcheck(torch.ops.cuaug.functional.default, operands(name, X))


def program(x):
    small = F.resize(x, (12, 15), T.InterpolationMode.LANCZOS)
    first, *_ = F.five_crop(F.lut(small, np.arange(256)[::-1].copy()), 9)
    shifted = F.elastic(small, torch.full((1, 12, 15, 2), 0.1))
    return F.normalize(F.horizontal_flip(shifted), 0.5, 0.25) * 2, first.float() + 1


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"backend": "aot_eager"}, {"backend": "aot_eager", "dynamic": True}, {}])
def test_functions_compile_without_graph_breaks(options):
    compiled = torch.compile(program, fullgraph=True, **options)
    torch._dynamo.reset()
    for x in (X, X.repeat(2, 1, 1, 1), torch.nn.functional.pad(X, (3, 4, 5, 6))):
        for got, want in zip(compiled(x), program(x), strict=True):
            assert torch.equal(got, want)


@pytest.mark.slow
def test_random_functions_draw_anew_in_compiled_code():
    compiled = torch.compile(lambda x: (F.gaussian_noise(x), F.gaussian_noise(x)), fullgraph=True, backend="aot_eager")
    compiled(X)
    torch.manual_seed(7)
    got = compiled(X)
    torch.manual_seed(7)
    want = F.gaussian_noise(X), F.gaussian_noise(X)
    assert torch.equal(got[0], want[0]) and torch.equal(got[1], want[1]) and not torch.equal(*got)


@pytest.mark.slow
def test_functions_are_exported_with_unknown_sizes():
    class Program(torch.nn.Module):
        def forward(self, x):
            return program(x)

    sides = {0: torch.export.Dim("n", min=2, max=64), 2: torch.export.Dim("h", min=10, max=300)}
    saved = io.BytesIO()
    torch.export.save(torch.export.export(Program(), (X,), dynamic_shapes={"x": sides}), saved)
    saved.seek(0)
    loaded = torch.export.load(saved).module()
    other = torch.nn.functional.pad(X, (0, 0, 7, 9)).repeat(3, 1, 1, 1)
    for x in (X, other):
        for got, want in zip(loaded(x), program(x), strict=True):
            assert torch.equal(got, want)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: F.pad(x, 1, fill={torch.Tensor: 1}), "pad: in a compiled graph arguments are numbers"),
        (lambda x: F.resize(x, 0), "size must be an integer"),
        (lambda x: F.invert(x.float().requires_grad_()), "no gradient flows through transforms"),
    ],
)
def test_errors_come_when_the_graph_is_made(function, message):
    with pytest.raises(Exception, match=message):
        torch.compile(function, fullgraph=True, backend="eager")(X)


def test_the_import_of_functions_does_not_import_the_compiler():
    code = "import sys, cuaug.functional; assert 'torch._dynamo' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.skipif(not hasattr(torch.Tag, "cudagraph_unsafe"), reason="older versions of torch lack the tag")
def test_the_compiler_keeps_functions_out_of_cuda_graphs():
    assert torch.Tag.cudagraph_unsafe in torch.ops.cuaug.functional.default.tags
