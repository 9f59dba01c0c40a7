"""Random numbers: Philox's known answers, a NumPy reference, independence, distributions."""

from __future__ import annotations

import math
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuaug._runtime.native import BEST_ISA, library
from cuaug.sampling import rng as random
from cuaug.sampling.rng import SampleRNG
from tests.references import philox as reference

integers64 = st.integers(-(2**63), 2**63 - 1)
any_integers = integers64 | st.integers(-(2**70), 2**70)
N = 2000


class Flip:
    pass


class Crop:
    pass


def positioned(seed, epoch, indices, position, kind=Flip):
    """The draws of the `position`-th transform of a class; 0: those of the order."""
    rng = SampleRNG(seed, epoch, indices)
    for _ in range(position):
        rng.next_transform(kind())
    return rng


@pytest.mark.parametrize(("counter", "key", "answer"), reference.KNOWN_ANSWERS)
def test_known_answers_of_the_reference(counter, key, answer):
    np.testing.assert_array_equal(reference.philox(counter, key), np.array(answer, np.uint32))


@pytest.mark.parametrize("isa", range(BEST_ISA + 1))
@pytest.mark.parametrize(("counter", "key", "answer"), [case for case in reference.KNOWN_ANSWERS if case[0][3] < 2**30])
def test_known_answers_of_the_kernels(counter, key, answer, isa):
    """The library counts draws, four per block, so the counter's last word is below 2**30."""
    index = np.array([counter[0] | counter[1] << 32], dtype=np.uint64).view(np.int64)
    out = np.empty((1, 4))
    library.cuaug_draw(isa, *key, index.ctypes.data, 1, counter[2], counter[3] * 4, 4, 0.0, 1.0, out.ctypes.data)
    np.testing.assert_array_equal(out * 2.0**32, [answer])


@pytest.mark.parametrize("isa", range(BEST_ISA + 1))
@given(any_integers, any_integers, st.lists(integers64, min_size=1, max_size=40), st.integers(0, 3), st.data())
def test_draws_equal_the_reference(isa, seed, epoch, indices, position, data):
    rng, first = positioned(seed, epoch, indices, position), 0
    for count in data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)):
        want = reference.rng(seed, epoch, indices, "Flip" if position else "", position, first, count)
        with mock.patch.object(random, "BEST_ISA", isa):
            np.testing.assert_array_equal(rng.uniform(count), want)
        first += count


@given(st.integers(0, 2**32), st.lists(st.integers(0, 10**9), min_size=1, max_size=20), st.data())
def test_a_samples_numbers_do_not_depend_on_its_neighbors(seed, indices, data):
    chosen = data.draw(st.lists(st.integers(0, len(indices) - 1), min_size=1, max_size=8))

    def draw_all(rng):
        rows = [rng.uniform(3), rng.uniform()[:, None], rng.permutation(5), rng.keys(), rng.dirichlet(0.4, 3)]
        rng.next_transform(Flip())
        return [*rows, rng.bernoulli(0.5)[:, None], rng.beta(2.0)[:, None], rng.integers(-3, 12)[:, None]]

    together = draw_all(SampleRNG(seed, 1, indices))
    single = draw_all(SampleRNG(seed, 1, [indices[i] for i in chosen]))
    for a, b in zip(together, single, strict=True):
        np.testing.assert_array_equal(a[chosen], b)


def test_seeds_epochs_positions_and_samples_share_no_numbers():
    """All coordinates differ by one here; a few of 2**32 values collide by chance."""
    seen = []
    for seed in (0, 1, 2, 2**32, 2**64 - 1):
        for epoch in (0, 1, 2, 3):
            for position, kind in ((0, Flip), (1, Flip), (2, Flip), (1, Crop), (2, Crop)):
                seen.append(positioned(seed, epoch, [0, 1, 2, 3, 2**32, 2**33], position, kind).uniform(12))
    values = np.concatenate(seen).ravel()
    expected = len(values) ** 2 / 2 / 2**32
    assert len(values) - len(np.unique(values)) <= 3 + 5 * expected


def test_bounds_of_every_shape():
    low = np.linspace(-5, 5, N)
    unit = SampleRNG(1, 2, np.arange(N)).uniform()
    per_sample = SampleRNG(1, 2, np.arange(N)).uniform(low=low, high=low + 1)
    assert per_sample.shape == (N,)
    np.testing.assert_allclose(per_sample, low + unit)
    columns = SampleRNG(1, 2, np.arange(N)).uniform(3, [0, 10, 20], [1, 11, 21])
    np.testing.assert_array_equal(np.floor(columns), np.tile([0, 10, 20], (N, 1)))


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
def test_bounds_change_numbers_by_the_same_bits_in_the_library_and_in_numpy(low, high):
    unit = SampleRNG(1, 2, np.arange(9)).uniform(3)
    np.testing.assert_array_equal(SampleRNG(1, 2, np.arange(9)).uniform(3, low, high), low + unit * (high - low))
    arrays = np.full(3, low), np.full(3, high)
    np.testing.assert_array_equal(SampleRNG(1, 2, np.arange(9)).uniform(3, *arrays), low + unit * (high - low))


def test_select_continues_from_the_current_draw():
    rng, rows = positioned(3, 4, np.arange(50, 70), 2), np.array([7, 3, 19])
    rng.uniform(5)
    selected = rng.select(rows)
    np.testing.assert_array_equal(selected.uniform(3), rng.uniform(3)[rows])
    np.testing.assert_array_equal(selected.integers(0, 9), rng.integers(0, 9)[rows])


