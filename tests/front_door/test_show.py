"""`cuaug.show`: pictures, targets and captions of a batch."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest
import torch
from PIL import Image

import cuaug
from cuaug import Loader, LoaderError, drawing
from cuaug import transforms as T
from tests.support.codec.encoded_images import photo
from tests.support.loader.further_pictures import Memory, write_photos

GAP = 6


def pixels(grid: Image.Image, k: int, height: int, width: int, side: int) -> np.ndarray:
    """The k-th cell of a grid's first row, for the highest image of the row."""
    left = GAP + k * (side + GAP) + (side - width) // 2
    return np.asarray(grid)[GAP : GAP + height, left : left + width]


def captions(monkeypatch) -> list[str]:
    """Collects the captions of the next grids."""
    found: list[str] = []
    grid = drawing.grid

    def collect(rows, side):
        found.extend(cell.caption for row in rows for cell in row)
        return grid(rows, side)

    monkeypatch.setattr(drawing, "grid", collect)
    return found


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_pixels_of_every_dtype(dtype):
    image = torch.from_numpy(photo(40, 50).copy()).permute(2, 0, 1)
    given = image if dtype == torch.uint8 else (image / 255).to(dtype)
    shown = pixels(cuaug.show(given[None], side=50), 0, 40, 50, 50).astype(int)
    tolerance = {torch.uint8: 0, torch.float16: 1, torch.bfloat16: 2}.get(dtype, 0)
    assert np.abs(shown - photo(40, 50)).max() <= tolerance


def test_a_loaders_batch_is_shown_without_its_normalization(tmp_path):
    paths = write_photos(tmp_path, 3)
    chain = [T.Resize((40, 50)), T.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.25))]
    plain = next(iter(Loader(paths, chain[:1], batch_size=3)))
    batch = next(iter(Loader(paths, chain, batch_size=3)))
    expected, found = (np.asarray(one.show(side=50)).astype(int) for one in (plain, batch))
    assert np.abs(found - expected).max() <= 1
    assert np.abs(np.asarray(batch.to("cpu").show(side=50)) - expected).max() <= 1
    # Images alone do not know: the values are given, or stretched.
    given = cuaug.show((batch.images, batch.labels), mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.25), side=50)
    assert np.abs(np.asarray(given) - expected).max() <= 1


def test_stretching_is_named(monkeypatch):
    found = captions(monkeypatch)
    cuaug.show(torch.linspace(-2, 2, 48).view(1, 3, 4, 4))
    cuaug.show(torch.full((3, 4, 4), 120.0), mean=0, std=1)
    cuaug.show(torch.full((1, 3, 4, 4), 0.5), mean=[120.0], std=[60.0])  # levels
    assert found == ["stretched from -2 ... 2", "clipped from 120 ... 120", ""]


def test_other_channels_and_16_bits(monkeypatch):
    found = captions(monkeypatch)
    images = torch.from_numpy(photo(40, 50).copy()).permute(2, 0, 1)
    five = torch.cat([images, images[:2]])
    for given, expected in (
        (five, images),
        (images[:2], images[:1].expand(3, -1, -1)),
        (images.to(torch.int32).mul(256).add(7).to(torch.uint16), images),
    ):
        shown = pixels(cuaug.show(given, side=50), 0, 40, 50, 50)
        np.testing.assert_array_equal(shown, expected.permute(1, 2, 0).numpy())
    assert found == ["3 of 5 channels", "1 of 2 channels", ""]


def test_labels_are_captions(monkeypatch):
    found = captions(monkeypatch)
    images = torch.zeros(3, 3, 8, 8, dtype=torch.uint8)
    classes = ["ant", "bee", "cat"]
    for labels in (
        torch.tensor([2, 0, 7]),
        ["a text", "b", "c" * 80],
        torch.tensor([[0.7, 0.3, 0.0], [0, 1.0, 0], [0.2, 0.2, 0.6]]),
        torch.tensor([0.25, 1.5, 9.0]),
        {"age": torch.tensor([3, 4, 5]), "name": ["x", "y", "z"], "map": torch.zeros(3, 8, 8)},
        (torch.tensor([0, 1, 2]), ["x", "y", "z"]),
        None,
    ):
        cuaug.show(cuaug.Batch(images, labels), classes=classes)
    assert found == [
        *("cat", "ant", "7"),
        *("a text", "b", "c" * 57 + "..."),
        *("ant 0.7, bee 0.3", "bee 1", "cat 0.6, ant 0.2"),
        *("0.25", "1.5", "9"),
        *("age 3, name x", "age 4, name y", "age 5, name z"),
        *("ant, x", "bee, y", "cat, z"),
        *("", "", ""),
    ]


def test_boxes_masks_and_keypoints_are_drawn():
    image = torch.zeros(3, 40, 40, dtype=torch.uint8)
    boxes = {"boxes": torch.tensor([[10.0, 5.0, 30.0, 35.0]])}
    shown = pixels(cuaug.show((image[None], [boxes]), side=40), 0, 40, 40, 40)
    outline = np.zeros((40, 40), bool)
    outline[5:36, 10:31] = True
    outline[7:34, 12:29] = False
    assert (shown[outline] == drawing._COLORS[0]).all()
    assert not shown[:5].any() and not shown[:, :10].any() and not shown[36:].any()
    named = cuaug.show((image[None], [boxes | {"labels": torch.tensor([3])}]), side=40, classes=list("abcd"))
    assert (pixels(named, 0, 40, 40, 40)[35, 30] == drawing._COLORS[3]).all()

    mask = torch.zeros(1, 40, 40)
    mask[0, 8:20, 4:9] = 1
    shown = pixels(cuaug.show((image[None], [{"masks": mask}]), side=40), 0, 40, 40, 40)
    inside = mask[0].bool().numpy()
    assert np.abs(shown[inside].astype(float) - np.array(drawing._COLORS[0]) * 0.5).max() <= 1
    assert not shown[~inside].any()

    for key, points in (("keypoints", [[[20.0, 10.0, 2.0], [30.0, 30.0, 0.0]]]), ("keypoints", [[20.0, 10.0]])):
        shown = pixels(cuaug.show((image[None], [{key: torch.tensor(points)}]), side=40), 0, 40, 40, 40)
        assert (shown[10, 20] == drawing._COLORS[5]).all() and not shown[25:].any()


