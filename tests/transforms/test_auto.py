"""Automatic augmentation: torchvision's and timm's policies and magnitudes, distributions of draws, and results."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageOps

from cuaug import transforms as T
from cuaug.plan import Type
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import policies
from cuaug.transforms.execute import apply
from tests.support.run_plans import assert_close, assert_same, plan_for, run_one
from tests.support.strategies import images, sizes
from tests.support.tolerances import EXACT, PILLOW_AUTOCONTRAST_LEVELS, PILLOW_COLOR_LEVELS, PILLOW_SHARPNESS_LEVELS
from tests.transforms.test_geometry import is_uniform, params, within

MANY = 20_000
NAMES = list(policies.MAX_MAGNITUDES)


@pytest.mark.parametrize(
    ("policy", "digest"),
    [
        ("imagenet", "5d920e63cecb311052343e0922bd98bbf078b78075aabf30471e25250c32d201"),
        ("cifar10", "68cb3a909b71737daf33b86629fe0bceb98116d38efb69a1634c8ee4a9ef982e"),
        ("svhn", "bce3ac92cc9ea8c5918331d79d946b4168f24ea17869691498303ade39b725db"),
    ],
)
def test_policies_are_torchvisions(policy, digest):
    """SHA-256 of repr(torchvision.transforms.v2.AutoAugment(policy)._policies), as of 0.20."""
    plain = ("Identity", "AutoContrast", "Equalize", "Invert")
    pairs = [
        tuple((NAMES[int(k)], part, None if NAMES[int(k)] in plain else int(level)) for k, part, level in pair)
        for pair in policies.sub_policies(T.AutoAugmentPolicy(policy)).tolist()
    ]
    assert hashlib.sha256(repr(pairs).encode()).hexdigest() == digest


@pytest.mark.parametrize("bins", [2, 5, 10, 11, 31, 64])
def test_magnitudes_are_torchvisions(bins):
    """torchvision's formulas, in float32."""
    for wide, largest in ((False, policies.MAX_MAGNITUDES), (True, policies.WIDE_MAGNITUDES)):
        got = dict(zip(largest, policies.magnitudes(wide, bins), strict=True))
        factor, shear, drop = (0.99, 0.99, 6) if wide else (0.9, 0.3, 4)
        ranges = {
            **dict.fromkeys(["Brightness", "Color", "Contrast", "Sharpness"], (0.0, factor)),
            **dict.fromkeys(["ShearX", "ShearY"], (0.0, shear)),
            **dict.fromkeys(["TranslateX", "TranslateY"], (0.0, 32.0 if wide else 150.0 / 331.0)),
            "Rotate": (0.0, 135.0 if wide else 30.0),
            "Solarize": (1.0, 0.0),
        }
        for name, (first, last) in ranges.items():
            np.testing.assert_allclose(got.pop(name), torch.linspace(first, last, bins).numpy(), rtol=3e-6, atol=1e-7)
        bits = (8 - (torch.arange(bins) / ((bins - 1) / drop))).round().int().tolist()
        assert got.pop("Posterize").tolist() == bits
        assert set(got) == {"Identity", "AutoContrast", "Equalize"} | (set() if wide else {"Invert"})
        assert not any(values.any() for values in got.values())


@pytest.mark.parametrize(("bins", "level"), [(31, k) for k in range(31)] + [(10, 9), (10, 3), (5, 3)])
def test_shifts_are_torchvisions_whole_pixels(bins, level):
    n = 700
    rng = SampleRNG(0, 0, np.arange(2 * n))
    sides = np.arange(1, n + 1)
    name = np.repeat(["TranslateX", "TranslateY"], n)
    number = np.array([NAMES.index(kind) for kind in name])[:, None]
    got = T.RandAugment()._params(rng, number, level, bins, np.append(sides, sides), np.append(sides, sides))
    want = [int(torch.linspace(0.0, 150.0 / 331.0 * side, bins)[level]) for side in sides.tolist()]
    assert np.abs(got["magnitude"][:, 0]).tolist() == want + want
    wide = T.TrivialAugmentWide()._params(rng, number, level, bins, *[np.append(sides, sides)] * 2)["magnitude"]
    # float32 may have 15.999999 for the middle level.
    assert set(np.abs(wide).ravel()) == {16 if 2 * level == bins - 1 else int(torch.linspace(0.0, 32.0, bins)[level])}


def assert_magnitudes(drawn: dict[str, Any], wide: bool, bins: int, level: int | None, h: int, w: int) -> None:
    """Each magnitude is one of its operation's (the one of `level` if given), and both signs are equally likely."""
    for name, values in zip(policies.WIDE_MAGNITUDES, policies.magnitudes(wide, bins), strict=False):
        found = drawn["magnitude"][drawn["operation"] == name]
        if name in ("TranslateX", "TranslateY"):
            values = np.floor(values * (1 if wide else w if name == "TranslateX" else h) + 1e-6)
        allowed = values if level is None else values[level : level + 1]
        assert set(np.abs(found)) == set(allowed), name
        moving = found[np.abs(found) > 0]
        if name in policies.SIGNED:
            assert within((moving < 0).sum(), len(moving), 0.5), name
        else:
            assert (found >= 0).all()


