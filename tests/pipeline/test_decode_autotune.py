"""The decode autotuner: it finds the fastest candidate, and resists noise."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuaug.pipeline.decode_autotune import DecodeAutotuner, DecodeSplit, Tuner


def settle(tuner, cost, max_measurements=1000):
    """Adds cost(candidate) until the tuner is done. Returns the candidates in the order of the measurements."""
    measured = []
    while not tuner.done:
        measured.append(tuner.candidate)
        tuner.add(cost(tuner.candidate))
        assert len(measured) < max_measurements, "the tuner does not settle"
    return measured


@given(st.lists(st.integers(0, 50), min_size=1, max_size=9, unique=True), st.integers(1, 4), st.integers(0, 2))
def test_the_fastest_candidate_is_found(candidates, tries, warm_up):
    tuner = Tuner(candidates, tries=tries, warm_up=warm_up, margin=0.0)
    measured = settle(tuner, lambda candidate: 1.0 + candidate)
    assert tuner.candidate == min(candidates)
    if len(candidates) > 1:
        assert set(measured) == set(candidates)
        assert tuner.medians[tuner.candidate] == 1.0 + min(candidates)


@given(st.integers(0, 2**32 - 1))
def test_noise_costs_little(seed):
    """Each measurement is off by up to a tenth, one in eight by a factor of five; the choice is within a tenth."""
    rng = np.random.default_rng(seed)
    costs = dict(enumerate(rng.uniform(1.0, 3.0, 7)))
    outliers = itertools.cycle(rng.permutation([5.0] + 7 * [1.0]))

    def noisy(candidate):
        return costs[candidate] * rng.uniform(1.0, 1.1) * next(outliers)

    tuner = Tuner(costs, tries=9, margin=0.02)
    settle(tuner, noisy)
    assert costs[tuner.candidate] <= 1.1 * 1.02 * min(costs.values())


@given(st.permutations(range(6)))
def test_the_preferred_candidate_wins_a_tie(order):
    tuner = Tuner(order, margin=0.02)
    settle(tuner, lambda candidate: 1.0 + 0.003 * candidate)
    assert tuner.candidate == order[0]


def test_the_first_measurement_after_a_change_is_ignored():
    """A new decoder's first batch is slow."""
    tuner, last = Tuner("abc", tries=1, warm_up=1), None
    while not tuner.done:
        candidate = tuner.candidate
        warm_up = 100.0 if candidate == "c" and candidate != last else 0.0
        tuner.add({"a": 3.0, "b": 2.0, "c": 1.0}[candidate] + warm_up)
        last = candidate
    assert tuner.candidate == "c" and tuner.medians["c"] == 1.0


def test_each_round_measures_twice_as_often_and_in_reverse():
    tuner = Tuner("abcd", tries=1, warm_up=0, margin=0.0)
    assert "".join(settle(tuner, "abcd".index)) == "abcd" + "bbaa"


def test_a_single_candidate_needs_no_measurement():
    tuner = Tuner([0.7, 0.7])
    assert tuner.done and tuner.candidate == 0.7
    with pytest.raises(ValueError, match="the tuner is done"):
        tuner.add(1.0)


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf])
def test_invalid_measurements_raise(seconds):
    with pytest.raises(ValueError, match="not a finite number"):
        Tuner("ab").add(seconds)


def test_no_candidates_raise():
    with pytest.raises(ValueError, match="candidates is empty"):
        Tuner([])


# --- the split -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("load_hint", "decode_threads", "want"),
    [(None, None, (0.65, 3)), (0.8, None, (0.8, 3)), (None, 3, (0.65, 3)), (0.0, 2, (0.0, 2))],
)
def test_given_values_are_not_tuned(load_hint, decode_threads, want):
    tuner = DecodeAutotuner(load_hint, decode_threads, threads=6)
    assert tuner.done and tuner.split == want
    tuner.add(1.0, 256, 10**6)
    assert tuner.split == want
    assert tuner.because == ("default" if load_hint is decode_threads is None else "as given")


def test_the_hint_is_tuned_before_the_threads():
    tuner = DecodeAutotuner("auto", None, threads=12)
    assert tuner.split == DecodeSplit(0.65, 6) and tuner.because == "autotuning"
    thread_counts = []
    while not tuner.done:
        hint, threads = tuner.split
        thread_counts.append(threads)
        # Images of varying sizes; the last batch of an epoch is small and slow.
        pixels = 10**6 * (1 + len(thread_counts) % 3)
        tuner.add(pixels * (1.0 + abs(hint - 0.8)) * (1.0 + abs(threads - 4)), 256, pixels)
        tuner.add(1e9, 100, pixels)
    assert tuner.split == (0.8, 4) and set(thread_counts) == {6, 2, 4, 8, 12}
    assert tuner.because == "autotuned"


def test_threads_are_half_of_the_loaders_by_default():
    """The other half reads and parses the next batches."""
    assert [DecodeAutotuner(None, None, threads=n).split.max_num_cpu_threads for n in (1, 2, 3, 16)] == [1, 1, 2, 8]


def test_a_devices_own_load_hint_is_the_default():
    assert (
        DecodeAutotuner(None, None, 4, 0.9).split.load_hint == DecodeAutotuner("auto", 2, 4, 0.9).split.load_hint == 0.9
    )
    assert DecodeAutotuner(0.5, None, 4, 0.9).split.load_hint == 0.5


def test_given_threads_stay_while_the_hint_is_tuned():
    tuner = DecodeAutotuner("auto", 5, threads=12)
    while not tuner.done:
        assert tuner.split.max_num_cpu_threads == 5
        tuner.add(1.0 - 0.5 * tuner.split.load_hint, 64, 100)
    assert tuner.split == (1.0, 5)
