"""Writes the tables of docs/parity.md: errors against Pillow, OpenCV, torch and torchvision's formulas, on photos.

    python -m tests.tools.parity [--out docs/parity.md]

The first table compares functions with other libraries, and with torchvision's formulas in NumPy (tests/references).
The second lists deliberate differences.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch
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
    by_channels,
    by_pillow,
    clahe,
    corners,
    displaced,
    enhanced,
    erased,
    evaluated,
    formula,
    hsv,
    interpolated,
    photos,
    rotated,
    warped,
    wave,
)

PAGE = Path(__file__).parents[2] / "docs" / "parity.md"
#: Random functions, which are compared as transforms, where the draws are known.
DRAWN = {"gaussian_noise": "GaussianNoise"}
NEGATIVE = np.arange(256)[::-1]
SEPIA = np.array([[0.393, 0.769, 0.189, 0], [0.349, 0.686, 0.168, 0], [0.272, 0.534, 0.131, 0]])
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FROM, TO = [(0, 0), (90, 0), (90, 80), (0, 80)], [(7, 4), (95, 9), (80, 85), (3, 70)]

#: The names in the calls.
NAMES = {"F": functional, "FROM": FROM, "TO": TO, "wave": wave}
NAMES |= {"FLOAT": torch.float32, "UINT8": torch.uint8}
EVALUATION = T.Compose([T.Resize(80), T.CenterCrop(70), T.Normalize(MEAN, STD)], pillow=13)
NAMES |= {"EVALUATION": EVALUATION, "Image": Image}
NAMES |= {"NEGATIVE": NEGATIVE, "SEPIA": SEPIA, "MEAN": MEAN, "STD": STD}


@dataclass(frozen=True)
class Entry:
    """A call of `cuaug.functional`, and its peer. With `floats`, the image is float32 in [0, 1]."""

    call: str
    peer: str
    expected: Callable[[DecodedImage], Any]
    tolerance: str
    floats: bool = False


FUNCTIONS = (
    Entry("F.resize(image, (70, 96))", "Pillow", by_pillow(Image.Image.resize, (96, 70), PIL.BILINEAR),
          "PILLOW_BILINEAR_LEVELS"),
    *(Entry(f'F.resize(image, (70, 96), "{mode.name.lower()}")', "Pillow, mode F", by_channels(mode),
            "PILLOW_BICUBIC_LEVELS")
      for mode in (PIL.BICUBIC, PIL.HAMMING, PIL.LANCZOS)),
    Entry("F.resize(image, (70, 96))", "torch interpolate", interpolated("bilinear", 70, 96), "RESIZE", True),
    Entry('F.resize(image, (70, 96), "bicubic")', "torch interpolate", interpolated("bicubic", 70, 96), "RESIZE", True),
    Entry("F.resize(image, (270, 296), antialias=False)", "OpenCV", lambda image: cv2.resize(image, (296, 270)),
          "OPENCV_RESIZE_LEVELS"),
    Entry('F.resize(image, (70, 96), "nearest")', "OpenCV",
          lambda image: cv2.resize(image, (96, 70), interpolation=cv2.INTER_NEAREST), "EXACT"),
    Entry('F.resize(image, (72, 96), "nearest-exact")', "Pillow",
          by_pillow(Image.Image.resize, (96, 72), PIL.NEAREST), "EXACT"),
    *(Entry(f'F.resize(image, (70, 96), "{mode.name.lower()}", pillow=13)', "Pillow",
            by_pillow(Image.Image.resize, (96, 70), mode), "EXACT")
      for mode in (PIL.NEAREST, PIL.BILINEAR, PIL.BICUBIC, PIL.BOX, PIL.HAMMING, PIL.LANCZOS)),
    Entry("F.crop(image, 9, 20, 64, 90)", "NumPy", lambda image: image[9:73, 20:110], "EXACT"),
    Entry("F.resized_crop(image, 9, 20, 64, 90, (48, 48))", "Pillow",
          lambda image: by_pillow(Image.Image.resize, (48, 48), PIL.BILINEAR)(image[9:73, 20:110]),
          "PILLOW_BILINEAR_LEVELS"),
    Entry("F.resized_crop(image, 9, 20, 64, 90, (48, 48), pillow=13)", "Pillow",
          lambda image: by_pillow(Image.Image.resize, (48, 48), PIL.BILINEAR)(image[9:73, 20:110]), "EXACT"),
    Entry("EVALUATION(Image.fromarray(image))", "Pillow and torch", evaluated, "EXACT"),
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
          rotated, "GRID_SAMPLE", True),
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
    Entry("F.grayscale_to_rgb(image[..., :1])", "NumPy", lambda image: image[..., [0, 0, 0]], "EXACT"),
    Entry("F.to_dtype(F.to_dtype(image, FLOAT, True), UINT8, True)", "NumPy", lambda image: image, "EXACT"),
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
    cells: str
    most: float
    mean: float
    tolerance: Tolerance


def _errors(pairs: Iterable[tuple[Any, Any]], unit: float = 1.0) -> tuple[float, float]:
    """The largest error and the mean error of all pairs of images."""
    most, total, count = 0.0, 0.0, 0
    for got, want in pairs:
        got, want = np.asarray(got, dtype=np.float64), np.asarray(want, dtype=np.float64)
        assert got.shape == want.shape, f"{got.shape}, not {want.shape}"
        error = np.abs(got - want) * unit
        most, total, count = max(most, float(error.max())), total + float(error.sum()), count + error.size
    return most, total / count


def function_row(entry: Entry) -> Row:
    unit = 255.0 if entry.floats else 1.0
    images = [image.astype(np.float32) / np.float32(255) if entry.floats else image for image in photos()]
    pairs = ((eval(entry.call, NAMES | {"image": image}), entry.expected(image)) for image in images)
    most, reason = getattr(tolerances, entry.tolerance)
    name = entry.call.split("(")[0].removeprefix("F.")
    cells = f"`{entry.call}` | {entry.peer}{', floats' if entry.floats else ''}"
    return Row(name, cells, *_errors(pairs, unit), Tolerance(most * unit, reason if most else "exact"))


def difference_row(entry: Difference) -> tuple[str, str, float, float]:
    chain = T.Compose(list(entry.chain))
    results = [(np.asarray(entry.ours(chain, image)), entry.theirs(image)) for image in photos()]
    return entry.case, entry.reason, *_errors(results, 255.0 if results[0][0].max() < 10 else 1.0)


def functions() -> list[Row]:
    return [function_row(entry) for entry in FUNCTIONS]


def figure(value: float) -> str:
    return "0" if value == 0 else f"{value:.2g}" if value < 0.1 else f"{value:.2f}"


def line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


def with_rows(page: str, first: str, rows: Iterable[str]) -> str:
    """The page with other rows in the table whose first column is `first`."""
    table = rf"^(\| {first} \|.*\n\|[-|]+\n)(?:\|.*\n)+"
    made, count = re.subn(table, lambda found: found[1] + "".join(rows), page, flags=re.MULTILINE)
    assert count == 1, f"{count} tables of {first}"
    return made


def page(functions: list[Row]) -> str:
    """docs/parity.md with current tables."""
    rows = [
        line(row.cells, figure(row.most), figure(row.mean), f"{row.tolerance.most:.3g}", row.tolerance.reason)
        for row in functions
    ]
    differences = map(difference_row, DIFFERENCES)
    apart = [line(case, reason, figure(most), figure(mean)) for case, reason, most, mean in differences]
    return with_rows(with_rows(PAGE.read_text(), "call", rows), "chain", apart)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the errors of cuaug against other libraries.")
    parser.add_argument("--out", type=Path, default=PAGE, help="output file")
    parser.parse_args().out.write_text(page(functions()))


if __name__ == "__main__":
    main()
