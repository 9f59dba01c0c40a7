"""Each operation alone, on one thread, on a photo in memory: cuaug beside Albumentations.

Both take a uint8 image of 512 x 512 x 3 and return one (Normalize: float32). Parameters are drawn for every call from
ranges that make the work equal. CLAHE is an exception: cuaug equalizes three channels, Albumentations the lightness
alone, between two conversions. A second table has the operations inside a training chain: after RandomResizedCrop(224),
which antialiases in cuaug but not in Albumentations, and before Normalize, to a tensor of 3 x 224 x 224.

Albumentations is timed as it is called, random parameters included. cuaug is timed twice: executing the sample's
program (`run`), and with the sample's share of planning a batch of 256 (`with plan`). The ratio compares Albumentations
to the latter. Contenders take turns; printed are medians in milliseconds and the range of the ratio.

    python benchmarks/operations.py --out benchmarks/results/operations.json
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import albumentations as A
import cv2
import numpy as np
import torch
from albumentations.pytorch import ToTensorV2
from report import circumstances, in_turns, milliseconds, options, ratios, spread, write_json
from skimage.data import astronaut

from cuaug import transforms as T
from cuaug.devices import CpuExecutor
from cuaug.plan import Layout, Plan
from cuaug.sampling.rng import SampleRNG

BATCH, TURN_MS = 256, 10
#: Batch of the timed plan. All images go to one target, which stays in the caches as Albumentations' do; the kernels
#: would write a large batch past the caches.
SMALL_BATCH = 16
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
LINEAR = "bilinear"
#: Left out of chains: part of every chain, changes the size, or takes seconds to plan.
ALONE = (
    "Resize 224", "Resize 224, antialiased", "RandomResizedCrop 224", "RandomResizedCrop 224, antialiased", "Crop 224",
    "Pad 32", "Normalize", "ElasticTransform",
)  # fmt: skip


def jitter_only(**ranges: tuple[float, float]) -> A.ColorJitter:
    identity = {"brightness": (1, 1), "contrast": (1, 1), "saturation": (1, 1), "hue": (0, 0)}
    return A.ColorJitter(**(identity | ranges), p=1)


def cases() -> dict[str, tuple[T.Transform, A.BasicTransform]]:
    """Name -> the operation in cuaug and in Albumentations."""
    jitter = {"brightness": (1.2, 1.4), "contrast": (1.2, 1.4), "saturation": (1.2, 1.4), "hue": (0.1, 0.2)}
    box = {"num_holes_range": (4, 4), "hole_height_range": (0.1, 0.2), "hole_width_range": (0.1, 0.2)}
    names = {"brightness": T.RandomBrightness, "contrast": T.RandomContrast, "saturation": T.RandomSaturation}
    names |= {"hue": T.RandomHue}
    return {
        "Resize 224": (T.Resize((224, 224), antialias=False), A.Resize(224, 224)),
        "Resize 224, antialiased": (T.Resize((224, 224)), A.Resize(224, 224, interpolation=cv2.INTER_AREA)),
        "RandomResizedCrop 224": (T.RandomResizedCrop(224, antialias=False), A.RandomResizedCrop((224, 224))),
        "RandomResizedCrop 224, antialiased": (
            T.RandomResizedCrop(224),
            A.RandomResizedCrop((224, 224), interpolation=cv2.INTER_AREA),
        ),
        "Crop 224": (T.RandomCrop(224), A.RandomCrop(224, 224)),
        "Pad 32": (T.Pad(32), A.Pad(32)),
        "HorizontalFlip": (T.RandomHorizontalFlip(p=1), A.HorizontalFlip(p=1)),
        "VerticalFlip": (T.RandomVerticalFlip(p=1), A.VerticalFlip(p=1)),
        "RandomRotate90": (T.RandomRot90(times=(1, 1)), A.Transpose(p=1)),
        "Rotate": (T.RandomRotation((20, 40), LINEAR), A.Rotate((20, 40), p=1)),
        "Affine": (
            T.RandomAffine((20, 40), scale=(0.9, 1.1), shear=(5, 10), interpolation=LINEAR),
            A.Affine(rotate=(20, 40), scale=(0.9, 1.1), shear=(5, 10), p=1),
        ),
        "Perspective": (T.RandomPerspective(0.2, p=1), A.Perspective(0.1, p=1)),
        "ElasticTransform": (T.ElasticTransform(50.0, 5.0), A.ElasticTransform(50, 5, p=1)),
        "GridDistortion": (T.GridDistortion(p=1), A.GridDistortion(p=1)),
        "Normalize": (T.Normalize(MEAN, STD), A.Normalize(MEAN, STD)),
        **{
            f"ColorJitter: {name}": (names[name](span, p=1), jitter_only(**{name: span}))
            for name, span in jitter.items()
        },
        "ColorJitter: all four": (T.ColorJitter(**jitter), A.ColorJitter(**jitter, p=1)),
        "Gamma": (T.RandomGamma((0.8, 1.2)), A.RandomGamma((80, 120), p=1)),
        "Posterize": (T.RandomPosterize(4, p=1), A.Posterize(4, p=1)),
        "Solarize": (T.RandomSolarize(128, p=1), A.Solarize((0.5, 0.5), p=1)),
        "Invert": (T.RandomInvert(p=1), A.InvertImg(p=1)),
        "AutoContrast": (T.RandomAutocontrast(p=1), A.AutoContrast(method="pil", p=1)),
        "Equalize": (T.RandomEqualize(p=1), A.Equalize(mode="pil", p=1)),
        "CLAHE": (T.CLAHE(p=1), A.CLAHE(p=1)),
        "ToGray": (T.RandomGrayscale(p=1), A.ToGray(p=1)),
        "ChannelShuffle": (T.RandomChannelPermutation(), A.ChannelShuffle(p=1)),
        "RGBShift": (T.RGBShift(p=1), A.RGBShift(p=1)),
        "Sharpness": (T.RandomAdjustSharpness(1.5, p=1), A.Sharpen(lightness=(1, 1), p=1)),
        "GaussianBlur 5": (T.GaussianBlur(5), A.GaussianBlur((5, 5), (0.1, 2.0), p=1)),
        "MedianBlur 3": (T.MedianBlur(3, p=1), A.MedianBlur((3, 3), p=1)),
        "MedianBlur 5": (T.MedianBlur(5, p=1), A.MedianBlur((5, 5), p=1)),
        "MedianBlur 7": (T.MedianBlur(7, p=1), A.MedianBlur((7, 7), p=1)),
        "MotionBlur 7": (T.MotionBlur(7, (0, 360), (-1, 1), p=1), A.MotionBlur((7, 7), p=1)),
        "JPEG 75": (T.JPEG(75), A.ImageCompression(quality_range=(75, 75), p=1)),
        "GaussianNoise": (T.GaussianNoise(0.0, 0.1), A.GaussNoise((0.1, 0.1), p=1)),
        "CoarseDropout": (T.CoarseDropout(**box, p=1), A.CoarseDropout(**box, p=1)),
    }


def chains() -> dict[str, tuple[T.Transform, A.Compose]]:
    """Name -> each operation that keeps size and type, inside a training chain."""
    return {
        f"chain with {name}": (
            T.Compose([T.RandomResizedCrop(224), ours, T.Normalize(MEAN, STD)]),
            A.Compose([A.RandomResizedCrop((224, 224)), theirs, A.Normalize(MEAN, STD), ToTensorV2()]),
        )
        for name, (ours, theirs) in cases().items()
        if name not in ALONE
    }


def planned(transform: T.Transform, batch: int, height: int, width: int) -> CpuExecutor:
    layout = Layout.CHW if isinstance(transform, T.Compose) else Layout.HWC
    plan = Plan([height] * batch, [width] * batch)
    transform.plan(plan, SampleRNG(0, 0, np.arange(batch)))
    return CpuExecutor(plan.compile(layout=layout))


class Times(NamedTuple):
    """Milliseconds of executing, the same with planning, and of Albumentations."""

    run: float
    with_plan: float
    albumentations: float


def timed(call: Callable[[], object]) -> Callable[[], float]:
    """Milliseconds of as many calls as fill a turn, after a warm-up."""
    call()
    return partial(milliseconds, call, max(1, round(TURN_MS / milliseconds(call))))


def contenders(ours: T.Transform, theirs: A.BasicTransform, image: np.ndarray) -> Callable[[], Times]:
    """A turn, on images of equal size and type."""
    executor = planned(ours, SMALL_BATCH, *image.shape[:2])
    expected = torch.as_tensor(theirs(image=image)["image"]).numpy()
    heights, widths = executor.compiled.sizes()
    size = int(heights[0]), int(widths[0])
    made = (3, *size) if isinstance(ours, T.Compose) else (*size, 3), executor.compiled.target_type.name.lower()
    if made != (expected.shape, expected.dtype.name):
        raise SystemExit(f"{ours!r} makes {made}, {theirs!r} {expected.shape, expected.dtype.name}")
    target, numbers = np.empty_like(expected), itertools.count()
    run = timed(lambda: executor.run(next(numbers) % SMALL_BATCH, image, target.ctypes.data))
    plan = timed(lambda: planned(ours, BATCH, *image.shape[:2]))
    albumentations = timed(lambda: theirs(image=image))

    def turn() -> Times:
        alone = run()
        return Times(alone, alone + plan() / BATCH, albumentations())

    return turn


def compare(
    pairs: dict[str, tuple[T.Transform, A.BasicTransform]], image: np.ndarray, repetitions: int
) -> dict[str, Any]:
    times = in_turns({name: contenders(*pair, image) for name, pair in pairs.items()}, repetitions, warm_up=0)
    result = {}
    for name, rows in times.items():
        run, whole, theirs = zip(*rows, strict=True)
        result[name] = {
            "run": spread(run),
            "with_plan": spread(whole),
            "albumentations": spread(theirs),
            "ratio": ratios(theirs, whole),
            "ratio_of_run": ratios(theirs, run),
        }
    return dict(sorted(result.items(), key=lambda item: -item[1]["ratio"]["median"]))


def print_table(result: dict[str, Any]) -> None:
    print(f"{'ms':46}{'run':>8}{'with plan':>11}{'Albumentations':>16}   times (range)")
    for name, row in result.items():
        run, whole, theirs = (row[key]["median"] for key in ("run", "with_plan", "albumentations"))
        ratio = row["ratio"]
        print(
            f"{name:46}{run:8.3f}{whole:11.3f}{theirs:16.3f}   "
            f"{ratio['median']:.2f} ({ratio['min']:.2f} - {ratio['max']:.2f})"
        )
    fast, as_fast = (sum(row["ratio"]["median"] >= bound for row in result.values()) for bound in (1.5, 1.0))
    print(f"at least 1.5 times as fast: {fast} of {len(result)}; as fast: {as_fast}")


def main() -> None:
    arguments = options(__doc__, repetitions=9, only=("", "operations whose name contains this")).parse_args()
    cv2.setNumThreads(0)
    torch.set_num_threads(1)

    result = circumstances(["cuaug", "albumentations", "albucore", "numpy", "opencv-python-headless"])
    image = np.ascontiguousarray(astronaut())
    for key, pairs in (("operations", cases()), ("chains", chains())):
        chosen = {name: pair for name, pair in pairs.items() if arguments.only in name}
        result[key] = compare(chosen, image, arguments.repetitions)
        print_table(result[key])
    write_json(arguments.out, result)


if __name__ == "__main__":
    main()
