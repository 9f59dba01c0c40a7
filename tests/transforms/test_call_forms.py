"""Calls with several targets, tuples, lists and dicts: the result has the form of the call."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

from cuaug import TransformError
from cuaug import transforms as T

FLIP = T.Compose([T.RandomHorizontalFlip(1)])
IMAGE = torch.arange(3 * 4 * 6, dtype=torch.uint8).reshape(3, 4, 6)
FLIPPED = IMAGE.flip(-1)
MOVED = [[3.0, 1.0, 5.0, 2.0]]


def target() -> dict[str, Any]:
    return {"boxes": [[1.0, 1.0, 3.0, 2.0]]}


class Sample(NamedTuple):
    image: Any
    label: int


def test_further_arguments_come_back_in_order():
    image, moved, label, name = FLIP(IMAGE, target(), 3, "name")
    assert torch.equal(image, FLIPPED) and moved == {"boxes": MOVED} and (label, name) == (3, "name")
    result = FLIP(IMAGE, 3)
    assert type(result) is tuple and result[1] == 3
    assert FLIP(IMAGE, None, None)[1:] == (None, None)


@pytest.mark.parametrize("make", [tuple, list])
def test_one_tuple_or_list(make):
    result = FLIP(make([IMAGE, target(), 5]))
    assert type(result) is make and torch.equal(result[0], FLIPPED) and list(result[1:]) == [{"boxes": MOVED}, 5]
    alone = FLIP(make([IMAGE]))
    assert type(alone) is make and len(alone) == 1 and torch.equal(alone[0], FLIPPED)
    label_first = FLIP(make([7, IMAGE]))
    assert label_first[0] == 7 and torch.equal(label_first[1], FLIPPED)


def test_a_named_tuple_stays_one():
    result = FLIP(Sample(IMAGE, 2))
    assert isinstance(result, Sample) and torch.equal(result.image, FLIPPED) and result.label == 2


@pytest.mark.parametrize(
    "image",
    [IMAGE, IMAGE.permute(1, 2, 0).numpy(), Image.fromarray(IMAGE.permute(1, 2, 0).numpy())],
    ids=["tensor", "array", "PIL"],
)
@pytest.mark.parametrize("name", ["image", "pixel_values"])
def test_a_dict_holds_the_image_by_name_or_alone(image, name):
    sample = {"id": 7, name: image, **target(), "labels": torch.tensor([1]), "text": "cat"}
    result = FLIP(sample)
    assert list(result) == list(sample) and type(result) is dict
    assert type(result[name]) is type(image)
    expected = FLIPPED if isinstance(image, torch.Tensor) else FLIPPED.permute(1, 2, 0)
    assert np.array_equal(np.asarray(result[name]), np.asarray(expected))
    assert result["boxes"] == MOVED and result["id"] == 7 and result["text"] == "cat"
    assert sample["boxes"] == target()["boxes"], "the input is not changed"
    ordered = FLIP(OrderedDict(image=image, label=3))
    assert type(ordered) is OrderedDict and ordered["label"] == 3


def test_the_name_tells_images_from_targets():
    sample = {"mask": torch.zeros(4, 6), "x": IMAGE, "features": torch.zeros(2, 3, 4)}
    with pytest.raises(TransformError, match="'x' and 'features' may be the image: name it \"image\""):
        FLIP(sample)
    result = T.Compose([T.RandomHorizontalFlip(1)], pass_through=("features",))(sample)
    assert torch.equal(result["x"], FLIPPED) and result["features"] is sample["features"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (({"a": Image.new("RGB", (6, 4)), "b": Image.new("RGB", (6, 4))},), "'a' and 'b' may be the image"),
        (({"image": IMAGE, "other": Image.new("RGB", (6, 4))},), "other is a PIL image"),
        (({"label": 3},), r"a dict must hold it under \"image\"; its keys are \['label'\]"),
        (((3, "name"),), r"none of the 2 values is an image: they are \(int, str\)"),
        (((),), "none of the 0 values"),
        (([IMAGE, IMAGE],), "a list of 2 arrays may be a batch"),
        (((IMAGE, IMAGE),), "the target is a tensor of its image's size"),
        ((IMAGE, IMAGE, 3), "is a tensor of its image's size"),
    ],
)
def test_what_is_not_clear_is_refused(call, message):
    with pytest.raises(TransformError, match=message):
        FLIP(*call)


def test_a_batch_splits_each_target():
    torch.manual_seed(0)
    images, labels, names = IMAGE.repeat(8, 1, 1, 1), torch.arange(8), [str(i) for i in range(8)]
    made, moved, new_labels, new_names = T.RandomHorizontalFlip()(images, [target() for _ in range(8)], labels, names)
    flips = [bool(torch.equal(image, FLIPPED)) for image in made]
    assert 0 < sum(flips) < 8
    assert [t["boxes"] == MOVED for t in moved] == flips
    assert new_labels is labels and new_names == names
    sample = FLIP({"image": images, "labels": labels, "targets": [target() for _ in range(8)]})
    assert list(sample) == ["image", "labels", "targets"] and sample["labels"] is labels
    assert torch.equal(sample["image"], images.flip(-1)) and sample["targets"] == [{"boxes": MOVED}] * 8
    mixed, soft = T.MixUp(num_classes=8)((images, labels))
    assert mixed.shape == images.shape and soft.shape == (8, 8)
    with pytest.raises(TransformError, match="'labels' must be one per image: 8, not 7"):
        FLIP({"image": images, "labels": labels[:7]})
    with pytest.raises(TransformError, match=r"target\[1\] of a batch must be a list of N targets, not .*str"):
        FLIP(images, labels, "name")


@pytest.mark.parametrize(
    "call", [(IMAGE, 1, 2), ((IMAGE, 1),), ({"image": IMAGE, "label": 1},), (IMAGE[None], [1], [2])]
)
def test_trace_replay_generator_and_pickle_take_all_forms(call):
    chain = T.Compose([T.RandomHorizontalFlip(), T.ColorJitter(0.5)], generator=torch.Generator().manual_seed(3))
    copy = pickle.loads(pickle.dumps(chain))
    result, params = chain.trace(*call)
    replayed, other = chain.replay(params, *call), copy(*call)
    for again in (replayed, other):
        assert type(again) is type(result)
        pairs = zip(*(list(r.values() if isinstance(r, dict) else r) for r in (again, result)), strict=True)
        assert all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in pairs)
