"""Draws belong to a transform's class and to its number in that class: other transforms never change them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cuaug import transforms as T
from cuaug.plan import Plan
from cuaug.sampling.rng import SampleRNG
from tests.transforms.test_containers import Recording

pytestmark = pytest.mark.cpu_only
N = 6


def chain_members() -> list[T.Transform]:
    """One transform of each kind whose draws do not depend on the image's size."""
    return [
        T.RandomHorizontalFlip(),
        T.ColorJitter(0.4, 0.4, 0.4, 0.1),
        T.RandomApply([T.RandomGrayscale(0.5), T.GaussianBlur(3)], 0.5),
        T.RandomRotation(20),
        T.RandomChoice([T.RandomPosterize(3), T.RandomSolarize(128)]),
        T.RandomAdjustSharpness(2.0),
    ]


INSERTED = [
    lambda: T.RandomInvert(0),
    lambda: T.RandomVerticalFlip(),
    lambda: T.Lambda(torch.Tensor.clone),
    lambda: T.MixUp(),
    lambda: T.RandAugment(),
    lambda: T.SomeOf([T.RandomInvert(), T.RandomEqualize()], 2, replace=True),
    lambda: T.RandomOrder([T.RandomInvert(), T.RandomAutocontrast()]),
    lambda: T.Compose([T.RandomInvert(), T.Lambda(torch.Tensor.clone)]),
]
NEW = {"RandomInvert", "RandomVerticalFlip", "Lambda", "MixUp", "RandAugment", "RandomEqualize", "RandomAutocontrast"}


def trace(chain: list[T.Transform], seed: int) -> list[list[dict[str, Any]]]:
    """Each image's steps, without those of inserted transforms and without the steps' numbers."""
    generator = torch.Generator().manual_seed(seed)
    _, params = T.Compose(chain, generator=generator).trace(torch.zeros(N, 3, 12, 12, dtype=torch.uint8))
    return [[(s["transform"], s["params"]) for s in steps if s["transform"] not in NEW] for steps in params]


@given(st.integers(0, 6), st.sampled_from(INSERTED), st.integers(0, 2**31))
def test_an_inserted_transform_changes_no_other_draws(place, make, seed):
    chain = chain_members()
    assert trace([*chain[:place], make(), *chain[place:]], seed) == trace(chain, seed)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(INSERTED[:2]), st.integers(0, 2), st.integers(0, 2**31))
def test_a_transform_inserted_into_a_container_changes_no_other_draws(make, place, seed):
    chain = chain_members()
    edited = chain_members()
    edited[2].transforms.insert(place, make())
    assert trace(edited, seed) == trace(chain, seed)


def test_the_second_of_a_class_draws_on_its_own_in_any_segment():
    flips = [T.RandomHorizontalFlip(), T.Lambda(torch.Tensor.clone), T.RandomApply([T.RandomHorizontalFlip()], 1.0)]
    _, params = T.Compose(flips, generator=torch.Generator().manual_seed(0)).trace(torch.zeros(64, 3, 4, 4))
    first, second = ([any(s["step"] == step for s in steps) for steps in params] for step in (0, 2))
    assert first != second
    no_segment = [flips[0], flips[2]]
    _, again = T.Compose(no_segment, generator=torch.Generator().manual_seed(0)).trace(torch.zeros(64, 3, 4, 4))
    assert [any(s["step"] == 1 for s in steps) for steps in again] == second


@pytest.mark.parametrize("members", [2, 3])
@pytest.mark.parametrize("container", [T.RandomOrder, lambda members: T.SomeOf(members, 3, replace=True)])
def test_a_repeated_member_counts_once(container, members):
    """However often a container plans its members, the transform after it has the same draws."""
    records: list[tuple[int, np.ndarray, np.ndarray]] = []
    inner = [Recording(k, records) for k in range(members)]
    chain = T.Compose([container(inner), Recording(members, records)])
    chain.plan(Plan([8] * N, [8] * N), SampleRNG(1, 0, np.arange(N)))
    drawn = [numbers for _, _, numbers in records]
    assert len({values.tobytes() for values in drawn}) == len(drawn) > members
    rng = SampleRNG(1, 0, np.arange(N))
    for _ in range(members + 1):
        rng.next_transform(inner[0])
    np.testing.assert_array_equal(drawn[-1], rng.uniform())


def test_transforms_inside_views_change_no_draws_after_them():
    def params(*inside: T.Transform) -> Any:
        return trace([T.MultiView([T.Compose(inside), T.Compose([T.CenterCrop(8)])]), T.ColorJitter(0.5)], 4)

    with_flip = params(T.ColorJitter(0.1), T.CenterCrop(8))
    without = params(T.CenterCrop(8))
    assert [steps[-1] for steps in with_flip] == [steps[-1] for steps in without]
