"""Rotation, affine, perspective and distortions: torchvision's conventions, and distributions of draws."""

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
from cuaug.transforms import warps
from tests.references import warp as reference
from tests.support import run_plans
from tests.support.run_plans import assert_close, assert_same
from tests.support.tolerances import EXACT, GRID_SAMPLE
from tests.transforms.test_geometry import params

sides = st.integers(1, 40)
degrees = st.floats(-720, 720, width=32)
FILTERS = ["nearest", "bilinear", "bicubic"]


def noise(h: int, w: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (h, w, 3), dtype=np.uint8)


def assert_grid_sampled(got: torch.Tensor, image: torch.Tensor, matrix: np.ndarray, mode: str, size=None) -> None:
    """`got` equals torchvision: pixel centers relative to the image center, through the matrix, into grid_sample.

    Nearest: a point on the border of two pixels may take either.
    """
    _, h, w = image.shape
    new_h, new_w = size or (h, w)
    x, y = np.arange(new_w) + 0.5 - new_w / 2, np.arange(new_h) + 0.5 - new_h / 2
    points = np.stack([*np.meshgrid(x, y), np.ones((new_h, new_w))], axis=-1) @ matrix.T
    places = points[..., :2] / points[..., 2:]
    grid = torch.from_numpy(places / (w / 2, h / 2))[None]
    want = torch.nn.functional.grid_sample(image[None].double(), grid, mode, "zeros", align_corners=False)[0]
    places = places + (w / 2, h / 2)
    is_unique = (np.abs(places - np.round(places)) > 1e-6).all(axis=-1) | (mode != "nearest")
    assert got.shape == want.shape
    assert_close(got[:, is_unique], want[:, is_unique], GRID_SAMPLE)


@given(sides, sides, degrees, st.booleans(), st.booleans(), st.sampled_from(["nearest", "bilinear"]))
def test_rotate_is_torchvisions(h, w, angle, expand, off_center, mode):
    image = torch.from_numpy(np.random.default_rng(0).random((3, h, w), dtype=np.float32))
    center = (w / 4, 3.5) if off_center and not expand else None
    relative = (0, 0) if center is None else (center[0] - w / 2, center[1] - h / 2)
    matrix = reference.inverse_affine(relative, -angle, (0, 0), 1.0, (0, 0))
    size = reference.expanded_size(h, w, angle) if expand else (h, w)
    got = F.rotate(image, angle, mode, expand, center)
    assert_grid_sampled(got, image, matrix, mode, size)


@pytest.mark.parametrize("filter", FILTERS)
@pytest.mark.parametrize("size", [(6, 9), (7, 4), (5, 5), (8, 8), (1, 3)])
def test_rotations_by_multiples_of_90_degrees_are_exact(filter, size):
    image = noise(*size)
    for turns in range(-4, 9):
        assert_same(F.rotate(image, 90.0 * turns, filter, expand=True), np.rot90(image, turns))
        if turns % 2 == 0 or size[0] == size[1]:
            assert_same(F.rotate(image, 90 * turns, filter), np.rot90(image, turns))
            assert_same(F.affine(image, -90 * turns, (0, 0), 1, 0, filter), np.rot90(image, turns))


def test_expand_rotates_about_the_image_center_whatever_the_center_argument():
    image = noise(9, 12)
    assert_same(F.rotate(image, 33, "bilinear", True, (0, 0)), F.rotate(image, 33, "bilinear", True))


shears = st.floats(-60, 60, width=32)


@given(sides, sides, degrees, st.tuples(shears, shears), st.floats(0.25, 4), st.data())
def test_affine_is_torchvisions(h, w, angle, shear, scale, data):
    image = torch.from_numpy(np.random.default_rng(0).random((3, h, w), dtype=np.float32))
    translate = data.draw(st.tuples(st.floats(-w, w, width=16), st.floats(-h, h, width=16)))
    center = data.draw(st.none() | st.tuples(st.floats(0, w, width=16), st.floats(0, h, width=16)))
    mode = data.draw(st.sampled_from(["nearest", "bilinear"]))
    relative = (0, 0) if center is None else (center[0] - w / 2, center[1] - h / 2)
    matrix = reference.inverse_affine(relative, angle, translate, scale, shear)
    got = F.affine(image, angle, translate, scale, shear, mode, center=center)
    assert_grid_sampled(got, image, matrix, mode)


def test_forms_of_shear():
    image = noise(21, 21)
    assert_same(F.affine(image, 0, (0, 0), 1, 30), F.affine(image, 0, (0, 0), 1, (30, 0)))
    assert_same(F.affine(image, 0, (0, 0), 1, [30]), F.affine(image, 0, (0, 0), 1, (30, 30)))


def test_random_affine_draws_like_torchvision():
    transform = T.RandomAffine(20, (0.1, 0.25), (0.5, 2.0), (-5, 10, 1, 2))
    drawn = params(transform, 40, 90, n=20_000)
    assert drawn["angle"].min() < -19.9 and drawn["angle"].max() > 19.9 and abs(drawn["angle"].mean()) < 0.5
    across, down = drawn["translate"].T
    assert set(across) == set(range(-9, 10)) and set(down) == set(range(-10, 11)), "whole pixels, both bounds included"
    assert (across == 9).mean() == pytest.approx(0.5 / 18, abs=0.005), "rounded: the bounds get half the probability"
    assert 0.5 <= drawn["scale"].min() < 0.501 and 1.999 < drawn["scale"].max() <= 2.0
    (low_x, low_y), (high_x, high_y) = drawn["shear"].min(axis=0), drawn["shear"].max(axis=0)
    assert -5 <= low_x < -4.99 and 9.99 < high_x <= 10 and 1 <= low_y < 1.01 and 1.99 < high_y <= 2
    plain = params(T.RandomAffine((3, 3), shear=7), 40, 90)
    assert (plain["angle"] == 3).all() and (plain["scale"] == 1).all() and (plain["translate"] == 0).all()
    assert (plain["shear"][:, 1] == 0).all() and 6.9 < np.abs(plain["shear"][:, 0]).max() <= 7