@pytest.mark.parametrize(("bins", "magnitude"), [(31, 9), (31, 30), (11, 2)])
def test_rand_augment_operations_are_equally_likely_at_one_level(bins, magnitude):
    drawn = params(T.RandAugment(2, magnitude, bins), 224, 331, MANY)
    pairs = Counter(map(tuple, drawn["operation"].tolist()))
    assert is_uniform(pairs, 14 * 14, MANY)
    assert {name for pair in pairs for name in pair} == set(policies.WIDE_MAGNITUDES)
    assert_magnitudes(drawn, False, bins, magnitude, 224, 331)


def test_trivial_augment_operations_and_levels_are_equally_likely():
    drawn = params(T.TrivialAugmentWide(5), 100, 120, MANY)
    assert drawn["operation"].shape == (MANY, 1)
    counts = Counter(drawn["operation"][:, 0].tolist())
    assert set(counts) == set(policies.WIDE_MAGNITUDES) and is_uniform(counts, 14, MANY)
    assert_magnitudes(drawn, True, 5, None, 100, 120)
    rotations = np.abs(drawn["magnitude"][drawn["operation"] == "Rotate"])
    assert all(within((rotations == k * 33.75).sum(), len(rotations), 0.2) for k in range(5))


@pytest.mark.parametrize("policy", list(T.AutoAugmentPolicy))
def test_auto_augment_applies_sub_policies_by_their_probabilities(policy):
    drawn = params(T.AutoAugment(policy), 100, 331, MANY)
    expected: Counter[tuple[str, str]] = Counter()
    magnitude: dict[str, set[float]] = {"Identity": {0.0}}
    for pair in policies.sub_policies(policy).tolist():
        names = [NAMES[int(number)] for number, _, _ in pair]
        for acts in np.ndindex(2, 2):
            applied_names = [names[k] if acts[k] else "Identity" for k in range(2)]
            expected[applied_names[0], applied_names[1]] += math.prod(
                part if act else 1 - part for act, (_, part, _) in zip(acts, pair, strict=True)
            ) / len(policies.sub_policies(policy))
        for name, (number, part, level) in zip(names, pair, strict=True):
            value = policies.magnitudes(False, 10)[int(number), int(level)]
            shift = {"TranslateX": 331, "TranslateY": 100}.get(name)
            if part > 0:
                magnitude.setdefault(name, set()).add(math.floor(value * shift + 1e-6) if shift else float(value))
    found = Counter(map(tuple, drawn["operation"].tolist()))
    assert set(found) <= {pair for pair, share in expected.items() if share > 0}
    assert all(within(found[pair], MANY, min(share, 1.0)) for pair, share in expected.items())
    for name, values in magnitude.items():
        found_values = drawn["magnitude"][drawn["operation"] == name]
        assert set(np.abs(found_values)) == values, name
        moving = found_values[np.abs(found_values) > 0]
        if name in policies.SIGNED and len(moving):
            assert within((moving < 0).sum(), len(moving), 0.5)


def applied(image: np.ndarray, name: str, magnitude: float, **how: Any) -> np.ndarray:
    plan = plan_for(image)
    one = {"operation": np.array([[name]]), "magnitude": np.array([[magnitude]])}
    T.RandAugment(**how).write(plan, None, **one)
    return run_one(plan, image, Type.UINT8 if image.dtype == np.uint8 else Type.FLOAT32)


def affine(*coefficients: float) -> Any:
    return lambda image: image.transform(image.size, Image.Transform.AFFINE, coefficients, Image.Resampling.NEAREST)


@pytest.mark.parametrize(
    ("name", "magnitude", "pillow", "tolerance"),
    [
        ("ShearX", 0.25, affine(1, 0.25, 0, 0, 1, 0), EXACT),
        ("ShearY", -0.25, affine(1, 0, 0, -0.25, 1, 0), EXACT),
        ("TranslateX", 7.0, affine(1, 0, -7, 0, 1, 0), EXACT),
        ("TranslateY", -7.0, affine(1, 0, 0, 0, 1, 7), EXACT),
        ("Rotate", 27.0, lambda image: image.rotate(27.0), EXACT),
        ("Brightness", -0.4, lambda image: ImageEnhance.Brightness(image).enhance(0.6), PILLOW_COLOR_LEVELS),
        ("Color", 0.7, lambda image: ImageEnhance.Color(image).enhance(1.7), PILLOW_COLOR_LEVELS),
        ("Contrast", 0.7, lambda image: ImageEnhance.Contrast(image).enhance(1.7), PILLOW_COLOR_LEVELS),
        ("Sharpness", -0.7, lambda image: ImageEnhance.Sharpness(image).enhance(0.3), PILLOW_SHARPNESS_LEVELS),
        ("Posterize", 3.0, lambda image: ImageOps.posterize(image, 3), EXACT),
        ("Solarize", 2 / 3, lambda image: ImageOps.solarize(image, 170), EXACT),
        ("AutoContrast", 0.0, ImageOps.autocontrast, PILLOW_AUTOCONTRAST_LEVELS),
        ("Equalize", 0.0, ImageOps.equalize, EXACT),
        ("Invert", 0.0, ImageOps.invert, EXACT),
    ],
)
@pytest.mark.parametrize("size", [(40, 60), (64, 64)])
def test_each_operation_is_pillows(name, magnitude, pillow, tolerance, size):
    rng = np.random.default_rng(5)
    image = (rng.integers(20, 200, (*size, 3)) + np.arange(size[1])[:, None] * 0.8).astype(np.uint8)
    assert_close(applied(image, name, magnitude), np.asarray(pillow(Image.fromarray(image))), tolerance)


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
