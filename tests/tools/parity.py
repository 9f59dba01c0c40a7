"""How near cuaug is to Pillow, OpenCV, torch and torchvision's formulas, on photos: docs/parity.md.

    python -m tests.tools.parity [--out docs/parity.md]

Functions are compared with libraries that have them, and with torchvision's formulas in NumPy (tests/references);
transforms with those formulas, given the parameters that were drawn: all that cases.py and stages.py list, so that a
new one is here by itself. A third table has what differs on purpose.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from cuaug import functional
from cuaug import transforms as T
from tests.references import color, filters, jpeg, statistics, warp
from tests.references.transforms import yuv
from tests.support import tolerances
from tests.support.tolerances import Tolerance
from tests.tools.differences import DIFFERENCES, Difference
from tests.tools.peer_outputs import (
    PIL,
    DecodedImage,
    bicubic_by_channels,
    by_pillow,
    clahe,
    corners,
    displaced,
    enhanced,
    erased,
    formula,
    hsv,
    interpolated,
    photos,
    turned,
    warped,
    wave,
)
from tests.tools.stages import STAGES, pairs
from tests.transforms.cases import BASES, CASES, WRAPPERS
from tests.transforms.test_every import by_reference, run

#: Functions whose comparison is among the transforms', where the draws are known.
DRAWN = {"gaussian_noise": "GaussianNoise"}
#: Transforms that move whole pixels, or whose results are whole levels.
EXACT = {
    *("CenterCrop", "Pad", "RandomCrop", "RandomHorizontalFlip", "RandomVerticalFlip", "Rot90", "RandomRot90", "D4"),
    *("RandomZoomOut", "RandomChannelPermutation", "LUT", "RandomPosterize", "RandomSolarize", "RandomInvert"),
    *("RandomEqualize", "SaltAndPepper", "CoarseDropout", "GridMask", "RandomMask", "MedianBlur", "JPEG"),
}
#: Those that touch no pixel themselves.
PIXELLESS = BASES | WRAPPERS | {"Lambda", "SanitizeBoundingBoxes"}


def small_photos() -> DecodedImage:
    """(6, 40, 48, 3) uint8: the photos, twice each, the second time mirrored and turned."""
    reduced = [np.asarray(Image.fromarray(photo).resize((48, 40), PIL.BOX)) for photo in photos()]
    return np.stack([*reduced, *(photo[::-1, ::-1] for photo in reduced)])


NEGATIVE = np.arange(256)[::-1]
SEPIA = np.array([[0.393, 0.769, 0.189, 0], [0.349, 0.686, 0.168, 0], [0.272, 0.534, 0.131, 0]])
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FROM, TO = [(0, 0), (90, 0), (90, 80), (0, 80)], [(7, 4), (95, 9), (80, 85), (3, 70)]


#: What the calls name.
NAMES = {"F": functional, "FROM": FROM, "TO": TO, "wave": wave}
NAMES |= {"NEGATIVE": NEGATIVE, "SEPIA": SEPIA, "MEAN": MEAN, "STD": STD}


@dataclass(frozen=True)
class Entry:
    """A call of `cuaug.functional`, and who else computes what. With `floats` of a float32 image in [0, 1]."""

    call: str
    against: str
    want: Callable[[DecodedImage], Any]
    tolerance: str
    floats: bool = False


FUNCTIONS = (
    Entry("F.resize(image, (70, 96))", "Pillow", by_pillow(Image.Image.resize, (96, 70), PIL.BILINEAR),
          "PILLOW_BILINEAR_LEVELS"),
    Entry('F.resize(image, (70, 96), "bicubic")', "Pillow, mode F", bicubic_by_channels, "PILLOW_BICUBIC_LEVELS"),
    Entry("F.resize(image, (70, 96))", "torch interpolate", interpolated("bilinear", 70, 96), "RESIZE", True),
    Entry('F.resize(image, (70, 96), "bicubic")', "torch interpolate", interpolated("bicubic", 70, 96), "RESIZE", True),
    Entry("F.resize(image, (270, 296), antialias=False)", "OpenCV", lambda image: cv2.resize(image, (296, 270)),
          "OPENCV_RESIZE_LEVELS"),
    Entry('F.resize(image, (70, 96), "nearest")', "OpenCV",
          lambda image: cv2.resize(image, (96, 70), interpolation=cv2.INTER_NEAREST), "EXACT"),
    Entry("F.crop(image, 9, 20, 64, 90)", "NumPy", lambda image: image[9:73, 20:110], "EXACT"),
    Entry("F.resized_crop(image, 9, 20, 64, 90, (48, 48))", "Pillow",
          lambda image: by_pillow(Image.Image.resize, (48, 48), PIL.BILINEAR)(image[9:73, 20:110]),
          "PILLOW_BILINEAR_LEVELS"),
    Entry("F.center_crop(image, (60, 70))", "NumPy", lambda image: corners(image)[4], "EXACT"),
    Entry("F.five_crop(image, (60, 70))", "NumPy", corners, "EXACT"),
    Entry("F.ten_crop(image, (60, 70))", "NumPy",
          lambda image: np.concatenate([corners(image), corners(image[:, ::-1])]), "EXACT"),
    Entry("F.horizontal_flip(image)", "NumPy", np.fliplr, "EXACT"),
    Entry("F.vertical_flip(image)", "NumPy", np.flipud, "EXACT"),
    Entry("F.rot90(image, 3)", "NumPy", lambda image: np.rot90(image, 3), "EXACT"),
    *(Entry(f'F.pad(image, 30, padding_mode="{name}")', "OpenCV",
            lambda image, kind=kind: cv2.copyMakeBorder(image, 30, 30, 30, 30, kind), "EXACT")
      for name, kind in (("constant", cv2.BORDER_CONSTANT), ("edge", cv2.BORDER_REPLICATE), ("wrap", cv2.BORDER_WRAP),
                         ("reflect", cv2.BORDER_REFLECT_101), ("symmetric", cv2.BORDER_REFLECT))),
    Entry('F.rotate(image, 30, "bilinear")', "torchvision's formula, torch grid_sample",
          turned, "GRID_SAMPLE", True),
    Entry('F.affine(image, 20, (5, -3), 1.2, (10, 4), "bicubic")', "torchvision's formula, torch grid_sample",
          warped(lambda h, w: warp.affine(h, w, 20, (5, -3), 1.2, (10, 4)), "bicubic"), "GRID_SAMPLE", True),
    Entry("F.perspective(image, FROM, TO)", "torchvision's formula, torch grid_sample",
          warped(lambda h, w: warp.perspective(np.array(FROM), np.array(TO)), "bilinear"), "GRID_SAMPLE", True),
    Entry("F.elastic(image, wave(*image.shape[:2]))", "torchvision's formula, torch grid_sample", displaced,
          "GRID_SAMPLE", True),
    Entry("F.adjust_brightness(image, 1.3)", "torchvision's formula", formula(color.brightness, 1.3, 255.0),
          "ROUNDING_LEVELS"),
    Entry("F.adjust_brightness(image, 1.3)", "Pillow", enhanced(ImageEnhance.Brightness, 1.3), "PILLOW_COLOR_LEVELS"),
    Entry("F.adjust_contrast(image, 0.6)", "torchvision's formula", formula(color.contrast, 0.6, 255.0),
          "ROUNDING_LEVELS"),
    Entry("F.adjust_contrast(image, 0.6)", "Pillow", enhanced(ImageEnhance.Contrast, 0.6), "PILLOW_COLOR_LEVELS"),
    Entry("F.adjust_saturation(image, 1.6)", "torchvision's formula", formula(color.saturation, 1.6, 255.0),
          "ROUNDING_LEVELS"),
    Entry("F.adjust_saturation(image, 1.6)", "Pillow", enhanced(ImageEnhance.Color, 1.6), "PILLOW_COLOR_LEVELS"),
    Entry("F.adjust_hue(image, 0.1)", "OpenCV", hsv, "OPENCV_HUE_LEVELS"),
    Entry("F.adjust_hue(image, 0.1)", "torchvision's formula", formula(color.hue, 0.1, 255.0), "ROUNDING_LEVELS"),
    Entry("F.adjust_gamma(image, 0.6, 1.1)", "torchvision's formula", formula(color.gamma, 0.6, 1.1, 255.0),
          "ROUNDING_LEVELS"),
    Entry("F.adjust_sharpness(image, 2.0)", "torchvision's formula", formula(filters.adjust_sharpness, 2.0, 255.0),
          "ROUNDING_LEVELS"),
    Entry("F.adjust_sharpness(image, 2.0)", "Pillow", enhanced(ImageEnhance.Sharpness, 2.0), "PILLOW_SHARPNESS_LEVELS"),
    Entry("F.autocontrast(image)", "Pillow", by_pillow(ImageOps.autocontrast), "PILLOW_AUTOCONTRAST_LEVELS"),
    Entry("F.autocontrast(image)", "torchvision's formula", formula(statistics.autocontrast, 255.0), "ROUNDING_LEVELS"),
    Entry("F.equalize(image)", "Pillow", by_pillow(ImageOps.equalize), "EXACT"),
    Entry("F.clahe(image, 2.8)", "OpenCV", clahe, "EXACT"),
    Entry("F.invert(image)", "Pillow", by_pillow(ImageOps.invert), "EXACT"),
    Entry("F.posterize(image, 3)", "Pillow", by_pillow(ImageOps.posterize, 3), "EXACT"),
    Entry("F.solarize(image, 128)", "Pillow", by_pillow(ImageOps.solarize, 128), "EXACT"),
    Entry("F.rgb_to_grayscale(image, 3)", "torchvision's formula", formula(color.grayscale), "ROUNDING_LEVELS"),
    Entry("F.rgb_to_grayscale(image, 3)", "Pillow",
          lambda image: np.asarray(Image.fromarray(image).convert("L").convert("RGB")), "COLOR_LEVELS"),
    Entry("F.convert_color(image)", "OpenCV", lambda image: cv2.cvtColor(image, cv2.COLOR_RGB2YUV), "COLOR_LEVELS"),
    Entry("F.convert_color(image)", "BT.601 in NumPy", formula(yuv()), "ROUNDING_LEVELS"),
    Entry("F.permute_channels(image, (2, 0, 1))", "NumPy", lambda image: image[..., [2, 0, 1]], "EXACT"),
    Entry("F.lut(image, NEGATIVE)", "OpenCV", lambda image: cv2.LUT(image, NEGATIVE.astype(np.uint8)), "EXACT"),
    Entry("F.matrix(image, SEPIA)", "OpenCV", lambda image: cv2.transform(image, SEPIA), "OPENCV_MATRIX_LEVELS"),
    Entry("F.erase(image, 20, 30, 30, 30, (1, 2, 3))", "NumPy", erased, "EXACT"),
    Entry("F.normalize(image, MEAN, STD) * STD", "NumPy", lambda image: image.astype(np.float64) - MEAN, "NORMALIZE",
          True),
    Entry("F.gaussian_blur(image, 9, 1.7)", "OpenCV", lambda image: cv2.GaussianBlur(image, (9, 9), 1.7),
          "CONVOLUTION_LEVELS"),
    Entry("F.gaussian_blur(image, (5, 9), 1.7)", "torchvision's formula", formula(filters.gaussian_blur, (5, 9), 1.7),
          "ROUNDING_LEVELS"),
    Entry("F.motion_blur(image, 7, 35.0, 0.5)", "Kornia's kernel, OpenCV's filter2D",
          lambda image: cv2.filter2D(image, -1, filters.motion_kernel(7, 35.0, 0.5), borderType=cv2.BORDER_CONSTANT),
          "CONVOLUTION", True),
    Entry("F.median_blur(image, 5)", "OpenCV", lambda image: cv2.medianBlur(image, 5), "EXACT"),
    Entry("F.jpeg(image, 40)", "Pillow", lambda image: jpeg.by_pillow(image, 40), "EXACT"),
)  # fmt: skip


# --- the tables ------------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """A line of a table; errors and tolerance in uint8 levels."""

    name: str
    what: str
    most: float
    mean: float
    tolerance: Tolerance


def _errors(pairs: Iterable[tuple[Any, Any]], unit: float = 1.0) -> tuple[float, float]:
    """The largest error, and the mean, of all pairs of images."""
    most, total, count = 0.0, 0.0, 0
    for got, want in pairs:
        got, want = np.asarray(got, dtype=np.float64), np.asarray(want, dtype=np.float64)
        assert got.shape == want.shape, f"{got.shape}, not {want.shape}"
        far = np.abs(got - want) * unit
        most, total, count = max(most, float(far.max())), total + float(far.sum()), count + far.size
    return most, total / count


def function_row(entry: Entry) -> Row:
    unit = 255.0 if entry.floats else 1.0
    images = [image.astype(np.float32) / np.float32(255) if entry.floats else image for image in photos()]
    pairs = ((eval(entry.call, NAMES | {"image": image}), entry.want(image)) for image in images)
    most, reason = getattr(tolerances, entry.tolerance)
    name = entry.call.split("(")[0].removeprefix("F.")
    what = f"`{entry.call}` | {entry.against}{', of floats' if entry.floats else ''}"
    return Row(name, what, *_errors(pairs, unit), Tolerance(most * unit, reason if most else "exact"))


def transform_row(name: str) -> Row:
    """The worst of its cases, each acting on every photo, whatever its p."""
    if name in STAGES:
        return Row(name, f"`{name}`", *_errors(pairs(name, small_photos())), STAGES[name].tolerance)
    images, rows = small_photos(), []
    for transform, reference in CASES[name]:
        acting = copy.copy(transform)
        if isinstance(acting, T.RandomTransform):
            acting.p = 1.0
        got, want = run(acting, images, 0), by_reference(acting, reference, images, 0)
        values = max(np.max(image) for image in got) < 10
        unit, (most, reason) = (255.0, tolerances.VALUES) if values else (1.0, tolerances.ROUNDING_LEVELS)
        most, reason = tolerances.EXACT if name in EXACT else (most, reason)
        want = want if values else [np.clip(image, 0, 255) for image in want]
        errors = _errors(zip(got, want, strict=True), unit)
        rows.append(Row(name, f"`{name}`", *errors, Tolerance(most * unit, reason)))
    return max(rows, key=lambda row: (row.most - row.tolerance.most, row.mean))


def difference_row(entry: Difference) -> tuple[str, str, float, float]:
    chain = T.Compose(list(entry.chain))
    results = [(np.asarray(entry.ours(chain, image)), entry.theirs(image)) for image in photos()]
    return entry.what, entry.why, *_errors(results, 255.0 if results[0][0].max() < 10 else 1.0)


def functions() -> list[Row]:
    return [function_row(entry) for entry in FUNCTIONS]


def transforms() -> list[Row]:
    return [transform_row(name) for name in [*CASES, *STAGES]]


PAGE = """# How near the results are

