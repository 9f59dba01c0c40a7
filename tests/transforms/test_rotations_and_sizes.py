"""90-degree rotations, random sizes, zoom-out, five and ten crops: torchvision's arithmetic, and distributions."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from cuaug import TransformError
from cuaug import functional as F
from cuaug import transforms as T
from tests.support.run_plans import assert_same
from tests.transforms.test_geometry import is_uniform, params

sides = st.integers(1, 700)
SMALL = np.random.default_rng(0).integers(0, 256, (9, 9, 3), dtype=np.uint8)


def test_random_rot90_rotations_are_equally_likely():
    n = 4000
    got = T.RandomRot90()(np.stack([SMALL] * n))
    turns = {np.rot90(SMALL, k).tobytes(): k for k in range(4)}
    assert is_uniform(Counter(turns[image.tobytes()] for image in got), 4, n)
    assert set(params(T.RandomRot90((1, 2)), 9, 9)["k"]) == {1, 2}
    kept = (T.RandomRot90((2, 2), p=0.25)(np.stack([SMALL] * n)) == SMALL).all(axis=(1, 2, 3)).mean()
    assert abs(kept - 0.75) < 5 * math.sqrt(0.25 * 0.75 / n)


def test_d4_symmetries_are_equally_likely():
    n = 8000
    got = T.D4()(np.stack([SMALL] * n))
    eight = {symmetry.tobytes() for k in range(4) for symmetry in (np.rot90(SMALL, k), np.rot90(SMALL, k)[:, ::-1])}
    assert len(eight) == 8
    counts = Counter(image.tobytes() for image in got)
    assert set(counts) == eight and is_uniform(counts, 8, n)


def test_rotating_images_that_are_not_square_changes_their_sizes():
    images = np.zeros((40, 4, 6, 3), np.uint8)
    for transform in (T.RandomRot90(), T.D4()):
        with pytest.raises(TransformError, match="different sizes"):
            transform(images)
        assert T.Compose([transform, T.CenterCrop(4)])(images).shape == (40, 4, 4, 3)


@given(sides, sides, st.integers(1, 500), st.integers(1, 50))
def test_random_resize_draws_the_length_of_the_shorter_side(h, w, least, more):
    drawn = params(T.RandomResize(least, least + more), h, w, n=400)
    short, long = np.minimum(drawn["height"], drawn["width"]), np.maximum(drawn["height"], drawn["width"])
    assert least <= short.min() and short.max() <= least + more - 1, "the upper bound is exclusive"
    assert more > 40 or set(short) == set(range(least, least + more))
    assert (long == short * max(h, w) // min(h, w)).all()
    assert (drawn["height"] <= drawn["width"]).all() if h <= w else (drawn["height"] >= drawn["width"]).all()


@given(sides, sides, sides, sides)
def test_resize_to_cover_is_pillows_cover(h, w, height, width):
    drawn = params(T.ResizeToCover((height, width)), h, w, n=1)
    got = int(drawn["height"][0]), int(drawn["width"][0])
    assert (got[0] == height and got[1] >= width) or (got[0] >= height and got[1] == width)
    with Image.new("L", (w, h)) as image:
        wanted = ImageOps.cover(image, (width, height)).size[::-1]
    # Pillow rounds to a side that does not cover, by one, if the proportions are almost equal.
    assert got == (max(wanted[0], height), max(wanted[1], width))


def shortest_size(h: int, w: int, min_size: int, max_size: int | None) -> tuple[int, int]:
    """torchvision.transforms.v2.RandomShortestSize, as of 0.20, but never 0."""
    r = min_size / min(h, w)
    if max_size is not None:
        r = min(r, max_size / max(h, w))
    return max(int(h * r), 1), max(int(w * r), 1)


@given(
    sides, sides, st.lists(st.integers(1, 900), min_size=1, max_size=4, unique=True), st.none() | st.integers(1, 900)
)
def test_random_shortest_size_is_torchvisions(h, w, lengths, max_size):
    drawn = params(T.RandomShortestSize(lengths, max_size), h, w, n=300)
    got = set(zip(drawn["height"].tolist(), drawn["width"].tolist(), strict=True))
    assert got == {shortest_size(h, w, length, max_size) for length in lengths}


@given(sides, sides, st.integers(1, 600), st.integers(1, 600), st.integers(0, 99))
def test_scale_jitter_fits_into_width_and_height(h, w, target_w, target_h, seed):
    """torchvision's target_size is (width, height): r = min(target_size[1] / h, target_size[0] / w)."""
    drawn = params(T.ScaleJitter((target_w, target_h), (1, 1)), h, w, n=1)
    r = min(target_h / h, target_w / w)
    assert (int(drawn["height"][0]), int(drawn["width"][0])) == (max(int(h * r), 1), max(int(w * r), 1))
    jittered = params(T.ScaleJitter((target_w, target_h), (0.5, 2)), h, w, n=50, seed=seed)
    for name, size in (("height", h), ("width", w)):
        assert (jittered[name] >= max(int(size * r * 0.5), 1)).all() and (jittered[name] <= max(size * r * 2, 1)).all()


def test_scale_jitter_is_uniform():
    drawn = params(T.ScaleJitter(1000, (0.1, 2.0)), 500, 1000, n=9000)["width"] / 1000
    assert drawn.min() > 0.0989 and drawn.max() <= 2.0
    np.testing.assert_allclose(np.quantile(drawn, [0.25, 0.5, 0.75]), [0.575, 1.05, 1.525], atol=0.04)


def test_random_zoom_out_positions_are_uniform():
    left, top, right, bottom = sides = params(T.RandomZoomOut(), 40, 100, n=6000)["sides"].T
    width, height = left + 100 + right, top + 40 + bottom
    assert sides.min() == 0
    assert 100 <= width.min() < 101 and 398 <= width.max() < 400 and 158 <= height.max() <= 159
    assert np.abs(width / 100 - height / 40).max() < 0.025, "one ratio for both"
    roomy = width > 200
    across, down = (left / (left + right).clip(1))[roomy], (top / (top + bottom).clip(1))[roomy]
    assert abs(across.mean() - 0.5) < 0.02 and abs(down.mean() - 0.5) < 0.02
    assert abs(np.corrcoef(across, down)[0, 1]) < 0.06


@pytest.mark.parametrize("size", [(4, 6), 5, (7, 1)])
def test_five_crop_is_the_corners_and_the_center(size):
    image = np.random.default_rng(0).integers(0, 256, (11, 14, 3), dtype=np.uint8)
    h, w = (size, size) if isinstance(size, int) else size
    top, left = round((11 - h) / 2), round((14 - w) / 2)
    want = [image[:h, :w], image[:h, -w:], image[-h:, :w], image[-h:, -w:], image[top : top + h, left : left + w]]
    got = F.five_crop(image, size)
    assert isinstance(got, tuple) and len(got) == 5
    for one, other in zip(got, want, strict=True):
        assert_same(one, other)
    for vertical, mirrored in ((False, image[:, ::-1]), (True, image[::-1])):
        ten = F.ten_crop(image, size, vertical)
        for one, other in zip(ten, (*want, *F.five_crop(mirrored.copy(), size)), strict=True):
            assert_same(one, other)
    stack = torch.from_numpy(np.stack([image, image[::-1]])).permute(0, 3, 1, 2)
    assert torch.stack(F.five_crop(stack, size)).shape == (5, 2, 3, h, w)


def test_functional_center_crop_equals_the_transform():
    assert_same(F.center_crop(SMALL, (4, 12)), T.CenterCrop((4, 12))(SMALL))
