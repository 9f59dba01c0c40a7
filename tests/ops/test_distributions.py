"""The distributions of a pixel function's parameters."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import cuaug
from cuaug import TransformError
from cuaug.ops.distributions import draw
from cuaug.sampling.rng import SampleRNG

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
