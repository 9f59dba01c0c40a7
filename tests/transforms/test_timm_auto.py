"""timm's RandAugment: its draws, its magnitudes, its operations."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cuaug import transforms as T
from cuaug.transforms.execute import apply
from tests.support.run_plans import assert_same
from tests.support.strategies import images, sizes
from tests.transforms.test_geometry import params


def test_timm_draws_operations_magnitudes_and_probabilities_as_timm():
    drawn = params(T.TimmRandAugment("rand-m9-mstd0.5-inc1"), 100, 200, n=20_000)
    names, magnitude = drawn["operation"], drawn["magnitude"]
    acts = names != "Identity"
    assert abs(acts.mean() - 0.5) < 5 * math.sqrt(0.25 / acts.size)
    counts = Counter(names[acts].tolist())
    assert len(counts) == 15 and max(counts.values()) - min(counts.values()) < 8 * math.sqrt(acts.sum() / 15)
    # The magnitude is normal(9, 0.5), clipped to 10: 9.5 of 10 at one deviation.
    for name, full in (("Rotate", 30.0), ("ShearX", 0.3), ("TranslateX", 0.45 * 200), ("TranslateY", 0.45 * 100)):
        level = np.abs(magnitude[names == name]) / full * 10
        assert abs(level.mean() - 9.0) < 0.06 and abs(level.std() - 0.49) < 0.05 and level.max() <= 10
        assert abs((magnitude[names == name] < 0).mean() - 0.5) < 0.08
    assert (
        {0.0, 1.0} <= set(magnitude[names == "Posterize"]) <= {0.0, 1.0, 2.0}
    )  # 4 - int(4 * level), which is 0 at full strength
    thresholds = magnitude[names == "Solarize"] * 255
    np.testing.assert_allclose(thresholds, np.rint(thresholds), atol=1e-9)
    assert thresholds.min() >= 0 and abs(thresholds.mean() - (256 - 0.9 * 256)) < 2
    factors = 1 + magnitude[names == "Color"]
    assert set(np.round(factors[factors < 1], 1)) <= {0.1, 0.2, 0.3, 0.4} and factors.max() <= 1.9 + 1e-9


def test_timm_without_inc_is_milder_with_magnitude():
    drawn = params(T.TimmRandAugment("rand-m5-p1-n4"), 60, 60, n=2000)
    names, magnitude = drawn["operation"], drawn["magnitude"]
    expected = {"Posterize": 2.0, "Solarize": 128 / 255, "SolarizeAdd": 55.0, "Contrast": 0.0, "AutoContrast": 0.0}
    for name, value in expected.items():
        np.testing.assert_allclose(magnitude[names == name], value, atol=1e-12)
    assert drawn["operation"].shape == (2000, 4) and "Identity" not in names
    uniform = params(T.TimmRandAugment("rand-m8-mstd101-p1"), 60, 60, n=3000)
    level = np.abs(uniform["magnitude"][uniform["operation"] == "Rotate"]) / 3
    assert abs(level.mean() - 4) < 0.4 and level.max() <= 8


@given(images(sizes(400)), st.integers(0, 110))
def test_solarize_add_is_timms(image, amount):
    values = {"operation": np.array([["SolarizeAdd"]]), "magnitude": np.array([[float(amount)]])}
    got = apply(image, lambda plan: T.TimmRandAugment().write(plan, None, **values, is_cubic=np.zeros((1, 1), bool)))
    levels = np.arange(256)
    assert_same(got, np.where(levels < 128, np.minimum(levels + amount, 255), levels)[image].astype(np.uint8))
