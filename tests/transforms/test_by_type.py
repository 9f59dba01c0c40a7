"""`fill` and `dtype` as dicts by type, as torchvision's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image as PillowImage

from cuaug import TransformError
from cuaug import transforms as T


class Image:
    """Stands for a type of torchvision, of which the name and the module count."""


class Mask:
    pass


class BoundingBoxes:
    pass


for kind in (Image, Mask, BoundingBoxes):
    kind.__module__ = "torchvision.tv_tensors._types"

IMAGE = np.full((4, 6, 3), 9, dtype=np.uint8)
MASK = np.full((4, 6), 3, dtype=np.int32)


@pytest.mark.parametrize(
    ("fill", "pixel", "class_"),
    [
        ({Image: 114, Mask: 255, "others": 0}, 114, 255),
        ({torch.Tensor: (1, 2, 3), Mask: 7}, (1, 2, 3), 7),
        ({PillowImage.Image: 5, "others": 8}, 5, 8),
        ({"others": 8}, 8, 0),
        ({Mask: 255}, 0, 255),
        ({Image: 4, Mask: None}, 4, 0),
        ({Image: 4, BoundingBoxes: 9}, 4, 0),
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
    result, targets = T.Compose([make({Image: 200, Mask: 9}), T.Resize((30, 30), "nearest")])(
        images, [{"mask": MASK}] * 16
    )
    masks = np.stack([target["mask"] for target in targets])
    assert (result == 200).any() and set(np.unique(masks)) == {3, 9}


def test_masks_of_a_chain_have_one_fill():
    pads = [T.Pad(1, fill={Image: 1, Mask: 255}), T.Pad(1, fill={Image: 2, "others": 255}), T.Pad(1, fill=3)]
    chain = T.Compose([T.RandomApply(pads[:1], 1.0), *pads[1:]])
    mask = chain(IMAGE, {"mask": MASK})[1]["mask"]
    assert mask.shape == (10, 12) and (mask[0] == 255).all()
    for other in (T.Pad(1, fill={Image: 1, Mask: 0}), T.Compose([T.Pad(1)], mask_fill=7)):
        with pytest.raises(TransformError, match=r"mask_fill must be the same for .*, not both"):
            T.Compose([pads[0], other])


@pytest.mark.parametrize(
    ("fill", "message"),
    [
        ({"image": 1}, "fill must have types as keys, torch.Tensor or .* or \"others\", not 'image'"),
        ({int: 1}, "fill must have types as keys, .* not <class 'int'>"),
        ({Image: 1, torch.Tensor: 2}, "fill must have one value for all types of image, not 1, 2"),
        ({Image: "red"}, "fill must be a number or a sequence of one per channel, not 'red'"),
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
    image = T.ToDtype({Image: torch.float16, "others": None})(torch.zeros(3, 4, 6))
    assert image.dtype == torch.float16


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        ({Image: torch.float32, BoundingBoxes: torch.float16}, "dtype of boxes must be None, not torch.float16"),
        ({"others": torch.float32}, 'dtype\\["others"\\] must be None, not torch.float32: give images a key'),
        ({Image: torch.float32, Mask: "int64"}, "dtype of masks must be a torch.dtype or None, not 'int64'"),
        ({Image: torch.int32, "others": None}, "dtype must be one of .* not torch.int32"),
        ({"mask": torch.int64}, "dtype must have types as keys"),
    ],
)
def test_other_dtypes_are_refused(dtype, message):
    with pytest.raises(TransformError, match=message):
        T.ToDtype(dtype)
