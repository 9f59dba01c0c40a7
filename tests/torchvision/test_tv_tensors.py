"""tv_tensors as targets: their types, formats and places stay, and invalid ones are refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torchvision import tv_tensors as tv

from cuaug import TransformError
from cuaug import transforms as T
from cuaug.plan import Plan
from tests.targets.test_targets import BOXES, H, W, drop_first, moved


@pytest.mark.parametrize("format", BOXES)
def test_tv_tensors(format):
    boxes = tv.BoundingBoxes(torch.tensor(BOXES[format]), format=format, canvas_size=(H, W))
    masks = tv.Mask(torch.ones(2, H, W, dtype=torch.bool))
    points = tv.KeyPoints(torch.tensor([[[1.0, 2.0]], [[3.0, 4.0]]]), canvas_size=(H, W))
    labels = torch.tensor([1, 2])

    def turn(plan: Plan) -> None:
        plan.flip()
        plan.crop(0, 0, H, W - 2)

    for target in ({"b": boxes, "m": masks, "p": points, "labels": labels}, (boxes, masks, points, labels)):
        got = moved(target, turn)
        b, m, p, rest = got.values() if isinstance(got, dict) else got
        assert isinstance(b, tv.BoundingBoxes) and b.format == boxes.format and b.canvas_size == (H, W - 2)
        assert isinstance(m, tv.Mask) and m.shape == (2, H, W - 2) and m.dtype == torch.bool
        assert isinstance(p, tv.KeyPoints) and p.canvas_size == (H, W - 2) and p.tolist() == [[[29, 2]], [[27, 4]]]
        assert rest.tolist() == [1, 2]
        got = moved(target, drop_first, labels_getter=lambda sample: labels)
        b, m, p, rest = got.values() if isinstance(got, dict) else got
        assert b.shape == (1, 4) and m.shape == (1, H, W) and p.shape == (1, 1, 2) and rest.tolist() == [2]
    alone = moved(boxes, turn)
    assert isinstance(alone, tv.BoundingBoxes) and alone.canvas_size == (H, W - 2)


def test_a_semantic_tv_mask_beside_boxes():
    boxes = tv.BoundingBoxes(torch.tensor(BOXES["xyxy"]), format="xyxy", canvas_size=(H, W))
    for shape in ((H, W), (1, H, W)):
        got = moved({"boxes": boxes, "classes": tv.Mask(torch.zeros(shape))}, drop_first)
        assert got["classes"].shape == shape and got["boxes"].shape == (1, 4)


def test_mask_fill_of_tv_masks():
    """torchvision makes class masks (1, H, W); beside boxes or as "masks" that shape is an instance."""
    boxes = tv.BoundingBoxes(torch.tensor(BOXES["xyxy"][:1]), format="xyxy", canvas_size=(H, W))

    def corner(target: Any, key: Any) -> int:
        got = moved(target, lambda plan: plan.pad(1, 0, 0, 0), mask_fill=255)
        return int(got[key][..., 0, 0].flatten()[0])

    flat, one, two = (tv.Mask(torch.ones(*shape, H, W, dtype=torch.uint8)) for shape in ((), (1,), (2,)))
    assert corner({"masks": flat}, "masks") == corner({"classes": one}, "classes") == corner((one, 3), 0) == 255
    assert corner({"masks": one}, "masks") == corner({"m": two}, "m") == corner((one, boxes), 0) == 0
    assert corner({"m": one, "boxes": BOXES["xyxy"][:1]}, "m") == 0
    for mask in (flat, one):
        chain = T.Compose([T.Mosaic((50, 70), (-0.1, -0.1))], mask_fill=255)
        got = chain(torch.zeros(1, 3, H, W), [{"classes": mask}])[1][0]["classes"]
        assert isinstance(got, tv.Mask) and got.shape == (*mask.shape[:-2], 50, 70)
        assert got[..., 2:42, 3:63].eq(1).all() and got.ne(1).sum() == got.eq(255).sum() == 50 * 70 - 40 * 60


def test_another_canvas_size_is_refused():
    """Boxes of another image, or of this image at another size, as torchvision's own transforms would move them."""
    boxes = tv.BoundingBoxes(torch.tensor(BOXES["xyxy"]), format="xyxy", canvas_size=(W, H))
    points = tv.KeyPoints(torch.ones(1, 2), canvas_size=(2 * H, 2 * W))
    for target, canvas in (({"b": boxes}, f"{W} x {H}"), (points, f"{2 * H} x {2 * W}")):
        with pytest.raises(TransformError, match=rf"must have the canvas_size of its image, {H} x {W}, not {canvas}"):
            moved(target)
    with pytest.raises(TransformError, match=r"m must be \(H, W\) or \(K, H, W\) numbers, of its image's"):
        moved({"m": tv.Mask(torch.zeros(1, W, H))})


def test_rotated_tv_boxes_are_refused():
    boxes = tv.BoundingBoxes(torch.zeros(1, 5), format="XYWHR", canvas_size=(H, W))
    with pytest.raises(TransformError, match=r"format of boxes must be one of 'xyxy', 'xywh', 'cxcywh', not .*XYWHR"):
        moved({"boxes": boxes})


@pytest.mark.parametrize("image", [tv.Image(torch.zeros(3, H, W)), tv.Video(torch.zeros(2, 3, H, W))])
def test_other_images_are_refused(image):
    with pytest.raises(TransformError, match=r"other is a tv_tensors.*pass_through"):
        moved({"other": image})
    assert moved({"other": image}, pass_through=("other",))["other"] is image
