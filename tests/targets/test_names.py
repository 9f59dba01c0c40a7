"""Values that may describe geometry move, stay or are refused by their names."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from cuaug import TransformError
from cuaug import transforms as T
from tests.targets.test_mask_files import load

H, W = 20, 30
BOXES = [[1.0, 2.0, 11.0, 8.0]]
FLIPPED = [[19.0, 2.0, 29.0, 8.0]]


def moved(target: Any, **settings: Any) -> Any:
    return T.Compose([T.RandomHorizontalFlip(1)], **settings)(np.zeros((H, W, 3), np.uint8), target)[1]


@pytest.mark.parametrize("name", ["bbox", "bboxes", "gt_boxes", "gt_bboxes", "box", "bounding_boxes"])
@pytest.mark.parametrize(
    "boxes",
    [
        [1, 2, 11, 8],
        (1.0, 2.0, 11.0, 8.0),
        [[1, 2, 11, 8]],
        [(1, 2, 11, 8, "cat"), (0, 0, 3, 3, "dog")],
        [np.array([1, 2, 11, 8])],
        [torch.tensor(1.0), torch.tensor(2.0), torch.tensor(11.0), torch.tensor(8.0)],
        np.array([1.0, 2.0, 11.0, 8.0]),
        np.zeros((3, 5)),
        torch.zeros(2, 4),
    ],
)
def test_boxes_under_other_libraries_names_are_refused(name, boxes):
    """The names of Albumentations, Hugging Face, COCO and MMDetection."""
    for target in ({name: boxes}, {"objects": {name: boxes, "category": [1]}}, ({name: boxes}, 3)):
        message = rf"{name} looks like boxes, but only \"boxes\".*box_format.*xywh.*pass_through=\('{name}',\)"
        with pytest.raises(TransformError, match=message):
            moved(target)
    with pytest.raises(TransformError, match="is a list with boxes, masks, keypoints or images, but"):
        moved({"annotations": [{"id": 1}, {name: boxes}]})
    with pytest.raises(TransformError, match=f"{name} looks like boxes"):
        moved({name: boxes, "boxes": BOXES})
    kept = moved({name: boxes, "boxes": BOXES, "list": [{name: boxes}]}, pass_through=(name,))
    assert kept[name] is boxes and kept["list"][0][name] is boxes and kept["boxes"] == FLIPPED


def test_pascal_vocs_boxes_are_refused():
    box = {"xmin": "1", "ymin": "2", "xmax": "11", "ymax": "8"}
    with pytest.raises(TransformError, match=r'annotation\.object\.bndbox .*"boxes"'):
        moved({"annotation": {"object": {"name": "cat", "bndbox": box}}})
    with pytest.raises(TransformError, match=r"annotation\.object is a list with boxes"):
        moved({"annotation": {"object": [{"name": "cat", "bndbox": box}]}})


@pytest.mark.parametrize(
    "segmentation",
    [
        [[1.0, 2.0, 11.0, 2.0, 11.0, 8.0]],
        [[[1.0, 2.0, 11.0, 2.0, 11.0, 8.0]]],
        {"size": [H, W], "counts": "0"},
        [{"size": [H, W], "counts": [600]}],
        np.zeros((H, W), np.uint8),
        torch.zeros(2, H, W),
        Image.new("L", (W, H)),
    ],
)
def test_segmentations_are_refused(segmentation):
    """Polygons, run-length encodings and masks, as in COCO and Hugging Face."""
    with pytest.raises(TransformError, match=r'segmentation .*"masks".*"mask".*pass_through'):
        moved({"boxes": BOXES, "segmentation": segmentation})
    with pytest.raises(TransformError, match="the target is a list with"):
        moved([{"segmentation": segmentation}])
    kept = moved({"segmentation": segmentation}, pass_through=("segmentation",))
    assert kept["segmentation"] is segmentation


@pytest.mark.parametrize(
    ("names", "values"),
    [
        (
            ("bbox", "bboxes", "bndbox"),
            [None, 3, True, "boxes/1.txt", b"1", [], (), np.zeros((0, 4)), [[]], np.array(3), np.zeros(7), [1, 2, 3]]
            + [["a.txt", "b.txt"] * 2, np.array(["a", "b", "c", "d"]), np.zeros((2, 2)), {"a": 1}, {1, 2, 3, 4}],
        ),
        (("segmentation",), [None, 3, "1.txt", [], [1, 2], ["1.png"], np.zeros(3), {"a": 1}]),
        (("points",), [None, 3, "1.txt", [], [5], ["nose", "ear"], np.array(7), np.zeros(0)]),
    ],
    ids=["boxes", "segmentation", "keypoints"],
)
def test_other_values_under_these_names_pass_unchanged(names, values):
    for value in values:
        target = dict.fromkeys(names, value)
        for found in (moved(target), moved([target])[0]):
            assert all(found[name] is value for name in names), value


# --- images, maps, keypoints and outlines under other names -----------------------------------------------------------


@pytest.mark.parametrize("name", ["depth", "label", "semantic", "gt_seg_map", "gt_masks", "anything"])
@pytest.mark.parametrize(
    "value",
    [
        np.zeros((H, W), np.float32),
        torch.zeros(H, W),
        torch.zeros(2, H, W),
        np.zeros((H, W, 3), np.uint8),
        np.zeros((5, H, W, 3), np.uint8),
        Image.new("L", (W, H)),
        Image.new("RGB", (7, 7)),
    ],
)
def test_images_and_maps_under_unknown_names_are_refused(name, value):
    for target in ({name: value}, {"deep": {name: value}}, ({"deep": ({name: value},)}, 3)):
        with pytest.raises(TransformError, match=rf".*{name} .*masks=.*pass_through=\('{name}',\)"):
            moved(target)
    kept = moved({name: value, "deep": {name: value}}, pass_through=(name,))
    assert kept[name] is value and kept["deep"][name] is value


@pytest.mark.parametrize("name", ["landmarks", "points", "kpts", "gt_keypoints", "Landmarks"])
@pytest.mark.parametrize(
    "value", [[[1, 2], [3, 4]], [1, 2, 3, 4], np.zeros((5, 2)), np.zeros((2, 5, 3)), torch.zeros(10), [[[1.0, 2.0]]]]
)
def test_keypoints_under_other_names_are_refused(name, value):
    with pytest.raises(TransformError, match=rf'{name} looks like keypoints.*"keypoints".*pass_through'):
        moved({name: value})
    assert moved({name: value}, pass_through=(name,))[name] is value


@pytest.mark.parametrize("name", ["polygons", "segments", "contours"])
def test_outlines_under_other_names_are_refused(name):
    with pytest.raises(TransformError, match=rf"{name} looks like masks or outlines.*pass_through"):
        moved({name: [[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]})


@pytest.mark.parametrize(
    "items", [[Image.new("L", (W, H))], [np.zeros((H, W))], [[torch.zeros(3, H, W)], 4], [{"depth": np.zeros((H, W))}]]
)
def test_images_in_lists_are_refused(items):
    with pytest.raises(TransformError, match=r"frames is a list with boxes, masks, keypoints or images.*pass_through"):
        moved({"frames": items})
    assert moved({"frames": items}, pass_through=("frames",))["frames"] is items


@pytest.mark.parametrize("name", ["depth", "gt_seg_map", "segmentation"])
def test_mask_files_under_unknown_names_are_refused(name):
    with pytest.raises(TransformError, match=rf"{name} looks like .*mask.*pass_through=\('{name}',\)"):
        moved({name: "masks/1.PNG"})
    assert moved({name: "masks/1.PNG", "path": "1.png"}, pass_through=(name,))[name] == "masks/1.PNG"


def test_arrays_of_another_size_pass_unchanged():
    target = {"features": np.zeros((W, H)), "matrix": np.eye(3), "scores": torch.zeros(H), "text": "depth", "n": 3}
    assert all(moved(target)[name] is value for name, value in target.items())


# --- masks= and pass_through= -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint16, np.int64, torch.float32])
def test_named_masks_move_like_masks(dtype):
    """Whole pixels: each value of a depth map comes back bit for bit."""
    rng = np.random.default_rng(0)
    depth = rng.uniform(0, 100, (H, W)).astype(np.float32 if dtype is torch.float32 else dtype)
    value = torch.from_numpy(depth) if dtype is torch.float32 else depth
    got = moved({"depth": value, "deep": {"depth": value}}, masks=("depth",))
    for found in (got["depth"], got["deep"]["depth"]):
        assert type(found) is type(value) and found.dtype == value.dtype
        np.testing.assert_array_equal(np.asarray(found), depth[:, ::-1])


def test_named_instance_masks_and_fills():
    masks = np.arange(1, 3, dtype=np.uint8)[:, None, None] + np.zeros((1, H, W), np.uint8)
    depth = np.ones((H, W), np.float32)
    chain = T.Compose([T.Pad((1, 0, 0, 0))], masks=("gt_masks", "depth", "flat"), mask_fill={"depth": -0.5, "mask": 9})
    target = {"gt_masks": masks, "depth": depth, "mask": masks[0], "flat": masks[0]}
    got = chain(np.zeros((H, W, 3), np.uint8), target)[1]
    assert got["gt_masks"].shape == (2, H, W + 1) and got["gt_masks"][:, 0, :2].tolist() == [[0, 1], [0, 2]]
    assert got["depth"][0, :2].tolist() == [-0.5, 1] and got["depth"].dtype == np.float32
    assert got["mask"][0, :2].tolist() == [9, 1] and got["flat"][0, :2].tolist() == [0, 1]


def test_a_path_of_keys_names_one_value():
    depth = np.arange(float(H * W)).reshape(H, W)
    target = {"left": {"depth": depth}, "right": {"depth": depth}}
    got = moved(target, masks=("left.depth",), pass_through=("right.depth",))
    np.testing.assert_array_equal(got["left"]["depth"], depth[:, ::-1])
    assert got["right"]["depth"] is depth
    with pytest.raises(TransformError, match=r"right\.depth looks like a mask"):
        moved(target, masks=("left.depth",))


def test_named_masks_have_the_images_size():
    message = r"depth must be \(H, W\) or \(K, H, W\) numbers, .* not of shape \(3, 3\)"
    with pytest.raises(TransformError, match=message):
        moved({"depth": np.zeros((3, 3))}, masks=("depth",))
    assert moved({"depth": None}, masks=("depth",))["depth"] is None


def test_names_merge_over_inner_chains_and_pickle():
    inner = T.Compose([T.RandomHorizontalFlip(1)], masks=("depth", "normals"), instance_fields=("colors",))
    chain = T.Compose([T.RandomApply([inner], 1)], masks="depth", pass_through=["camera"])
    for same in (chain, pickle.loads(pickle.dumps(chain)), eval(repr(chain), vars(T))):
        found = same.target_format
        assert found["masks"] == ("depth", "normals") and found["pass_through"] == ("camera",)
        assert found["instance_fields"] == ("colors",)
    assert "masks=('depth', 'normals'), pass_through=('camera',)" in repr(chain)
    depth = np.arange(float(H * W)).reshape(H, W)
    target = {"depth": depth, "camera": depth}
    got = chain(np.zeros((H, W, 3), np.uint8), target)[1]
    np.testing.assert_array_equal(got["depth"], depth[:, ::-1])
    assert got["camera"] is depth


# --- arrays without a name --------------------------------------------------------------------------------------------

POINTS = np.array([[3.0, 4.0], [10.0, 12.0], [20.0, 7.0]])
UNNAMED = {
    "points": POINTS,
    "boxes": np.array([[3.0, 4.0, 9.0, 9.0]]),
    "a tensor": torch.tensor([[3, 4]]),
    "in a tuple": (7, POINTS),
    "in an inner tuple": (7, ("cat", POINTS)),
}
MOVING = {
    "flip": T.RandomHorizontalFlip(1),
    "crop": T.CenterCrop(10),
    "pad": T.Pad(2),
    "resize": T.Resize((30, 40)),
    "rotation": T.RandomRotation((20, 20)),
    "elastic": T.ElasticTransform(20.0),
    "flip after a blur": T.Compose([T.GaussianBlur(3), T.RandomVerticalFlip(1)]),
    "flip after Lambda": T.Compose([T.Lambda(lambda images: images), T.RandomVerticalFlip(1)]),
}
STILL = {
    "colors": T.ColorJitter(0.4),
    "blur": T.Compose([T.GaussianBlur(5), T.RandomAutocontrast(1), T.RandomErasing(1)]),
    "no flip": T.RandomHorizontalFlip(0),
    "the same size": T.Compose([T.Resize((H, W)), T.CenterCrop((H, W))]),
}


def in_call(label: Any, transform: T.Transform) -> Any:
    return T.Compose([transform])(np.zeros((H, W, 3), np.uint8), label)[1]


def in_loader(label: Any, transform: T.Transform) -> Any:
    return load(Labeled(label), [transform], batch_size=2, collate_fn=list)[0]


class Labeled:
    def __init__(self, label: Any) -> None:
        self.label = label

    def __len__(self) -> int:
        return 2

    def read(self, index: int) -> tuple[Any, Any]:
        return np.zeros((H, W, 3), np.uint8), self.label


@pytest.mark.parametrize("load", [in_call, in_loader])
@pytest.mark.parametrize("label", UNNAMED)
@pytest.mark.parametrize("transform", MOVING)
def test_arrays_like_points_are_refused_where_pixels_move(transform, label, load):
    with pytest.raises(TransformError, match=r"the target is an array \(\d, [24]\), without a name.*\"keypoints\""):
        load(UNNAMED[label], MOVING[transform])


@pytest.mark.parametrize("load", [in_call, in_loader])
@pytest.mark.parametrize("transform", STILL)
def test_arrays_like_points_stay_where_pixels_do(transform, load):
    for label in UNNAMED.values():
        kept = load(label, STILL[transform])
        while isinstance(kept, tuple):
            label, kept = label[1], kept[1]
        np.testing.assert_array_equal(kept, label)


@pytest.mark.parametrize("load", [in_call, in_loader])
def test_other_arrays_stay(load):
    labels = [np.arange(4.0), np.ones((3, 5)), np.ones((2, 2, 2)), {"values": POINTS}, np.array([["a", "b"]]), [[1, 2]]]
    for label in labels:
        kept = load(label, T.RandomHorizontalFlip(1))
        kept, label = (kept["values"], label["values"]) if isinstance(label, dict) else (kept, label)
        np.testing.assert_array_equal(np.asarray(kept), np.asarray(label))
