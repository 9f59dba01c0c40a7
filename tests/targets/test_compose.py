"""Calls of chains with images and targets."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from cuaug import TransformError
from cuaug import transforms as T
from tests.targets.test_mask_files import load

BOXES = np.array([[2.0, 3.0, 9.0, 8.0]])


@pytest.mark.parametrize(
    "image",
    [np.zeros((20, 30, 3), np.uint8), torch.zeros(3, 20, 30), Image.new("RGB", (30, 20))],
    ids=["array", "tensor", "PIL"],
)
def test_one_image(image):
    made, target = T.RandomHorizontalFlip(1)(image, {"boxes": BOXES, "label": 3})
    assert type(made) is type(image)
    assert target["boxes"].tolist() == [[21, 3, 28, 8]] and target["label"] == 3
    assert type(T.RandomHorizontalFlip(1)(image)) is type(image), "without a target the result is the image alone"
    assert T.RandomHorizontalFlip(1)(image, None)[1] is None
    assert T.RandomHorizontalFlip(1)(image, 7)[1] == 7


XYWH = {"box_format": "xywh", "mask_fill": 255}


@pytest.mark.parametrize(
    "wrap",
    [
        lambda chain: chain,
        lambda chain: T.Compose([chain]),
        lambda chain: T.Compose([T.Compose([chain])], box_format="xywh"),
        lambda chain: T.Compose([T.RandomApply([chain], 1)]),
        lambda chain: T.Compose([T.RandomChoice([T.SomeOf([T.RandomOrder([chain])])]), T.Lambda(lambda x: x)]),
    ],
)
def test_the_target_format_of_a_chain_and_of_an_inner_one_applies(wrap):
    chain = wrap(T.Compose([T.RandomHorizontalFlip(1), T.Pad((1, 0, 0, 0))], **XYWH))
    target = {"boxes": [[1.0, 1.0, 2.0, 2.0]], "mask": np.ones((4, 9), np.uint8)}
    moved = chain(np.zeros((4, 9, 3), np.uint8), target)[1]
    assert moved["boxes"] == [[7, 1, 2, 2]] and moved["mask"][0, 0] == 255
    assert XYWH.items() <= chain.target_format.items()


def test_contradicting_target_formats_are_refused():
    inner = [T.Compose([], box_format=name) for name in ("xywh", "cxcywh")]
    for within, outer in ((inner, "xyxy"), (inner[:1], "cxcywh"), ([T.RandomApply(inner)], "xyxy")):
        message = r"box_format must be the same .* not both '(xywh|cxcywh)' and '(xywh|cxcywh)'"
        with pytest.raises(TransformError, match=message):
            T.Compose(within, box_format=outer)
    with pytest.raises(TransformError, match=r"mask_fill must be the same .* not both 7 and 255"):
        T.Compose([T.Compose([], mask_fill=255)], mask_fill=7)


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ([{"boxes": BOXES}], "the target"),
        ([3, (1, {"deep": {"boxes": BOXES}})], "the target"),
        ([{"mask": np.zeros((20, 30))}], "the target"),
        ({"ann": [{"boxes": BOXES}]}, "ann"),
        ({"a": ({"b": [[], [[{"keypoints": [[1, 2]]}]]]},)}, "a.0.b"),
        (([{"boxes": BOXES}], 1), "the target"),
        (({"ann": ({"boxes": BOXES}, [{"masks": np.zeros((1, 20, 30))}])}, 1), "ann"),
    ],
)
def test_boxes_in_a_list_are_refused(tmp_path, label, name):
    """For an image, in a batch and in a Loader: a list holds the targets of a batch."""
    flip, message = T.RandomHorizontalFlip(1), f"{name} is a list with boxes, masks, keypoints or images, but .* batch"
    with pytest.raises(TransformError, match=message):
        flip(np.zeros((20, 30, 3), np.uint8), label)
    with pytest.raises(TransformError, match=message + r".* \(target 1 of the batch\)"):
        flip(np.zeros((2, 20, 30, 3), np.uint8), [7, label])
    Image.new("RGB", (30, 20)).save(tmp_path / "1.png")
    with pytest.raises(TransformError, match=r"1\.png.*: " + message):
        load([(str(tmp_path / "1.png"), label)], [flip])


@pytest.mark.parametrize(
    "label", [[1, 2], [], [[]], [{"bbox": "1.txt"}], ["boxes"], [{"mask": "1.png"}], [[1.5], [(2, 3), "a"]]]
)
def test_other_lists_pass_unchanged(label):
    image = np.zeros((20, 30, 3), np.uint8)
    assert T.RandomHorizontalFlip(1)(image, label)[1] is label
    assert T.RandomHorizontalFlip(1)(image[None], [label])[1][0] is label
    moved = T.RandomHorizontalFlip(1)(image, {"list": label, "tuple": (label, 1), "boxes": BOXES})[1]
    assert moved["list"] is label and moved["tuple"] == (label, 1) and moved["boxes"].tolist() == [[21, 3, 28, 8]]


def test_transforms_after_a_batch_transform_move_targets():
    chain = T.Compose([T.Pad((10, 0, 0, 0)), T.Lambda(lambda images: images), T.Pad((0, 5, 0, 0))])
    made, target = chain(np.zeros((20, 30, 3), np.uint8), {"boxes": BOXES})
    assert made.shape == (25, 40, 3) and target["boxes"].tolist() == [[12, 8, 19, 13]]


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ([{}], "target must be one per image: 2, not 1"),
        ({}, "target of a batch must be a list of N targets, not .*dict"),
        ([3, {"boxes": [[1]]}], r"boxes .* \(1, 1\) \(target 1 of the batch\)"),
    ],
)
def test_invalid_targets_are_refused(targets, message):
    with pytest.raises(TransformError, match=message):
        T.Pad(1)(np.zeros((2, 9, 9, 3), np.uint8), targets)


def test_invalid_target_formats_are_refused():
    with pytest.raises(TransformError, match="box_format must be one of 'xyxy', 'xywh', 'cxcywh', not 'coco'"):
        T.Compose([], box_format="coco")
    for fill in ("red", float("nan"), (1, 2)):
        with pytest.raises(TransformError, match=r"mask_fill must be a number, not "):
            T.Compose([], mask_fill=fill)
    with pytest.raises(TransformError, match=r"mask_fill\['depth'\] must be a number, not 'far'"):
        T.Compose([], mask_fill={"depth": "far"})
    for name in ("masks", "pass_through", "instance_fields"):
        with pytest.raises(TransformError, match=rf"{name} must be names, such as \('depth',\), not"):
            T.Compose([], **{name: [3]})
    with pytest.raises(TransformError, match=r"pass_through must not hold names of masks .* holds 'depth'"):
        T.Compose([T.Compose([], masks=("depth",))], pass_through=("depth",))


def test_several_views_refuse_targets():
    with pytest.raises(TransformError, match=r"targets cannot move with several views"):
        T.FiveCrop(4)(np.zeros((9, 9, 3), np.uint8), {"boxes": BOXES})
    assert T.FiveCrop(4)(np.zeros((9, 9, 3), np.uint8), 3)[1] == 3
