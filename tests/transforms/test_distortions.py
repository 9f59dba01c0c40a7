"""Elastic and grid distortion: torchvision's formulas, and distributions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cuaug import TransformError
from cuaug import functional as F
from cuaug import transforms as T
from cuaug.sampling.rng import SampleRNG
from tests.references import warp as reference
from tests.support import run_plans
from tests.support.run_plans import assert_close, assert_same
from tests.support.tolerances import EXACT, GRID_SAMPLE
from tests.transforms.test_geometry import params
from tests.transforms.test_warps import noise


def dense(h: int, w: int, n: int, sigma: tuple[float, float], seed: int = 0) -> np.ndarray:
    """(n, h, w, 2): ElasticTransform's displacement of each pixel, in units of its noise, interpolated."""
    drawn = params(T.ElasticTransform(2.0, sigma), h, w, n=n, seed=seed)  # alpha / 2 pixels times the noise
    rows, columns = int(drawn["rows"][0]), int(drawn["columns"][0])

    def between(size: int, nodes: int) -> np.ndarray:
        at = (np.arange(size) + 0.5) / size * (nodes - 1)
        return np.maximum(1 - np.abs(at[:, None] - np.arange(nodes)), 0)

    return np.einsum("yr,nrck,xc->nyxk", between(h, rows), drawn["field"], between(w, columns), optimize=True)


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [(1.0, 1.0), (2.5, 8.0)])
def test_elastic_noise_has_torchvisions_variance_and_covariance(sigma):
    """Variance, and covariance over distance, inside and at the borders, against torchvision's formula."""
    h, w, n = 64, 80, 1200
    got = dense(h, w, n, sigma)
    want = reference.elastic_noise(h, w, *sigma, np.random.default_rng(1), n)
    inside = 1 / math.sqrt(12 * math.pi * sigma[0] * sigma[1])
    assert abs(got.mean()) < 0.02 * inside
    middle = (slice(None), slice(25, 40), slice(30, 50))
    for part, factor in ((middle, 1.0), ((slice(None), 0, slice(30, 50)), 2**0.5), ((slice(None), 0, 0), 2.0)):
        for k in (0, 1):
            std = got[part][..., k].std()
            # torchvision mirrors at the center of the first pixel, cuaug at its edge: half a pixel apart.
            at_border = 0.4 / min(sigma) if factor > 1.0 else 0.0
            assert std == pytest.approx(want[part].std(), rel=0.04 + at_border)
            assert std == pytest.approx(factor * inside, rel=0.04 + at_border)
    for axis, (length, at) in enumerate(((sigma[1], 25), (sigma[0], 30)), start=1):
        for distance in (1, round(length), round(2 * length)):
            one = (slice(None), slice(20, 40), slice(25, 50))
            other = list(one)
            other[axis] = slice(one[axis].start + distance, one[axis].stop + distance)
            expected = math.exp(-(distance**2) / (4 * length**2))
            for field in (got[..., 0], got[..., 1], want):
                correlation = (field[one] * field[tuple(other)]).mean() / inside**2
                assert correlation == pytest.approx(expected, abs=0.06), (axis, distance, at)
    assert abs((got[..., 0] * got[..., 1])[middle].mean()) < 0.06 * inside**2, "x and y are independent"


def test_elastic_alpha_scales_as_in_torchvision():
    """By alpha / 2 pixels along both axes, whatever the image's size."""
    one = params(T.ElasticTransform(1.0), 30, 60, n=3)["field"]
    other = params(T.ElasticTransform((2.0, 3.0)), 30, 60, n=3)["field"]
    np.testing.assert_allclose(other, one * [3.0, 2.0])
    std = params(T.ElasticTransform(1.0), 120, 240, n=200)["field"][:, 10:-10, 10:-10].std(axis=(0, 1, 2))
    inside = 1 / math.sqrt(12 * math.pi) / 5
    np.testing.assert_allclose(std, [inside / 2, inside / 2], rtol=0.1)


def test_an_elastic_sample_is_independent_of_other_sizes_in_the_batch():
    """Images of different sizes have different node grids; each has the same bits as alone."""
    batch = [noise(*size, seed) for seed, size in enumerate([(40, 57), (224, 30), (1, 1), (12, 91), (2, 5), (40, 57)])]
    transform = T.ElasticTransform((80, 40), (4, 3), padding_mode="edge")
    plan = run_plans.plan_for(*batch)
    transform.plan(plan, SampleRNG(3, 1, np.arange(6)))
    together = run_plans.run(plan, batch)
    for i, image in enumerate(batch):
        alone = run_plans.plan_for(image)
        transform.plan(alone, SampleRNG(3, 1, [i]))
        assert_same(together[i], run_plans.run_one(alone, image))
    assert (together[0] != together[5]).any()
    assert plan.compile().launches == 1


@given(st.integers(1, 20), st.integers(1, 20), st.integers(0, 99))
def test_functional_elastic_is_torchvisions(h, w, seed):
    rng = np.random.default_rng(seed)
    image = torch.from_numpy(rng.random((3, h, w), dtype=np.float32))
    displacement = torch.from_numpy(rng.normal(0, 0.2, (1, h, w, 2)))
    y, x = np.meshgrid((np.arange(h) + 0.5) / h * 2 - 1, (np.arange(w) + 0.5) / w * 2 - 1, indexing="ij")
    grid = torch.from_numpy(np.stack([x, y], axis=-1))[None] + displacement
    want = torch.nn.functional.grid_sample(image[None].double(), grid, "bilinear", "zeros", align_corners=False)[0]
    assert_close(F.elastic(image, displacement), want, GRID_SAMPLE)
    stack = torch.stack([image, image.flip(2)])
    both = F.elastic(stack, torch.cat([displacement, torch.zeros_like(displacement)]))
    assert_close(both[0], want, GRID_SAMPLE)
    assert_close(both[1], image.flip(2), EXACT)


def test_functional_elastic_refuses_a_field_of_another_size():
    with pytest.raises(TransformError, match=r"displacement must be \(1, 5, 6, 2\) here, not \(1, 6, 5, 2\)"):
        F.elastic(noise(5, 6), np.zeros((1, 6, 5, 2)))


def test_grid_distortion_cells_are_uniform():
    steps = params(T.GridDistortion(5, (-0.2, 0.6), normalized=False), 50, 50, n=9000)["steps_x"]
    assert 0.8 <= steps.min() < 0.801 and 1.599 < steps.max() <= 1.6 and np.abs(steps.mean(axis=0) - 1.2).max() < 0.02
    whole = params(T.GridDistortion(5), 50, 50)["steps_y"]
    np.testing.assert_allclose(whole.sum(axis=1), 5)