def test_boxes_follow_the_scale_and_the_format():
    image = torch.zeros(1, 3, 20, 20, dtype=torch.uint8)
    label = {"boxes": np.array([[10.0, 10.0, 4.0, 8.0]]), "format": "cxcywh"}
    shown = pixels(cuaug.show((image, [label]), side=80), 0, 80, 80, 80)  # four times as large
    rows, columns = np.nonzero(shown.any(axis=-1))
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (24, 56, 32, 48)
    same = cuaug.show((image, [{"boxes": [[8.0, 6.0, 4.0, 8.0]]}]), side=80, box_format="xywh")
    np.testing.assert_array_equal(pixels(same, 0, 80, 80, 80), shown)


def test_class_masks_are_tinted_by_class():
    mask = np.zeros((1, 16, 16), np.uint8)
    mask[0, :8], mask[0, 8:, 8:] = 1, 2
    shown = pixels(cuaug.show((torch.zeros(1, 3, 16, 16), {"mask": mask}), side=16), 0, 16, 16, 16)
    assert len({tuple(shown[y, x]) for y, x in ((0, 0), (12, 12), (12, 0))}) == 3 and not shown[12, 0].any()


def test_targets_of_a_loader_stay_on_their_objects(tmp_path):
    """A red square and its box, through a crop and a flip."""
    picture = np.zeros((60, 80, 3), np.uint8)
    picture[20:40, 30:60, 0] = 200
    label = {"boxes": np.array([[30.0, 20.0, 60.0, 40.0]], np.float32), "labels": np.array([2])}
    Image.fromarray(picture).save(tmp_path / "a.png")
    chain = [T.RandomCrop((50, 70)), T.RandomHorizontalFlip()]
    batch = next(iter(Loader([(str(tmp_path / "a.png"), label)] * 4, chain, batch_size=4)))
    grid = batch.show(side=70)
    for k in range(4):
        shown = pixels(grid, k, 50, 70, 70)
        red = np.argwhere((shown == (200, 0, 0)).all(axis=-1))
        outline = np.argwhere((shown == drawing._COLORS[2]).all(axis=-1))
        assert np.abs(red.min(axis=0) - outline.min(axis=0)).max() <= 2
        assert np.abs(red.max(axis=0) - outline.max(axis=0)).max() <= 2


def test_views_lists_and_single_images():
    assert cuaug.show(torch.zeros(3, 8, 8), side=8).size == (8 + 2 * GAP, 8 + 2 * GAP)
    views = cuaug.show(torch.zeros(2, 5, 3, 8, 8), side=8)
    assert views.size == (5 * (8 + GAP) + GAP, 2 * (8 + GAP) + GAP)
    sizes = cuaug.Batch((torch.zeros(2, 2, 3, 8, 8), torch.zeros(2, 3, 3, 4, 4)), torch.tensor([0, 1]))
    assert sizes.show(side=8).size[0] == 5 * (8 + GAP) + GAP
    images = [torch.zeros(3, 8, 8), torch.zeros(1, 5, 7)]
    assert cuaug.show(images, side=8).size[0] == 2 * (8 + GAP) + GAP
    assert cuaug.show(torch.zeros(20, 3, 8, 8), side=8, columns=4, limit=6).size[0] == 4 * (8 + GAP) + GAP


def test_padding_is_marked(monkeypatch):
    found = captions(monkeypatch)
    with Loader(Memory(3), batch_size=4, last_batch="pad") as loader:
        batch = next(iter(loader))
    batch.show(classes=["a", "b", "c"])
    assert [text.endswith("(not valid)") for text in found] == [False, False, False, True]


@pytest.mark.parametrize(
    ("batch", "options", "message"),
    [
        (torch.zeros(0, 3, 4, 4), {}, "^batch is empty"),
        (torch.zeros(17, 4, 4), {}, r"^batch must hold images \(C, H, W\) of 1 to 16 channels, not one of shape"),
        ("photo.jpg", {}, "^batch must hold images .*'photo.jpg'"),
        (torch.zeros(3, 4, 4), {"mean": 0.5}, "^mean and std undo a Normalize together"),
        (torch.zeros(3, 4, 4), {"box_format": "yxyx"}, "^box_format must be one of 'xyxy'"),
    ],
)
def test_errors(batch, options, message):
    with pytest.raises(LoaderError, match=message):
        cuaug.show(batch, **options)


def test_notebooks(tmp_path):
    chain = [T.Resize((8, 8)), T.Normalize(0.5, 0.5)]
    with Loader(write_photos(tmp_path, 3), chain, batch_size=2) as loader:
        batch = next(iter(loader))
    page = batch._repr_html_()
    (data,) = re.findall(r'<img src="data:image/png;base64,([^"]+)">', page)
    assert Image.open(io.BytesIO(base64.b64decode(data))).width > 2 * 100
    assert repr(batch) == "Batch(images: (2, 3, 8, 8) torch.float32 on cpu, labels: (2,) torch.int64, epoch=0)"
    assert "\n" not in repr(batch) + repr(loader)
