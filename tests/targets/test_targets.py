"""Targets keep their types and places; only their values move."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from cuaug import TransformError
from cuaug import transforms as T
from cuaug.plan import Plan
from cuaug.targets import Targets, holds_targets

H, W = 20, 30
BOXES = {
    "xyxy": [[1.0, 2.0, 11.0, 8.0], [0.0, 0.0, 30.0, 20.0]],
    "xywh": [[1.0, 2.0, 10.0, 6.0], [0.0, 0.0, 30.0, 20.0]],
    "cxcywh": [[6.0, 5.0, 10.0, 6.0], [15.0, 10.0, 30.0, 20.0]],
}
FLIPPED = {
    "xyxy": [[19.0, 2.0, 29.0, 8.0], [0.0, 0.0, 30.0, 20.0]],
    "xywh": [[19.0, 2.0, 10.0, 6.0], [0.0, 0.0, 30.0, 20.0]],
    "cxcywh": [[24.0, 5.0, 10.0, 6.0], [15.0, 10.0, 30.0, 20.0]],
}


def flip(plan: Plan) -> None:
    plan.flip()


def nothing(plan: Plan) -> None:
    pass


def moved(target: Any, write: Any = flip, **settings: Any) -> Any:
    return moved_all([target], write, **settings)[0]


def moved_all(batch: list[Any], write: Any = flip, **settings: Any) -> list[Any]:
    n = len(batch)
    plan = Plan([H] * n, [W] * n)
    mover = Targets(batch, [H] * n, [W] * n, **settings).attach(plan)
    write(plan)
    return [*map(mover(plan.compile()), range(n))]


def made(values: list[Any], dtype: Any) -> Any:
    """A tensor or an array, by the library of its dtype."""
    return torch.tensor(values, dtype=dtype) if isinstance(dtype, torch.dtype) else np.array(values, dtype)


# --- boxes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", BOXES)
@pytest.mark.parametrize("given", ["in the dict", "in capitals", "by box_format"])
@pytest.mark.parametrize(
    "kind", [np.float32, np.float64, torch.float32, torch.float64, torch.float16, torch.bfloat16, list]
)
def test_formats_and_types_of_boxes(format, given, kind):
    boxes = BOXES[format] if kind is list else made(BOXES[format], kind)
    target = {"boxes": boxes}
    if given != "by box_format":
        target["format"] = format.upper() if given == "in capitals" else format
    got = moved(target, box_format=format if given == "by box_format" else "xyxy")
    assert type(got["boxes"]) is type(boxes) and getattr(got["boxes"], "dtype", None) == getattr(boxes, "dtype", None)
    assert (got["boxes"] if kind is list else got["boxes"].tolist()) == FLIPPED[format]
    assert set(got) == set(target) and target["boxes"] is boxes
    assert (boxes if kind is list else boxes.tolist()) == BOXES[format], "the input is not written to"


@given(st.integers(0, 2**32 - 1), st.sampled_from(list(BOXES)), st.sampled_from([np.float32, np.float64]))
def test_formats_round_trip(seed, format, dtype):
    """Unmoved corners come back bit for bit; sums of a corner and a size may round."""
    rng = np.random.default_rng(seed)
    first = rng.uniform(0, (W / 2, H / 2), (9, 2)).astype(dtype)
    size = rng.uniform(0, (W / 2 - 1, H / 2 - 1), (9, 2)).astype(dtype)
    boxes = np.concatenate([first, first + size if format == "xyxy" else size], axis=1).astype(dtype)
    if format == "cxcywh":
        boxes[:, :2] += size / 2
    got = moved({"boxes": boxes}, nothing, box_format=format)["boxes"]
    if format == "xyxy":
        np.testing.assert_array_equal(got, boxes)
    else:
        np.testing.assert_allclose(got, boxes, rtol=0, atol=32 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.int16, np.int64, np.uint8, torch.int32, torch.int64])
def test_integers_keep_their_dtype(dtype):
    """As torchvision's do; they are rounded to nearest. Lists of integers become floats."""

    def shrink(plan: Plan) -> None:
        plan.resize(H // 2, W // 2)

    for name in ("boxes", "keypoints"):
        rows = [[2, 4, 11, 8], [3, 6, 30, 20]] if name == "boxes" else [[11, 8], [30, 20]]
        value = made(rows, dtype)
        got = moved({name: value}, shrink)[name]
        assert got.dtype == dtype and type(got) is type(value)
        want = np.asarray(rows) / 2
        np.testing.assert_array_equal(np.asarray(got), np.rint(want))
        assert moved({name: rows}, shrink)[name] == want.tolist(), "lists hold numbers, and no dtype"


def test_integers_that_cannot_hold_a_moved_coordinate():
    with pytest.raises(TransformError, match=r"boxes must be .* not of dtype uint8, which cannot hold .* 310"):
        moved({"boxes": np.array([[1, 2, 11, 8]], np.uint8)}, lambda plan: plan.pad(299, 0, 0, 0))


@pytest.mark.parametrize("dtype", ["float64", "int64"])
@pytest.mark.parametrize("library", [np, torch])
def test_empty_and_lost_boxes_of_any_dtype(library, dtype):
    kind = getattr(library, dtype)
    got = moved({"boxes": library.zeros((0, 4), dtype=kind), "keypoints": np.array([[3, 6, 2]], dtype)}, crop)
    assert got["boxes"].shape == (0, 4) and got["boxes"].dtype == kind
    assert got["keypoints"].tolist() == [[0, 0, 0]] and got["keypoints"].dtype == dtype


def test_boxes_are_clipped_to_the_image():
    boxes = [[-5.0, -5.0, 10.0, 10.0], [25.0, 15.0, 35.0, 25.0], [40.0, 0.0, 50.0, 5.0]]
    got = moved({"boxes": np.array(boxes)}, nothing)["boxes"]
    assert got[:2].tolist() == [[0, 0, 10, 10], [25, 15, 30, 20]] and (got[2, 2:] == got[2, :2]).any()


@pytest.mark.parametrize("empty", [np.zeros(0), torch.zeros(0), [], ()])
@pytest.mark.parametrize("key", ["boxes", "masks", "keypoints"])
def test_no_instances(key, empty):
    got = moved({"boxes": [], "labels": np.zeros(0, np.int64), key: empty})
    assert len(got[key]) == 0 and type(got[key]) is type(empty)
    assert getattr(got[key], "dtype", None) == getattr(empty, "dtype", None)


# --- keypoints --------------------------------------------------------------------------------------------------------


def crop(plan: Plan) -> None:
    plan.crop(5, 10, 10, 12)


@pytest.mark.parametrize("make", [lambda v: np.array(v, np.float32), torch.tensor, list])
def test_keypoints_with_visibility(make):
    points = [
        [12.0, 6.0, 2.0],
        [12.0, 6.0, 1.0],
        [12.0, 6.0, 0.0],
        [3.0, 6.0, 2.0],
        [12.0, 16.0, 1.0],
        [22.0, 15.0, 2.0],
    ]
    want = [[2.0, 1.0, 2.0], [2.0, 1.0, 1.0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [12.0, 10.0, 2.0]]
    for wrapped, expected in ((points, want), ([points, points], [want, want])):
        got = moved({"keypoints": make(wrapped)}, crop)["keypoints"]
        assert (got if make is list else got.tolist()) == expected


def test_keypoints_without_visibility_move_anywhere():
    points = np.array([[12.0, 6.0], [3.0, 6.0], [12.0, 16.0]])
    assert moved({"keypoints": points}, crop)["keypoints"].tolist() == [[2, 1], [-7, 1], [2, 11]]


def test_a_lost_keypoint_stays_lost():
    def crop_and_pad(plan: Plan) -> None:
        crop(plan)
        plan.pad(10, 5, 8, 5)

    got = moved({"keypoints": np.array([[[12.0, 6.0, 2.0], [3.0, 6.0, 2.0]]])}, crop_and_pad)["keypoints"]
    assert got.tolist() == [[[12, 6, 2], [0, 0, 0]]]


def test_keypoints_outside_the_input_image_are_invisible():
    points = np.array([[-1.0, 5.0, 2.0], [30.5, 5.0, 2.0], [30.0, 5.0, 2.0]])
    assert moved({"keypoints": points}, nothing)["keypoints"][:, 2].tolist() == [0, 0, 2]


# --- containers -------------------------------------------------------------------------------------------------------


def test_other_values_pass_unchanged():
    mark = object()
    target = {"boxes": np.array(BOXES["xyxy"]), "labels": [1, 2], "mark": mark, "mask": None, "size": (H, W)}
    got = moved(target)
    assert got["mark"] is mark and got["mask"] is None and got["labels"] is target["labels"]
    assert list(got) == list(target) and got is not target


@pytest.mark.parametrize(
    "label",
    [3, "cat", None, 2.5, np.arange(3), torch.ones(2), np.ones((W, H)), np.ones((1, H)), (1, "a"), {"a": 1}, [1, 2]],
)
def test_labels_without_targets(label):
    targets = Targets([label, label], [H, H], [W, W])
    plan = Plan([H, H], [W, W])
    assert not targets and not holds_targets(label)
    mover = targets.attach(plan)
    assert plan.points is None
    got = [*map(mover(plan.compile()), range(2))]
    assert got[0] is label or got[0] == label


@pytest.mark.parametrize(
    ("image", "shown"),
    [
        (np.zeros((H, W), np.uint8), rf"an array of its image's size, {H} x {W}"),
        (torch.zeros(H, W), "a tensor of its image's size"),
        (torch.zeros(3, H, W), "a tensor of its image's size"),
        (np.zeros((H, W, 3), np.uint8), "an array of its image's size"),
        (Image.new("P", (W, H)), "a PIL image"),
        (Image.new("L", (2 * W, 2 * H)), "a PIL image"),
    ],
)
def test_an_image_without_a_name_is_refused(image, shown):
    """It is most likely a mask or the second image of a pair (VOCSegmentation), and would not move."""
    for label in (image, (image, 3), ((image, 3), 4), {"pair": (1, image)}):
        with pytest.raises(TransformError, match=shown + r'.*"mask".*"images".*pass_through'):
            moved(label)
    with pytest.raises(TransformError, match=shown):
        T.RandomHorizontalFlip(1)(np.zeros((H, W, 3), np.uint8), image)


Pair = collections.namedtuple("Pair", "boxes, number")


def test_nested_dicts_and_tuples():
    inner = {"boxes": np.array(BOXES["xyxy"]), "labels": np.arange(2)}
    got = moved(({"deep": collections.OrderedDict(inner)}, Pair(inner, 7), 3))
    assert isinstance(got[0]["deep"], collections.OrderedDict) and isinstance(got[1], Pair)
    assert got[1].number == 7 and got[2] == 3
    for found in (got[0]["deep"], got[1].boxes):
        assert found["boxes"].tolist() == FLIPPED["xyxy"]


def test_labels_of_one_batch_may_have_different_types():
    boxes = np.array(BOXES["xyxy"])
    got = moved_all([5, {"boxes": boxes}, None, {"boxes": torch.from_numpy(boxes[:1])}])
    assert got[0] == 5 and got[2] is None
    assert got[1]["boxes"].tolist() == FLIPPED["xyxy"] and got[3]["boxes"].tolist() == FLIPPED["xyxy"][:1]


def drop_first(plan: Plan) -> None:
    assert plan.points is not None
    plan.points.selected[0] = False


def test_dropping_a_box_drops_its_row_in_all_instance_fields():
    masks = np.arange(2)[:, None, None] + np.zeros((1, H, W), np.uint8)
    target = {
        "boxes": np.array(BOXES["xyxy"]),
        "masks": masks,
        "mask": np.zeros((H, W), int),
        "keypoints": np.arange(12.0).reshape(2, 2, 3),
        "labels": torch.tensor([4, 5]),
        "names": ["a", "b"],
        "colors": ("red", (1, 2)),
        "pair": Pair("boxes", 2),
        "img_shape": (H, W),
        "letterbox": ((1.0, 1.0), (8, 8)),
        "input": (H, W),
        "scores": np.array([0.5, 0.25]),
        "image_id": np.array([8, 9]),
        "orig_size": torch.tensor([H, W]),
        "size": torch.tensor([H, W]),
        "three": [1, 2, 3],
        "word": "ab",
        "camera": [7.0, 8.0],
    }
    got = moved(target, drop_first, instance_fields=("colors",), pass_through=("camera",))
    assert got["boxes"].tolist() == BOXES["xyxy"][1:] and got["masks"].shape == (1, H, W) and (got["masks"] == 1).all()
    assert got["keypoints"].shape == (1, 2, 3) and got["labels"].tolist() == [5] and got["names"] == ["b"]
    assert got["scores"].tolist() == [0.25] and got["three"] == [1, 2, 3] and got["word"] == "ab"
    assert got["colors"] == ((1, 2),)
    for unchanged in ("mask", "image_id", "orig_size", "size", "pair", "img_shape", "letterbox", "input", "camera"):
        assert len(got[unchanged]) == len(target[unchanged])


@pytest.mark.parametrize("labels", ["a cat", 3, np.array(3), None, {"cat": 1}, torch.Size([1, 2, 3])])
def test_labels_of_the_whole_image_are_allowed_beside_boxes(labels):
    got = moved({"boxes": np.array(BOXES["xyxy"]), "labels": labels}, drop_first)
    assert got["labels"] is labels or got["labels"] == labels
    names = [f"joint {i}" for i in range(17)]
    assert moved({"keypoints": np.zeros((1, 17, 2)), "labels": names})["labels"] is names


def test_keypoints_with_two_axes_are_not_instances():
    target = {"boxes": np.array(BOXES["xyxy"]), "keypoints": np.array([[1.0, 2.0], [3.0, 4.0]])}
    assert moved(target, drop_first)["keypoints"].shape == (2, 2)


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({"boxes": np.zeros((3, 5))}, r"boxes must be \(K, 4\) finite numbers, xyxy, not of shape \(3, 5\)"),
        ({"boxes": np.ones((2, 6), np.float32)}, r"not of shape \(2, 6\): give further columns names of"),
        ({"boxes": np.zeros(4)}, r"boxes must be .*, not of shape \(4,\)"),
        ({"boxes": np.array([[0, 0, 1, np.nan]])}, r"boxes .* not \[0.0, 0.0, 1.0, nan\] \(number 0\), .*not finite"),
        ({"boxes": [[0, 0, 1, 1], [5, 0, 4, 1]]}, r"boxes .* not \[5, 0, 4, 1\] \(number 1\), with its end before"),
        (
            {"boxes": [[0, 0, -1, 1]], "format": "xywh"},
            r"boxes must be \(K, 4\) finite numbers, xywh, not .*end before",
        ),
        ({"boxes": [["a", 0, 1, 1]]}, r"boxes must be .* numbers, .* not of dtype <U\d+"),
        ({"boxes": [[0, 0, 1, 1], [0, 0]]}, "boxes must be .* numbers, .* not "),
        ({"boxes": {1, 2}}, r"boxes must be .*, not of type builtins.set"),
        ({"boxes": np.zeros((1, 4)), "format": "coco"}, "format of boxes must be one of 'xyxy', .* not 'coco'"),
        ({"masks": np.zeros((2, 20, 31))}, r"masks must be \(K, H, W\) .* 20 x 30, not of shape \(2, 20, 31\)"),
        ({"masks": np.zeros((20, 30))}, r"masks must be \(K, H, W\) .* not of shape \(20, 30\)"),
        ({"mask": np.zeros((1, 20, 30))}, r"mask must be \(H, W\) .* not of shape \(1, 20, 30\)"),
        ({"keypoints": np.zeros((2, 4))}, r"keypoints must be \(P, 2\), .* not of shape \(2, 4\)"),
        ({"keypoints": np.full((2, 2), np.inf)}, r"keypoints .* not \[inf, inf\]"),
        ({"boxes": np.zeros((2, 4)), "masks": np.zeros((3, 20, 30))}, "boxes has 2 instances and masks has 3"),
        ({"boxes": np.zeros((2, 4)), "keypoints": np.zeros((1, 5, 2))}, "boxes has 2 instances and keypoints has 1"),
        ({"a": ({"boxes": np.zeros(3)},)}, r"a\.0\.boxes must be"),
        (
            {"boxes": np.zeros((2, 4)), "labels": [1, 2, 3]},
            "boxes has 2 instances and labels has 3: a target needs equal counts",
        ),
        ({"boxes": [], "labels": (1,)}, "boxes has 0 instances and labels has 1"),
        ({"b": {"labels": np.zeros(1), "masks": np.zeros((2, H, W))}}, r"b.masks has 2 instances and b.labels has 1"),
    ],
)
def test_errors_name_the_key_the_value_and_the_expected_shape(target, message):
    with pytest.raises(TransformError, match=message):
        moved(target)
    with pytest.raises(TransformError, match=r"\(target 1 of the batch\)"):
        moved_all([3, target])


def test_unlabeled_keypoints_may_hold_any_value():
    points = np.array([[np.nan, np.nan, 0.0], [1.0, 2.0, 1.0]])
    assert moved({"keypoints": points})["keypoints"].tolist() == [[0, 0, 0], [29, 2, 1]]
