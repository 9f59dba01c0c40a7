"""Tests of the test helpers: comparisons reject wrong results, and loaders run on the CPU by default."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from cuaug import Loader
from cuaug.plan import Type
from tests.references import sampling
from tests.support.run_plans import assert_close, assert_same, plan_for, run_one
from tests.support.tolerances import COLOR, COLOR_LEVELS, EXACT

IMAGE = np.random.default_rng(0).integers(2, 250, (5, 7, 3), dtype=np.uint8)


def with_value(value, at=(3, 2, 1)):
    image = IMAGE.astype(np.result_type(IMAGE, value))
    image[at] = value
    return image


@pytest.mark.parametrize(
    "wrong",
    [
        IMAGE[:, ::-1],
        IMAGE[..., ::-1],
        IMAGE[:4],
        IMAGE.transpose(2, 0, 1),
        IMAGE + np.uint8(2),
        with_value(IMAGE[3, 2, 1] + 2),
        with_value(np.float32(np.nan)),
        with_value(np.float32(np.inf)),
        np.zeros_like(IMAGE),
    ],
)
def test_comparisons_reject_wrong_images(wrong):
    with pytest.raises(AssertionError):
        assert_close(wrong, IMAGE, COLOR_LEVELS)
    with pytest.raises(AssertionError):
        assert_same(wrong, IMAGE)


def test_assert_close_accepts_differences_within_the_tolerance():
    assert_close(IMAGE, IMAGE.astype(float), EXACT)
    assert_close(IMAGE + np.uint8(1), IMAGE, COLOR_LEVELS)
    assert_close([np.nan, np.inf, 0.5], [np.nan, np.inf, 0.5 + COLOR.most / 2], COLOR)


def test_unsigned_differences_do_not_wrap():
    with pytest.raises(AssertionError):
        assert_close(np.array([0], np.uint8), np.array([255], np.uint8), COLOR_LEVELS)


def test_assert_same_rejects_another_dtype_and_the_next_float():
    assert_same(IMAGE, IMAGE.copy())
    with pytest.raises(AssertionError):
        assert_same(IMAGE.astype(np.int16), IMAGE)
    with pytest.raises(AssertionError):
        assert_same(np.nextafter(np.float32(1), np.float32(2)), np.float32(1))


def test_run_notices_a_write_out_of_bounds(monkeypatch):
    from cuaug.devices.cpu import CpuExecutor

    run = CpuExecutor.run
    monkeypatch.setattr(CpuExecutor, "run", lambda self, i, source, target, **k: run(self, i, source, target + 1, **k))
    with pytest.raises(AssertionError, match="out of bounds"):
        run_one(plan_for(IMAGE), IMAGE, Type.UINT8)


@pytest.mark.parametrize("border", ["edge", "reflect", "symmetric", "wrap"])
def test_reference_borders_equal_numpys(border):
    for n, before, after in itertools.product(range(1, 8), range(25), range(25)):
        if max(before, after) < n or int(np.__version__.split(".")[0]) >= 2:  # NumPy 1 is wrong far beyond the ends
            want = np.pad(np.arange(n), (before, after), mode=border)
            assert sampling.border_indices(n, before, after, border).tolist() == want.tolist(), (n, before, after)


def test_loaders_without_a_device_run_on_the_cpu_even_if_there_is_a_gpu(monkeypatch):
    """Tests outside tests/loader read their batches with NumPy; tests/loader sets the device."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert Loader(["a.jpg"]).device.type == "cpu"
