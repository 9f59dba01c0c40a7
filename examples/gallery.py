"""Writes the gallery, docs/gallery.md: the effect of every transform on one photo.

    python examples/gallery.py

The photo is in scikit-image's wheel: Eileen Collins, by NASA, in the public domain. Its halves differ, so flips are
visible. Results that are not larger than the photo are shown pixel by pixel.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
import zlib
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import cuaug
from cuaug import transforms as T
from cuaug.transforms.compose import normalization_of

sys.path.insert(0, str(Path(__file__).parent))
import own_operations

__all__ = ["CASES", "HIDDEN", "OWN", "cases", "name_of", "write"]

#: The code of each chain, by kind: the shown transform, or a list that ends with it. Lengths suit the photo.
CASES = {
    "Geometry": [
        "T.Resize((60, 140))",
        "T.RandomResize(50, 112)",
        "T.RandomShortestSize([50, 80, 110], max_size=120)",
        "T.ScaleJitter((144, 112), (0.4, 1.0))",
        "T.ResizeToCover((60, 140))",
        "T.ResizeToMultiple(28)",
        "T.CenterCrop(100)",
        "T.RandomCrop(100)",
        "T.RandomRelativeCrop((0.4, 0.9))",
        "T.FixedSizeCrop((100, 180), fill=114)",
        "T.FiveCrop((60, 80))",
        "T.TenCrop((60, 80))",
        "T.RandomResizedCrop((112, 144))",
        "T.RandomHorizontalFlip()",
        "T.RandomVerticalFlip()",
        "T.Rot90()",
        "T.RandomRot90()",
        "T.D4()",
        'T.Pad((20, 10), padding_mode="reflect")',
        "T.RandomZoomOut(fill=(124, 116, 104), side_range=(1.0, 2.0), p=1)",
        'T.RandomRotation(45, interpolation="bilinear")',
        'T.RandomAffine(20, translate=(0.2, 0.2), scale=(0.7, 1.3), shear=20, interpolation="bilinear", fill=128)',
        "T.RandomPerspective(distortion_scale=0.5, p=1)",
        'T.ElasticTransform(alpha=150.0, sigma=6.0, padding_mode="reflect")',
        "T.GridDistortion(num_steps=5, distort_limit=0.6, p=1)",
    ],
    "Color": [
        "T.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1)",
        "T.RandomBrightness(0.5)",
        "T.RandomContrast(0.7)",
        "T.RandomSaturation(1.0)",
        "T.RandomHue(0.3)",
        "T.RandomPhotometricDistort(p=1)",
        "T.RandomGamma((0.4, 2.5))",
        "T.RandomPosterize(2)",
        "T.RandomSolarize(128)",
        "T.RandomInvert()",
        "[T.RandomContrast((0.3, 0.3)), T.RandomAutocontrast()]",
        "T.RandomEqualize()",
        "T.CLAHE()",
        "T.RandomChannelPermutation()",
        "T.RGBShift(50, 50, 50, p=1)",
        "T.PlanckianJitter(p=1)",
        "T.Grayscale()",
        "T.RandomGrayscale(0.5)",
        "T.LUT(range(255, -1, -1))",
        "T.ConvertColor()",
    ],
    "Masking": [
        "T.RandomErasing(p=1)",
        "T.CoarseDropout(num_holes_range=(3, 8), p=1)",
        "T.GridMask(tile=(20, 50), angle=45, p=1)",
        "T.RandomMask(0.5)",
    ],
    "Noise and blur": [
        "T.GaussianNoise(sigma=(0.02, 0.2))",
        "T.SaltAndPepper(p=1)",
        "T.ShotNoise((0.02, 0.2), p=1)",
        "T.GaussianBlur(15, sigma=(0.5, 5.0))",
        'T.MotionBlur(15, angle=90, direction=1, padding_mode="edge", p=1)',
        "T.MedianBlur((3, 7), p=1)",
        "T.RandomAdjustSharpness(4)",
        "T.Downscale((0.15, 0.5), p=1)",
        "T.JPEG((2, 30))",
    ],
    "Policies and choices": [
        "T.AutoAugment()",
        "T.RandAugment(2, 9)",
        "T.TimmRandAugment()",
        "T.TrivialAugmentWide()",
        "T.AugMix(severity=10)",
        "T.RandomChoice([T.RandomRotation(30), T.RandomInvert(1), T.GaussianBlur(9, 3.0)])",
        "T.RandomOrder([T.RandomSolarize(128, 1), T.GaussianBlur(9, 2.0), T.RandomEqualize(1)])",
        "T.SomeOf([T.RandomRotation(30), T.RandomInvert(1), T.GaussianBlur(9, 3.0), T.RandomVerticalFlip(1)], n=2)",
    ],
    "Mixes of several samples": [
        "[T.RandomHorizontalFlip(), T.MixUp()]",
        "[T.RandomHorizontalFlip(), T.CutMix()]",
        "[T.RandomHorizontalFlip(), T.Mosaic()]",
    ],
    "Values": [
        "T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))",
        "T.ToDtype(torch.float32, scale=True)",
    ],
    "Chains and functions": [
        "T.Compose([T.RandomResizedCrop((112, 144)), T.RandomHorizontalFlip(), T.ColorJitter(0.4, 0.4, 0.4, 0.1)])",
        "T.Lambda(lambda images: images.roll(30, dims=-1))",
        "T.RandomApply([T.Grayscale(3), T.RandomRotation(30)])",
        "T.MultiView([T.RandomResizedCrop((56, 72))] * 4)",
    ],
}
#: Functions of examples/own_operations.py.
OWN = ["vignette", "white_balance", "sensor_noise", "thermal_palette", "scan_lines"]
#: Base classes, and transforms that change no color image without targets or clips.
HIDDEN = {
    "PadToLargest",
    "Patches",
    "Tiles",
    "PerFrame",
    "BatchTransform",
    "RandomTransform",
    "Transform",
    "CopyPaste",
    "RandomIoUCrop",
    "SanitizeBoundingBoxes",
} | {
    "ClampBoundingBoxes",
    "ClampKeyPoints",
    "ConvertBoundingBoxFormat",
    "Identity",
    "PILToTensor",
    "RGB",
    "SanitizeKeyPoints",
    "ToImage",
    "ToPureTensor",
    "UniformTemporalSubsample",
}
DRAWS = 5
COLUMNS = 3
HEIGHT, WIDTH = 112, 144
_QUALITY = 62
_INTRODUCTION = f"""# Gallery of transforms

