"""Processors of Transformers: every bit of the PIL backend of version 5, and of the slow processors of version 4."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import PIL
import pytest
import torch
from PIL import Image

import cuaug
from cuaug import transforms as T
from cuaug.transformers import processor
from tests.support.codec.encoded_images import encode_jpeg, photo

transformers = pytest.importorskip("transformers")

VERSION = int(transformers.__version__.partition(".")[0])
PILLOW: Any = 13 if int(PIL.__version__.partition(".")[0]) >= 13 else 12
RNG = np.random.default_rng(0)
SIZES = [
    (375, 500), (500, 375), (224, 224), (256, 256), (384, 384), (100, 80), (31, 200), (200, 31), (5, 7),
    (225, 223), (300, 301), (720, 1280), *RNG.integers(20, 700, (17, 2)).tolist(),
]  # fmt: skip
if VERSION >= 5:  # version 4 takes the axis of length 1 for the channels
    SIZES += [(1, 7), (7, 1)]
SMALL = {"shortest_edge": 97, "longest_edge": 140}
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
#: Processors without their suffix, with arguments: those of published checkpoints, and others.
CASES: list[tuple[str, dict[str, Any]]] = [
    ("ViT", {}),  # also Swin, and MAE with ImageNet's mean
    ("ViT", {**IMAGENET, "resample": 3}),
    *(("ViT", {"resample": number}) for number in (0, 1, 4, 5)),
    ("ViT", {"do_normalize": False}),
    ("ViT", {"do_rescale": False, "image_mean": [123.7, 116.3, 103.5], "image_std": [58.4, 57.1, 57.4]}),
    ("ViT", {"do_rescale": False, "do_normalize": False}),
    ("DeiT", {}),
    ("Beit", {}),
    ("Beit", {"do_center_crop": True, "size": 256}),
    ("CLIP", {}),
    ("CLIP", {"size": {"shortest_edge": 336}, "crop_size": 336}),
    ("CLIP", {"crop_size": 301}),
    ("CLIP", {"crop_size": {"height": 300, "width": 201}}),
    ("CLIP", {"do_resize": False}),
    ("Siglip", {}),
    ("Siglip2", {}),
    ("Siglip2", {"max_num_patches": 64, "patch_size": 14}),
    ("Bit", {**IMAGENET, "size": {"shortest_edge": 256}}),  # DINOv2
    ("ConvNext", {}),
    ("ConvNext", {"size": {"shortest_edge": 224}}),
    ("ConvNext", {"size": {"shortest_edge": 224}, "crop_pct": 0.95, "resample": 2}),
    ("Segformer", {}),
    ("Blip", {}),
    ("Pvt", {}),
    ("OwlViT", {}),
    ("Levit", {}),
    ("MobileNetV1", {}),
    ("MobileNetV2", {}),
    ("Detr", {}),
    *((name, {"size": SMALL}) for name in ("Detr", "ConditionalDetr", "DeformableDetr", "GroundingDino")),
    ("Detr", {"size": SMALL, "pad_size": {"height": 150, "width": 144}}),
    ("RTDetr", {}),
    ("Qwen2VL", {}),  # also Qwen2.5-VL
    ("Qwen2VL", {"max_pixels": 200_000}),
    ("Qwen2VL", {"patch_size": 16, "min_pixels": 65_536, "max_pixels": 200_000}),  # Qwen3-VL
]
if VERSION >= 5:  # version 4 refuses these
    CASES += [
        ("ViT", {"size": {"shortest_edge": 100, "longest_edge": 150}}),
        ("ViT", {"size": {"max_height": 100, "max_width": 150}}),
        ("ViT", {"do_pad": True, "size": {"max_height": 90, "max_width": 90}, "pad_size": {"height": 96, "width": 99}}),
        ("ChineseCLIP", {}),
    ]


def reference(name: str, **arguments: Any) -> Any:
    """The PIL backend of Transformers 5, or the slow processor of Transformers 4."""
    own = name + "ImageProcessor"
    return getattr(transformers, own + "Pil" if VERSION >= 5 else own)(**arguments)


def picture(height: int, width: int) -> Image.Image:
    return Image.fromarray(photo(height, width, height % 10))


def classes(height: int, width: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width), dtype=np.uint8)


def assert_same(got: dict[str, Any], want: Any) -> None:
    assert set(got) == set(want)
    for key in got:
        assert got[key].dtype == want[key].dtype, key
        assert torch.equal(got[key], want[key]), key


@pytest.mark.filterwarnings("ignore::cuaug.ChainWarning")
@pytest.mark.parametrize(("name", "arguments"), CASES)
def test_every_bit(name, arguments):
    theirs = reference(name, **arguments)
    chain = processor(theirs, pillow=PILLOW)
    for size in SIZES:
        image = picture(*size)
        assert_same(chain.inputs(chain(image)), theirs(image, return_tensors="pt"))


PINPOINTS = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]


@pytest.mark.parametrize(
    ("name", "arguments", "tiles"),
    [
        ("GotOcr2", {"crop_to_patches": True, "size": {"height": 448, "width": 448}}, T.Tiles(448, 12)),  # InternVL
        ("GotOcr2", {"crop_to_patches": True, "min_patches": 3, "max_patches": 7}, T.Tiles(384, 7, 3)),
        (
            "LlavaNext",
            {
                "image_grid_pinpoints": PINPOINTS,
                "do_pad": False,
                "size": {"shortest_edge": 336},
                "crop_size": {"height": 336, "width": 336},
            },
            T.Tiles(336, grids=[(rows // 336, columns // 336) for rows, columns in PINPOINTS], thumbnail="first"),
        ),
    ],
)
def test_tiles(name, arguments, tiles):
    theirs = reference(name, **arguments)
    chain = T.Compose([tiles, T.Normalize(theirs.image_mean, theirs.image_std)], pillow=PILLOW)
    for size in SIZES[:-2] if VERSION >= 5 else SIZES:  # a side of one pixel becomes none by LLaVA's rule
        want = theirs(picture(*size), return_tensors="pt")["pixel_values"]
        assert torch.equal(torch.stack(chain(picture(*size))), want[0] if name == "LlavaNext" else want), size


@pytest.mark.parametrize("name", ["ViT", "CLIP", "ConvNext", "Detr", "Qwen2VL", "Siglip2"])
def test_batches_of_files(name, tmp_path):
    theirs = reference(name)
    theirs.save_pretrained(tmp_path)
    chain = processor(tmp_path, pillow=PILLOW)
    files = [encode_jpeg(picture(*size), quality=90) for size in SIZES[:4]]
    images = cuaug.decode(files, chain)
    want = theirs([Image.open(io.BytesIO(data)) for data in files], return_tensors="pt")
    assert_same(chain.inputs(images), want)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("Segformer", {}),
        ("Segformer", {"do_reduce_labels": True, "size": {"height": 97, "width": 131}}),
        ("Segformer", {"do_reduce_labels": True, "size": {"height": 640, "width": 641}}),
        ("MobileNetV2", {"do_reduce_labels": True}),
    ],
)
def test_class_maps(name, arguments):
    theirs = reference(name, **arguments)
    chain = processor(theirs, pillow=PILLOW)
    for k, size in enumerate(SIZES[:8] + SIZES[10:]):
        image, labels = picture(*size), classes(*size, k)
        got, moved = chain(image, {"mask": torch.from_numpy(labels)})
        want = theirs(image, segmentation_maps=labels.copy(), return_tensors="pt")
        assert_same(chain.inputs(got, [moved["mask"]]), want)


@pytest.mark.parametrize("arguments", [{}, {"size_divisor": 14}, {"do_pad": False}, {"do_normalize": False}])
def test_trimaps(arguments):
    theirs = reference("VitMatte", **arguments)
    chain = processor(theirs, pillow=PILLOW)
    for k, size in enumerate(SIZES):
        image, trimap = picture(*size), classes(*size, k)
        got, moved = chain(image, {"mask": torch.from_numpy(trimap)})
        want = theirs(image, trimaps=Image.fromarray(trimap), return_tensors="pt")
        assert_same(chain.inputs(got, [moved["mask"]]), want)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"size": SMALL},
        {"size": SMALL, "pad_size": {"height": 150, "width": 160}},
        {"size": SMALL, "do_convert_annotations": False},
    ],
)
def test_objects(arguments):
    pytest.importorskip("pycocotools")
    theirs = reference("Detr", **arguments)
    chain = processor(theirs, pillow=PILLOW)
    rng = np.random.default_rng(0)
    for first in range(0, 12, 2):
        images, annotations, moved = [], [], []
        for h, w in SIZES[first : first + 2]:
            low = rng.uniform(0, 0.5, (3, 2)) * (w, h)
            sides = rng.uniform(0.1, 0.5, (3, 2)) * (w, h)
            boxes = np.concatenate([low, low + sides], axis=1).astype(np.float32)
            masks = np.stack([polygon_mask(h, w, box) for box in boxes])
            objects = [
                {"bbox": [*box[:2], *(box[2:] - box[:2])], "category_id": k, "area": 1.0, "iscrowd": 0,
                 "segmentation": [polygon(box)]}
                for k, box in enumerate(boxes)
            ]  # fmt: skip
            target = {"boxes": torch.from_numpy(boxes), "labels": torch.arange(3), "masks": torch.from_numpy(masks)}
            images.append(picture(h, w))
            annotations.append({"image_id": 1, "annotations": objects})
            moved.append(chain(images[-1], target))
        want = theirs(images, annotations=annotations, return_segmentation_masks=True, return_tensors="pt")
        got = chain.inputs([image for image, _ in moved], [target for _, target in moved])
        labels = got.pop("labels")
        assert_same(got, {key: want[key] for key in ("pixel_values", "pixel_mask")})
        for own, expected in zip(labels, want["labels"], strict=True):
            assert torch.equal(own["masks"] != 0, expected["masks"] != 0)
            assert own["size"].tolist() == list(expected["size"])
            assert torch.equal(own["class_labels"], expected["class_labels"])
            torch.testing.assert_close(own["boxes"], expected["boxes"], rtol=1e-6, atol=1e-6)


def polygon(box: np.ndarray) -> list[float]:
    x0, y0, x1, y1 = (float(number) for number in box)
    return [x0, y0, x1, (y0 + y1) / 2, x0, y1]


def polygon_mask(height: int, width: int, box: np.ndarray) -> np.ndarray:
    from pycocotools import mask

    return np.any(mask.decode(mask.frPyObjects([polygon(box)], height, width)), axis=2).astype(np.uint8)
