"""Automatic augmentation of torchvision, timm and AugMix: policies, magnitudes, distributions of draws, and results."""

from __future__ import annotations

import hashlib
import json
import math
import pickle
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
from tests.references import auto
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


FEWER = 5_000
COLORS = {"Brightness", "Color", "Contrast", "Sharpness"}


def test_magnitudes_of_augmix_are_torchvisions():
    """torchvision's `_AUGMENTATION_SPACE` for ten bins, in float32."""
    table = dict(zip(policies.MAX_MAGNITUDES, policies.augmix_magnitudes(), strict=True))
    ranges = {
        **dict.fromkeys(["ShearX", "ShearY"], (0.0, 0.3)),
        **dict.fromkeys(["TranslateX", "TranslateY"], (0.0, 1 / 3)),
        "Rotate": (0.0, 30.0),
        "Solarize": (1.0, 0.0),
        **dict.fromkeys(COLORS, (0.0, 0.9)),
    }
    for name, (first, last) in ranges.items():
        np.testing.assert_allclose(table.pop(name), torch.linspace(first, last, 10).numpy(), rtol=3e-6, atol=1e-7)
    assert table.pop("Posterize").tolist() == (4 - (torch.arange(10) / (9 / 4)).round().int()).tolist()
    assert set(policies.AUGMIX_MAGNITUDES) == {*ranges, "Posterize", "AutoContrast", "Equalize"}
    assert not any(values.any() for values in table.values())


@pytest.mark.parametrize("all_ops", [True, False])
def test_operations_and_levels_of_augmix_are_equally_likely(all_ops):
    drawn = params(T.AugMix(4, 2, 3, all_ops=all_ops), 100, 96, FEWER)
    assert drawn["operation"].shape == drawn["magnitude"].shape == (FEWER, 2, 3)
    counts = Counter(drawn["operation"].ravel().tolist())
    assert set(counts) == set(policies.AUGMIX_MAGNITUDES) - (set() if all_ops else COLORS)
    assert all(within(count, 6 * FEWER, 1 / len(counts)) for count in counts.values())
    for name in counts:
        found, table = drawn["magnitude"][drawn["operation"] == name], dict(policies.AUGMIX_MAGNITUDES)
        if name.startswith("Translate"):
            side = 96 if name == "TranslateX" else 100
            expected = [int(torch.linspace(0.0, side / 3.0, 10)[level] + 1e-4) for level in range(4)]
        else:
            expected = policies.augmix_magnitudes()[list(policies.MAX_MAGNITUDES).index(name), :4].tolist()
        assert set(np.abs(found)) == set(expected), name
        for level in range(4) if table[name] else ():
            share = sum(expected[k] == expected[level] for k in range(4)) / 4
            assert within((np.abs(found) == expected[level]).sum(), len(found), share), name
        moving = found[found != 0]
        assert within((moving < 0).sum(), len(moving), 0.5) if name in policies.SIGNED else (found >= 0).all()


def test_chains_of_augmix_have_one_to_three_operations():
    drawn = params(T.AugMix(all_ops=False), 50, 50, FEWER)["operation"]
    acts = drawn != "Identity"
    assert (acts[..., 0] & (acts[..., 1] | ~acts[..., 2])).all(), "Identity fills the end of a chain"
    lengths = Counter(acts.sum(axis=2).ravel().tolist())
    assert set(lengths) == {1, 2, 3} and all(within(count, 3 * FEWER, 1 / 3) for count in lengths.values())


