"""Resizes, crops, pads, flips and rotations by 90 degrees: torchvision's arithmetic, and distributions of draws."""

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
from cuaug.plan import Plan
from cuaug.sampling.rng import SampleRNG
from tests.support.run_plans import assert_same

sides = st.integers(1, 700)


def rng(n: int, seed: int = 0, transform: object = None) -> SampleRNG:
    result = SampleRNG(seed, 0, np.arange(n))
    result.next_transform(transform)
    return result


def params(transform: T.Transform, height: int, width: int, n: int = 4000, seed: int = 0) -> dict:
    return transform.make_params(rng(n, seed, transform), np.full(n, height), np.full(n, width))


def sizes_after(transform: T.Transform, height: int, width: int) -> tuple[int, int]:
    plan = Plan([height], [width])
    transform.plan(plan, SampleRNG(0, 0, [0]))
    h, w = plan.sizes
    return int(h[0]), int(w[0])


def within(count: int, n: int, share: float) -> bool:
    """Whether `count` of n draws is within five standard deviations of this share of them."""
    return abs(count - n * share) <= 5 * math.sqrt(n * share * (1 - share))


def is_uniform(counts: Counter, places: int, n: int) -> bool:
    """Whether every place occurs, and about n / places times."""
    return len(counts) == places and all(within(count, n, 1 / places) for count in counts.values())


def torchvision_size(height: int, width: int, size: int, max_size: int | None) -> tuple[int, int]:
    """torchvision.transforms.functional._compute_resized_output_size, as of 0.20."""
    short, long = (width, height) if width <= height else (height, width)
    new_short, new_long = size, int(size * long / short)
    if max_size is not None and new_long > max_size:
        new_short, new_long = int(max_size * new_short / new_long), max_size
    new_w, new_h = (new_short, new_long) if width <= height else (new_long, new_short)
    return max(new_h, 1), max(new_w, 1)


@given(sides, sides, sides, st.none() | st.integers(1, 900))
def test_resize_of_the_shorter_side_is_torchvisions(height, width, size, more):
    max_size = None if more is None else size + more
    got = sizes_after(T.Resize(size, max_size=max_size), height, width)
    assert got == torchvision_size(height, width, size, max_size)


@pytest.mark.parametrize("padding", [None, 1, (1, 0), (2, 0, 0, 1)])
def test_random_crop_positions_are_equally_likely(padding):
    n = 6000
    drawn = params(T.RandomCrop((4, 3), padding), 6, 5, n)
    left, top, right, bottom = T.Pad(padding)._sides if padding is not None else (0, 0, 0, 0)
    places = (6 + top + bottom - 4 + 1) * (5 + left + right - 3 + 1)
    assert is_uniform(Counter(zip(drawn["top"].tolist(), drawn["left"].tolist(), strict=True)), places, n)


@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 30), st.integers(1, 30), st.integers(0, 5))
def test_random_crop_pads_if_needed_as_torchvision(height, width, crop_h, crop_w, padding):
    """Both sides get all missing pixels, so that the image may lie anywhere."""
    drawn = params(T.RandomCrop((crop_h, crop_w), padding, pad_if_needed=True), height, width, n=16)
    left, top, right, bottom = drawn["sides"][0].tolist()
    more_h, more_w = max(crop_h - height - 2 * padding, 0), max(crop_w - width - 2 * padding, 0)
    assert (left, right) == (padding + more_w,) * 2 and (top, bottom) == (padding + more_h,) * 2
    assert (drawn["top"] >= 0).all() and (drawn["top"] + crop_h <= height + top + bottom).all()
    assert (drawn["left"] >= 0).all() and (drawn["left"] + crop_w <= width + left + right).all()


def test_random_crop_refuses_a_smaller_image():
    for chain in ([T.RandomCrop((10, 4))], [T.RandomApply([T.RandomCrop((10, 4))], 1)]):
        with pytest.raises(TransformError, match=r"crop of 10 x 4 .* an image of 9 x 5"):
            T.Compose(chain)(np.zeros((9, 5, 3), np.uint8))
    assert T.RandomCrop((10, 4), pad_if_needed=True)(np.zeros((9, 5, 3), np.uint8)).shape == (10, 4, 3)


@given(st.integers(1, 600), st.integers(1, 600), st.integers(0, 100))
def test_random_resized_crop_stays_in_the_image(height, width, seed):
    drawn = params(T.RandomResizedCrop(9), height, width, n=64, seed=seed)
    assert (drawn["height"] >= 1).all() and (drawn["width"] >= 1).all()
    assert (drawn["top"] >= 0).all() and (drawn["top"] + drawn["height"] <= height).all()
    assert (drawn["left"] >= 0).all() and (drawn["left"] + drawn["width"] <= width).all()


