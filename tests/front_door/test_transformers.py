"""Chains read from image processor configurations, against Pillow and NumPy; tests/torchvision has Transformers."""

from __future__ import annotations

import json
import math
import pickle
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import PIL
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import cuaug
from cuaug.errors import ArgumentError, TransformError
from cuaug.transformers import _TYPES, Processor, processor
from tests.references import packing
from tests.support.codec.encoded_images import as_pillow, encode_jpeg, photo

ROOT = Path(__file__).parents[2]
PILLOW: Any = 13 if int(PIL.__version__.partition(".")[0]) >= 13 else 12
HALF, MEAN, STD = [0.5] * 3, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
VIT = {"image_processor_type": "ViTImageProcessor"}
sides = st.integers(8, 160)


def read(config: Any) -> Processor:
    return processor(config, pillow=PILLOW)


def picture(height: int, width: int) -> Image.Image:
    return Image.fromarray(photo(height, width, height % 7))


def resized(image: Image.Image, height: int, width: int, filter: int) -> np.ndarray:
    return np.array(image.resize((width, height), filter))


def shorter(image: Image.Image, edge: int) -> tuple[int, int]:
    w, h = image.size
    long = int(edge * max(h, w) / min(h, w))
    return (long, edge) if w <= h else (edge, long)


