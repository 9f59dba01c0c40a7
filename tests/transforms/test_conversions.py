"""torchvision's conversions of types, Lambda by types, and `fill` and `dtype` as dicts by type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from cuaug import Loader, TransformError
from cuaug import transforms as T

ARRAY = np.random.default_rng(0).integers(0, 256, (12, 20, 3), dtype=np.uint8)
PLANES = torch.from_numpy(ARRAY).permute(2, 0, 1)


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (Image.fromarray(ARRAY), PLANES),
        (ARRAY, PLANES),
        (ARRAY[..., 0], PLANES[:1]),
        (Image.fromarray(ARRAY[..., 0]), PLANES[:1]),
        (ARRAY[None].repeat(2, 0), PLANES.expand(2, 3, 12, 20)),
        (PLANES, PLANES),
    ],
)
def test_to_image_makes_a_tensor(image, expected):
    made = T.ToImage()(image)
    assert type(made) is torch.Tensor and torch.equal(made, expected)
    chain = T.Compose([T.RandomHorizontalFlip(1), T.ToImage(), T.ToDtype(torch.float32, scale=True)])
    torch.testing.assert_close(chain(image), expected.flip(-1) / 255)
    made, label = T.ToImage()(image, [1, 2] if expected.ndim == 4 else 1)
    assert torch.equal(made, expected) and label == ([1, 2] if expected.ndim == 4 else 1)


def test_pil_to_tensor_leaves_arrays():
    chain = T.PILToTensor()
    assert torch.equal(chain(Image.fromarray(ARRAY)), PLANES)
    assert isinstance(chain(ARRAY), np.ndarray) and torch.equal(chain(PLANES), PLANES)


def test_identity_and_to_pure_tensor_change_nothing():
    for transform in (T.Identity(), T.ToPureTensor(), T.ClampBoundingBoxes()):
        assert torch.equal(transform(PLANES), PLANES)
        assert np.array_equal(transform(ARRAY), ARRAY)


def test_rgb():
    gray = torch.from_numpy(ARRAY[..., :1]).permute(2, 0, 1)
    assert torch.equal(T.RGB()(gray), gray.expand(3, -1, -1))
    assert T.RGB()(Image.fromarray(ARRAY[..., 0])).mode == "RGB"
    assert torch.equal(T.RGB()(PLANES), PLANES)
    with pytest.raises(TransformError, match="RGB takes images of 1 or 3 channels, not 2"):
        T.RGB()(PLANES[:2])
    with pytest.raises(TransformError, match="RGB changes the channels of the whole batch"):
        T.RandomApply([T.RGB()], 1)(gray)


BOXES = [[2.0, 3.0, 8.0, 9.0]]
IN_FORMATS = {"xyxy": BOXES, "xywh": [[2.0, 3.0, 6.0, 6.0]], "cxcywh": [[5.0, 6.0, 6.0, 6.0]]}


@pytest.mark.parametrize("old", IN_FORMATS)
@pytest.mark.parametrize("new", IN_FORMATS)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_boxes_change_their_format_at_the_end(old, new, place):
    steps: list[Any] = [T.Lambda(lambda images: images), T.Pad((1, 0, 0, 0)), T.Pad((1, 0, 0, 0))]
    chain = T.Compose([*steps[:place], T.ConvertBoundingBoxFormat(new.upper()), *steps[place:]], box_format=old)
    moved = chain(PLANES, {"boxes": np.array(IN_FORMATS[old])})[1]["boxes"]
    expected = np.array(IN_FORMATS[new])
    expected[:, [0, 2] if new == "xyxy" else [0]] += 2
    assert isinstance(moved, np.ndarray) and np.allclose(moved, expected)
    target = {"image": ARRAY, "inner": {"boxes": IN_FORMATS[old], "format": old.upper()}, "n": 1}
    result = T.ConvertBoundingBoxFormat(new)(target)
    assert result["inner"] == {"boxes": IN_FORMATS[new], "format": new.upper()} and result["n"] == 1


def test_box_formats_in_a_loader_and_contradictions(tmp_path):
    Image.fromarray(ARRAY).save(tmp_path / "1.png")
    label = {"boxes": np.array(BOXES), "labels": np.array([1])}
    chain = [T.ToImage(), T.RandomHorizontalFlip(1), T.ConvertBoundingBoxFormat("CXCYWH"), T.ToPureTensor()]
    with Loader([(str(tmp_path / "1.png"), label)], chain, batch_size=1, device="cpu") as loader:
        images, labels = next(iter(loader))
    assert torch.equal(images[0], PLANES.flip(-1)) and labels[0]["boxes"].tolist() == [[15, 6, 6, 6]]
    with pytest.raises(TransformError, match="format must be one of 'xyxy', 'xywh', 'cxcywh', not 'polygon'"):
        T.ConvertBoundingBoxFormat("polygon")
    with pytest.raises(TransformError, match="ConvertBoundingBoxFormat acts on the whole batch"):
        T.RandomApply([T.ConvertBoundingBoxFormat("xywh")], 1)(PLANES, {"boxes": BOXES})
    with pytest.raises(TransformError, match=r"clamping_mode must be .* boxes are always clipped"):
        T.ClampBoundingBoxes(None)


def test_clamp_keypoints():
    points = np.array([[40.0, 2.0], [-3.0, 30.0], [4.0, 5.0]])
    chain = T.Compose([T.Resize((24, 40)), T.ClampKeyPoints()])
    moved = chain(PLANES, {"keypoints": points})[1]["keypoints"]
    assert moved.tolist() == [[39, 4], [0, 23], [8, 10]]
    torch.manual_seed(0)
    some = T.RandomApply([T.ClampKeyPoints()])(PLANES.expand(16, -1, -1, -1), [{"keypoints": points}] * 16)[1]
    assert 0 < sum(target["keypoints"][0, 0] == 19 for target in some) < 16


POINTS = np.array([[25.0, 2.0], [3.0, 4.0], [19.0, 11.0], [-1.0, 3.0]])


def test_sanitize_keypoints():
    target = {"keypoints": POINTS, "labels": torch.arange(4), "n": 4}
    moved = T.SanitizeKeyPoints()(PLANES, target)[1]
    assert moved["keypoints"].tolist() == [[3, 4], [19, 11]] and moved["labels"] is target["labels"]
    moved = T.Compose([T.SanitizeKeyPoints("default"), T.Lambda(lambda x: x), T.RandomHorizontalFlip(1)])(
        PLANES, target
    )[1]
    assert moved["keypoints"].tolist() == [[17, 4], [1, 11]] and moved["labels"].tolist() == [1, 2]
    moved = T.SanitizeKeyPoints(lambda inputs: inputs[1]["ids"])(PLANES, {"keypoints": POINTS, "ids": list("abcd")})[1]
    assert moved["ids"] == ["b", "c"]
    groups = {"keypoints": POINTS[[1, 2, 0, 1]].reshape(2, 2, 2), "labels": [7, 8]}
    moved = T.SanitizeKeyPoints("labels")(PLANES, groups)[1]
    assert moved["keypoints"].tolist() == [[[3, 4], [19, 11]]] and moved["labels"] == [7]
    coco = {"keypoints": np.array([[[3.0, 4.0, 2], [0.0, 0.0, 0]], [[25.0, 4.0, 2], [0.0, 0.0, 0]]])}
    moved = T.Compose([T.Pad((-2, 0, 0, 0)), T.SanitizeKeyPoints()])(PLANES, coco)[1]
    assert moved["keypoints"].tolist() == [[[1, 4, 2], [0, 0, 0]]], "points without a label do not count"
    beside = {**groups, "boxes": np.array([[1.0, 1, 4, 5], [1, 1, 9, 9]])}
    with pytest.raises(TransformError, match=r"keypoints belong to boxes, .* use SanitizeBoundingBoxes"):
        T.SanitizeKeyPoints()(PLANES, beside)
    with pytest.raises(TransformError, match='labels_getter must be "default", a name, a callable or None, not 3'):
        T.SanitizeKeyPoints(3)
    T.Compose([T.SanitizeKeyPoints(), T.SanitizeBoundingBoxes()])
    with pytest.raises(TransformError, match="labels_getter must be the same"):
        T.Compose([T.SanitizeKeyPoints("a"), T.SanitizeBoundingBoxes()])


def test_lambda_by_types():
    calls: list[Any] = []

    def note(value):
        calls.append(value)
        return value + 1

    target = {"a": 1, "b": (2.0, [3]), "name": "x"}
    image, moved = T.Lambda(note, int)(PLANES, target)
    assert calls == [1, 3] and moved == {"a": 2, "b": (2.0, [4]), "name": "x"} and torch.equal(image, PLANES)
    calls.clear()
    image, moved = T.Lambda(note, torch.Tensor)(PLANES, torch.tensor(4))
    assert moved == 5 and torch.equal(image, PLANES + 1) and calls[0].shape == (1, 3, 12, 20)
    assert repr(T.Lambda(note, int)).endswith("note, builtins.int)")
    with pytest.raises(TransformError, match="types_to_transform must be types, not 3"):
        T.Lambda(note, 3)


#: Stand for types of torchvision, whose names and modules count.
Picture, Mask, BoundingBoxes = (
    type(name, (), {"__module__": "torchvision.tv_tensors._types"}) for name in ("Image", "Mask", "BoundingBoxes")
)
IMAGE = np.full((4, 6, 3), 9, dtype=np.uint8)
MASK = np.full((4, 6), 3, dtype=np.int32)


@pytest.mark.parametrize(
    ("fill", "pixel", "class_"),
    [
        ({Picture: 114, Mask: 255, "others": 0}, 114, 255),
        ({torch.Tensor: (1, 2, 3), Mask: 7}, (1, 2, 3), 7),
        ({Image.Image: 5, "others": 8}, 5, 8),
        ({"others": 8}, 8, 0),
        ({Mask: 255}, 0, 255),
        ({Picture: 4, Mask: None}, 4, 0),
        ({Picture: 4, BoundingBoxes: 9}, 4, 0),
        (6, 6, 0),
    ],
)
def test_images_and_masks_have_their_own_fill(fill, pixel, class_):
    image, target = T.Pad(2, fill=fill)(IMAGE, {"mask": MASK})
    assert (image[0, 0] == pixel).all() and (image[3, 3] == 9).all()
    assert target["mask"][0, 0] == class_ and target["mask"][3, 3] == 3


@pytest.mark.parametrize(
    "make",
    [
        lambda fill: T.CenterCrop(20, fill),
        lambda fill: T.RandomCrop(20, pad_if_needed=True, fill=fill),
        lambda fill: T.RandomZoomOut(fill, (4, 4), p=1),
        lambda fill: T.RandomRotation((45, 45), expand=True, fill=fill),
        lambda fill: T.RandomAffine(0, (0.9, 0.9), fill=fill),
        lambda fill: T.RandomPerspective(1, 1, fill=fill),
    ],
)
def test_every_transform_with_a_fill_takes_a_dict(make):
    images = np.repeat(IMAGE[None], 16, axis=0)
    result, targets = T.Compose([make({Picture: 200, Mask: 9}), T.Resize((30, 30), "nearest")])(
        images, [{"mask": MASK}] * 16
    )
    masks = np.stack([target["mask"] for target in targets])
    assert (result == 200).any() and set(np.unique(masks)) == {3, 9}


def test_masks_of_a_chain_have_one_fill():
    pads = [T.Pad(1, fill={Picture: 1, Mask: 255}), T.Pad(1, fill={Picture: 2, "others": 255}), T.Pad(1, fill=3)]
    chain = T.Compose([T.RandomApply(pads[:1], 1.0), *pads[1:]])
    mask = chain(IMAGE, {"mask": MASK})[1]["mask"]
    assert mask.shape == (10, 12) and (mask[0] == 255).all()
    for other in (T.Pad(1, fill={Picture: 1, Mask: 0}), T.Compose([T.Pad(1)], mask_fill=7)):
        with pytest.raises(TransformError, match=r"mask_fill must be the same for .*, not both"):
            T.Compose([pads[0], other])


@pytest.mark.parametrize(
    ("fill", "message"),
    [
        ({"image": 1}, "fill must have types as keys, torch.Tensor or .* or \"others\", not 'image'"),
        ({int: 1}, "fill must have types as keys, .* not <class 'int'>"),
        ({Picture: 1, torch.Tensor: 2}, "fill must have one value for all types of image, not 1, 2"),
        ({Picture: "red"}, "fill must be a number or a sequence of one per channel, not 'red'"),
        ({Mask: (1, 2, 3)}, r"fill of masks must be a number, not .1, 2, 3."),
    ],
)
def test_other_dicts_are_refused(fill, message):
    with pytest.raises(TransformError, match=message):
        T.Compose([T.Pad(1, fill=fill)])


def test_dtypes_by_type():
    convert = T.ToDtype({torch.Tensor: torch.float32, Mask: torch.int64, "others": None}, scale=True)
    image, target = convert(torch.from_numpy(IMAGE).permute(2, 0, 1), {"mask": MASK, "masks": torch.ones(2, 4, 6)})
    assert image.dtype == torch.float32 and image.max() == np.float32(9 / 255)
    assert target["mask"].dtype == np.int64 and (target["mask"] == MASK).all()
    assert target["masks"].dtype == torch.int64
    image, target = T.Compose([T.ToDtype({Mask: torch.uint8, "others": None})])(IMAGE, {"mask": MASK})
    assert (image == IMAGE).all() and target["mask"].dtype == np.uint8
    image = T.ToDtype({Picture: torch.float16, "others": None})(torch.zeros(3, 4, 6))
    assert image.dtype == torch.float16


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        ({Picture: torch.float32, BoundingBoxes: torch.float16}, "dtype of boxes must be None, not torch.float16"),
        ({"others": torch.float32}, 'dtype\\["others"\\] must be None, not torch.float32: give images a key'),
        ({Picture: torch.float32, Mask: "int64"}, "dtype of masks must be a torch.dtype or None, not 'int64'"),
        ({Picture: torch.int32, "others": None}, "dtype must be one of .* not torch.int32"),
        ({"mask": torch.int64}, "dtype must have types as keys"),
    ],
)
def test_other_dtypes_are_refused(dtype, message):
    with pytest.raises(TransformError, match=message):
        T.ToDtype(dtype)