@pytest.mark.parametrize(("width", "alpha"), [(3, 1.0), (1, 0.4), (5, 2.0)])
def test_weights_of_augmix_follow_beta_and_dirichlet(width, alpha):
    """The image's weight is Beta, the weights of the chains are Dirichlet; they sum to 1."""
    weights = params(T.AugMix(mixture_width=width, alpha=alpha), 30, 30, FEWER)["weights"]
    assert weights.shape == (FEWER, width + 1) and np.allclose(weights.sum(axis=1), 1) and (weights >= 0).all()
    own, others = weights[:, 0], weights[:, 1:] / (1 - weights[:, :1])
    assert abs(own.mean() - 0.5) < 0.02 and abs(own.var() / (0.25 / (2 * alpha + 1)) - 1) < 0.08
    variance = (1 / width) * (1 - 1 / width) / (width * alpha + 1)
    assert (np.abs(others.mean(axis=0) - 1 / width) < 0.02).all()
    assert (np.abs(others.var(axis=0) - variance) < 0.1 * variance + 1e-12).all()
    for part in others.T if width > 1 else ():
        assert abs(np.corrcoef(own, part)[0, 1]) < 0.06


def random_images(n):
    x = np.random.default_rng(n).integers(0, 256, (n, 23, 28, 3), dtype=np.uint8)
    x[::2] = np.add.outer(np.arange(23), np.arange(28))[None, :, :, None] * 5
    return torch.from_numpy(x).permute(0, 3, 1, 2).contiguous()


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda white: T.AugMix(),
        lambda white: T.AugMix(10, 2, 4, 0.5, False, "nearest", (0.04 * white, 0.4 * white, 0.8 * white)),
        lambda white: T.AugMix(1, 1),
    ],
)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_augmix_is_the_weighted_mean_of_the_chains(make, dtype):
    """uint8: each chain and the mean are rounded. Floats: the reference never rounds."""
    x = random_images(24) if dtype == torch.uint8 else random_images(24).float() / 255
    limit = 255.0 if dtype == torch.uint8 else 1.0
    mix = make(limit)
    how = {"filter": mix.interpolation, "fill": 0.0 if mix.fill is None else mix.fill}
    made, told = T.Compose([mix], generator=torch.Generator().manual_seed(0)).trace(x)
    worst = []
    for image, mixed, steps in zip(x, made, json.loads(json.dumps(told)), strict=True):
        drawn, pixels = steps[0]["params"], image.permute(1, 2, 0).double().numpy()
        total = drawn["weights"][0] * pixels
        for k, weight in enumerate(drawn["weights"][1:]):
            total += weight * auto.steps(pixels, drawn["operation"][k], drawn["magnitude"][k], limit=limit, **how)
        worst.append(np.abs(mixed.permute(1, 2, 0).double().numpy() - total))
    # A level at a threshold (Posterize, Solarize) may rarely round either way. Shears put whole rows of points on the
    # edge between two pixels, of which either is the nearest.
    off = np.stack(worst) > (1.01 if dtype == torch.uint8 else 2e-5)
    assert off.mean() < (0.04 if mix.interpolation == "nearest" else 2e-3)
    assert torch.equal(T.Compose([mix]).replay(told, x), made)


def test_each_image_has_its_own_chains_of_augmix_independent_of_the_batch():
    x = random_images(2)[1:].repeat(32, 1, 1, 1)
    chain = T.Compose([T.AugMix()])
    made, told = chain.trace(x)
    assert len({image.numpy().tobytes() for image in made}) > 28
    for i in (0, 7, 31):
        assert torch.equal(chain.replay(told[i], x[i]), made[i])


def test_augmix_of_labels_and_gray_images():
    x = random_images(5)[:, :1]
    made, labels = T.AugMix()(x, [1, 2, 3, 4, 5])
    assert made.shape == x.shape and labels == [1, 2, 3, 4, 5]
    assert T.Compose([T.AugMix(), T.Resize((9, 9)), T.ToDtype(torch.float32, scale=True)])(x).shape == (5, 1, 9, 9)


def test_repr_and_pickle_of_augmix():
    mix = T.AugMix(2, alpha=0.5, interpolation="nearest")
    assert repr(mix) == "AugMix(severity=2, alpha=0.5, interpolation='nearest')"
    again, images = pickle.loads(pickle.dumps(mix)), random_images(3)
    torch.manual_seed(3)
    one = mix(images)
    torch.manual_seed(3)
    assert torch.equal(again(images), one)
