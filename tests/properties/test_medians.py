"""Medians against OpenCV and NumPy, and over all windows of zeros and ones."""

from __future__ import annotations

import itertools

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuaug._runtime.native import ISAS
from cuaug.plan import Type
from tests.references import filters as reference
from tests.support.run_plans import assert_same, plan_for, run_one
from tests.support.strategies import images, sizes

SIZES = st.sampled_from([3, 5, 7])
tiles = st.none() | st.tuples(st.integers(1, 40), st.integers(1, 70))


@given(images(size=st.tuples(st.integers(1, 70), st.integers(1, 70)) | sizes(20_000)), SIZES, tiles)
def test_medians_equal_opencv(image, size, tile):
    plan = plan_for(image)
    plan.median(size)
    assert_same(run_one(plan, image, Type.UINT8, tile=tile), cv2.medianBlur(image, size))


@given(images(size=st.tuples(st.integers(1, 24), st.integers(1, 24)), dtype=np.float32), SIZES)
def test_medians_of_floats_equal_numpy(image, size):
    plan = plan_for(image)
    plan.median(size)
    assert_same(run_one(plan, image), reference.median(image, size).astype(np.float32))


@pytest.mark.parametrize("size", [3, 5, 7])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_medians_of_zeros_and_ones(size, dtype):
    """A network of comparisons is right for all values if it is right for these (Knuth, TAOCP 3, 5.3.4).

    Sorted along its columns and rows, a window of them is known by how many ones each column has.
    """
    rng = np.random.default_rng(size)
    ones = np.array(list(itertools.combinations_with_replacement(range(size + 1), size)))
    sorted_columns = np.arange(size)[:, None] < rng.permuted(ones, axis=1)[:, None, :]
    windows = rng.permuted(sorted_columns, axis=1)  # each column on its own
    image = np.repeat(np.concatenate(list(windows), axis=1)[..., None], 3, axis=2).astype(dtype)
    plan = plan_for(image)
    plan.median(size)
    want = (windows.sum(axis=(1, 2)) > size * size // 2).astype(dtype)
    for isa in ISAS:
        got = run_one(plan, image, Type.UINT8 if dtype == np.uint8 else Type.FLOAT32, isa=isa)
        assert_same(got[size // 2, size // 2 :: size], np.repeat(want[:, None], 3, axis=1))
