"""JPEG data sets for the demo and the benchmarks, made from the photos in scikit-image and scikit-learn.

Nothing is downloaded: the two wheels contain the ten photos below. Each written file is a random view of one photo
(crop, scale, slight rotation, brightness), so it has the statistics of photographs: edges, smooth areas, noise and
realistic JPEG sizes. A seed determines everything.

`write_classes` makes a labeled set, one class per photo. `write_photos` makes an unlabeled set of nearly equal sizes
for benchmarks. An existing complete set with the same parameters is kept.

    python examples/photos.py classes demo-data/classes --count 2400
    python examples/photos.py photos bench-data/375x500 --count 2048 --height 375 --width 500
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import shutil
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image

__all__ = ["CLASSES", "PHOTOS", "write_classes", "write_photos"]

SKIMAGE, SKLEARN = ("skimage", "data"), ("sklearn", "datasets/images")
PHOTOS = {
    "astronaut": (*SKIMAGE, "astronaut.png"),
    "cat": (*SKIMAGE, "chelsea.png"),
    "coffee": (*SKIMAGE, "coffee.png"),
    "flower": (*SKLEARN, "flower.jpg"),
    "galaxies": (*SKIMAGE, "hubble_deep_field.jpg"),
    "motorcycle": (*SKIMAGE, "motorcycle_left.png"),
    "retina": (*SKIMAGE, "retina.jpg"),
    "rocket": (*SKIMAGE, "rocket.jpg"),
    "temple": (*SKLEARN, "china.jpg"),
    "tissue": (*SKIMAGE, "ihc.png"),
}
CLASSES = ("astronaut", "cat", "coffee", "flower", "motorcycle", "retina", "rocket", "temple")
EVERYDAY = ("astronaut", "cat", "coffee", "flower", "motorcycle", "rocket", "temple")
MARKER = "set.json"
FORMAT = 1  # increase it when the same parameters make other images


@dataclass(frozen=True)
class View:
    """One JPEG to write: a rotated rectangle of a photo, resized to `width` x `height`."""

    path: str
    photo: str
    width: int
    height: int
    extent: float  # scale relative to the largest rectangle that fits, in (0, 1]
    center: tuple[float, float]  # position within the free space, x and y in [0, 1]
    angle_degrees: float
    brightness: float  # a factor
    grain: float  # standard deviation of the added film grain, in uint8 levels
    quality: int
    subsampling: str  # "4:2:0" or "4:4:4"
    seed: int


def write_classes(root: str | Path, count: int = 2400, seed: int = 0) -> Path:
    """Write `count` JPEGs into one folder per class under `root` and return it.

    Sides are 160 to 640 pixels, portrait and landscape; quality 75 to 95; three quarters 4:2:0, the others 4:4:4.
    All views of a class come from one photo: the set shows that a pipeline learns, not that a model generalizes.
    """
    rng = np.random.default_rng(seed)
    views = []
    for index in range(count):
        name = CLASSES[index % len(CLASSES)]
        width, height = (int(side) for side in rng.integers(160, 641, size=2))
        path = f"{name}/{index:05d}.jpg"
        extent, quality = rng.uniform(0.4, 1.0), int(rng.integers(75, 96))
        views.append(_view(rng, path, name, width, height, extent, 0.0, quality))
    parameters = {"kind": "classes", "count": count, "seed": seed, "format": FORMAT}
    return _write(Path(root), views, parameters)


def write_photos(root: str | Path, count: int, height: int, width: int, seed: int = 0) -> Path:
    """Write `count` JPEGs of about `width` x `height` (each side within 5 %) into `root` and return it.

    The views show most of a photo, enlarged or reduced to the size, at quality 91 to 98. An enlarged view lacks
    the fine detail that makes real JPEGs large, and entropy decoding takes time per byte, so every view gets film
    grain: about 0.58 bytes per pixel at 500 x 375 (108 kB, as ImageNet's files) and 0.46 at 1920 x 1080.
    """
    rng = np.random.default_rng(seed)
    views = []
    for index in range(count):
        name = EVERYDAY[index % len(EVERYDAY)]
        w, h = (max(1, round(side * rng.uniform(0.95, 1.05))) for side in (width, height))
        extent, quality = rng.uniform(0.6, 1.0), int(rng.integers(91, 99))
        grain = 6.0 * rng.uniform(0.8, 1.2)
        views.append(_view(rng, f"{index:05d}.jpg", name, w, h, extent, grain, quality))
    parameters = {"kind": "photos", "count": count, "height": height, "width": width, "seed": seed, "format": FORMAT}
    return _write(Path(root), views, parameters)


def _view(
    rng: np.random.Generator, path: str, photo: str, width: int, height: int, extent: float, grain: float, quality: int
) -> View:
    """A view with the random parameters that both sets share."""
    return View(
        path=path,
        photo=photo,
        width=width,
        height=height,
        extent=extent,
        center=(rng.random(), rng.random()),
        angle_degrees=rng.uniform(-8.0, 8.0),
        brightness=rng.uniform(0.8, 1.2),
        grain=grain,
        quality=quality,
        subsampling="4:4:4" if rng.random() < 0.25 else "4:2:0",
        seed=int(rng.integers(2**31)),
    )


@cache
def _photo(name: str) -> Image.Image:
    """One of `PHOTOS`, RGB."""
    package, folder, file = PHOTOS[name]
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"the photo {name!r} is part of {package}: pip install '.[demo]'", name=package)
    return Image.open(Path(spec.submodule_search_locations[0]) / folder / file).convert("RGB")


@cache
def _grain() -> np.ndarray:
    """Unit normal noise for film grain; drawing it for each image would dominate the time."""
    return np.random.default_rng(0).standard_normal(2**22, dtype=np.float32)


def _affine(view: View, photo: Image.Image) -> tuple[float, ...]:
    """The matrix from output pixels to the photo, for `Image.transform`."""
    angle = math.radians(view.angle_degrees)
    cos, sin = math.cos(angle), math.sin(angle)
    # The axis-aligned box of the rotated w x h rectangle must lie inside the photo.
    box_w = view.width * cos + view.height * abs(sin)
    box_h = view.width * abs(sin) + view.height * cos
    step = view.extent * min(photo.width / box_w, photo.height / box_h)  # photo pixels per output pixel
    x = step * box_w / 2 + view.center[0] * (photo.width - step * box_w)
    y = step * box_h / 2 + view.center[1] * (photo.height - step * box_h)
    a, b = step * cos, -step * sin
    return (
        a, b, x - (a * view.width + b * view.height) / 2,
        -b, a, y - (-b * view.width + a * view.height) / 2,
    )  # fmt: skip


def _render(view: View) -> Image.Image:
    """Renders a view."""
    photo = _photo(view.photo)
    matrix = _affine(view, photo)
    reduce = max(1, int(math.hypot(matrix[0], matrix[1])))
    if reduce > 1:  # `transform` does not antialias, so shrink the photo first
        photo = photo.reduce(reduce)
        matrix = tuple(value / reduce for value in matrix)
    size = (view.width, view.height)
    image = photo.transform(size, Image.Transform.AFFINE, matrix, Image.Resampling.BICUBIC)
    pixels = np.asarray(image, dtype=np.float32) * view.brightness
    if view.grain:
        noise = _grain()
        start = np.random.default_rng(view.seed).integers(noise.size)
        grain = np.take(noise, np.arange(start, start + view.width * view.height), mode="wrap")
        pixels += view.grain * grain.reshape(view.height, view.width, 1)
    return Image.fromarray(np.clip(np.rint(pixels), 0, 255).astype(np.uint8))


def _save(root: Path, view: View) -> int:
    """Write one view below `root`; returns its size in bytes."""
    path = root / view.path
    _render(view).save(path, quality=view.quality, subsampling=view.subsampling)
    return path.stat().st_size


def _save_chunk(root: Path, views: list[View]) -> int:
    return sum(_save(root, view) for view in views)


def _write(root: Path, views: list[View], parameters: dict[str, object]) -> Path:
    """Writes a set on all cores unless it exists; it gets its name once complete."""
    marker = root / MARKER
    if marker.is_file():
        found = json.loads(marker.read_text())
        if all(found.get(key) == value for key, value in parameters.items()):
            return root
        shutil.rmtree(root)  # made here with other parameters
    elif root.exists() and any(root.iterdir()):
        raise FileExistsError(f"{root} has files but no {MARKER}: use an empty or new folder")
    partial = root.with_name(root.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    for folder in {(partial / view.path).parent for view in views} | {partial}:
        folder.mkdir(parents=True, exist_ok=True)
    chunks = [views[start : start + 32] for start in range(0, len(views), 32)]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        total = sum(pool.map(_save_chunk, [partial] * len(chunks), chunks))
    pixels = sum(view.width * view.height for view in views)
    summary = {"files": len(views), "bytes": total, "bytes_per_pixel": round(total / pixels, 3)}
    (partial / MARKER).write_text(json.dumps(parameters | summary, indent=2) + "\n")
    if root.exists():
        root.rmdir()
    partial.rename(root)
    return root


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a JPEG set from photos that two packages ship.")
    parser.add_argument("kind", choices=["classes", "photos"])
    parser.add_argument("root", type=Path)
    parser.add_argument("--count", type=int, default=2400)
    parser.add_argument("--height", type=int, default=375, help="of photos")
    parser.add_argument("--width", type=int, default=500, help="of photos")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.kind == "classes":
        write_classes(args.root, args.count, args.seed)
    else:
        write_photos(args.root, args.count, args.height, args.width, args.seed)
    print((args.root / MARKER).read_text(), end="")


if __name__ == "__main__":
    main()
