"""Boxes relative to the image become pixels where the setting says so, and are refused where it does not."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from cuaug import Loader, TransformError
from cuaug import transforms as T

H, W = 40, 60
YOLO = np.array([[0.5, 0.5, 0.25, 0.5], [0.1, 0.2, 0.05, 0.1]], np.float32)
AS_CORNERS = [[22.5, 10, 37.5, 30], [4.5, 6, 7.5, 10]]  # of an image of 40 x 60


def image(h: int = H, w: int = W) -> np.ndarray:
    return np.zeros((h, w, 3), np.uint8)


def written(corners: np.ndarray, format: str) -> np.ndarray:
    """Corners in another format, one box at a time."""
    rows = []
    for x0, y0, x1, y1 in corners.tolist():
        rows.append(
            {
                "xyxy": (x0, y0, x1, y1),
                "xywh": (x0, y0, x1 - x0, y1 - y0),
                "cxcywh": ((x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0),
            }[format]
        )
    return np.array(rows).reshape(-1, 4)


@given(st.data(), st.sampled_from(["xyxy", "xywh", "cxcywh"]), st.integers(5, 90), st.integers(5, 90))
def test_relative_boxes_move_as_the_same_boxes_in_pixels(data, format, h, w):
    ends = np.array(data.draw(st.lists(st.lists(st.integers(0, 64), min_size=4, max_size=4), max_size=4)))
    first, second = np.split(ends.reshape(-1, 4) / 64, 2, axis=1)
    corners = np.concatenate([np.minimum(first, second), np.maximum(first, second)], axis=1)
    corners = np.concatenate([corners, [[0, 0, 1, 1]]])  # in pixels, not all boxes lie within the first one
    pixels = corners * (w, h, w, h)
    steps = [T.RandomHorizontalFlip(1), T.CenterCrop((3, 50)), T.Lambda(lambda images: images), T.Resize((30, 20))]
    relative = T.Compose(steps, box_format=format, relative_boxes=True)
    absolute = T.Compose(steps, box_format=format)
    _, moved = relative(image(h, w), {"boxes": written(corners, format)})
    _, expected = absolute(image(h, w), {"boxes": written(pixels, format)})
    np.testing.assert_allclose(moved["boxes"], expected["boxes"], atol=1e-9)


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy, np.ndarray.tolist])
def test_they_come_out_in_pixels_and_in_their_own_type(kind):
    boxes = kind(YOLO)
    chain = T.Compose([T.ConvertBoundingBoxFormat("xyxy")], box_format="cxcywh", relative_boxes=True)
    _, target = chain(image(), {"boxes": boxes})
    assert type(target["boxes"]) is type(boxes) and getattr(target["boxes"], "dtype", 0) == getattr(boxes, "dtype", 0)
    np.testing.assert_allclose(np.asarray(target["boxes"]), AS_CORNERS, atol=1e-5)
    np.testing.assert_array_equal(np.asarray(boxes), YOLO if kind is not np.ndarray.tolist else YOLO.tolist())


def test_a_loader_scales_by_the_upright_image(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # shown rotated by a quarter: the image is H high and W wide
    Image.new("RGB", (H, W)).save(tmp_path / "a.jpg", exif=exif)
    chain = T.Compose([T.RandomHorizontalFlip(0), T.Lambda(abs)], box_format="cxcywh", relative_boxes=True)
    with Loader([(str(tmp_path / "a.jpg"), {"boxes": YOLO})], chain, batch_size=1, device="cpu") as loader:
        images, labels = next(iter(loader))
    assert images.shape == (1, 3, H, W)
    np.testing.assert_allclose(labels[0]["boxes"], written(np.array(AS_CORNERS), "cxcywh"), atol=1e-5)


@pytest.mark.parametrize("batch_transform", [T.Mosaic(), T.CopyPaste(), T.Lambda(abs)])
@pytest.mark.parametrize("relative", [False, True])
def test_later_segments_read_pixels(batch_transform, relative):
    """A box that became small is neither scaled again nor refused."""
    boxes = np.array([[2.0, 2.0, 4.0, 4.0]]) / ((W, H, W, H) if relative else 1)
    target = {"boxes": boxes, "labels": np.array([1]), "masks": np.ones((1, H, W), np.uint8)}
    chain = T.Compose([T.Resize((H // 4, W // 4)), batch_transform, T.Pad(0)], relative_boxes=relative)
    torch.manual_seed(0)
    for _ in range(5):
        _, moved = chain(np.stack([image()] * 3), [target] * 3)
        for one in moved if isinstance(batch_transform, T.Lambda) else ():
            np.testing.assert_allclose(one["boxes"], [[0.5, 0.5, 1, 1]])


@pytest.mark.parametrize("box_format", ["xyxy", "xywh", "cxcywh"])
@pytest.mark.parametrize("batch", [False, True])
def test_relative_boxes_are_refused_with_the_remedy(box_format, batch):
    chain = T.Compose([T.RandomHorizontalFlip(1)], box_format=box_format)
    target = {"boxes": YOLO}
    pixels = {"boxes": np.array([[5.0, 5.0, 20.0, 20.0]])}
    images, targets = (np.stack([image()] * 2), [pixels, target]) if batch else (image(), target)
    number = r" \(target 1 of the batch\)" if batch else ""
    with pytest.raises(
        TransformError, match=rf"boxes must be in pixels, but all lie within \[0, 1\].*relative_boxes=True.*{number}"
    ):
        chain(images, targets)


@pytest.mark.parametrize(
    "boxes",
    [
        np.array([[0, 0, 1, 1]]),
        np.array([[0, 1, 1, 1]]),
        np.zeros((1, 4)),
        np.zeros((0, 4)),
        [[0.2, 0.2, 1.0, 1.5]],
        [[0.2, 0.2, 0.5, 0.5], [3, 4, 10, 10]],
        [[0.0, 0.0, 0.5, 0.75]],
        [[0.0, 0.0, 0.0, 0.75], [0.0, 0.0, 0.25, 0.0]],
    ],
)
def test_boxes_in_the_first_pixel_pass_if_they_may_be_in_pixels(boxes):
    """Integers, boxes beside larger ones, and what a crop in an earlier call may leave."""
    _, target = T.Compose([T.RandomHorizontalFlip(0)])(image(), {"boxes": boxes, "labels": [0] * len(boxes)})
    np.testing.assert_allclose(target["boxes"], np.asarray(boxes).reshape(-1, 4))


def test_tiny_images_may_have_tiny_boxes():
    T.Compose([T.RandomHorizontalFlip(1)])(image(4, 4), {"boxes": [[0.5, 0.5, 1.0, 1.0]]})


@pytest.mark.parametrize(
    ("boxes", "message"),
    [
        (np.array([[5.0, 5.0, 20.0, 20.0]]), r"within \[0, 1\].*number 0 is \[5.0.*relative_boxes=False"),
        (np.array([[0.5, 0.5, np.nan, 0.5]]), r"within \[0, 1\]"),
        (np.array([[0, 0, 1, 1]]), "must be floats, since relative_boxes=True"),
        (np.array([[0.5, 0.5, 0.2, 0.2]]), "end before its beginning"),
    ],
)
def test_what_is_not_relative_is_refused(boxes, message):
    with pytest.raises(TransformError, match=message):
        T.Compose([], relative_boxes=True)(image(), {"boxes": boxes})


def test_rounded_boxes_may_leave_the_image_a_little():
    _, target = T.Compose([], relative_boxes=True)(image(), {"boxes": [[-0.001, 0.0, 1.001, 1.0]]})
    np.testing.assert_allclose(target["boxes"], [[0, 0, W, H]])


def test_the_setting_of_an_inner_chain_applies_and_is_shown():
    chain = T.Compose([T.Compose([T.RandomHorizontalFlip(0)], relative_boxes=True)])
    chain = pickle.loads(pickle.dumps(chain))
    assert "relative_boxes=True" in repr(chain)
    _, target = chain(image(), {"boxes": [[0.5, 0.5, 1.0, 1.0]]})
    np.testing.assert_allclose(target["boxes"], [[30, 20, W, H]])
    with pytest.raises(TransformError, match="relative_boxes"):
        T.Compose([], relative_boxes=1)
