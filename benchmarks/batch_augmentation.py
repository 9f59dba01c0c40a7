"""Augmentation of a batch that is a tensor on the device already: cuaug beside Kornia and torchvision.

uint8 (N, 3, 375, 500) becomes normalized float32 (N, 3, 224, 224) by RandomResizedCrop and a flip, and by the same with
ColorJitter. cuaug and Kornia draw parameters for each image. torchvision draws once for a batch; called for each image,
it draws for each. Kornia crops by slices, its default, or by resampling. A library that is not installed is left out,
and the result says why. On the CPU all share torch's threads. Contenders take turns. A measurement is one call, from
the tensor to the finished batch on the device.

    python benchmarks/batch_augmentation.py --out benchmarks/results/batch_augmentation.json    # --device cpu or cuda
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from report import (
    circumstances,
    gpu_circumstances,
    in_turns,
    milliseconds,
    options,
    print_spreads,
    ratios,
    spread,
    write_json,
)
from torch import Tensor

from cuaug import transforms as T

HEIGHT, WIDTH, SIZE = 375, 500, 224
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
JITTER = (0.4, 0.4, 0.4, 0.1)
CHAINS = ("crop, flip, normalize", "crop, flip, jitter, normalize")
Augment = Callable[[Tensor], Tensor]


def by_cuaug(jitter: bool) -> dict[str, Augment]:
    colors = [T.ColorJitter(*JITTER)] if jitter else []
    return {"cuaug": T.Compose([T.RandomResizedCrop(SIZE), T.RandomHorizontalFlip(), *colors, T.Normalize(MEAN, STD)])}


def by_kornia(jitter: bool) -> dict[str, Augment]:
    from kornia import augmentation as K

    def chain(mode: str) -> Augment:
        colors = [K.ColorJitter(*JITTER, p=1.0)] if jitter else []
        crop = K.RandomResizedCrop((SIZE, SIZE), scale=(0.08, 1.0), cropping_mode=mode)
        steps = K.AugmentationSequential(crop, K.RandomHorizontalFlip(), *colors, K.Normalize(MEAN, STD))
        return lambda images: steps(images.float() / 255.0)

    return {f"Kornia, {mode}": chain(mode) for mode in ("slice", "resample")}


def by_torchvision(jitter: bool) -> dict[str, Augment]:
    from torchvision.transforms import v2

    colors = [v2.ColorJitter(*JITTER)] if jitter else []
    crop = [v2.RandomResizedCrop(SIZE, antialias=True), v2.RandomHorizontalFlip(), *colors]
    steps = v2.Compose([*crop, v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])
    return {
        "torchvision, one draw": steps,
        "torchvision, image by image": lambda images: torch.stack([steps(image) for image in images]),
    }


def check(name: str, images: Tensor, size: int) -> None:
    mean, std = float(images.mean()), float(images.std())
    if images.shape != (size, 3, SIZE, SIZE) or images.dtype != torch.float32:
        raise AssertionError(f"{name}: {tuple(images.shape)} {images.dtype}")
    if not (-1.0 < mean < 1.0 and 0.2 < std < 2.0):  # NaN fails, too
        raise AssertionError(f"{name}: mean {mean:.2f}, standard deviation {std:.2f}")


def main() -> None:
    parser = options(__doc__, repetitions=5)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch-size", type=int, help="default: 32, with a GPU 256")
    parser.add_argument("--calls", type=int, help="per turn; default: 2, with a GPU 10")
    args = parser.parse_args()
    cuda = args.device == "cuda"
    size, calls = args.batch_size or (256 if cuda else 32), args.calls or (10 if cuda else 2)
    generator = torch.Generator().manual_seed(0)
    coarse = torch.randint(0, 256, (size, 3, HEIGHT // 25, WIDTH // 25), generator=generator, dtype=torch.uint8)
    images = coarse.repeat_interleave(25, 2).repeat_interleave(25, 3).to(args.device)

    result: dict[str, Any] = (gpu_circumstances if cuda else circumstances)(["torch", "cuaug", "kornia", "torchvision"])
    if not cuda:
        result["device"] = f"cpu, {torch.get_num_threads()} threads"
    result["settings"] = {"batch_size": size, "calls": calls, "repetitions": args.repetitions}
    result["left_out"], result["ms"], result["cuaug_to_this"] = {}, {}, {}
    for jitter, chain in enumerate(CHAINS):
        contenders: dict[str, Augment] = {}
        for make in (by_cuaug, by_kornia, by_torchvision):
            try:
                contenders |= make(bool(jitter))
            except ImportError as error:
                result["left_out"][make.__name__.removeprefix("by_")] = str(error)

        def call(augment: Augment) -> None:
            augment(images)
            if cuda:
                torch.cuda.synchronize()

        for name, augment in contenders.items():
            check(name, augment(images), size)
        timed = {name: partial(milliseconds, partial(call, augment), calls) for name, augment in contenders.items()}
        times = in_turns(timed, args.repetitions)
        result["ms"][chain] = {name: spread(values) for name, values in times.items()}
        result["cuaug_to_this"][chain] = {name: ratios(values, times["cuaug"]) for name, values in times.items()}
        print(f"{chain}: ms for {size} images on {result['device']}")
        print_spreads(result["ms"][chain])
    for name, reason in result["left_out"].items():
        print(f"{name} is left out: {reason}")
    write_json(args.out, result)


if __name__ == "__main__":
    main()