def test_random_resized_crop_area_and_ratio_have_the_documented_distribution():
    scale, ratio = (0.2, 0.4), (0.5, 2.0)
    drawn = params(T.RandomResizedCrop(9, scale, ratio), 1000, 1000, n=20_000)
    area = drawn["height"] * drawn["width"] / 1e6
    aspect = drawn["width"] / drawn["height"]
    assert scale[0] - 0.002 < area.min() < 0.202 and 0.398 < area.max() < scale[1] + 0.002
    assert ratio[0] - 0.005 < aspect.min() < 0.51 and 1.96 < aspect.max() < ratio[1] + 0.01
    assert abs(area.mean() - 0.3) < 0.003, "the area is uniform"
    quarters = np.histogram(np.log2(aspect), bins=4, range=(-1, 1))[0] / 20_000
    assert np.abs(quarters - 0.25).max() < 0.02, "the logarithm of the ratio is uniform"
    free = (1000 - drawn["height"]).clip(1)
    assert abs((drawn["top"] / free).mean() - 0.5) < 0.01, "the place is uniform"


def test_windows_of_fixed_area_are_equally_likely_everywhere():
    """Corners too: a quarter of 6 x 6 pixels is 3 x 3, at 16 positions."""
    n = 6000
    crops = params(T.RandomResizedCrop(9, (0.25, 0.25), (1, 1)), 6, 6, n)
    assert is_uniform(Counter(zip(crops["top"].tolist(), crops["left"].tolist(), strict=True)), 16, n)
    rectangles = params(T.RandomErasing(1, (0.25, 0.25), (1, 1)), 6, 6, n)["rectangle"]
    assert is_uniform(Counter(map(tuple, rectangles.tolist())), 16, n)


@pytest.mark.parametrize(
    ("size", "window"),
    [
        ((600, 11), (292, 0, 15, 11)),  # tall: the full width, width / (3 / 4) rows, rounded
        ((11, 600), (0, 292, 11, 15)),  # wide: the full height, height * 4 / 3 columns
        ((30, 33), (0, 0, 30, 33)),  # the whole image
    ],
)
def test_random_resized_crop_where_no_window_fits(size, window):
    """It takes the largest centered window with a ratio within bounds."""
    drawn = params(T.RandomResizedCrop(9, scale=(4, 5)), *size, n=50)
    assert {tuple(row) for row in np.stack([drawn[k] for k in ("top", "left", "height", "width")], 1)} == {window}


@pytest.mark.parametrize("transform", [T.RandomHorizontalFlip, T.RandomVerticalFlip])
@pytest.mark.parametrize("p", [0, 0.25, 0.5, 1])
def test_flips_with_probability_p(transform, p):
    n = 4000
    images = np.zeros((n, 2, 2, 3), np.uint8)
    images[:, 0, 0] = 255
    flipped = transform(p)(images)[:, 0, 0, 0] == 0
    assert abs(flipped.mean() - p) <= 5 * math.sqrt(p * (1 - p) / n)
    got = transform(1)(images[0])
    assert got[(0, 1) if transform is T.RandomHorizontalFlip else (1, 0)].tolist() == [255] * 3


@pytest.mark.parametrize(("h", "w"), [(375, 500), (500, 375), (1, 900), (64, 64)])
def test_resize_by_the_longer_side_alone(h, w):
    """torchvision, size None: the longer side becomes max_size, the shorter side is rounded down."""
    drawn = params(T.Resize(None, max_size=96), h, w, n=1)
    got = int(drawn["height"][0]), int(drawn["width"][0])
    assert got == ((96, max(96 * w // h, 1)) if h > w else (max(96 * h // w, 1), 96))
    with pytest.raises(TransformError, match="max_size must be given"):
        T.Resize(None)


@pytest.mark.parametrize(
    ("size", "options", "want"),
    [
        (20, {}, (20, 26)),
        ((20, 20), {}, (20, 20)),
        (20, {"max_size": 24}, (18, 24)),
        (None, {"max_size": 30}, (22, 30)),
    ],
)
def test_functional_resize_reads_sizes_like_the_transform(size, options, want):
    """One number is the shorter side, as in torchvision. A bug once used it for both sides."""
    image = np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)
    got = F.resize(image, size, **options)
    assert got.shape == (*want, 3)
    np.testing.assert_array_equal(got, T.Resize(size, **options)(image))


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
