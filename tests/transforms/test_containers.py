"""Containers: how often members act, in which order, and that samples are independent."""

from __future__ import annotations

import itertools
import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cuaug import transforms as T
from cuaug.plan import Plan
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms.execute import apply
from tests.transforms.test_every import run, stack

MANY = 6000


class Recording(T.Transform):
    """Writes nothing; records the samples it acts on and its draws."""

    def __init__(self, number: int, records: list[tuple[int, np.ndarray, np.ndarray]]) -> None:
        self.number, self.records = number, records

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        return {"drawn": rng.uniform()}

    def write(self, plan: Plan, where: Any, **params: Any) -> None:
        where = np.ones(len(plan), dtype=bool) if where is None else where
        self.records.append((self.number, where.copy(), params["drawn"]))


def recorded(make: Any, members: int, n: int = MANY, seed: int = 0) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """(member, samples it acts on, its draws) for each time a member of `make(members)` was planned."""
    records: list[tuple[int, np.ndarray, np.ndarray]] = []
    make([Recording(k, records) for k in range(members)]).plan(Plan([8] * n, [8] * n), SampleRNG(seed, 0, np.arange(n)))
    return records


def orders(records: list[tuple[int, np.ndarray, np.ndarray]]) -> list[tuple[int, ...]]:
    """The members that acted on each sample, in order."""
    acted: list[tuple[int, ...]] = [()] * len(records[0][1])
    for number, where, _ in records:
        for i in np.flatnonzero(where):
            acted[i] += (number,)
    return acted


def assert_frequencies(found: list[Any], expected: dict[Any, float]) -> None:
    """Exactly the keys of `expected` occur, with these frequencies within five standard deviations."""
    assert set(found) == {kind for kind, share in expected.items() if share > 0}
    for kind, share in expected.items():
        slack = 5 * math.sqrt(len(found) * share * (1 - share))
        assert abs(found.count(kind) - len(found) * share) <= slack, kind


@pytest.mark.parametrize("p", [None, [1, 1, 1], [0.2, 0.3, 0.5], [3, 0, 1], [0, 0, 7], (0, 2, 0)])
def test_random_choice_picks_one_by_weight(p):
    shares = np.ones(3) / 3 if p is None else np.array(p) / sum(p)
    chosen = orders(recorded(lambda members: T.RandomChoice(members, p), 3))
    assert_frequencies(chosen, {(k,): share for k, share in enumerate(shares)})


def test_random_order_orders_are_equally_likely():
    expected = {order: 1 / 24 for order in itertools.permutations(range(4))}
    assert_frequencies(orders(recorded(T.RandomOrder, 4)), expected)


def test_some_of_subsets_are_equally_likely_and_in_list_order():
    chosen = orders(recorded(lambda members: T.SomeOf(members, 2), 4))
    assert_frequencies(chosen, {pair: 1 / 6 for pair in itertools.combinations(range(4), 2)})


def test_some_of_draws_the_number():
    chosen = orders(recorded(lambda members: T.SomeOf(members, (0, 3)), 3))
    subsets = [subset for size in range(4) for subset in itertools.combinations(range(3), size)]
    assert_frequencies(chosen, {subset: 1 / 4 / math.comb(3, len(subset)) for subset in subsets})


def test_some_of_with_replacement_repeats_transforms():
    chosen = orders(recorded(lambda members: T.SomeOf(members, 3, replace=True), 2))
    assert_frequencies(chosen, {(0, 0, 0): 1 / 8, (0, 0, 1): 3 / 8, (0, 1, 1): 3 / 8, (1, 1, 1): 1 / 8})
    repeated = orders(recorded(lambda members: T.SomeOf(members, (2, 2), True), 1))
    assert set(repeated) == {(0, 0)}


@pytest.mark.parametrize("n", [0, (0, 0)])
def test_some_of_zero_changes_nothing(n):
    images = stack(3)
    np.testing.assert_array_equal(T.SomeOf([T.RandomInvert(1)], n)(images), images)
    np.testing.assert_array_equal(T.SomeOf([T.RandomInvert(1)], n, replace=True)(images), images)


