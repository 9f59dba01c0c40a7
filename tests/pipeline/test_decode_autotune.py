"""The tuner of decoding: what it is fed with, it compares; what is noise, it does not follow."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuaug.pipeline.decode_autotune import DecodeAutotuner, DecodeSplit, Tuner


def settle(tuner, cost, most=1000):
    """Feeds it with cost(candidate) until it is done; the candidates in the order of the measurements."""
    tried = []
    while not tuner.done:
        tried.append(tuner.candidate)
        tuner.add(cost(tuner.candidate))
        assert len(tried) < most, "it does not settle"
    return tried


@given(st.lists(st.integers(0, 50), min_size=1, max_size=9, unique=True), st.integers(1, 4), st.integers(0, 2))
def test_it_finds_the_fastest(candidates, tries, warm_up):
    tuner = Tuner(candidates, tries=tries, warm_up=warm_up, margin=0.0)
    tried = settle(tuner, lambda candidate: 1.0 + candidate)
    assert tuner.candidate == min(candidates)
    if len(candidates) > 1:
        assert set(tried) == set(candidates)
        assert tuner.medians[tuner.candidate] == 1.0 + min(candidates)


@given(st.integers(0, 2**32 - 1))
def test_noise_costs_it_little(seed):
    """Every measurement off by up to a tenth, one in eight by a factor of five: what it picks is within a tenth."""
    rng = np.random.default_rng(seed)
    costs = dict(enumerate(rng.uniform(1.0, 3.0, 7)))
    outliers = itertools.cycle(rng.permutation([5.0] + 7 * [1.0]))

    def measured(candidate):
        return costs[candidate] * rng.uniform(1.0, 1.1) * next(outliers)

    tuner = Tuner(costs, tries=9, margin=0.02)
    settle(tuner, measured)
    assert costs[tuner.candidate] <= 1.1 * 1.02 * min(costs.values())


@given(st.permutations(range(6)))
def test_of_equals_the_preferred_is_taken(order):
    tuner = Tuner(order, margin=0.02)
    settle(tuner, lambda candidate: 1.0 + 0.003 * candidate)
    assert tuner.candidate == order[0]


def test_what_comes_right_after_a_change_does_not_count():
    """A new decoder's first batch is slow."""
    tuner, last = Tuner("abc", tries=1, warm_up=1), None
    while not tuner.done:
        now = tuner.candidate
        tuner.add({"a": 3.0, "b": 2.0, "c": 1.0}[now] + (0.0 if now == last else 100.0 if now == "c" else 0.0))
        last = now
    assert tuner.candidate == "c" and tuner.medians["c"] == 1.0


def test_each_round_tries_twice_as_often_in_reverse():
    tuner = Tuner("abcd", tries=1, warm_up=0, margin=0.0)
    assert "".join(settle(tuner, "abcd".index)) == "abcd" + "bbaa"


def test_one_candidate_needs_no_trying():
    tuner = Tuner([0.7, 0.7])
    assert tuner.done and tuner.candidate == 0.7
    with pytest.raises(ValueError, match="nothing is left"):
        tuner.add(1.0)


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf])
def test_what_is_no_measurement_is_refused(seconds):
    with pytest.raises(ValueError, match="finite number of seconds"):
        Tuner("ab").add(seconds)


def test_there_must_be_candidates():
    with pytest.raises(ValueError, match="nothing to choose from"):
        Tuner([])


# --- the split -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("load_hint", "decode_threads", "want"),
    [(None, None, (0.65, 6)), (0.8, None, (0.8, 6)), (None, 3, (0.65, 3)), (0.0, 2, (0.0, 2))],
)
def test_what_is_pinned_is_not_tried(load_hint, decode_threads, want):
    tuner = DecodeAutotuner(load_hint, decode_threads, threads=6)
    assert tuner.done and tuner.split == want
    tuner.add(1.0, 256, 10**6)
    assert tuner.split == want
    assert tuner.because == ("the default" if load_hint is decode_threads is None else "as given")


def test_the_hint_is_chosen_and_then_the_threads():
    tuner = DecodeAutotuner("auto", None, threads=12)
    assert tuner.split == DecodeSplit(0.65, 12) and tuner.because == "still trying"
    tried = []
    while not tuner.done:
        hint, threads = tuner.split
        tried.append(threads)
        # Pictures of sizes that vary, and last batches of an epoch that are small and slow.
        pixels = 10**6 * (1 + len(tried) % 3)
        tuner.add(pixels * (1.0 + abs(hint - 0.8)) * (1.0 + abs(threads - 4)), 256, pixels)
        tuner.add(1e9, 100, pixels)
    assert tuner.split == (0.8, 4) and set(tried) == {12, 2, 4, 8}
    assert tuner.because == "chosen by trying"


def test_threads_that_are_given_stay_while_the_hint_is_chosen():
    tuner = DecodeAutotuner("auto", 5, threads=12)
    while not tuner.done:
        assert tuner.split.max_num_cpu_threads == 5
        tuner.add(1.0 - 0.5 * tuner.split.load_hint, 64, 100)
    assert tuner.split == (1.0, 5)
