"""`cuaug.TokenBudgetSampler`: each sample once, within the budget, and nearly no room left."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import cuaug

BUDGET = 16_384


@given(st.lists(st.integers(0, 50), min_size=1, max_size=300), st.integers(50, 200), st.booleans())
def test_an_epoch_has_each_sample_once_within_the_budget(tokens, budget, shuffle):
    sampler = cuaug.TokenBudgetSampler(tokens, budget, shuffle=shuffle)
    torch.manual_seed(3)
    first = list(sampler)
    assert sorted(i for batch in first for i in batch) == list(range(len(tokens)))
    assert all(batch and sum(tokens[i] for i in batch) <= budget for batch in first)
    # Best fit never leaves two batches that would fit into one.
    sums = sorted(sum(tokens[i] for i in batch) for batch in first)
    assert len(sums) < 2 or sums[0] + sums[1] > budget
    torch.manual_seed(3)
    assert list(sampler) == first


@pytest.mark.parametrize("most", [1024, 4096, 16_000])
def test_nearly_no_room_is_left(most):
    """At most 2 % of the budget of all batches, for photos of many sizes and for the largest that fit."""
    tokens = np.random.default_rng(0).integers(most // 4, most + 1, 20_000) // (1 if most < 9000 else 4)
    sampler = cuaug.TokenBudgetSampler(tokens, BUDGET)
    batches = list(sampler)
    assert tokens.sum() >= 0.98 * BUDGET * len(batches)
    assert list(sampler) != batches, "the next epoch has another order"


def test_large_samples_do_not_wait_to_the_end():
    """Of samples that no batch has room for two of, the memory of those that wait stays bounded."""
    batches = list(cuaug.TokenBudgetSampler(np.full(10_000, 9000), BUDGET, shuffle=False))
    assert [len(batch) for batch in batches] == [1] * 10_000


@pytest.mark.parametrize(
    ("tokens", "budget", "message"),
    [
        ([], 5, "tokens must be integers"),
        ([[1]], 5, "tokens must be integers"),
        ([1.5], 5, "tokens must be integers"),
        ([-1], 5, "tokens must be integers"),
        ([3, 9], 8, "budget must be at least 9, the tokens of sample 1, not 8"),
        ([1], 0, "budget must be"),
    ],
)
def test_bad_arguments_are_refused(tokens, budget, message):
    with pytest.raises(cuaug.LoaderError, match=message):
        cuaug.TokenBudgetSampler(tokens, budget)
