"""Choices for each sample: how often members act, in which order, and that nothing else enters."""

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

from cuaug import TransformError
from cuaug import transforms as T
from cuaug.apply import apply
from cuaug.plan import Plan
from cuaug.sampling.rng import SampleRNG
from tests.transforms.test_compose import launches
from tests.transforms.test_every import run, stack

MANY = 6000


class Note(T.Transform):
    """Writes nothing, and notes on whom it acts and what it draws."""

    def __init__(self, number: int, notes: list[tuple[int, np.ndarray, np.ndarray]]) -> None:
        self.number, self.notes = number, notes

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        return {"drawn": rng.uniform()}

    def write(self, plan: Plan, where: Any, **params: Any) -> None:
        where = np.ones(len(plan), dtype=bool) if where is None else where
        self.notes.append((self.number, where.copy(), params["drawn"]))


def noted(make: Any, members: int, n: int = MANY, seed: int = 0) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """(member, where it acts, what it drew) for each time that one of `make(members)` was planned."""
    notes: list[tuple[int, np.ndarray, np.ndarray]] = []
    make([Note(k, notes) for k in range(members)]).plan(Plan([8] * n, [8] * n), SampleRNG(seed, 0, np.arange(n)))
    return notes


def orders(notes: list[tuple[int, np.ndarray, np.ndarray]]) -> list[tuple[int, ...]]:
    """For each sample the members that acted on it, in their order."""
    acted: list[tuple[int, ...]] = [()] * len(notes[0][1])
    for number, where, _ in notes:
        for i in np.flatnonzero(where):
            acted[i] += (number,)
    return acted


def assert_frequencies(found: list[Any], expected: dict[Any, float]) -> None:
    """Each of `expected`, and nothing else, occurs as often as it says, within five standard deviations."""
    assert set(found) == {kind for kind, share in expected.items() if share > 0}
    for kind, share in expected.items():
        slack = 5 * math.sqrt(len(found) * share * (1 - share))
        assert abs(found.count(kind) - len(found) * share) <= slack, kind


# --- what is chosen --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [None, [1, 1, 1], [0.2, 0.3, 0.5], [3, 0, 1], [0, 0, 7], (0, 2, 0)])
def test_random_choice_takes_one_by_its_weight(p):
    shares = np.ones(3) / 3 if p is None else np.array(p) / sum(p)
    chosen = orders(noted(lambda members: T.RandomChoice(members, p), 3))
    assert_frequencies(chosen, {(k,): share for k, share in enumerate(shares)})


def test_random_order_takes_every_order_alike():
    expected = {order: 1 / 24 for order in itertools.permutations(range(4))}
    assert_frequencies(orders(noted(T.RandomOrder, 4)), expected)


def test_some_of_takes_every_subset_alike_in_the_order_of_the_list():
    chosen = orders(noted(lambda members: T.SomeOf(members, 2), 4))
    assert_frequencies(chosen, {pair: 1 / 6 for pair in itertools.combinations(range(4), 2)})


def test_some_of_draws_how_many():
    chosen = orders(noted(lambda members: T.SomeOf(members, (0, 3)), 3))
    subsets = [subset for size in range(4) for subset in itertools.combinations(range(3), size)]
    assert_frequencies(chosen, {subset: 1 / 4 / math.comb(3, len(subset)) for subset in subsets})


def test_some_of_with_replacement_takes_one_several_times():
    chosen = orders(noted(lambda members: T.SomeOf(members, 3, replace=True), 2))
    assert_frequencies(chosen, {(0, 0, 0): 1 / 8, (0, 0, 1): 3 / 8, (0, 1, 1): 3 / 8, (1, 1, 1): 1 / 8})
    more_than_there_are = orders(noted(lambda members: T.SomeOf(members, (2, 2), True), 1))
    assert set(more_than_there_are) == {(0, 0)}


@pytest.mark.parametrize("n", [0, (0, 0)])
def test_none_of_them(n):
    images = stack(3)
    np.testing.assert_array_equal(T.SomeOf([T.RandomInvert(1)], n)(images), images)
    np.testing.assert_array_equal(T.SomeOf([T.RandomInvert(1)], n, replace=True)(images), images)


# --- what members draw -----------------------------------------------------------------------------------------------

CHOICES = [
    lambda members: T.RandomChoice(members, [1, 2, 3]),
    T.RandomOrder,
    lambda members: T.SomeOf(members, (1, 2)),
    lambda members: T.SomeOf(members, (0, 3), replace=True),
]


@pytest.mark.parametrize("make", CHOICES)
def test_each_turn_draws_from_a_position_of_its_own(make):
    """Whoever acts, and however often: no two turns share their numbers, nor is the choice made from them."""
    notes = noted(make, 3)
    drawn = np.stack([numbers for _, _, numbers in notes])
    assert np.abs(np.corrcoef(drawn) - np.eye(len(drawn))).max() < 0.07
    for _, where, numbers in notes:
        if 50 < where.sum() < MANY:
            assert abs(numbers[where].mean() - 0.5) < 5 * math.sqrt(1 / 12 / where.sum())