CHOICES = [
    lambda members: T.RandomChoice(members, [1, 2, 3]),
    T.RandomOrder,
    lambda members: T.SomeOf(members, (1, 2)),
    lambda members: T.SomeOf(members, (0, 3), replace=True),
]


@pytest.mark.parametrize("make", CHOICES)
def test_each_planned_member_draws_at_its_own_position(make):
    """No two planned members share draws, and the choice uses others."""
    records = recorded(make, 3)
    drawn = np.stack([numbers for _, _, numbers in records])
    assert np.abs(np.corrcoef(drawn) - np.eye(len(drawn))).max() < 0.07
    for _, where, numbers in records:
        if 50 < where.sum() < MANY:
            assert abs(numbers[where].mean() - 0.5) < 5 * math.sqrt(1 / 12 / where.sum())


def test_a_normalizing_member_leaves_the_others_in_levels():
    """A bug: in chains after the first with a Normalize, fills were in units of white."""
    images = np.repeat(stack(2)[1:], 60, axis=0)
    ends = [T.Resize((20, 20)), T.Normalize(0.4, 0.3)]
    members = [T.Compose(ends), T.Compose([T.Pad(2, fill=128), *ends]), T.Compose([T.RandomSolarize(128, 1), *ends])]
    expected = np.stack([member(images[0]) for member in members])
    chain = T.Compose([T.RandomChoice(members)])
    result, recorded_params = chain.trace(images)
    error = np.abs(result[:, None] - expected).max(axis=(2, 3, 4))
    assert error.min(axis=1).max() < 1e-5 and len(set(error.argmin(axis=1))) == 3
    np.testing.assert_array_equal(chain.replay(recorded_params, images), result)


def test_random_order_equals_a_chain_in_that_order():
    images = np.repeat(stack(2)[1:] / np.float32(255), 60, axis=0)
    members = [T.RandomAffine(0, interpolation="bilinear", scale=(1.3, 1.3)), T.RandomGamma((2, 2)), T.Pad(0)]
    expected = {T.Compose(order)(images[0]).tobytes() for order in itertools.permutations(members)}
    assert {image.tobytes() for image in T.RandomOrder(members)(images)} == expected and len(expected) == 2


LEAVES = [
    T.ColorJitter(0.4, 0.4, 0.4, 0.1),
    T.RandomHorizontalFlip(),
    T.RandomRotation(40, "bilinear"),
    T.RandomErasing(1, value="random"),
    T.GaussianBlur(3),
    T.RandomEqualize(),
    T.RandomCrop(23, 2),
    T.RandAugment(1),
]
nested = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.builds(
        lambda members, make: make(members),
        st.lists(inner, min_size=1, max_size=3),
        st.sampled_from(
            [
                T.Compose,
                T.RandomOrder,
                lambda members: T.RandomChoice(members, range(1, len(members) + 1)),
                lambda members: T.SomeOf(members, (0, len(members))),
                lambda members: T.SomeOf(members, 2, replace=True),
                lambda members: T.RandomApply(members, 0.6),
            ]
        ),
    ),
    max_leaves=5,
)


@pytest.mark.slow
@given(nested, st.integers(0, 2**32 - 1), st.integers(1, 5))
def test_a_batch_equals_its_images_one_by_one(transform, seed, n):
    images = stack(n, 23, 23, seed)
    together = run(transform, images, seed)
    for i in range(n):
        alone = apply(images[i], lambda plan, i=i: transform.plan(plan, SampleRNG(seed, 0, [i])))
        np.testing.assert_array_equal(alone, together[i])


@given(nested, st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_repr_and_pickle(transform, seed):
    images = stack(3, 23, 23, seed)
    again = eval(repr(transform), {**vars(T), "torch": torch})
    assert repr(again) == repr(transform)
    for copy in (again, pickle.loads(pickle.dumps(transform))):
        np.testing.assert_array_equal(run(copy, images, seed), run(transform, images, seed))