SQUARE = [[0, 0], [30, 0], [30, 24], [0, 24]]
MOVED = [[3, 5], [26, 1], [30, 21], [6, 24]]


@given(st.integers(12, 40), st.integers(12, 40), st.integers(0, 999), st.sampled_from(["nearest", "bilinear"]))
def test_perspective_is_torchvisions(h, w, seed, mode):
    drawn = {name: points[0] for name, points in params(T.RandomPerspective(), h, w, n=1, seed=seed).items()}
    matrix = reference.perspective(drawn["startpoints"], drawn["endpoints"])
    image = torch.from_numpy(np.random.default_rng(seed).random((3, h, w), dtype=np.float32))
    middle = np.array([[1, 0, w / 2], [0, 1, h / 2], [0, 0, 1]])
    by_corners = F.perspective(image, drawn["startpoints"].tolist(), drawn["endpoints"].tolist(), mode)
    by_coefficients = F.perspective(image, None, None, mode, coefficients=matrix.reshape(9)[:8].tolist())
    for got in (by_corners, by_coefficients):
        assert_grid_sampled(got, image, np.linalg.inv(middle) @ matrix @ middle, mode)


def test_random_perspective_draws_corners_like_torchvision():
    drawn = params(T.RandomPerspective(0.5), 41, 60, n=40_000)
    assert (drawn["startpoints"] == [[0, 0], [59, 0], [59, 40], [0, 40]]).all()
    x, y = drawn["endpoints"][..., 0], drawn["endpoints"][..., 1]
    near_x, near_y = set(range(16)), set(range(11))  # int(0.5 * 30) + 1 and int(0.5 * 20) + 1 places
    far_x, far_y = {59 - k for k in near_x}, {40 - k for k in near_y}
    for corner, (want_x, want_y) in enumerate([(near_x, near_y), (far_x, near_y), (far_x, far_y), (near_x, far_y)]):
        assert set(x[:, corner]) == want_x and set(y[:, corner]) == want_y
        counts = np.unique(x[:, corner], return_counts=True)[1]
        assert np.abs(counts - 2500).max() < 5 * math.sqrt(2500)


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (7, 1), (2, 2), (3, 2), (9, 9)])
@pytest.mark.parametrize("scale", [0.0, 0.5, 1.0])
def test_collinear_corners_leave_the_image_unchanged(size, scale):
    """torchvision solves for them anyway, with an arbitrary result."""
    images = np.stack([noise(*size)] * 400)
    got = T.RandomPerspective(scale, p=1)(images)
    drawn = params(T.RandomPerspective(scale), *size, n=400)
    for corners in (drawn["endpoints"], drawn["startpoints"]):
        is_collinear = ~warps.is_regular(corners)
        matrix = warps.perspective(drawn["startpoints"], drawn["endpoints"])
        assert np.isfinite(matrix).all() and (matrix[is_collinear] == np.eye(3)).all()
    if min(size) == 1 or scale == 0:
        assert_same(got, images)


def test_a_perspective_that_sends_the_origin_to_infinity():
    """Both the upper and the lower edge pass through (0, 0), so torchvision's eight coefficients do not exist."""
    new = np.array([[[6, 0], [8, 0], [8, 8], [2, 2]]], dtype=float)
    old = np.array([[[0, 0], [8, 0], [8, 8], [0, 8]]], dtype=float)
    matrix = warps.perspective(old, new)[0]
    found = np.append(new[0], np.ones((4, 1)), axis=1) @ matrix.T
    np.testing.assert_allclose(found[:, :2] / found[:, 2:], old[0], atol=1e-9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[0, 0], [1, 0], [2, 0], [0, 9]], SQUARE), "startpoints must be four .* no three of them on a line"),
        ((SQUARE, SQUARE[:3]), r"endpoints must be .* \(4, 2\), not \(3, 2\)"),
        ((None, None, "bilinear", None, [1, 2]), r"coefficients must be .* \(8,\), not \(2,\)"),
    ],
)
def test_invalid_corners_are_refused(arguments, message):
    with pytest.raises(TransformError, match=message):
        F.perspective(noise(9, 9), *arguments)


def test_images_of_different_sizes_rotate_about_their_own_centers():
    batch = [noise(*size) for size in [(9, 14), (14, 9), (30, 31)]]
    angles = np.array([90.0, -90.0, 180.0])
    for transform in (T.RandomRotation(180, expand=True), T.RandomRotation(180, "bilinear", expand=True)):
        plan = run_plans.plan_for(*batch)
        transform.write(plan, None, angle=angles)
        for got, image, turns in zip(run_plans.run(plan, batch), batch, (1, -1, 2), strict=True):
            assert_same(np.rint(got * 255).astype(np.uint8), np.rot90(image, turns))


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
