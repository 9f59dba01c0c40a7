"""Pixel operations in chains: draws, positions, passes, channels, processes; the distributions of their parameters."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import cuaug
from cuaug import TransformError
from cuaug import transforms as T
from cuaug.errors import ChainWarning
from cuaug.ops import noise
from cuaug.ops.distributions import draw
from cuaug.sampling.rng import SampleRNG
from tests.front_door.test_dataloader import COUNT, SameImage
from tests.support.pixel_programs import make_operation

IMAGES = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (6, 3, 20, 31), dtype=np.uint8))
FLOATS = IMAGES.float() / 255


@cuaug.op
def scaled(pixel, factor):
    return pixel * factor


@cuaug.op
def place(pixel, x, y, row, column, height, width):
    """The position in the channels, as values in [0, 1]."""
    return (x / 2 + 0.5, y / 2 + 0.5, (row * width + column) / (height * width))


@cuaug.op
def luma(pixel):
    return 0.299 * pixel[0] + 0.587 * pixel[1] + 0.114 * pixel[2]


@cuaug.op
def grainy(pixel, amount=0.1):
    return pixel + amount * noise()


@cuaug.op(radius=1)
def sharpened(image, amount=1.0):
    around = (image[-1, 0] + image[1, 0] + image[0, -1] + image[0, 1]) / 4
    return image[0, 0] + amount * (image[0, 0] - around)


@cuaug.op
def tinted(pixel, gains):
    return pixel * gains


def places(height: int, width: int) -> torch.Tensor:
    y, x = np.mgrid[:height, :width]
    channels = [(x + 0.5) / width, (y + 0.5) / height, (y * width + x) / (height * width)]
    return torch.from_numpy(np.stack(channels)).float()


def test_levels_and_floats():
    """uint8 levels are rounded once, at the end."""
    got = scaled(factor=0.71)(IMAGES)  # whose products are never halfway between levels
    assert got.dtype == torch.uint8 and torch.equal(got, (IMAGES.double() * 0.71 + 0.5).floor().byte())
    assert torch.allclose(scaled(factor=0.7)(FLOATS), FLOATS * 0.7)
    assert torch.equal(scaled(factor=3)(FLOATS), (FLOATS * 3).clamp(max=1)), "results saturate"
    assert scaled(factor=0.5)(FLOATS.double()).dtype == torch.float64
    assert torch.equal(scaled(factor=-1)(IMAGES), torch.zeros_like(IMAGES))


def test_positions_are_those_of_the_finished_image():
    want = places(20, 31)
    assert torch.allclose(place()(FLOATS)[0], want, atol=1e-6)
    chain = T.Compose([T.CenterCrop((8, 10)), place(), T.RandomHorizontalFlip(1.0)])
    assert torch.allclose(chain(FLOATS)[0], places(8, 10).flip(-1), atol=1e-6)
    chain = T.Compose([T.RandomRot90((1, 1), p=1.0), place()])
    assert torch.allclose(chain(FLOATS)[0], places(31, 20), atol=1e-6)
    chain = T.Compose([place(), T.RandomRot90((1, 1), p=1.0)])
    assert torch.allclose(chain(FLOATS)[0], want.rot90(1, (-2, -1)), atol=1e-6)


def test_launches():
    """A function without a position folds into the pass of later crops; one with begins a new one."""
    crop, late = T.RandomCrop(16), T.Normalize(0.5, 0.5)
    text = T.Compose([T.Resize(20), scaled(factor=0.5), crop, late]).explain()
    assert "256 images: 1 launch" in text and "scaled                  pixel operations" in text
    assert "2 launches" in T.Compose([T.Resize(20), place(), crop, late]).explain()
    assert "1 launch\n" in T.Compose([T.Resize(20), crop, place(), scaled(factor=2), late]).explain()


def sharp(images: torch.Tensor) -> torch.Tensor:
    padded = torch.nn.functional.pad(images, (1, 1, 1, 1), mode="reflect")
    around = padded[..., :-2, 1:-1] + padded[..., 2:, 1:-1] + padded[..., 1:-1, :-2] + padded[..., 1:-1, 2:]
    return (2 * images - around / 4).clamp(0, 1)


def test_neighbors():
    assert torch.allclose(sharpened()(FLOATS), sharp(FLOATS), atol=1e-6)
    levels = (sharp(IMAGES.double() / 255) * 255).round()
    assert (sharpened()(IMAGES) - levels).abs().max() <= 1
    gray, many = FLOATS[:, :1], FLOATS.reshape(2, 9, 20, 31)
    assert torch.allclose(sharpened()(gray), sharp(gray), atol=1e-6)
    assert torch.allclose(sharpened()(many), sharp(many), atol=1e-6)
    assert torch.equal(sharpened()(torch.full((3, 1, 1), 0.5)), torch.full((3, 1, 1), 0.5))


def test_neighbors_are_those_of_the_finished_image():
    """The pixels of the image so far, whatever came before; and what follows does not mix in."""
    before = [T.CenterCrop((12, 24)), T.RandomRot90((1, 1), p=1.0), T.RandomHorizontalFlip(1.0)]
    crop = T.CenterCrop((12, 24))(FLOATS)
    want = sharp(crop.rot90(1, (-2, -1)).flip(-1) * 0.8)
    after = [sharpened(), scaled(factor=0.5), T.RandomVerticalFlip(1.0)]
    chain = T.Compose([*before, scaled(factor=0.8), *after])
    assert torch.allclose(chain(FLOATS), (want * 0.5).flip(-2), atol=1e-6)
    twice = T.Compose([sharpened(), sharpened()])
    assert torch.allclose(twice(FLOATS), sharp(sharp(FLOATS)), atol=1e-5)
    assert "a function reads neighboring pixels" in chain.explain()


def test_neighbors_of_some_samples():
    torch.manual_seed(0)
    chain = T.Compose([T.RandomApply([scaled(factor=0.5)]), sharpened(p=0.5), T.ToDtype(torch.float32, scale=True)])
    got, params = chain.trace(IMAGES)
    for image, steps, result in zip(IMAGES, params, got, strict=True):
        names = [step["transform"] for step in steps]
        want = image / 255 * (0.5 if "scaled" in names else 1.0)
        assert torch.allclose(result, sharp(want) if "sharpened" in names else want, atol=1e-6)


def test_each_sample_draws():
    torch.manual_seed(0)
    got, params = T.Compose([scaled(factor=cuaug.uniform(0, 1), p=0.5)]).trace(FLOATS.repeat(20, 1, 1, 1))
    factors = [steps[0]["params"]["factor"] if steps else 1.0 for steps in params]
    assert 30 < factors.count(1.0) < 90 and len(set(factors)) == 121 - factors.count(1.0)
    want = FLOATS.repeat(20, 1, 1, 1) * torch.tensor(factors).float()[:, None, None, None]
    assert torch.allclose(got, want, atol=1e-6)


def test_triples_and_functions_of_the_generator():
    operation = tinted(gains=lambda rng, n: rng.uniform(3, 0.2, 1.0))
    got, params = T.Compose([operation]).trace(FLOATS)
    gains = torch.tensor([steps[0]["params"]["gains"] for steps in params])[:, :, None, None]
    assert gains.shape == (6, 3, 1, 1) and torch.allclose(got, FLOATS * gains, atol=1e-6)
    assert torch.equal(tinted(gains=(1, 0, 1))(FLOATS), FLOATS * torch.tensor([1, 0, 1])[:, None, None])
    changing = iter([(1,), *[(1, 3)] * 9])
    with pytest.raises(TransformError, match="gains must draw 1 numbers for each sample, as at first"):
        tinted(gains=lambda rng, n: np.ones((n, *next(changing)[1:])))(FLOATS)


def test_replay():
    chain = T.Compose([T.RandomCrop(9), scaled(factor=cuaug.normal(1, 0.3), p=0.5), grainy(amount=0.2)])
    got, params = chain.trace(IMAGES)
    assert torch.equal(chain.replay(params, IMAGES), got)
    params[0] = [step | {"params": {"factor": 0.0}} if step["transform"] == "scaled" else step for step in params[0]]
    replayed = chain.replay(params, IMAGES)
    assert torch.equal(replayed[1:], got[1:])


def test_channels():
    gray = FLOATS[:, :1]
    assert torch.equal(scaled(factor=0.5)(gray), gray * 0.5)
    assert torch.allclose(luma()(gray), gray, atol=1e-6)
    many = FLOATS.reshape(2, 9, 20, 31)
    assert torch.equal(scaled(factor=0.5)(many), many * 0.5)
    noisy = grainy()(torch.full((9, 40, 40), 0.5))
    assert len({channel.numpy().tobytes() for channel in noisy}) == 9, "each channel has noise of its own"
    noisy = T.Compose([grainy(), T.Grayscale(3)])(torch.full((1, 40, 40), 0.5))
    assert noisy.std() > 0.05 and torch.equal(noisy[0], noisy[1]) and torch.equal(noisy[0], noisy[2])
    assert abs(noisy.std() - 0.1) < 0.01, "not the mean of three draws"
    for operation, images, count in ((tinted(gains=(1, 2, 3)), gray, "1 channel,"), (luma(), many, "9 channels,")):
        with pytest.raises(TransformError, match=f"^image: it has {count} but .* needs RGB images"):
            operation(images)


def test_thousands_of_terms():
    """More than Python's stack has levels."""
    operation = make_operation(f"def f(pixel):\n    return {' + '.join(['pixel[0]'] * 2500)}\n", "f")
    assert torch.equal(operation(torch.full((3, 1, 1), 2.0**-13)), torch.full((3, 1, 1), 2500 * 2.0**-13))


