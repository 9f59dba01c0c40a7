"""Where warps sample, against doubles, in images of up to 65,535 pixels a side.

Channels of the source alternate between 0 and 255 from pixel to pixel, so an interpolated value tells the point: 255
levels are a pixel.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cuaug.plan import Border, Filter, Type
from tests.references.warp import displacement
from tests.support.run_plans import assert_same, plan_for, run_one
from tests.support.strategies import BORDERS, FILTERS

SIZE = 48  # pixels a side of the part of the output that is compared


def stripes(height: int, width: int) -> np.ndarray:
    """Channel 0 alternates from column to column, channel 1 from row to row."""
    image = np.zeros((height, width, 3), dtype=np.uint8)
    image[:, 1::2, 0] = image[1::2, :, 1] = 255
    return image


def triangle_wave(points: np.ndarray) -> np.ndarray:
    """The stripes at points in pixels, interpolated linearly; the first center is 0.5."""
    return 255 * (1 - np.abs((points - 0.5) % 2 - 1))


def point_errors(matrix, top: int, left: int, height: int, width: int, source, field=None) -> np.ndarray:
    """Errors in pixels of the points of a SIZE x SIZE part of an output of height x width, inside the source."""
    plan = plan_for(source)
    plan.warp(matrix, height, width, field=field, border=Border.EDGE)
    plan.crop(top, left, SIZE, SIZE)
    made = run_one(plan, source, Type.FLOAT32).astype(np.float64) * 255
    y, x = np.mgrid[top : top + SIZE, left : left + SIZE] + 0.5
    if field is not None:
        moves = np.vectorize(lambda y, x: displacement(field.astype(np.float64), y, x, height, width))(y, x)
        y, x = y + moves[0], x + moves[1]
    across, down, depth = np.einsum("ij,jyx->iyx", np.asarray(matrix), np.stack([x, y, np.ones_like(x)]))
    across, down = across / depth, down / depth
    h, w, _ = source.shape
    inside = (across > 1) & (across < w - 1) & (down > 1) & (down < h - 1)
    assert inside.mean() > 0.02, "too few points in the source"
    errors = [np.abs(made[..., c] - triangle_wave(at))[inside] for c, at in enumerate((across, down))]
    return np.concatenate(errors) / 255


def linear(degrees: float, scale: float, shear: float) -> np.ndarray:
    angle = np.deg2rad(degrees)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return turn @ np.array([[scale, shear], [0, scale]])


def through(part: np.ndarray, last, place: tuple[float, float], goal: tuple[float, float]) -> np.ndarray:
    """A matrix with this upper left part and last row that maps the output's `place` to `goal`, both (x, y)."""
    matrix = np.eye(3)
    matrix[:2, :2], matrix[2] = part, last
    depth = matrix[2] @ (*place, 1)
    matrix[:2, 2] = np.asarray(goal) * depth - part @ place
    return matrix


ANGLES, SCALES, SHEARS = st.floats(-180, 180), st.floats(0.1, 0.7), st.floats(-0.3, 0.3)
SIDES = st.sampled_from([SIZE, 3000, 65535])


@given(ANGLES, SCALES, SHEARS, SIDES, SIDES)
def test_affine_points_at_the_far_corner(degrees, scale, shear, height, width):
    place = width - SIZE / 2, height - SIZE / 2
    matrix = through(linear(degrees, scale, shear), (0, 0, 1), place, (50.3, 49.8))
    errors = point_errors(matrix, height - SIZE, width - SIZE, height, width, stripes(100, 100))
    assert errors.max() <= (height + width + 1) * 2**-33 + 4 * 2**-24


@given(ANGLES, SCALES, SHEARS, SIDES, SIDES, st.floats(-0.45, 0.45), st.floats(-0.45, 0.45))
def test_perspective_points_at_the_far_corner(degrees, scale, shear, height, width, tilt, lean):
    """The depth at the corner is 0.1 to 1.9 times that at the first corner."""
    place, last = (width - SIZE / 2, height - SIZE / 2), (tilt / width, lean / height, 1)
    matrix = through(linear(degrees, scale, shear), last, place, (50.3, 49.8))
    assume(max(abs(tilt), abs(lean)) > 1e-6)  # below, it is affine
    nearest = 1 + min(tilt, 0) + min(lean, 0)
    errors = point_errors(matrix, height - SIZE, width - SIZE, height, width, stripes(100, 100))
    assert errors.max() <= 6 * 2**-24 + 2 * 2**-25 / nearest


@pytest.mark.parametrize("last", [(0, 0, 1), (-5e-5, 8e-5, 1)], ids=["affine", "perspective"])
def test_points_of_twelve_megapixels(last):
    """Source coordinates of thousands."""
    source = stripes(3000, 4000)
    matrix = through(linear(17, 0.9, 0.1), last, (2000, 1500), (2000, 1500))
    for top, left in ((700, 700), (1476, 1976), (2200, 3000)):
        errors = point_errors(matrix, top, left, 3000, 4000, source)
        assert errors.max() <= 1.2e-6


@pytest.mark.parametrize("last", [(0, 0, 1), (-2e-5, 3e-5, 1)], ids=["affine", "perspective"])
@pytest.mark.parametrize("nodes", [(3, 4), (40, 50)])
def test_displaced_points_at_the_far_corner(nodes, last):
    """Displacements of some ten pixels; nodes more and less than a vector of pixels apart."""
    field = np.random.default_rng(0).normal(0, 12, (*nodes, 2)).astype(np.float32)
    height, width = (3000, 4000) if nodes == (3, 4) else (300, 400)
    matrix = through(linear(30, 0.6, 0.1), last, (width - SIZE / 2, height - SIZE / 2), (150, 150))
    errors = point_errors(matrix, height - SIZE, width - SIZE, height, width, stripes(300, 300), field)
    assert errors.max() <= 64 * 2**-23


@given(FILTERS, BORDERS, st.floats(-0.6, 0.6), st.floats(-0.6, 0.6), st.booleans())
def test_a_part_of_a_warp_has_the_same_bits(filter, border, tilt, lean, displaced):
    """Coordinates depend neither on the crop nor on where vectors of pixels begin."""
    image = np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype=np.uint8)
    field = np.random.default_rng(1).normal(0, 3, (5, 7, 2)).astype(np.float32) if displaced else None
    plan = plan_for(image)
    matrix = through(linear(25, 0.8, 0.2), (tilt / 90, lean / 60, 1), (45, 30), (44, 31))
    plan.warp(matrix, 60, 90, filter=filter, border=border, field=field)
    whole = run_one(plan, image)
    plan.crop(11, 13, 40, 70)
    plan.flip()
    assert_same(run_one(plan, image), np.ascontiguousarray(whole[11:51, 13:83][:, ::-1]))


@given(
    st.floats(27, 300), st.booleans(), st.sampled_from([0.0, 1e-3]), st.sampled_from([Filter.NEAREST, Filter.BILINEAR])
)
def test_far_points_show_the_fill(exponent, negative, tilt, filter):
    """Beyond the range of int, where fixed point wraps around, and beyond that of float."""
    image = np.full((20, 20, 3), 200, dtype=np.uint8)
    plan = plan_for(image)
    far = (-1 if negative else 1) * 2.0**exponent
    plan.warp([[1, 0, far], [0, 1, -far], [tilt, 0, 1]], 20, 20, filter=filter, fill=7)
    assert_same(run_one(plan, image, Type.UINT8), np.full((20, 20, 3), 7, dtype=np.uint8))