Written by `python -m tests.tools.parity --out docs/parity.md`; `tests/test_parity.py` makes the tables anew and
fails where an error exceeds its tolerance. Errors are in uint8 levels: the largest, and the mean of all values.

## Functions, beside other libraries

`cuaug.functional` on three photos of 200 x 200, 133 x 181 and 97 x 240 pixels; "of floats": of the photo as float32 in
[0, 1]. A formula is NumPy's in float64, so uint8 results are half a level off by their own rounding.

| call | beside | largest | mean | tolerance | why |
|---|---|---|---|---|---|
{functions}
`gaussian_noise` draws; it is `GaussianNoise` below.

## Transforms, beside formulas

Each acts on six photos of 40 x 48 pixels, with several kinds of arguments (`tests/transforms/cases.py`, of batches and
targets `tests/tools/stages.py`), and `tests/references` computes in float64 what the drawn parameters mean, noise
from the same random words; of `JPEG`, Pillow. The tolerance is 0 where whole pixels move or whole levels come out, else
half a level of rounding; of `AugMix` twice that, since its chains' ends are rounded and their mean is; of `Normalize`
and `ToDtype`, whose results are floats, float32's precision.

`Compose`, `RandomApply`, `RandomChoice`, `RandomOrder` and `SomeOf` run others, `Lambda` a function of yours, and
`SanitizeBoundingBoxes` touches no pixel.

