"""Every transform moves points and masks as it moves pixels."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from cuaug import transforms as T
from cuaug.plan import Border, Filter, Plan, Type
from cuaug.sampling.rng import SampleRNG
from cuaug.targets import Targets
from cuaug.targets.targets import Mover
from tests.support.run_plans import run
from tests.support.targets.ramps import curvature, ramp, shown
from tests.support.transforms.cases import CASES

N, H, W = 8, 44, 60

#: Transforms that move pixels.
GEOMETRIC = [
    "CenterCrop", "D4", "ElasticTransform", "FixedSizeCrop", "GridDistortion", "Pad", "RandomAffine", "RandomCrop",
    "RandomHorizontalFlip", "RandomPerspective", "RandomRelativeCrop", "RandomResize", "RandomResizedCrop",
    "RandomRot90", "RandomRotation", "RandomShortestSize", "RandomVerticalFlip", "RandomZoomOut", "Resize",
    "ResizeToCover", "ResizeToMultiple", "Rot90", "ScaleJitter",
]  # fmt: skip
#: Transforms that may move pixels or change values.
MIXED = [
    "AutoAugment", "RandAugment", "TimmRandAugment", "TrivialAugmentWide", "RandomChoice", "RandomOrder", "SomeOf",
    "AugMix",
]  # fmt: skip
MOVING = [pytest.param(t, id=f"{name}-{k}") for name in GEOMETRIC for k, (t, _) in enumerate(CASES[name])]
OTHERS = [
    pytest.param(t, id=f"{name}-{k}")
    for name, cases in CASES.items()
    for k, (t, _) in enumerate(cases)
    if name not in (*GEOMETRIC, *MIXED)
]


def smooth(transform: T.Transform) -> T.Transform:
    """The transform with linear interpolation, black borders, and a field without folds."""
    if isinstance(transform, T.ElasticTransform):
        return T.ElasticTransform([min(a, 60) for a in transform.alpha], [max(s, 4) for s in transform.sigma])
    transform = copy.copy(transform)
    if hasattr(transform, "warp_options"):
        how = {"filter": Filter.BILINEAR, "border": Border.CONSTANT, "fill": 0.0}
        transform.warp_options = transform.warp_options | how
    for name, value in (("_fill", 0.0), ("_border", Border.CONSTANT), ("_filter", Filter.BILINEAR)):
        if hasattr(transform, name):
            setattr(transform, name, value)
    return transform


def planned(transform: T.Transform, targets: list, seed: int, kind: Type = Type.FLOAT32) -> tuple[Plan, Mover]:
    plan = Plan([H] * N, [W] * N, source_type=kind)
    mover = Targets(targets, [H] * N, [W] * N).attach(plan)
    transform.plan(plan, SampleRNG(seed, 0, np.arange(N)))
    return plan, mover


@pytest.mark.parametrize("transform", MOVING)
@pytest.mark.parametrize("seed", [0, 1])
def test_targets_follow(transform, seed):
    transform = smooth(transform)
    rng = np.random.default_rng(seed)
    places = rng.uniform(0, (W, H), (N, 80, 2))
    y, x = np.mgrid[:H, :W]
    numbers = np.stack([x + 1, y + 1]).astype(np.int32)
    targets = [
        {"keypoints": np.append(p, np.full((80, 1), 2.0), axis=1), "masks": torch.from_numpy(numbers)} for p in places
    ]
    plan, mover = planned(transform, targets, seed)
    images = run(plan, [ramp(H, W)] * N)
    moved = [*map(mover(plan.compile(Type.FLOAT32)), range(N))]
    seen = 0
    for before, target, image in zip(places, moved, images, strict=True):
        for place, (px, py, v) in zip(before, target["keypoints"], strict=True):
            found = shown(image, [px, py]) if v else None
            if found is not None:
                assert np.abs(found[0] - place).max() <= found[1]
                seen += 1
        masks = target["masks"].numpy() - 0.5
        inside = image[..., 2] > 0.9999
        far = np.abs(np.moveaxis(masks, 0, -1) - image[..., :2])[inside]
        slope = max(np.abs(np.diff(image[..., :2], axis=axis)).max() for axis in (0, 1))
        assert masks.shape[1:] == image.shape[:2]
        assert far.max(initial=0) <= 0.55 + min(2 * curvature(image[..., :2]), slope)
    assert seen > N


@pytest.mark.parametrize("transform", OTHERS)
def test_pixel_operations_leave_targets_alone(transform):
    rng = np.random.default_rng(0)
    first = rng.uniform(0, 20, (N, 3, 2))
    boxes = np.concatenate([first, first + rng.uniform(0, 20, (N, 3, 2))], axis=2)
    masks = rng.integers(0, 2, (N, 3, H, W)).astype(bool)
    targets = [{"boxes": b, "masks": m, "keypoints": b.reshape(3, 2, 2)} for b, m in zip(boxes, masks, strict=True)]
    plan, mover = planned(transform, targets, 0, Type.UINT8)
    for target, b, m in zip(map(mover(plan.compile()), range(N)), boxes, masks, strict=True):
        np.testing.assert_allclose(target["boxes"], b, atol=1e-9)
        np.testing.assert_allclose(target["keypoints"], b.reshape(3, 2, 2), atol=1e-9)
        if not isinstance(transform, T.Downscale):  # its masks show fewer pixels, like its images
            np.testing.assert_array_equal(target["masks"], m)


@pytest.mark.parametrize(
    "transform", [t for name in MIXED for t, _ in CASES.get(name, [])], ids=lambda t: type(t).__name__
)
def test_masks_and_points_of_policies_move_together(transform):
    """A mask of pixel numbers shows, at a keypoint, the keypoint's original pixel."""
    rng = np.random.default_rng(0)
    places = rng.uniform(0, (W, H), (N, 80, 2))
    y, x = np.mgrid[:H, :W]
    numbers = np.stack([x + 1, y + 1]).astype(np.int32)
    targets = [{"keypoints": np.append(p, np.full((80, 1), 2.0), axis=1), "masks": numbers} for p in places]
    plan, mover = planned(transform, targets, 0, Type.UINT8)
    for before, target in zip(places, map(mover(plan.compile()), range(N)), strict=True):
        there = target["keypoints"][:, 2] > 0
        points = target["keypoints"][there, :2]
        column, row = np.minimum(points, (W - 1, H - 1)).astype(int).T
        shown_there = target["masks"][:, row, column].T - 0.5
        known = (shown_there > 0).all(axis=1)
        assert known.mean() > 0.9 and np.abs(shown_there - before[there])[known].max(initial=0) <= 2.0
