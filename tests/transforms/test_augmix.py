"""AugMix: torchvision's magnitudes, the distribution of draws, and the weighted mean of the chains."""

from __future__ import annotations

import json
import pickle
from collections import Counter

import numpy as np
import pytest
import torch

from cuaug import transforms as T
from cuaug.transforms import policies
from tests.references import auto as reference
from tests.transforms.test_geometry import params, within

MANY = 5_000
COLORS = {"Brightness", "Color", "Contrast", "Sharpness"}


def test_magnitudes_are_torchvisions():
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
def test_operations_and_levels_are_equally_likely(all_ops):
    drawn = params(T.AugMix(4, 2, 3, all_ops=all_ops), 100, 96, MANY)
    assert drawn["operation"].shape == drawn["magnitude"].shape == (MANY, 2, 3)
    counts = Counter(drawn["operation"].ravel().tolist())
    assert set(counts) == set(policies.AUGMIX_MAGNITUDES) - (set() if all_ops else COLORS)
    assert all(within(count, 6 * MANY, 1 / len(counts)) for count in counts.values())
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


def test_chains_have_one_to_three_operations():
    drawn = params(T.AugMix(all_ops=False), 50, 50, MANY)["operation"]
    acts = drawn != "Identity"
    assert (acts[..., 0] & (acts[..., 1] | ~acts[..., 2])).all(), "Identity fills the end of a chain"
    lengths = Counter(acts.sum(axis=2).ravel().tolist())
    assert set(lengths) == {1, 2, 3} and all(within(count, 3 * MANY, 1 / 3) for count in lengths.values())


@pytest.mark.parametrize(("width", "alpha"), [(3, 1.0), (1, 0.4), (5, 2.0)])
def test_weights_follow_beta_and_dirichlet(width, alpha):
    """The image's weight is Beta, the weights of the chains are Dirichlet; they sum to 1."""
    weights = params(T.AugMix(mixture_width=width, alpha=alpha), 30, 30, MANY)["weights"]
    assert weights.shape == (MANY, width + 1) and np.allclose(weights.sum(axis=1), 1) and (weights >= 0).all()
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
def test_result_is_the_weighted_mean_of_the_chains(make, dtype):
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
            total += weight * reference.steps(pixels, drawn["operation"][k], drawn["magnitude"][k], limit=limit, **how)
        worst.append(np.abs(mixed.permute(1, 2, 0).double().numpy() - total))
    # A level at a threshold (Posterize, Solarize) may rarely round either way. Shears put whole rows of points on the
    # edge between two pixels, of which either is the nearest.
    off = np.stack(worst) > (1.01 if dtype == torch.uint8 else 2e-5)
    assert off.mean() < (0.04 if mix.interpolation == "nearest" else 2e-3)
    assert torch.equal(T.Compose([mix]).replay(told, x), made)


def test_each_image_has_its_own_chains_independent_of_the_batch():
    x = random_images(2)[1:].repeat(32, 1, 1, 1)
    chain = T.Compose([T.AugMix()])
    made, told = chain.trace(x)
    assert len({image.numpy().tobytes() for image in made}) > 28
    for i in (0, 7, 31):
        assert torch.equal(chain.replay(told[i], x[i]), made[i])


def test_labels_and_gray_images():
    x = random_images(5)[:, :1]
    made, labels = T.AugMix()(x, [1, 2, 3, 4, 5])
    assert made.shape == x.shape and labels == [1, 2, 3, 4, 5]
    assert T.Compose([T.AugMix(), T.Resize((9, 9)), T.ToDtype(torch.float32, scale=True)])(x).shape == (5, 1, 9, 9)


def test_repr_and_pickle():
    mix = T.AugMix(2, alpha=0.5, interpolation="nearest")
    assert repr(mix) == "AugMix(severity=2, alpha=0.5, interpolation='nearest')"
    again, images = pickle.loads(pickle.dumps(mix)), random_images(3)
    torch.manual_seed(3)
    one = mix(images)
    torch.manual_seed(3)
    assert torch.equal(again(images), one)