def test_integers_include_both_ends():
    values = SampleRNG(0, 0, np.arange(N)).integers(-2, 3)
    np.testing.assert_array_equal(np.unique(values), np.arange(-2, 4))
    high = np.arange(N)
    values = SampleRNG(0, 0, np.arange(N)).integers(high - 1, high)
    assert ((values == high) | (values == high - 1)).all() and len(np.unique(values - high)) == 2


def test_permutations_are_equally_likely():
    values = SampleRNG(0, 0, np.arange(6 * N)).permutation(3)
    orders, counts = np.unique(values, axis=0, return_counts=True)
    np.testing.assert_array_equal(np.sort(values, axis=1), np.tile(np.arange(3), (6 * N, 1)))
    assert len(orders) == 6 and np.abs(counts - N).max() < 5 * N**0.5


def test_keys_have_all_their_bits():
    keys = SampleRNG(0, 0, np.arange(N)).keys()
    assert keys.shape == (N, 2) and keys.dtype == np.uint32
    ones = np.unpackbits(keys.view(np.uint8)).reshape(N, 64).mean(axis=0)
    assert np.abs(ones - 0.5).max() < 5 * 0.5 / N**0.5


def test_no_samples():
    rng = SampleRNG(0, 0, [])
    assert rng.uniform().shape == (0,) and rng.uniform(3).shape == (0, 3) and rng.keys().shape == (0, 2)


def beta_cdf(alpha, x):
    """CDF of Beta(alpha, alpha), integrated numerically in t ** power, where the density is finite."""
    power = min(alpha, 1.0)
    t = np.linspace(0.0, 0.5**power, 100_001) ** (1.0 / power)
    density = t ** (alpha - power) * (1.0 - t) ** (alpha - 1.0)
    below = np.append(0.0, np.cumsum((density[1:] + density[:-1]) / 2.0))
    half = np.interp(np.minimum(x, 1.0 - x) ** power, t**power, below / below[-1] / 2.0)
    return np.where(x < 0.5, half, 1.0 - half)


def distance(sample, cdf):
    """Kolmogorov-Smirnov statistic times sqrt(n); above 1.95 once in 1000 samples of the distribution."""
    x = np.sort(sample)
    steps = np.arange(len(x) + 1) / len(x)
    expected = cdf(x)
    return max(np.abs(expected - steps[1:]).max(), np.abs(expected - steps[:-1]).max()) * np.sqrt(len(x))


@pytest.mark.parametrize("alpha", [0.1, 0.2, 0.5, 1.0, 1.7, 8.0, 60.0])
def test_beta(alpha):
    """The lower half alone: doubles are too coarse near 1."""
    x = SampleRNG(7, 0, np.arange(40_000)).beta(alpha)
    assert abs((x < 0.5).mean() - 0.5) < 0.01
    x = x[x < 0.5]
    assert distance(x, lambda x: 2 * beta_cdf(alpha, x)) < 1.95
    assert distance(x, lambda x: 2 * beta_cdf(alpha * 1.25, x)) > 1.95, "the test rejects another distribution"


@pytest.mark.parametrize("alpha", [0.001, 0.03, 1e4, 1e9])
def test_beta_and_dirichlet_with_extreme_parameters(alpha):
    rng = SampleRNG(1, 0, np.arange(N))
    x, w = rng.beta(alpha), rng.dirichlet(alpha, 3)
    assert ((x >= 0) & (x <= 1)).all() and abs(x.mean() - 0.5) < 0.05
    assert np.isfinite(w).all() and np.allclose(w.sum(axis=1), 1) and (np.abs(w.mean(axis=0) - 1 / 3) < 0.05).all()
    spread = {0.001: 0.5, 0.03: 0.48}.get(alpha, 0.0)
    assert abs(x.std() - spread) < 0.02


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("alpha", [0.3, 1.0, 4.0])
def test_dirichlet(alpha, count):
    """Mean and covariances; with alpha = 1 each weight is Beta(1, count - 1)."""
    n = 40_000
    w = SampleRNG(3, 0, np.arange(n)).dirichlet(alpha, count)
    assert w.shape == (n, count) and (w >= 0).all() and np.allclose(w.sum(axis=1), 1)
    covariance = (np.eye(count) - 1 / count) / count / (count * alpha + 1)
    assert np.abs(w.mean(axis=0) - 1 / count).max() < 0.01
    assert np.abs(np.cov(w.T).reshape(count, count) - covariance).max() < 0.004
    if alpha == 1.0 and count > 1:
        for part in w.T:
            assert distance(part, lambda x: 1 - (1 - x) ** (count - 1)) < 1.95


def test_normal():
    """By the distribution function, and column by column independent."""
    values = SampleRNG(7, 0, np.arange(40_000)).normal(2)
    assert values.shape == (40_000, 2) and abs(np.corrcoef(values.T)[0, 1]) < 0.02
    cdf = np.vectorize(lambda x: 0.5 * (1 + math.erf(x / 2**0.5)))
    assert distance(values[:, 0], cdf) < 1.95
    assert distance(values[:, 0], lambda x: cdf(x * 1.05)) > 1.95, "the test rejects another deviation"