Each picture shows a photo of {WIDTH} x {HEIGHT} pixels and {DRAWS} draws of a transform, on neutral gray. Equal draws
are shown once. `python examples/gallery.py` writes this page.

The photo shows Eileen Collins, by NASA, in the public domain; from scikit-image.
"""
_OWN_INTRODUCTION = """These are functions of one pixel, which [your_own.md](your_own.md) explains:
[examples/own_operations.py](../examples/own_operations.py).
"""


def photo() -> np.ndarray:
    """(HEIGHT, WIDTH, 3) uint8."""
    spec = find_spec("skimage")
    if spec is None or spec.origin is None:
        raise SystemExit("scikit-image is missing, which has the photo: pip install scikit-image")
    whole = Image.open(Path(spec.origin).parent / "data" / "astronaut.png").convert("RGB")
    upper = whole.crop((0, 0, whole.width, whole.width * HEIGHT // WIDTH))
    return np.asarray(upper.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS))


def name_of(code: str) -> str:
    """The name of the transform that a chain of CASES shows."""
    return re.findall(r"T\.(\w+)\(", code)[-1 if code.startswith("[") else 0]


def cases() -> dict[str, list[str]]:
    """CASES, and every transform that has none with its default arguments."""
    shown = {name_of(code) for codes in CASES.values() for code in codes} | HIDDEN
    transforms = [name for name in T.__all__ if inspect.isclass(c := getattr(T, name)) and issubclass(c, T.Transform)]
    others = [f"T.{name}()" for name in transforms if name not in shown]
    return CASES | ({"More": others} if others else {})


def chain_of(code: str) -> T.Compose:
    """The chain that an expression makes: a transform, or a list of transforms."""
    value = eval(code)
    return T.Compose(value if isinstance(value, list) else [value])


def write(folder: Path) -> int:
    """Write gallery.md and gallery/*.jpg; returns the size of the images in bytes."""
    pixels, total = photo(), 0
    (folder / "gallery").mkdir(parents=True, exist_ok=True)
    page = [_INTRODUCTION]
    for kind, codes in cases().items():
        page.append(f"## {kind}\n")
        for code in codes:
            name = name_of(code)
            file = folder / "gallery" / f"{name}.jpg"
            total += _save(picture(pixels, name, chain_of(code)), file)
            page.append(_section(name, code, getattr(T, name)))
    page.append(f"## Operations of your own\n\n{_OWN_INTRODUCTION}")
    for name in OWN:
        operation = getattr(own_operations, name)
        total += _save(picture(pixels, name, T.Compose([operation()])), folder / "gallery" / f"{name}.jpg")
        page.append(_section(name, f"{name}()", operation))
    (folder / "gallery.md").write_text("\n".join(page))
    return total


def _save(image: Image.Image, file: Path) -> int:
    """Write a picture; returns its bytes."""
    image.save(file, quality=_QUALITY)
    return file.stat().st_size


def _section(name: str, code: str, transform: type) -> str:
    summary = " ".join((inspect.getdoc(transform) or "").split("\n\n")[0].split())
    return f"### {name}\n\n`{code}`\n\n{summary}\n\n![{name}](gallery/{name}.jpg)\n"


def picture(pixels: np.ndarray, name: str, chain: T.Compose) -> Image.Image:
    """A grid: the photo and the draws of a chain, each view in a cell of its own."""
    # A seed per transform, so that not all have the same draws.
    seeded = T.Compose([chain], generator=torch.Generator().manual_seed(zlib.crc32(name.encode())))
    # Transforms of several samples need a batch; the transforms before make its images differ.
    results = list(seeded(np.stack([pixels] * DRAWS))) if chain.partners else [seeded(pixels) for _ in range(DRAWS)]
    if all(np.array_equal(result, results[0]) for result in results):
        results = results[:1]
    views = [view for result in results for view in (result if result.ndim == 4 else [result])]
    mean, std = normalization_of(chain) or (None, None)
    images = [np.moveaxis(image, -1, 0) for image in (pixels, *views)]
    return cuaug.show(images, mean=mean, std=std, columns=COLUMNS, side=WIDTH)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write gallery.md and gallery/*.jpg.")
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parents[1] / "docs")
    print(f"{write(parser.parse_args().folder) / 1e6:.2f} MB of images")
