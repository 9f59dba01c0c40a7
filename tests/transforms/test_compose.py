"""Chains: nesting, independent draws, and numbers of launches."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch

from cuaug import TransformError
from cuaug import transforms as T
from cuaug.plan import CompiledPlan, Plan
from cuaug.sampling.rng import SampleRNG
from tests.transforms.test_every import run, stack

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def tables(chain: list[T.Transform], n: int = 64, seed: int = 0) -> CompiledPlan:
    """The compiled plan of n images of random sizes from 64 to 200."""
    heights, widths = np.random.default_rng(seed).integers(64, 200, (2, n))
    plan = Plan(heights, widths)
    T.Compose(chain).plan(plan, SampleRNG(seed, 0, np.arange(n)))
    return plan.compile()


def launches(*chain: T.Transform, n: int = 64) -> int:
    return tables(list(chain), n).launches


def test_a_nested_compose_draws_like_a_flat_one():
    steps = [T.RandomCrop(20), T.RandomHorizontalFlip(), T.RandomErasing(), T.RandomMask(0.3)]
    images = stack()
    flat = run(T.Compose(steps), images, 5)
    np.testing.assert_array_equal(run(T.Compose([steps[0], T.Compose(steps[1:3]), steps[3]]), images, 5), flat)
    np.testing.assert_array_equal(run(T.Compose([T.Compose([T.Compose(steps)])]), images, 5), flat)


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_random_apply_applies_all_or_none(p):
    n = 2000
    images = np.full((n, 1, 1, 3), 10, np.uint8)
    images[..., 0] = 200
    plus = T.LUT(np.arange(256).clip(0, 254) + 1)
    got = T.RandomApply([plus, plus, plus], p)(images)[:, 0, 0, 1].astype(int) - 10
    assert set(got) <= {0, 3} and abs((got == 3).mean() - p) <= 0.055


def test_random_apply_of_a_size_change_needs_a_common_final_size():
    with pytest.raises(TransformError, match=r"different sizes \(height, width\): \[\(23, 28\), \(27, 32\)\]"):
        T.RandomApply([T.Pad(2)])(stack(20))
    chain = T.Compose([T.RandomApply([T.Pad(2), T.RandomCrop(22)]), T.RandomApply([T.Resize(40)]), T.CenterCrop(20)])
    assert chain(stack(20)).shape == (20, 20, 20, 3)


def test_the_generator_of_a_nested_chain_is_ignored():
    """The outermost Compose seeds the whole call."""
    images = stack()
    inner = T.Compose([T.RandomMask()], generator=torch.Generator().manual_seed(0))
    outer = [T.Compose([inner], generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    first, second, third = (compose(images) for compose in outer)
    np.testing.assert_array_equal(first, second)
    assert (third != first).any()


def test_a_chain_may_be_edited():
    """Assigning to `transforms` takes effect, also in a nested chain and in copies."""
    images = stack(2)
    chain = T.Compose([T.CenterCrop(9), T.Compose([T.Pad(1)])])
    assert chain(images).shape == (2, 11, 11, 3)
    chain.transforms[0] = T.CenterCrop(7)
    assert chain(images).shape == (2, 9, 9, 3)
    for again in (chain, copy.deepcopy(chain), pickle.loads(pickle.dumps(chain))):
        inner = again.transforms[1]
        inner.transforms.append(T.Lambda(lambda x: x[..., :5]))
        assert again(images).shape == (2, 9, 5, 3)
        inner.transforms.pop()
        assert again(images).shape == (2, 9, 9, 3)
    chain.transforms.append(3)
    with pytest.raises(TransformError, match=r"transforms must hold cuaug transforms, .*, not 3"):
        chain(images)
    chain.transforms[-1] = lambda x: x[..., :4]
    inner = chain.transforms[1]
    inner.transforms.append(lambda x: 255 - x)
    assert np.array_equal(chain(images), 255 - T.Compose(chain.transforms[:1] + inner.transforms[:1])(images)[:, :, :4])


def test_an_edit_updates_the_target_format_and_the_views():
    boxes = {"boxes": torch.tensor([[2.0, 2.0, 4.0, 4.0]])}
    image = torch.zeros((3, 16, 16))
    chain = T.Compose([T.RandomHorizontalFlip(1)])
    assert chain(image, boxes)[1]["boxes"].tolist() == [[12, 2, 14, 4]]
    chain.transforms.append(T.RandomApply([T.Compose([], box_format="xywh")]))
    assert chain(image, boxes)[1]["boxes"].tolist() == [[10, 2, 4, 4]]
    chain.transforms.append(T.Compose([], box_format="cxcywh"))
    with pytest.raises(TransformError, match="box_format must be the same for a chain"):
        chain(image, boxes)

    inner = T.Compose([T.RandomHorizontalFlip()])
    chain = T.Compose([inner, T.Resize(8)])
    assert chain.views == 1 and chain(image).shape == (3, 8, 8)
    inner.transforms.append(T.FiveCrop(8))
    assert chain.views == 5 and chain(image).shape == (5, 3, 8, 8)
    chain.transforms.append(T.TenCrop(4))
    with pytest.raises(TransformError, match="at most one transform that makes several images of one"):
        chain(image)


def test_only_torch_generators_are_accepted():
    for generator in (42, np.random.default_rng(0)):
        with pytest.raises(TransformError, match=r"generator must be a torch.Generator or None, not (42|Generator)"):
            T.Compose([], generator=generator)


def test_torchs_default_device_is_ignored():
    torch.manual_seed(3)
    want = T.RandomHorizontalFlip()(stack())
    torch.manual_seed(3)
    with torch.device("meta"):
        np.testing.assert_array_equal(T.RandomHorizontalFlip()(stack()), want)


def test_chains_take_tuples_and_generators():
    for steps in ((T.Pad(1),), iter([T.Pad(1)]), [T.Pad(1)]):
        assert repr(T.Compose(steps)) == "Compose([\n    Pad(padding=1),\n])"
    assert T.Compose([])(stack(2)).shape == stack(2).shape


FREE = [
    T.RandomHorizontalFlip(),
    T.ColorJitter(0.4, 0, 0.4, 0.1),
    T.RandomGrayscale(),
    T.RandomErasing(),
    T.RandomMask(0.2),
    T.LUT(np.arange(256)),
    T.ConvertColor(),
    T.Normalize(MEAN, STD),
]


@pytest.mark.parametrize("n", [1, 2, 256])
def test_a_chain_without_a_barrier_is_one_launch(n):
    assert launches(T.RandomResizedCrop(32), *FREE, n=n) == 1
    assert launches(T.Resize(50), T.RandomCrop(40, padding=4), *FREE, n=n) == 1
    assert launches(T.RandomCrop(60), T.RandomMask(), T.ConvertColor(), T.ToDtype(torch.float32, scale=True), n=n) == 1
    assert launches(T.CenterCrop(300), T.RandomApply([T.ColorJitter(0.2), T.RandomErasing()]), n=n) == 1


def test_color_jitter_with_contrast_takes_at_most_two_launches():
    """Contrast needs the mean once, whatever the order of each sample."""
    assert launches(T.RandomResizedCrop(32), *FREE[:1], T.ColorJitter(0.4, 0.4, 0.4, 0.1), *FREE[2:]) == 2
    assert launches(T.ColorJitter(contrast=0.5)) == 2
    assert launches(T.RandomApply([T.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.0)) == 1
