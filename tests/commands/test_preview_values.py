"""`cuaug preview` shows results of any values: normalized, beyond the range, views, gray."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cuaug import TransformError
from cuaug import transforms as T
from cuaug.commands.preview import draw, to_image
from tests.support.codec.encoded_images import photo

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.mark.parametrize(
    "chain",
    [
        [T.Normalize(MEAN, STD)],
        [T.Compose([T.Normalize(MEAN, STD)]), T.RandomHorizontalFlip(0)],
        [T.Normalize(0.5, 0.5)],
        [T.ToDtype(torch.float32, scale=True)],
    ],
)
def test_normalize_is_undone(chain):
    image, chain = photo(40, 60), T.Compose(chain)
    got, note = to_image(next(draw(image, chain, 1)), chain)
    np.testing.assert_array_equal(np.asarray(got), image)
    assert note == ""


def test_normalized_values_beyond_the_range_are_clipped_with_a_note():
    image = photo(40, 60).copy()
    image[-1] = 0
    chain = T.Compose([T.Normalize(MEAN, STD), T.RandomErasing(p=1, value=9.0)])
    got, note = to_image(next(draw(image, chain, 1)), chain)
    changed = (np.asarray(got) != image).any(axis=-1)
    assert changed.any() and (np.asarray(got)[changed] == 255).all()
    assert note == "clipped from 0 ... 2.546"


def test_other_values_beyond_the_range_are_stretched_with_a_note():
    image = photo(40, 60)
    chain = T.Compose([T.RandomApply([T.Normalize(0.5, 0.25)], p=1.0)])
    result = next(draw(image, chain, 1))
    got, note = to_image(result, chain)
    assert note == f"stretched from {result.min():.3f} ... {result.max():.3f}".replace(".000", "")
    values = np.asarray(got).astype(float)
    assert values.min() == 0 and values.max() == 255
    np.testing.assert_allclose(values, (result - result.min()) / np.ptp(result) * 255, atol=0.51)


def test_views_are_shown_side_by_side():
    image, chain = photo(40, 60), T.Compose([T.TenCrop((20, 30))])
    got = np.asarray(to_image(next(draw(image, chain, 1)), chain)[0])
    assert got.shape == (40, 150, 3)
    np.testing.assert_array_equal(got[:20, :30], image[:20, :30])
    np.testing.assert_array_equal(got[20:, :30], image[:20, :-31:-1])


def test_views_of_several_sizes_are_shown_below_each_other():
    image = photo(40, 60)
    chain = T.Compose([T.MultiView([T.CenterCrop(10), T.CenterCrop((20, 44)), T.CenterCrop(10)])])
    got = np.asarray(to_image(next(draw(image, chain, 1)), chain)[0])
    assert got.shape == (30, 44, 3)
    for left in (0, 10):
        np.testing.assert_array_equal(got[:10, left : left + 10], image[15:25, 25:35])
    np.testing.assert_array_equal(got[10:], image[10:30, 8:52])
    assert not got[:10, 20:].any()


@pytest.mark.parametrize("function", [lambda images: images[:, :2], lambda images: images.flatten(1)])
def test_results_that_are_no_image_are_refused(function):
    chain = T.Compose([T.Lambda(function)])
    with pytest.raises(TransformError, match="not an image"):
        to_image(next(draw(photo(4, 6), chain, 1)), chain)


def test_gray_results_and_single_values():
    image = photo(40, 60)
    chain = T.Compose([T.Grayscale()])
    got, _ = to_image(next(draw(image, chain, 1)), chain)
    assert got.mode == "RGB" and got.size == (60, 40)
    assert to_image(np.full((2, 3, 1), 7.0), T.Compose([]))[1] == "stretched from 7 ... 7"
