"""Boxes, masks and keypoints in real tv_tensors move as torchvision moves them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torchvision.transforms.v2 as theirs
import torchvision.transforms.v2.functional as F
from torchvision import tv_tensors
from torchvision.tv_tensors import BoundingBoxes, BoundingBoxFormat, KeyPoints, Mask

from cuaug import TransformError
from cuaug import transforms as ours

H, W = 46, 61
XYXY = torch.tensor([[4.0, 6, 30, 41], [20, 10, 26, 40], [33, 3, 56, 22], [0, 0, 61, 46]])
FORMATS = [BoundingBoxFormat.XYXY, BoundingBoxFormat.XYWH, BoundingBoxFormat.CXCYWH]


def sample(format: BoundingBoxFormat = BoundingBoxFormat.XYXY) -> tuple[tv_tensors.Image, dict[str, Any]]:
    """An image, and its boxes, instance masks (the boxes' pixels), class mask and keypoints inside."""
    rng = np.random.default_rng(0)
    image = tv_tensors.Image(torch.from_numpy(rng.integers(0, 256, (3, H, W), np.uint8)))
    y, x = torch.meshgrid(torch.arange(H), torch.arange(W), indexing="ij")
    masks = torch.stack([(x >= x0) & (x < x1) & (y >= y0) & (y < y1) for x0, y0, x1, y1 in XYXY]).to(torch.uint8)
    boxes = BoundingBoxes(XYXY, format="XYXY", canvas_size=(H, W))
    points = torch.from_numpy(rng.uniform((8, 8), (W - 8, H - 8), (len(XYXY), 3, 2))).float()
    return image, {
        "boxes": F.convert_bounding_box_format(boxes, new_format=format),
        "masks": Mask(masks),
        "classes": Mask((x // 21 + y // 16).to(torch.int64)),
        "keypoints": KeyPoints(points, canvas_size=(H, W)),
        "labels": torch.arange(4),
    }


class Case(NamedTuple):
    """A transform without chance, and what may differ.

    Attributes:
        pixels: largest difference of boxes and keypoints.
        resampled: masks may be two pixels apart. Ours show the pixel under the new pixel's center, torchvision's the
            one under its corner.
        centers: torchvision moves keypoints as pixel numbers, so 0.5 is added to them before and subtracted after.
    """

    make: Callable[[Any], Any]
    pixels: float = 1e-4
    resampled: bool = False
    centers: bool = False


CASES = {
    "Resize": Case(lambda T: T.Resize((31, 80)), resampled=True),
    "Resize, shorter side": Case(lambda T: T.Resize(20, max_size=40), resampled=True),
    "CenterCrop": Case(lambda T: T.CenterCrop((30, 41))),
    "CenterCrop, larger": Case(lambda T: T.CenterCrop((60, 41))),
    "Pad": Case(lambda T: T.Pad((1, 2, 3, 4))),
    "RandomCrop": Case(lambda T: T.RandomCrop((H + 4, W + 6), padding=(3, 2))),
    "RandomHorizontalFlip": Case(lambda T: T.RandomHorizontalFlip(1), centers=True),
    "RandomVerticalFlip": Case(lambda T: T.RandomVerticalFlip(1), centers=True),
    "RandomZoomOut": Case(lambda T: T.RandomZoomOut(side_range=(1, 1), p=1)),
    "ScaleJitter": Case(lambda T: T.ScaleJitter((40, 50), (1, 1)), resampled=True),
    "RandomShortestSize": Case(lambda T: T.RandomShortestSize([30], 60), resampled=True),
    "RandomRotation": Case(lambda T: T.RandomRotation((17, 17)), resampled=True),
    "RandomRotation, expanding": Case(lambda T: T.RandomRotation((17, 17), expand=True), 1.0, resampled=True),
    "RandomAffine": Case(lambda T: T.RandomAffine((-9, -9), None, (1.2, 1.2), (5, 5, 3, 3)), resampled=True),
    "Compose": Case(lambda T: T.Compose([T.RandomHorizontalFlip(1), T.CenterCrop((40, 50)), T.Pad(3)]), centers=True),
    "ColorJitter": Case(lambda T: T.ColorJitter((1.2, 1.2))),
    "GaussianBlur": Case(lambda T: T.GaussianBlur(3, (1, 1))),
    "RandomPhotometricDistort": Case(lambda T: T.RandomPhotometricDistort(p=0)),
}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", CASES)
def test_targets_follow(name, format):
    case = CASES[name]
    (image, target), (_, shifted) = sample(format), sample(format)
    if case.centers:
        shifted["keypoints"] = tv_tensors.wrap(target["keypoints"] + 0.5, like=target["keypoints"])
    picture, got = case.make(ours)(image, shifted)
    other, want = case.make(theirs)(image, target)
    assert isinstance(picture, torch.Tensor) and picture.shape == other.shape
    assert got.keys() == want.keys() and torch.equal(got["labels"], want["labels"])
    for key in ("boxes", "masks", "classes", "keypoints"):
        assert type(got[key]) is type(want[key]) and got[key].dtype == want[key].dtype
        assert got[key].shape == want[key].shape
    assert got["boxes"].format == format
    assert got["boxes"].canvas_size == want["boxes"].canvas_size == tuple(other.shape[-2:])
    torch.testing.assert_close(corners(got["boxes"]), corners(want["boxes"]), atol=case.pixels, rtol=0)
    for key in ("masks", "classes"):
        near = [torch.nn.functional.max_pool2d(sign * want[key].double()[None], 5, 1, 2)[0] * sign for sign in (-1, 1)]
        low, high = near if case.resampled else (want[key], want[key])
        assert ((got[key] >= low) & (got[key] <= high)).all(), key
    # Lost keypoints are set outside here, and stay where they fall there.
    points, found = want["keypoints"] + 0.5 * case.centers, got["keypoints"]
    height, width = other.shape[-2:]
    inside = ((points > 0) & (points < torch.tensor([width, height]))).all(dim=-1)
    assert inside.any()
    torch.testing.assert_close(found[inside], points[inside], atol=max(case.pixels, 1e-3), rtol=0)


def corners(boxes: BoundingBoxes) -> torch.Tensor:
    return F.convert_bounding_box_format(boxes, new_format=BoundingBoxFormat.XYXY).as_subclass(torch.Tensor)


#: Transforms, and torchvision's function with the drawn parameters.
DRAWN = {
    "RandomCrop": (ours.RandomCrop((20, 31)), lambda x, p: F.crop(x, p["top"], p["left"], 20, 31)),
    "RandomResizedCrop": (
        ours.RandomResizedCrop((20, 30)),
        lambda x, p: F.resized_crop(x, p["top"], p["left"], p["height"], p["width"], [20, 30]),
    ),
    "RandomResize": (ours.RandomResize(20, 70), lambda x, p: F.resize(x, [p["height"], p["width"]])),
    "RandomZoomOut": (ours.RandomZoomOut(p=1), lambda x, p: F.pad(x, [int(side) for side in p["sides"]])),
    "RandomAffine": (
        ours.RandomAffine(40, (0.2, 0.3), (0.5, 1.5), (-20, 20, -10, 30)),
        lambda x, p: F.affine(x, p["angle"], p["translate"], p["scale"], p["shear"]),
    ),
    "RandomRotation": (ours.RandomRotation(180), lambda x, p: F.rotate(x, p["angle"])),
    "RandomPerspective": (
        ours.RandomPerspective(0.6, 1),
        lambda x, p: F.perspective(x, p["startpoints"], p["endpoints"]),
    ),
}


@pytest.mark.parametrize("name", DRAWN)
def test_drawn_parameters_move_boxes_and_keypoints(name):
    transform, function = DRAWN[name]
    chain = ours.Compose([transform])
    for _ in range(20):
        image, target = sample()
        (_, got), params = chain.trace(image, target)
        want = {key: function(target[key], params[0]["params"]) for key in ("boxes", "keypoints")}
        height, width = got["boxes"].canvas_size
        assert want["boxes"].canvas_size == (height, width)
        clamped = F.clamp_bounding_boxes(want["boxes"], clamping_mode="hard")
        torch.testing.assert_close(corners(got["boxes"]), corners(clamped), atol=2e-3, rtol=0)
        inside = ((want["keypoints"] > 0) & (want["keypoints"] < torch.tensor([width, height]))).all(dim=-1)
        torch.testing.assert_close(got["keypoints"][inside], want["keypoints"][inside], atol=2e-3, rtol=0)


def test_elastic_boxes_are_near_torchvisions():
    """torchvision uses the displacement at the old point, which is close for smooth fields."""
    image, target = sample()
    target["boxes"] = tv_tensors.wrap(target["boxes"][:1] + torch.tensor([[4.0, 4, 0, -4]]), like=target["boxes"])
    del target["masks"], target["labels"], target["keypoints"]
    for _ in range(10):
        (_, got), params = ours.Compose([ours.ElasticTransform(20, 8)]).trace(image, target)
        drawn = params[0]["params"]
        field = torch.tensor(drawn["field"])[: drawn["rows"], : drawn["columns"]].flip(-1)  # x, y in pixels
        dense = np.stack([bilinear(field[..., axis].numpy()) for axis in (0, 1)], axis=-1) / (W / 2, H / 2)
        want = F.elastic(target["boxes"], torch.from_numpy(dense).float()[None])
        torch.testing.assert_close(corners(got["boxes"]), corners(want), atol=0.7, rtol=0)


def bilinear(nodes: np.ndarray) -> np.ndarray:
    """(H, W): values at pixel centers, between nodes that reach from border to border."""
    y, x = ((np.arange(n) + 0.5) / n * (count - 1) for n, count in zip((H, W), nodes.shape, strict=True))
    rows = np.stack([np.interp(x, np.arange(nodes.shape[1]), row) for row in nodes])
    return np.stack([np.interp(y, np.arange(nodes.shape[0]), column) for column in rows.T], axis=1)


@pytest.mark.parametrize("format", FORMATS)
def test_sanitizing_keeps_the_same_boxes(format):
    boxes = torch.tensor([[0.0, 0, 5, 5], [10, 10, 10.5, 30], [20, 5, 40, 6], [3, 3, 30, 40]])
    boxes = BoundingBoxes(boxes, format="XYXY", canvas_size=(H, W))
    target = {
        "boxes": F.convert_bounding_box_format(boxes, new_format=format),
        "masks": Mask(torch.arange(4)[:, None, None].expand(4, H, W).to(torch.uint8)),
        "labels": torch.arange(4),
        "image_id": 7,
    }
    for settings in ({}, {"min_size": 3}, {"min_area": 25}, {"min_size": 6, "min_area": 10}):
        image = sample()[0]
        got = ours.SanitizeBoundingBoxes(**settings)(image, target)[1]
        want = theirs.SanitizeBoundingBoxes(**settings)(image, target)[1]
        assert got["labels"].tolist() == want["labels"].tolist() and got["image_id"] == 7
        torch.testing.assert_close(got["boxes"], want["boxes"])
        assert torch.equal(got["masks"], want["masks"])


@pytest.mark.parametrize(
    "getter",
    ["default", None, lambda sample: sample[1]["labels"], lambda sample: (sample[1]["labels"], sample[1]["colors"])],
    ids=["default", "None", "one value", "a tuple"],
)
def test_labels_getter(getter):
    """Values that no getter returns keep their rows: torchvision leaves them, here `pass_through` says so."""
    boxes = BoundingBoxes(
        torch.tensor([[0.0, 0, 5, 5], [9, 9, 9, 30], [3, 3, 30, 40]]), format="XYXY", canvas_size=(H, W)
    )
    target = {"boxes": boxes, "labels": torch.arange(3), "colors": torch.arange(3), "camera": torch.arange(3)}
    kept = ("camera",) if callable(getter) and isinstance(getter((None, target)), tuple) else ("camera", "colors")
    image = sample()[0]
    got = ours.Compose([ours.SanitizeBoundingBoxes(labels_getter=getter)], pass_through=kept)(image, target)[1]
    want = theirs.SanitizeBoundingBoxes(labels_getter=getter)(image, target)[1]
    assert {name: value.tolist() for name, value in got.items()} == {name: v.tolist() for name, v in want.items()}


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_integer_boxes_keep_their_dtype(dtype):
    """Whole pixels move alike. torchvision truncates where `Resize` makes fractions; here they round."""
    image, _ = sample()
    target = {"boxes": BoundingBoxes(XYXY.to(dtype), format="XYXY", canvas_size=(H, W))}
    for name, arguments in (("RandomHorizontalFlip", (1,)), ("CenterCrop", ((20, 31),)), ("Pad", (3,))):
        got, want = (getattr(library, name)(*arguments)(image, target)[1]["boxes"] for library in (ours, theirs))
        assert got.dtype == want.dtype == dtype and torch.equal(got, want) and got.canvas_size == want.canvas_size
    got, want = (library.Resize((23, 30))(image, target)[1]["boxes"] for library in (ours, theirs))
    assert got.dtype == want.dtype == dtype and (got - want).min() >= 0 and (got - want).max() <= 1


def test_bounding_boxes_are_in_pixels_always():
    image, target = sample()
    _, moved = ours.Compose([ours.RandomHorizontalFlip(0)], relative_boxes=True)(image, target)
    torch.testing.assert_close(corners(moved["boxes"]), XYXY)
    target["boxes"] = tv_tensors.wrap(target["boxes"][:3] / 100, like=target["boxes"])
    target = {"boxes": target["boxes"], "labels": target["labels"][:3]}
    with pytest.raises(TransformError, match=r"within \[0, 1\].*multiply them by the width and height of canvas_size"):
        ours.Compose([ours.RandomHorizontalFlip()])(image, target)
