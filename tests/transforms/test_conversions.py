"""torchvision's conversions of types, and Lambda by types."""

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
