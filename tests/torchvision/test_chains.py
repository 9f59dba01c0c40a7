"""Chains as torchvision's: the forms of a call, clips, conversions and Lambda, with real tv_tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils._pytree import tree_flatten
from torchvision import tv_tensors as tv
from torchvision.transforms import v2 as theirs

from cuaug import TransformError
from cuaug import transforms as ours

H, W = 24, 32
IMAGE = tv.Image(torch.randint(0, 256, (3, H, W), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)))
PIL = Image.fromarray(IMAGE.permute(1, 2, 0).numpy())
VIDEO = tv.Video(torch.stack([IMAGE, 255 - IMAGE, IMAGE // 2]))
BOXES = tv.BoundingBoxes(torch.tensor([[1.0, 2, 9, 12], [4, 4, 30, 20]]), format="XYXY", canvas_size=(H, W))
MASK = tv.Mask(torch.arange(2 * H * W).reshape(2, H, W) % 7)
POINTS = tv.KeyPoints(torch.tensor([[40.0, 2.0], [-3.0, 30.0], [4.0, 5.0], [31.0, 23.0]]), canvas_size=(H, W))
LABELS = torch.tensor([3, 4])

CALLS: dict[str, tuple[Any, ...]] = {
    "image": (IMAGE,),
    "pil": (PIL,),
    "arguments": (IMAGE, BOXES, 3),
    "tuple": ((PIL, {"boxes": BOXES, "mask": MASK, "labels": LABELS}),),
    "list": ([IMAGE, BOXES, "name"],),
    "dict": ({"image": IMAGE, "boxes": BOXES, "labels": LABELS},),
    "named": ({"id": 3, "picture": PIL, "target": {"boxes": BOXES, "mask": MASK}},),
    "label first": ((5, IMAGE),),
    "video": (VIDEO, BOXES, 1),
}


def assert_same(got: Any, want: Any) -> None:
    (got_leaves, got_spec), (want_leaves, want_spec) = tree_flatten(got), tree_flatten(want)
    assert got_spec == want_spec
    for ours_, theirs_ in zip(got_leaves, want_leaves, strict=True):
        assert type(ours_) is type(theirs_)
        if isinstance(ours_, (torch.Tensor, Image.Image)):
            assert np.allclose(np.asarray(ours_), np.asarray(theirs_), atol=1e-5)
        else:
            assert ours_ == theirs_
        if isinstance(ours_, (tv.BoundingBoxes, tv.KeyPoints)):
            assert tuple(ours_.canvas_size) == tuple(theirs_.canvas_size)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_the_result_has_the_form_of_the_call(call):
    def chain(transforms: Any) -> Any:
        return transforms.Compose([transforms.RandomHorizontalFlip(1), transforms.Pad((1, 2, 3, 4))])

    assert_same(chain(ours)(*call), chain(theirs)(*call))


@pytest.mark.parametrize(
    "make",
    [
        lambda T: T.ConvertBoundingBoxFormat("CXCYWH"),
        lambda T: T.ConvertBoundingBoxFormat(tv.BoundingBoxFormat.XYWH),
        lambda T: T.Compose([T.ConvertBoundingBoxFormat("XYWH"), T.RandomHorizontalFlip(1)]),
        lambda T: T.ClampBoundingBoxes(),
        lambda T: T.ToPureTensor(),
        lambda T: T.Identity(),
        lambda T: T.PILToTensor(),
        lambda T: T.Compose([T.ToImage(), T.ToPureTensor()]),
    ],
)
@pytest.mark.parametrize("image", [IMAGE, PIL], ids=["tensor", "pil"])
def test_conversions(make, image):
    sample = image, {"boxes": BOXES, "mask": MASK, "labels": LABELS}
    assert_same(make(ours)(sample), make(theirs)(sample))


@pytest.mark.parametrize(
    "make",
    [
        lambda T: T.ClampKeyPoints(),
        lambda T: T.SanitizeKeyPoints(),
        lambda T: T.SanitizeKeyPoints("default"),
        lambda T: T.Compose([T.Pad((-2, 0, 0, 0)), T.SanitizeKeyPoints(lambda inputs: inputs[1]["labels"])]),
    ],
)
@pytest.mark.parametrize("points", [POINTS, tv.wrap(POINTS.reshape(2, 2, 2).flip(0), like=POINTS)], ids=["P", "K"])
def test_keypoints(make, points):
    sample = IMAGE, {"points": points, "labels": torch.arange(len(points))}
    assert_same(make(ours)(sample), make(theirs)(sample))


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_clips(count):
    for clip in (VIDEO, tv.Video(torch.stack([VIDEO, VIDEO])), torch.stack([VIDEO, VIDEO])):
        got, want = (T.UniformTemporalSubsample(count)(clip) for T in (ours, theirs))
        assert_same(got, want)
    torch.manual_seed(0)
    same = tv.Video(IMAGE.expand(4, 3, H, W))
    made = ours.Compose([ours.RandomResizedCrop(9), ours.ColorJitter(0.5), ours.ToDtype(torch.float32, scale=True)])(
        same
    )
    assert type(made) is tv.Video and (made == made[:1]).all()


@pytest.mark.parametrize("types", [(tv.BoundingBoxes,), (tv.Mask, str), (int,)])
def test_lambda_by_types(types):
    sample = IMAGE, {"boxes": BOXES, "mask": MASK, "n": 3, "name": "x"}
    assert_same(
        ours.Lambda(lambda value: value * 2, *types)(sample), theirs.Lambda(lambda value: value * 2, *types)(sample)
    )


def test_a_target_is_no_image():
    with pytest.raises(TransformError, match=r"image: a tv_tensors.BoundingBoxes is a target: pass it after its image"):
        ours.Pad(1)(BOXES)


def test_transforms_of_torchvision_are_refused():
    for transform in (theirs.Resize(3), torch.nn.Sequential(theirs.CenterCrop(3), theirs.Resize(3))):
        with pytest.raises(TransformError, match=r"torchvision.transforms.v2.\w+: use cuaug.transforms.\w+"):
            ours.Compose([transform])