| transform | largest | mean | tolerance |
|---|---|---|---|
{transforms}
## What differs on purpose

Pixels are not rounded between operations, and two resizes are one interpolation. How far that is from torchvision,
which makes whole levels of uint8 images after each transform, in `ColorJitter` after each change: rounded after
geometry and blurs, cut off after most changes of colour (by its formulas, on the three photos):

| chain | here | largest | mean |
|---|---|---|---|
{differences}
Otherwise than in torchvision,

- on a batch, every image is drawn for on its own;
- `Normalize` scales uint8 images to [0, 1] first;
- `ToDtype(torch.uint8, scale=True)` rounds v * 255; torchvision cuts off the fraction of v * 255.999: a quarter of all
  values are one level apart. Without `scale` it rounds and saturates, 2.6 to 3; torchvision cuts off, 2.6 to 2;
- `adjust_contrast` and `adjust_saturation`, and so `ColorJitter`, blend with the gray image or its mean; torchvision
  first cuts off the fractions of a uint8 image's gray, half a level on average: that moves results by half of
  |factor - 1| levels, by 0.95 for a factor of 2.9, before torchvision cuts off their fractions too and cuaug rounds
  them;
- `RandomEqualize` of floats takes the nearest levels, torchvision those that `ToDtype` makes there;
- the middle one of `TrivialAugmentWide`'s 31 shifts is by 16 pixels; in torchvision's float32 it is 15.999999, and 15.
  A threshold that `Solarize` has at a whole level includes it; there it may lie 1e-5 above;