def cropped(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
    """The middle, rounded down; black outside of the image."""
    top, left = math.floor((pixels.shape[0] - height) / 2), math.floor((pixels.shape[1] - width) / 2)
    return np.array(Image.fromarray(pixels).crop((left, top, left + width, top + height)))


def normalized(pixels: np.ndarray, mean: list[float], std: list[float]) -> torch.Tensor:
    """Products of doubles as float32, then float32 arithmetic."""
    scaled = (pixels.astype(np.float64) * 0.00392156862745098).astype(np.float32)
    values = (scaled - np.array(mean, np.float32)) / np.array(std, np.float32)
    return torch.from_numpy(values).permute(2, 0, 1)


@given(sides, sides)
def test_fixed_size(height, width):
    image = picture(height, width)
    assert torch.equal(read(VIT | {"size": 32})(image), normalized(resized(image, 32, 32, 2), HALF, HALF))


@given(sides, sides, st.sampled_from([24, (24, 30), {"height": 41, "width": 17}]))
def test_shorter_side_and_crop(height, width, crop):
    config = {"image_processor_type": "CLIPImageProcessor", "size": 30, "crop_size": crop, "resample": 3}
    config |= {"image_mean": MEAN, "image_std": STD}
    h, w = tuple(crop.values()) if isinstance(crop, dict) else np.broadcast_to(crop, 2).tolist()
    image = picture(height, width)
    want = cropped(resized(image, *shorter(image, 30), 3), h, w)
    assert torch.equal(read(config)(image), normalized(want, MEAN, STD))


@given(sides, sides, st.sampled_from([0.875, 0.95]))
def test_crop_pct(height, width, share):
    config = {"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 28}, "crop_pct": share}
    image = picture(height, width)
    want = cropped(resized(image, *shorter(image, int(28 / share)), 3), 28, 28)
    assert torch.equal(read(config)(image), normalized(want, HALF, HALF))


def test_large_convnext_is_not_cropped():
    config = {"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 384}}
    image = picture(40, 50)
    assert torch.equal(read(config)(image), normalized(resized(image, 384, 384, 3), HALF, HALF))


def detector_size(height: int, width: int, shortest: int, longest: int) -> tuple[int, int]:
    """DETR's rule, of one image: the shorter side is rounded, the other one cut off."""
    edge: float = shortest
    if max(height, width) / min(height, width) * shortest > longest:
        edge = longest * min(height, width) / max(height, width)
    short = round(edge)
    if min(height, width) == short:
        return height, width
    return (int(edge * height / width), short) if width < height else (short, int(edge * width / height))


@given(st.integers(8, 900), st.integers(8, 900), st.sampled_from([(40, 66), (97, 140), (60, 300)]))
def test_size_of_detectors(height, width, edges):
    size = dict(zip(("shortest_edge", "longest_edge"), edges, strict=True))
    chain = read({"image_processor_type": "DetrImageProcessor", "size": size})
    assert chain(torch.zeros(3, height, width, dtype=torch.uint8)).shape[1:] == detector_size(height, width, *edges)


@given(st.integers(4, 500), st.integers(4, 500), st.sampled_from([14, 16]))
def test_size_and_patches_of_qwen(height, width, patch):
    config = {"image_processor_type": "Qwen2VLImageProcessor", "patch_size": patch, "min_pixels": 3136}
    chain = read(config | {"max_pixels": 60_000})
    image = picture(height, width)
    h, w = packing.smart_resize(height, width, 2 * patch, 3136, 60_000)
    got = chain(image)
    mean, std = chain.settings["image_mean"], chain.settings["image_std"]
    assert torch.equal(got, normalized(resized(image, h, w, 3), mean, std))
    inputs = chain.inputs(got)
    assert inputs["image_grid_thw"].tolist() == [[1, h // patch, w // patch]]
    # By blocks of 2 x 2, and two equal frames in each channel.
    want = packing.patches(got.numpy()[None], patch, merge=2, temporal=2)
    np.testing.assert_array_equal(inputs["pixel_values"], want)


def test_qwen_of_several_images():
    chain = read({"image_processor_type": "Qwen2VLImageProcessor"})
    images = [chain(picture(60, 80)), chain(picture(90, 56))]
    both, one = chain.inputs(images), [chain.inputs(image) for image in images]
    for key in both:
        assert torch.equal(both[key], torch.cat([inputs[key] for inputs in one]))
    with pytest.raises(TransformError, match="takes images alone"):
        chain.inputs(images, [0, 1])
    with pytest.raises(TransformError, match="200 times"):
        chain(torch.zeros(3, 4, 801, dtype=torch.uint8))


@given(st.integers(8, 400), st.integers(8, 400), st.sampled_from([16, 60]))
def test_patches_of_siglip2(height, width, most):
    chain = read({"image_processor_type": "Siglip2ImageProcessor", "max_num_patches": most})
    got = chain(picture(height, width))
    inputs = chain.inputs([got])
    assert got.shape[1:] == packing.most_patches(height, width, 16, most)
    assert inputs["spatial_shapes"].tolist() == [[side // 16 for side in got.shape[1:]]]
    want = packing.patches(got.numpy()[None], 16, order="hwc")
    assert inputs["pixel_attention_mask"].tolist() == [[1] * len(want) + [0] * (most - len(want))]
    np.testing.assert_array_equal(inputs["pixel_values"][0, : len(want)], want)
    assert not inputs["pixel_values"][0, len(want) :].any()


@pytest.mark.parametrize(
    ("settings", "want"),
    [
        ({"do_normalize": False}, lambda pixels: normalized(pixels, [0.0] * 3, [1.0] * 3)),
        ({"do_rescale": False, "do_normalize": False}, lambda pixels: torch.from_numpy(pixels).permute(2, 0, 1)),
        (
            {"do_rescale": False, "image_mean": [120.0, 110, 100], "image_std": [60.0, 50, 40]},
            lambda pixels: torch.from_numpy(
                (pixels.astype(np.float32) - np.float32([120, 110, 100])) / np.float32([60, 50, 40])
            ).permute(2, 0, 1),
        ),
    ],
)
def test_steps_left_out(settings, want):
    image = picture(50, 70)
    got = read(VIT | {"size": 32} | settings)(image)
    expected = want(resized(image, 32, 32, 2))
    assert got.dtype == expected.dtype
    assert torch.equal(got, expected)
    same = read(VIT | {"do_resize": False} | settings)(image)
    assert torch.equal(same, want(np.array(image)))


@given(sides, sides, st.integers(7, 99), st.integers(7, 99), st.booleans())
def test_class_maps_are_pillows_nearest(height, width, new_height, new_width, reduces):
    config = {"image_processor_type": "SegformerImageProcessor", "do_reduce_labels": reduces}
    chain = read(config | {"size": [new_height, new_width]})
    labels = np.random.default_rng(height).integers(0, 256, (height, width), dtype=np.uint8)
    image, target = chain(picture(height, width), {"mask": torch.from_numpy(labels)})
    table = np.arange(256) - reduces
    table[[0, 255]] = (255, 255) if reduces else (0, 255)
    want = table[np.array(Image.fromarray(labels).resize((new_width, new_height), Image.Resampling.NEAREST))]
    got = chain.inputs(image, [target["mask"]])["labels"]
    assert got.dtype == torch.int64
    assert np.array_equal(got[0], want)


def test_detectors_pad_to_the_largest():
    size = {"shortest_edge": 40, "longest_edge": 60}
    chain = read({"image_processor_type": "DetrFeatureExtractor", "size": size})
    target = {"boxes": torch.tensor([[10.0, 5, 30, 45]]), "labels": torch.tensor([3]), "masks": torch.ones(1, 50, 50)}
    first, moved = chain(picture(50, 50), target)
    second = chain(picture(40, 60))
    empty = {"boxes": torch.zeros(0, 4), "labels": torch.zeros(0, dtype=torch.int64), "masks": torch.zeros(0, 40, 60)}
    inputs = chain.inputs([first, second], [moved, empty])
    assert inputs["pixel_values"].shape == (2, 3, 40, 60)
    assert torch.equal(inputs["pixel_values"][0, :, :, :40], first)
    assert not inputs["pixel_values"][0, :, :, 40:].any()
    assert inputs["pixel_mask"].sum(dim=(1, 2)).tolist() == [1600, 2400]
    labels = inputs["labels"][0]
    assert (labels["class_labels"].tolist(), labels["size"].tolist()) == ([3], [40, 60])
    torch.testing.assert_close(labels["boxes"], torch.tensor([[16 / 60, 20 / 40, 16 / 60, 32 / 40]]))
    assert labels["masks"].shape == (1, 40, 60)
    assert labels["masks"].sum() == 1600
    assert inputs["labels"][1]["masks"].shape == (0, 40, 60)
    pixels = read({"image_processor_type": "DetrImageProcessor", "size": size, "do_convert_annotations": False})
    assert torch.equal(pixels.inputs([first], [moved])["labels"][0]["boxes"], moved["boxes"])
    bare = read({"image_processor_type": "DetrImageProcessor", "size": size, "pad_and_return_pixel_mask": False})
    assert set(bare.inputs([first, second])) == {"pixel_values"}
    assert [tuple(image.shape) for image in bare.inputs([first, second])["pixel_values"]] == [(3, 40, 40), (3, 40, 60)]


def test_paddings():
    chain = read({"image_processor_type": "VitMatteImageProcessor", "size_divisor": 16})
    trimap = torch.randint(0, 256, (30, 33), dtype=torch.uint8)
    image, moved = chain(picture(30, 33), {"mask": trimap})
    values = chain.inputs(image, [moved["mask"]])["pixel_values"]
    assert values.shape == (1, 4, 32, 48)
    assert torch.equal(values[0, :3, :30, :33], normalized(np.array(picture(30, 33)), HALF, HALF))
    assert torch.equal(values[0, 3, :30, :33], trimap / 255)
    assert not values[0, :, 30:].any()
    assert not values[0, :, :, 33:].any()
    with pytest.raises(TransformError, match="trimaps"):
        chain.inputs(image)
    fixed = read(VIT | {"do_resize": False, "do_pad": True, "pad_size": {"height": 32, "width": 36}})
    assert fixed.inputs(fixed(picture(30, 33)))["pixel_values"].shape == (1, 3, 32, 36)
    with pytest.raises(TransformError, match="pad_size"):
        fixed.inputs(fixed(picture(33, 33)))
    with pytest.raises(TransformError, match="one for each of the 1"):
        fixed.inputs(image, [])


def test_files_in_a_loader(tmp_path):
    chain = pickle.loads(pickle.dumps(read(VIT | {"size": 32})))
    files = [encode_jpeg(picture(40 + k, 50), quality=90) for k in range(5)]
    want = torch.stack([normalized(resized(Image.fromarray(as_pillow(data)), 32, 32, 2), HALF, HALF) for data in files])
    assert torch.equal(cuaug.decode(files, chain), want)
    for k, data in enumerate(files):
        (tmp_path / f"{k}.jpg").write_bytes(data)
    loader = cuaug.Loader([str(tmp_path / f"{k}.jpg") for k in range(5)], chain, batch_size=5)
    assert torch.equal(next(iter(loader)).images, want)


def test_gray_images_become_rgb():
    gray = picture(40, 50).convert("L")
    chain = read({"image_processor_type": "SiglipImageProcessor", "size": {"height": 32, "width": 32}})
    assert torch.equal(chain(gray), normalized(resized(gray.convert("RGB"), 32, 32, 3), HALF, HALF))


def test_forms_of_a_configuration(tmp_path):
    config = VIT | {"size": 32, "image_mean": MEAN, "image_std": STD, "resample": None, "processor_class": "Any"}
    want = read(config).settings
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(config))
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "processor_config.json").write_text(json.dumps({"image_processor": config, "processor_class": "X"}))
    own = SimpleNamespace(to_dict=lambda: config)
    forms = [tmp_path, str(tmp_path / "preprocessor_config.json"), inner, own, SimpleNamespace(image_processor=own)]
    for form in [*forms, config | {"image_processor_type": "ViTImageProcessorFast"}]:
        assert read(form).settings == want
    legacy = {key: value for key, value in config.items() if key != "image_processor_type"}
    assert read(legacy | {"feature_extractor_type": "ViTFeatureExtractor"}).settings == want
    assert want["resample"] == 2
    assert want["size"] == {"height": 32, "width": 32}


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"image_processor_type": "SamImageProcessor"}, "SamImageProcessor.*known are only Beit, "),
        ({"image_processor_type": "DINOv3ViTImageProcessorFast"}, "no PIL backend"),
        ({"size": 3}, "must name an image_processor_type"),
        (VIT | {"do_color_quantize": True}, "do_color_quantize=True.*unknown of ViTImageProcessor"),
        (VIT | {"crop_pct": 0.9}, "crop_pct=0.9"),
        (VIT | {"rescale_factor": 1 / 127.5}, "rescale_factor=1/255, not 0.0078"),
        (VIT | {"resample": 6}, "0 to 5, as resample, not 6"),
        (VIT | {"size": {"longest_edge": 5}}, "size={'longest_edge': 5}"),
        (VIT | {"size": "224"}, "sizes as a number"),
        (VIT | {"do_center_crop": True}, "crop_size with height and width, not None"),
        (VIT | {"data_format": "channels_last"}, "data_format"),
        ({"image_processor_type": "SegformerImageProcessor", "do_center_crop": True}, "do_center_crop=True"),
        ({"image_processor_type": "BeitImageProcessor", "reduce_labels": True}, "set do_reduce_labels, too"),
        ({"image_processor_type": "DetrImageProcessor", "size": {"shortest_edge": 5}}, "size={'shortest_edge': 5}"),
        ({"image_processor_type": "ConvNextImageProcessor", "size": {"height": 5, "width": 5}}, "does not know"),
        ({"image_processor_type": "Qwen2VLImageProcessor", "size": {"height": 5, "width": 5}}, "does not know"),
        (3, "not 3"),
    ],
)
def test_refusals(config, text):
    with pytest.raises(ArgumentError, match=text):
        read(config)


def test_refused_files(tmp_path):
    with pytest.raises(ArgumentError, match=r"preprocessor_config\.json"):
        read(tmp_path)
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(ArgumentError, match="config must be a folder or JSON file"):
        read(tmp_path / "broken.json")


def test_the_parity_page_names_every_processor():
    section = (
        (ROOT / "docs" / "parity.md").read_text().partition("## Image processors of Transformers")[2].partition("##")[0]
    )
    rows = [row.split("|")[1] for row in section.splitlines() if row.startswith("| `") and "class +" not in row]
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(_TYPES)
