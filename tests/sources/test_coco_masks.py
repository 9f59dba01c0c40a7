"""Masks of COCO's segmentations, against pycocotools, and their limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuaug import DecodeError
from cuaug.sources.coco_masks import draw
from tests.sources.test_coco import H, W, annotation_file, open_coco

_sides = st.integers(1, 40)

mask_tools = pytest.importorskip("pycocotools.mask")


def draw_mask(segment: Any, height: int, width: int) -> np.ndarray:
    mask = np.zeros((height, width), dtype=np.uint8)
    draw(segment, mask)
    return mask


@given(_sides, _sides, st.data())
def test_runs_match_pycocotools(height, width, data):
    bits = data.draw(st.lists(st.booleans(), min_size=height * width, max_size=height * width))
    mask = np.array(bits, dtype=np.uint8).reshape(height, width)
    packed = mask_tools.encode(np.asfortranarray(mask))["counts"].decode()
    np.testing.assert_array_equal(draw_mask({"size": [height, width], "counts": packed}, height, width), mask)
    by_columns = np.concatenate([[0], mask.T.reshape(-1)])
    counts = np.diff([0, *np.flatnonzero(np.diff(by_columns)), mask.size]).tolist()
    np.testing.assert_array_equal(draw_mask({"counts": counts}, height, width), mask)


def test_long_runs_match_pycocotools():
    """Run lengths of several characters, and negative differences."""
    mask = np.zeros((700, 900), dtype=np.uint8)
    mask[3:650, 7:9], mask[1:3, 500:], mask[699, 899] = 1, 1, 1
    packed = mask_tools.encode(np.asfortranarray(mask))
    np.testing.assert_array_equal(draw_mask({"counts": packed["counts"].decode()}, 700, 900), mask)


_coordinates = st.one_of(
    st.integers(-60, 100).map(lambda number: number / 5), st.floats(-30, 60, width=32), st.integers(-5, 45)
)


@given(_sides, _sides, st.lists(st.lists(_coordinates, min_size=6, max_size=24), min_size=1, max_size=4))
def test_polygons_match_pycocotools(height, width, polygons):
    want = mask_tools.decode(mask_tools.merge(mask_tools.frPyObjects(polygons, height, width)))
    np.testing.assert_array_equal(draw_mask(polygons, height, width), want)


def test_a_large_polygon_matches_pycocotools():
    angles = np.linspace(0, 40 * np.pi, 3000)
    polygon = np.stack([900 + angles * 7 * np.cos(angles), 700 + angles * 6 * np.sin(angles)], axis=1).ravel().tolist()
    want = mask_tools.decode(mask_tools.merge(mask_tools.frPyObjects([polygon], 1300, 1800)))
    np.testing.assert_array_equal(draw_mask([polygon], 1300, 1800), want)


@pytest.mark.parametrize("claim", [{"height": 60_000, "width": 60_000}, {"height": 2**31, "width": 2}])
def test_a_huge_claimed_size_damages_one_sample_and_allocates_nothing(tmp_path, claim):
    content = annotation_file()
    content["images"][2] |= claim
    content["annotations"][0]["segmentation"] = [[0, 0, 60_000, 0, 60_000, 60_000, 0, 60_000]]
    source = open_coco(tmp_path, content, masks=True)
    with pytest.raises(DecodeError, match=r"the annotations claim .* above the limit max_pixels"):
        source.label(2)
    assert source.label(0)["masks"].shape == (1, H, W)


def test_max_bytes_limits_all_masks_of_an_image_together(tmp_path):
    source = open_coco(tmp_path, masks=True)
    source.max_bytes = 2 * H * W - 1
    with pytest.raises(DecodeError, match=r"the masks of 2 instances take 384 bytes, above the limit max_bytes=383"):
        source.label(2)
    source.max_bytes = 2 * H * W
    assert source.label(2)["masks"].shape == (2, H, W)