- `RandomRotation(expand=True)` turns about the middle whatever `center` is; torchvision then turns part of the image
  out of the larger one;
- `functional.crop` takes windows in the image; torchvision fills up with 0 what lies outside;
- "nearest" takes OpenCV's pixels when resizing; torch's scale is a float32, so that where a place is a whole number it
  may be the pixel before, in one row of 480 made 224; Pillow, and torchvision of PIL images, take what lies under the
  new pixel's centre;
- `ElasticTransform` draws other noise of the same deviation and correlation; its `sigma` is 1 or more;
- `RandomErasing` draws anew where a rectangle has no pixel, in images of a few; torchvision then erases nothing;
- `RandomIoUCrop` gives up after 50 options, and leaves the image as it is; torchvision goes on for ever;
- keypoints count as boxes do, from the corner of the first pixel; torchvision's flips and `ElasticTransform`, unlike
  its other transforms, count from its centre: a flip takes `KeyPoints` at x to width - 1 - x there, to width - x here;
- boxes that reach out of the image are cut off at its edge at first; torchvision leaves them, and if nothing has
  clamped them by then, `SanitizeBoundingBoxes` drops them;
- `RandomErasing(value="random")` on uint8 images draws around mid-gray; torchvision casts a standard normal to uint8;
- `MixUp` and `CutMix` mix with the next sample, not the one before in the batch, and `MixUp` takes uint8 too;
- `CopyPaste`'s boxes end behind the last pixel of a mask, not at it, and its `blending` is a soft edge; in
  torchvision's scripts it makes the hard edge two pixels wider;
