"""The draws: Philox's known answers, the NumPy reference, and that nothing but what should enters them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuaug._native import library
from cuaug.random import Draws
from tests.references import philox as reference

integers64 = st.integers(-(2**63), 2**63 - 1)
N = 2000


def positioned(seed, epoch, indices, position):
    draws = Draws(seed, epoch, indices)
    for _ in range(position):
        draws.next_transform()
    return draws


@pytest.mark.parametrize(("counter", "key", "answer"), reference.KNOWN_ANSWERS)
def test_known_answers_of_the_reference(counter, key, answer):
    np.testing.assert_array_equal(reference.philox(counter, key), np.array(answer, np.uint32))


@pytest.mark.parametrize(("counter", "key", "answer"), [case for case in reference.KNOWN_ANSWERS if case[0][3] < 2**30])
def test_known_answers_of_the_kernels(counter, key, answer):
    """The library counts draws, four to a block: the counter's last word is below 2**30."""
    index = np.array([counter[0] | counter[1] << 32], dtype=np.uint64).view(np.int64)
    out = np.empty((1, 4))
    library.cuaug_draw(*key, index.ctypes.data, 1, counter[2], counter[3] * 4, 4, out.ctypes.data)
    np.testing.assert_array_equal(out * 2.0**32, [answer])


@given(integers64, integers64, st.lists(integers64, min_size=1, max_size=5), st.integers(0, 3), st.data())
def test_draws_are_the_references(seed, epoch, indices, position, data):
    draws, first = positioned(seed, epoch, indices, position), 0
    for count in data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)):
        want = reference.draws(seed, epoch, indices, position, first, count)
        np.testing.assert_array_equal(draws.uniform(count), want)
        first += count


@given(st.integers(0, 2**32), st.lists(st.integers(0, 10**9), min_size=1, max_size=20), st.data())
def test_neighbours_do_not_matter(seed, indices, data):
    chosen = data.draw(st.lists(st.integers(0, len(indices) - 1), min_size=1, max_size=8))

    def everything(draws):
        rows = [draws.uniform(3), draws.uniform()[:, None], draws.permutation(5), draws.keys()]
        draws.next_transform()
        return [*rows, draws.bernoulli(0.5)[:, None], draws.integers(-3, 12)[:, None]]

    together = everything(Draws(seed, 1, indices))
    apart = everything(Draws(seed, 1, [indices[i] for i in chosen]))
    for a, b in zip(together, apart, strict=True):
        np.testing.assert_array_equal(a[chosen], b)


def test_nothing_is_shared():
    """Seeds, epochs, indices, positions and draws all differ by one here; of 2**32 values a few meet by chance."""
    seen = []
    for seed in (0, 1, 2, 2**32, 2**64 - 1):
        for epoch in (0, 1, 2, 3):
            for position in (0, 1, 2):
                seen.append(positioned(seed, epoch, [0, 1, 2, 3, 2**32, 2**33], position).uniform(12))
    values = np.concatenate(seen).ravel()
    expected = len(values) ** 2 / 2 / 2**32
    assert len(values) - len(np.unique(values)) <= 3 + 5 * expected


def test_seed_and_epoch_are_not_exchangeable():
    values = {Draws(seed, epoch, [7]).uniform()[0] for seed in range(20) for epoch in range(20)}
    assert len(values) == 400


def test_any_integer_is_a_seed():
    np.testing.assert_array_equal(Draws(-1, 0, [0]).uniform(2), Draws(2**64 - 1, 0, [0]).uniform(2))
    np.testing.assert_array_equal(Draws(5, 2**64, [0]).uniform(2), Draws(5, 0, [0]).uniform(2))


def test_uniform_is_uniform():
    draws = Draws(3, 1, np.arange(N)).uniform(8)
    assert draws.min() >= 0 and draws.max() < 1
    counts, _ = np.histogram(draws, bins=64, range=(0, 1))
    expected = draws.size / 64
    chi_squared = ((counts - expected) ** 2 / expected).sum()
    assert 63 - 4 * 126**0.5 < chi_squared < 63 + 4 * 126**0.5
    together = np.corrcoef(draws.T) - np.eye(8)
    assert np.abs(together).max() < 4 / N**0.5
    along = np.corrcoef(draws[1:, 0], draws[:-1, 0])[0, 1]
    assert abs(along) < 4 / N**0.5


def test_bounds_of_every_shape():
    low = np.linspace(-5, 5, N)
    unit = Draws(1, 2, np.arange(N)).uniform()
    scalars = Draws(1, 2, np.arange(N)).uniform(low=2.0, high=6.0)
    np.testing.assert_allclose(scalars, 2 + 4 * unit)
    per_sample = Draws(1, 2, np.arange(N)).uniform(low=low, high=low + 1)
    assert per_sample.shape == (N,)
    np.testing.assert_allclose(per_sample, low + unit)
    columns = Draws(1, 2, np.arange(N)).uniform(3, [0, 10, 20], [1, 11, 21])
    np.testing.assert_array_equal(np.floor(columns), np.tile([0, 10, 20], (N, 1)))


def test_integers_include_both_ends():
    values = Draws(0, 0, np.arange(N)).integers(-2, 3)
    np.testing.assert_array_equal(np.unique(values), np.arange(-2, 4))
    high = np.arange(N)
    values = Draws(0, 0, np.arange(N)).integers(high - 1, high)
    assert ((values == high) | (values == high - 1)).all() and len(np.unique(values - high)) == 2


def test_permutations_are_permutations_all_alike():
    values = Draws(0, 0, np.arange(6 * N)).permutation(3)
    orders, counts = np.unique(values, axis=0, return_counts=True)
    np.testing.assert_array_equal(np.sort(values, axis=1), np.tile(np.arange(3), (6 * N, 1)))
    assert len(orders) == 6 and np.abs(counts - N).max() < 5 * N**0.5


def test_keys_have_all_their_bits():
    keys = Draws(0, 0, np.arange(N)).keys()
    assert keys.shape == (N, 2) and keys.dtype == np.uint32
    ones = np.unpackbits(keys.view(np.uint8)).reshape(N, 64).mean(axis=0)
    assert np.abs(ones - 0.5).max() < 5 * 0.5 / N**0.5


def test_no_samples():
    draws = Draws(0, 0, [])
    assert draws.uniform().shape == (0,) and draws.uniform(3).shape == (0, 3) and draws.keys().shape == (0, 2)