@pytest.mark.parametrize("make", CHOICES)
def test_what_follows_draws_alike_whatever_was_chosen(make):
    images = stack(8)
    follows = T.RandomMask(0.5, fill=7)
    silent = [T.RandomApply([T.RandomVerticalFlip()], p=0.0), T.RandomVerticalFlip(0), T.RandomInvert(0)]
    loud = [T.RandomApply([T.RandomVerticalFlip()], p=1.0), T.RandomVerticalFlip(1), T.RandomInvert(1)]
    one, other = (run(T.Compose([make(members), follows]), images, 2) for members in (silent, loud))
    np.testing.assert_array_equal((one == 7).all(axis=-1), (other == 7).all(axis=-1))


def test_a_choice_is_what_the_chosen_member_would_have_done():
    """Fixed members: each result is one member's alone, and each member's occurs."""
    images = np.repeat(stack(2)[1:], 60, axis=0)
    members = [T.RandomInvert(1), T.RandomHorizontalFlip(1), T.Compose([T.Rot90(2), T.GaussianBlur(3, 1.0)])]
    alone = {member(images[0]).tobytes() for member in members}
    assert {image.tobytes() for image in T.RandomChoice(members)(images)} == alone and len(alone) == 3


def test_a_member_that_normalizes_leaves_the_others_in_levels():
    """A choice among whole chains: in those behind the first that had a Normalize, fills were in units of white."""
    images = np.repeat(stack(2)[1:], 60, axis=0)
    ends = [T.Resize((20, 20)), T.Normalize(0.4, 0.3)]
    members = [T.Compose(ends), T.Compose([T.Pad(2, fill=128), *ends]), T.Compose([T.RandomSolarize(128, 1), *ends])]
    wanted = np.stack([member(images[0]) for member in members])
    chain = T.Compose([T.RandomChoice(members)])
    result, told = chain.trace(images)
    error = np.abs(result[:, None] - wanted).max(axis=(2, 3, 4))
    assert error.min(axis=1).max() < 1e-5 and len(set(error.argmin(axis=1))) == 3
    np.testing.assert_array_equal(chain.replay(told, images), result)


def test_an_order_is_that_of_its_members():
    images = np.repeat(stack(2)[1:] / np.float32(255), 60, axis=0)
    members = [T.RandomAffine(0, interpolation="bilinear", scale=(1.3, 1.3)), T.RandomGamma((2, 2)), T.Pad(0)]
    wanted = {T.Compose(order)(images[0]).tobytes() for order in itertools.permutations(members)}
    assert {image.tobytes() for image in T.RandomOrder(members)(images)} == wanted and len(wanted) == 2


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
@settings(max_examples=60, deadline=None)
def test_a_batch_is_its_images_one_by_one(transform, seed, n):
    images = stack(n, 23, 23, seed)
    together = run(transform, images, seed)
    for i in range(n):
        alone = apply(images[i], lambda plan, i=i: transform.plan(plan, SampleRNG(seed, 0, [i])))
        np.testing.assert_array_equal(alone, together[i])


@given(nested, st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_reads_and_pickles_as_it_was_made(transform, seed):
    images = stack(3, 23, 23, seed)
    again = eval(repr(transform), {**vars(T), "torch": torch})
    assert repr(again) == repr(transform)
    for copy in (again, pickle.loads(pickle.dumps(transform))):
        np.testing.assert_array_equal(run(copy, images, seed), run(transform, images, seed))


# --- what it costs ---------------------------------------------------------------------------------------------------


def test_choices_cost_no_launch():
    free = [T.ColorJitter(0.4, 0, 0.4, 0.1), T.RandomGrayscale(), T.RandomErasing(1)]
    assert launches(T.RandomResizedCrop(32), T.RandomChoice(free), T.Normalize(0.5, 0.5)) == 1
    assert launches(T.RandomResizedCrop(32), T.RandomOrder(free), T.Normalize(0.5, 0.5)) == 1
    assert launches(T.RandomResizedCrop(32), T.SomeOf(free, 2, replace=True), T.Normalize(0.5, 0.5)) == 1
    costly = [T.GaussianBlur(3), T.RandomRotation(20), T.ColorJitter(contrast=0.5)]
    assert launches(T.RandomResizedCrop(32), T.RandomChoice([*costly, *free]), T.Normalize(0.5, 0.5), n=256) == 2
    assert launches(T.RandomResizedCrop(32), T.SomeOf([*costly, *free], 2), T.Normalize(0.5, 0.5), n=256) == 3


def test_a_choice_that_would_change_the_channels_of_some_is_refused():
    with pytest.raises(TransformError, match="changes the number of channels"):
        T.RandomChoice([T.Grayscale(), T.RandomInvert()])(stack(2))