- `SanitizeBoundingBoxes`, `MixUp` and `CutMix` have no `labels_getter`: what has a row for each box is found, and mixed
  is the label itself; `fill` is of images alone, not a dict by type: masks of classes have the chain's
  `mask_fill`, those of instances 0; nor is `ToDtype`'s type, which is the images';
- `AugMix` rounds the mean; torchvision cuts its fraction off: uint8 images get darker by half a level on average.
"""


def figure(value: float) -> str:
    return "0" if value == 0 else f"{value:.2g}" if value < 0.1 else f"{value:.2f}"


def line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


def page(functions: list[Row], transforms: list[Row]) -> str:
    def figures(row: Row) -> tuple[str, ...]:
        return row.what, figure(row.most), figure(row.mean), f"{row.tolerance.most:.3g}"

    differences = map(difference_row, DIFFERENCES)
    return PAGE.format(
        functions="".join(line(*figures(row), row.tolerance.reason) for row in functions),
        transforms="".join(line(*figures(row)) for row in transforms),
        differences="".join(line(what, why, figure(most), figure(mean)) for what, why, most, mean in differences),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes how near the results are to those of other libraries.")
    parser.add_argument("--out", type=Path, help="a file; without one the page is printed")
    out = parser.parse_args().out
    if out:
        out.write_text(page(functions(), transforms()))
    else:
        print(page(functions(), transforms()))


if __name__ == "__main__":
    main()
