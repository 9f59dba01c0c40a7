"""Automatic augmentation: torchvision's policies and magnitudes, the distribution of draws, and the results."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageOps

from cuaug import functional as F
from cuaug import transforms as T
from cuaug.plan import Plan, Type
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import parameters, policies
from cuaug.transforms.execute import apply
from tests.references import auto as reference
from tests.support import tolerances
from tests.support.run_plans import assert_close, assert_same, plan_for, run, run_one
from tests.support.strategies import images, sizes
from tests.transforms.test_compose import MEAN, STD, tables
from tests.transforms.test_geometry import params

MANY = 20_000
NAMES = list(policies.MAX_MAGNITUDES)
seeds = st.integers(0, 2**32 - 1)
small_images = images(sizes(400))


# --- the tables ------------------------------------------------------------------------------------------------------


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


# --- draws -----------------------------------------------------------------------------------------------------------


def within(count: int, n: int, share: float) -> bool:
    return abs(count - n * share) <= 5 * math.sqrt(n * share * (1 - share))


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
    assert len(pairs) == 14 * 14 and all(within(count, MANY, 1 / 196) for count in pairs.values())
    assert {name for pair in pairs for name in pair} == set(policies.WIDE_MAGNITUDES)
    assert_magnitudes(drawn, False, bins, magnitude, 224, 331)


def test_trivial_augment_operations_and_levels_are_equally_likely():
    drawn = params(T.TrivialAugmentWide(5), 100, 120, MANY)
    assert drawn["operation"].shape == (MANY, 1)
    counts = Counter(drawn["operation"][:, 0].tolist())
    assert set(counts) == set(policies.WIDE_MAGNITUDES) and all(
        within(count, MANY, 1 / 14) for count in counts.values()
    )
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


def test_draws_are_plain_json_data():
    drawn = {name: values.tolist() for name, values in params(T.RandAugment(), 30, 30, 2).items()}
    assert json.loads(json.dumps(drawn)) == drawn and all(isinstance(name, str) for name in drawn["operation"][0])


# --- single operations -----------------------------------------------------------------------------------------------

MAGNITUDES = {
    **dict.fromkeys(["ShearX", "ShearY"], st.sampled_from([-0.99, -0.3, 0.09, 0.7])),
    **dict.fromkeys(["TranslateX", "TranslateY"], st.integers(-40, 40).map(float)),
    # No multiples of 45: there the nearest pixel may be either of two.
    "Rotate": st.sampled_from([-133.0, -9.0, 61.5, 27.0]),
    **dict.fromkeys(["Brightness", "Color", "Contrast", "Sharpness"], st.floats(-0.99, 0.99)),
    "Posterize": st.integers(2, 8).map(float),
    "Solarize": st.integers(0, 30).map(lambda k: 1.0 - k / 30),
}


def applied(image: np.ndarray, name: str, magnitude: float, **how: Any) -> np.ndarray:
    plan = plan_for(image)
    one = {"operation": np.array([[name]]), "magnitude": np.array([[magnitude]])}
    T.RandAugment(**how).write(plan, None, **one)
    return run_one(plan, image, Type.UINT8 if image.dtype == np.uint8 else Type.FLOAT32)


@pytest.mark.parametrize("name", NAMES)
@given(image=small_images, data=st.data())
@settings(max_examples=25)
def test_each_operation_is_torchvisions(name, image, data):
    magnitude = data.draw(MAGNITUDES.get(name, st.just(0.0)))
    filter, fill = data.draw(st.sampled_from([("nearest", 0.0), ("bilinear", (9, 99, 200)), ("bicubic", 40.0)]))
    got = applied(image, name, magnitude, interpolation=filter, fill=fill)
    want = reference.step(image.astype(np.float64), name, magnitude, filter, fill)
    exact = name in ("Identity", "TranslateX", "TranslateY", "Posterize", "Solarize", "Equalize", "Invert")
    assert_close(got, want, tolerances.EXACT if exact else tolerances.ROUNDING_LEVELS)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@given(image=images(sizes(400), dtype=np.float32), data=st.data())
@settings(max_examples=15)
def test_each_operation_of_floats_is_torchvisions(name, image, data):
    magnitude = data.draw(MAGNITUDES.get(name, st.just(0.0)))
    if name == "Solarize":  # between levels, so that float32 and float64 agree on the comparison
        magnitude += 0.3 / 255
    got = applied(image, name, magnitude, interpolation="bilinear", fill=0.25)
    want = reference.step(image.astype(np.float64), name, magnitude, "bilinear", 0.25, limit=1.0)
    assert_close(got, want, tolerances.WARP)


def affine(*coefficients: float) -> Any:
    return lambda image: image.transform(image.size, Image.Transform.AFFINE, coefficients, Image.Resampling.NEAREST)


@pytest.mark.parametrize(
    ("name", "magnitude", "pillow", "tolerance"),
    [
        ("ShearX", 0.25, affine(1, 0.25, 0, 0, 1, 0), tolerances.EXACT),
        ("ShearY", -0.25, affine(1, 0, 0, -0.25, 1, 0), tolerances.EXACT),
        ("TranslateX", 7.0, affine(1, 0, -7, 0, 1, 0), tolerances.EXACT),
        ("TranslateY", -7.0, affine(1, 0, 0, 0, 1, 7), tolerances.EXACT),
        ("Rotate", 27.0, lambda image: image.rotate(27.0), tolerances.EXACT),
        ("Brightness", -0.4, lambda image: ImageEnhance.Brightness(image).enhance(0.6), tolerances.PILLOW_COLOR_LEVELS),
        ("Color", 0.7, lambda image: ImageEnhance.Color(image).enhance(1.7), tolerances.PILLOW_COLOR_LEVELS),
        ("Contrast", 0.7, lambda image: ImageEnhance.Contrast(image).enhance(1.7), tolerances.PILLOW_COLOR_LEVELS),
        (
            "Sharpness",
            -0.7,
            lambda image: ImageEnhance.Sharpness(image).enhance(0.3),
            tolerances.PILLOW_SHARPNESS_LEVELS,
        ),
        ("Posterize", 3.0, lambda image: ImageOps.posterize(image, 3), tolerances.EXACT),
        ("Solarize", 2 / 3, lambda image: ImageOps.solarize(image, 170), tolerances.EXACT),
        ("AutoContrast", 0.0, ImageOps.autocontrast, tolerances.PILLOW_AUTOCONTRAST_LEVELS),
        ("Equalize", 0.0, ImageOps.equalize, tolerances.EXACT),
        ("Invert", 0.0, ImageOps.invert, tolerances.EXACT),
    ],
)
@pytest.mark.parametrize("size", [(40, 60), (64, 64)])
def test_each_operation_is_pillows(name, magnitude, pillow, tolerance, size):
    rng = np.random.default_rng(5)
    image = (rng.integers(20, 200, (*size, 3)) + np.arange(size[1])[:, None] * 0.8).astype(np.uint8)
    assert_close(applied(image, name, magnitude), np.asarray(pillow(Image.fromarray(image))), tolerance)


# --- sequences of operations -----------------------------------------------------------------------------------------


def by_functional(image: np.ndarray, name: str, magnitude: float, interpolation: str, fill: float) -> np.ndarray:
    """One step by cuaug.functional, which other tests compare with independent formulas."""
    how = {"interpolation": interpolation, "fill": fill}

    def sheared(across: float, down: float) -> np.ndarray:
        """F.affine takes an angle, whose tangent may differ from the magnitude in the last bit."""
        matrix, filter = [[1.0, across, 0.0], [down, 1.0, 0.0], [0.0, 0.0, 1.0]], parameters.warp_filter(interpolation)
        return apply(image, lambda plan: plan.warp(matrix, *plan.sizes, filter=filter, fill=fill))

    return {
        "Identity": lambda: image,
        "ShearX": lambda: sheared(magnitude, 0.0),
        "ShearY": lambda: sheared(0.0, magnitude),
        "TranslateX": lambda: F.affine(image, 0.0, (int(magnitude), 0), 1.0, (0.0, 0.0), **how),
        "TranslateY": lambda: F.affine(image, 0.0, (0, int(magnitude)), 1.0, (0.0, 0.0), **how),
        "Rotate": lambda: F.rotate(image, magnitude, **how),
        "Brightness": lambda: F.adjust_brightness(image, 1 + magnitude),
        "Color": lambda: F.adjust_saturation(image, 1 + magnitude),
        "Contrast": lambda: F.adjust_contrast(image, 1 + magnitude),
        "Sharpness": lambda: F.adjust_sharpness(image, 1 + magnitude),
        "Posterize": lambda: F.posterize(image, int(magnitude)),
        "Solarize": lambda: F.solarize(image, magnitude),
        "AutoContrast": lambda: F.autocontrast(image),
        "Equalize": lambda: F.equalize(image),
        "Invert": lambda: F.invert(image),
    }[name]()


automatic = st.sampled_from(
    [
        lambda **how: T.RandAugment(3, 20, **how),
        lambda **how: T.AutoAugment("cifar10", **how),
        lambda **how: T.AutoAugment("svhn", **how),
        lambda **how: T.AutoAugment(**how),
        lambda **how: T.TrivialAugmentWide(**how),
    ]
)


@given(automatic, st.integers(1, 24), st.integers(1, 24), seeds, st.sampled_from(["nearest", "bilinear"]))
@settings(max_examples=40, deadline=None)
def test_each_sample_is_the_composition_of_its_drawn_operations(make, h, w, seed, interpolation):
    """Bit for bit on floats, which are not rounded between operations."""
    transform = make(interpolation=interpolation, fill=0.25)
    batch = np.random.default_rng(seed).random((6, h, w, 3), dtype=np.float32)
    plan = plan_for(*batch)
    transform.plan(plan, SampleRNG(seed, 0, np.arange(6)))
    got = run(plan, list(batch), Type.FLOAT32)
    rng = SampleRNG(seed, 0, np.arange(6))
    rng.next_transform(transform)
    drawn = transform.make_params(rng, np.full(6, h), np.full(6, w))
    for i, image in enumerate(batch):
        for name, magnitude in zip(drawn["operation"][i].tolist(), drawn["magnitude"][i].tolist(), strict=True):
            image = by_functional(image, name, magnitude, interpolation, 0.25)
        assert_same(got[i], image)


@given(automatic, st.lists(images(sizes(300)), min_size=1, max_size=5), seeds)
@settings(max_examples=40, deadline=None)
def test_a_batch_equals_its_images_one_by_one(make, batch, seed):
    transform = make()
    together = plan_for(*batch)
    transform.plan(together, SampleRNG(seed, 0, np.arange(len(batch))))
    for i, got in enumerate(run(together, batch, Type.UINT8)):
        alone = plan_for(batch[i])
        transform.plan(alone, SampleRNG(seed, 0, [i]))
        assert_same(got, run_one(alone, batch[i], Type.UINT8))


def test_gray_images_stay_gray():
    gray = np.random.default_rng(0).integers(0, 256, (40, 20, 22), dtype=np.uint8)
    for transform in (T.RandAugment(3), T.AutoAugment(fill=9), T.TrivialAugmentWide()):
        batch = torch.from_numpy(gray)[:, None]
        got = transform(batch)
        assert got.shape == batch.shape and (got != batch).any()


# --- launches --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_batch_takes_as_many_launches_as_its_longest_program(seed):
    chain = [T.RandomResizedCrop(32), T.RandAugment(2, 9), T.Normalize(MEAN, STD)]
    batch = tables(chain, n=256, seed=seed)
    assert batch.launches == 3
    heights, widths = np.random.default_rng(seed).integers(64, 200, (2, 256))
    alone = []
    for i in range(256):
        plan = Plan(heights[i : i + 1], widths[i : i + 1])
        T.Compose(chain).plan(plan, SampleRNG(seed, 0, [i]))
        alone.append(plan.compile().launches)
    assert max(alone) == batch.launches
    np.testing.assert_array_equal(batch.rows["active"].sum(axis=0), alone)


@pytest.mark.parametrize(
    ("names", "launches"),
    [
        (("Identity", "Brightness", "Color", "Posterize", "Solarize", "Invert"), 1),
        (("TranslateX", "TranslateY", "ShearX", "ShearY", "Rotate"), 2),
        (("Contrast", "AutoContrast", "Equalize"), 2),
        (("Sharpness",), 2),
        (NAMES, 2),
    ],
)
def test_different_operations_share_launches(names, launches):
    """Each sample has another operation, after a resize, into which geometry must not fold."""
    n = len(names)
    plan = Plan([40] * n, [50] * n)
    plan.resize(32, 32)
    magnitude = np.full((n, 1), 2.0)
    T.RandAugment().write(plan, None, operation=np.array(names)[:, None], magnitude=magnitude)
    plan.normalize(MEAN, STD)
    assert plan.compile().launches == launches


def test_geometry_of_magnitude_zero_takes_no_pass():
    plan = Plan([40] * 5, [50] * 5)
    plan.resize(32, 32)
    names = np.array(["TranslateX", "TranslateY", "ShearX", "ShearY", "Rotate"])[:, None]
    T.RandAugment().write(plan, None, operation=names, magnitude=np.zeros((5, 1)))
    assert plan.compile().launches == 1