def test_noise():
    noisy = grainy(amount=0.1)(torch.full((2, 3, 200, 200), 0.5)) - 0.5
    assert abs(noisy.mean()) < 0.002 and abs(noisy.std() - 0.1) < 0.002
    pairs = np.corrcoef(noisy.reshape(6, -1).numpy())
    assert abs(pairs - np.eye(6)).max() < 0.03, "samples and channels draw apart"
    clip = T.Compose([grainy()])(torch.full((1, 4, 3, 9, 9), 0.5))[0]
    assert len({frame.numpy().tobytes() for frame in clip}) == 4


def test_after_normalize_values_do_not_saturate():
    with pytest.warns(ChainWarning, match="scaled comes after Normalize, but needs values in"):
        chain = T.Compose([T.Normalize([0.5] * 3, [0.1] * 3), scaled(factor=3)])
    assert torch.allclose(chain(FLOATS), (FLOATS - 0.5) / 0.1 * 3, atol=1e-4)


def test_what_it_shows():
    assert repr(scaled(factor=cuaug.uniform(0, 1), p=0.5)) == "scaled(factor=uniform(0.0, 1.0), p=0.5)"
    assert repr(grainy()) == "grainy(amount=0.1)"
    assert place.__doc__ == "The position in the channels, as values in [0, 1]."


def test_copies_and_pickles():
    chain = T.Compose([scaled(factor=cuaug.uniform(0, 1)), grainy(amount=0.2, p=0.5)])
    for other in (copy.deepcopy(chain), pickle.loads(pickle.dumps(chain))):
        torch.manual_seed(3)
        want = chain(IMAGES)
        torch.manual_seed(3)
        assert torch.equal(other(IMAGES), want) and repr(other) == repr(chain)


@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_workers(start):
    @cuaug.op
    def local(pixel, factor):
        return pixel * factor

    chain = T.Compose([T.CenterCrop(16), local(factor=cuaug.uniform(0, 1)), T.ToDtype(torch.float32, scale=True)])
    torch.manual_seed(0)
    images = [x for x, _ in DataLoader(SameImage(chain), batch_size=3, num_workers=2, multiprocessing_context=start)]
    assert len({image.numpy().tobytes() for image in torch.cat(images)}) == COUNT


N = 4000


def drawn(distribution, n=N):
    return draw("a", distribution, SampleRNG(3, 0, np.arange(n)))


def test_uniform():
    values = drawn(cuaug.uniform(-1, 3))
    assert values.shape == (N,) and -1 <= values.min() < -0.99 and 2.99 < values.max() < 3
    triples = drawn(cuaug.uniform((0, 1, 2), 5))
    assert triples.shape == (N, 3) and (triples >= (0, 1, 2)).all() and (triples < 5).all()
    assert abs(np.corrcoef(triples.T)[0, 1:]).max() < 0.1, "each channel draws its own"


def test_normal():
    values = drawn(cuaug.normal(2, 0.5))
    assert values.shape == (N,) and abs(values.mean() - 2) < 0.05 and abs(values.std() - 0.5) < 0.03
    share = (abs(values - 2) < 0.5).mean()
    assert abs(share - 0.683) < 0.03, "within one standard deviation"
    triples = drawn(cuaug.normal(0, (1, 2, 0)))
    assert np.allclose(triples.std(axis=0), (1, 2, 0), atol=0.1)
    assert abs(np.corrcoef(triples[:, :2].T)[0, 1]) < 0.1


def test_choice():
    values = drawn(cuaug.choice([100, 400, 1600], weights=[1, 0, 3]))
    assert set(values) == {100, 1600} and abs((values == 1600).mean() - 0.75) < 0.03
    assert set(map(tuple, drawn(cuaug.choice([(1, 2, 3), (4, 5, 6)])))) == {(1, 2, 3), (4, 5, 6)}


def test_a_function_of_the_generator():
    assert np.allclose(drawn(lambda rng, n: rng.beta(2.0) + n), drawn(lambda rng, n: rng.beta(2.0)) + N)
    for value in (1.0, np.zeros((N, 2)), None, [np.nan] * N, [1e39] * N):
        with pytest.raises(TransformError, match=r"^a must draw finite numbers of shape \(N,\) or \(N, 3\)"):
            drawn(lambda rng, n, value=value: value)


def test_a_sample_draws_alike_in_every_batch():
    for distribution in (cuaug.uniform(0, 1), cuaug.normal(0, 1), cuaug.choice([1, 2, 3])):
        alone = draw("a", distribution, SampleRNG(3, 0, [7]))
        assert drawn(distribution)[7] == alone[0] and pickle.loads(pickle.dumps(distribution)) == distribution


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: cuaug.uniform(1, 0), "^low must be at most high"),
        (lambda: cuaug.uniform("0", 1), "^low must be a finite number"),
        (lambda: cuaug.uniform(0, (1, 2)), "^high must be a finite number, or three"),
        (lambda: cuaug.normal(0, -1), "^std must be 0 or more"),
        (lambda: cuaug.normal(np.nan, 1), "^mean must be a finite number"),
        (lambda: cuaug.choice([]), "^values must be a sequence"),
        (lambda: cuaug.choice("abc"), "^values must be a sequence"),
        (lambda: cuaug.choice([1, (1, 2, 3)]), "^values must all be numbers"),
        (lambda: cuaug.choice([1, None]), r"^values\[1\] must be"),
        (lambda: cuaug.choice([1, 2], weights=[0, 0]), "^weights must be"),
        (lambda: cuaug.choice([1, 2], weights=[1]), "^weights must be"),
        (lambda: cuaug.choice([1, 2], weights=[1, -1]), "^weights must be"),
    ],
)
def test_what_is_refused(make, problem):
    with pytest.raises(TransformError, match=problem):
        make()
