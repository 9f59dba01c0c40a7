"""Ray Data on the same CPUs: `cuaug.ray.Augment` beside `read_images` and NumPy code as torchvision computes.

All contenders turn the same JPEGs into float32 (3, 224, 224): RandomResizedCrop, flip, normalization. The program
consumes the batches with `iter_batches`. A turn is the execution of a data set. It is timed from the first batch to the
last, without the start of workers, which takes seconds and is the same for all. Contenders take turns. Each file comes
`--repeats` times. CPU time is that of the program and all workers; other work on the machine disturbs it less.

- "actors": `read_binary_files`, then `Augment` in as many actors as there are CPUs. An actor asks Ray for 0.75 CPUs, a
  read for 0.25, since it mostly waits.
- "tasks": `read_binary_files`, then an instance of `Augment`, which Ray fuses with reading.
- "read_images": Ray decodes with Pillow; the function crops, resizes with Pillow, flips and normalizes with NumPy.

    python benchmarks/ray_data.py --out benchmarks/results/ray_data.json
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import ray
from PIL import Image
from report import circumstances, parse, print_spreads, processor_seconds, spread, write_json

import cuaug
from cuaug import transforms as T

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
from photos import write_photos

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIDE, BATCH = 224, 64
CHAIN = [T.RandomResizedCrop(SIDE), T.RandomHorizontalFlip(), T.Normalize(MEAN, STD)]


def augment_with_numpy(batch: dict[str, Any]) -> dict[str, Any]:
    """As torchvision's transforms on PIL images."""
    rng = np.random.default_rng()
    images = np.empty((len(batch["image"]), 3, SIDE, SIDE), np.float32)
    for image, output in zip(batch["image"], images, strict=True):
        top, left, height, width = draw_crop(rng, *image.shape[:2])
        crop = Image.fromarray(np.ascontiguousarray(image[top : top + height, left : left + width]))
        pixels = np.asarray(crop.resize((SIDE, SIDE), Image.Resampling.BILINEAR), dtype=np.float32) / 255
        pixels = pixels[:, ::-1] if rng.random() < 0.5 else pixels
        output[:] = ((pixels - np.array(MEAN, np.float32)) / np.array(STD, np.float32)).transpose(2, 0, 1)
    return {"path": batch["path"], "image": images}


def draw_crop(rng: np.random.Generator, height: int, width: int) -> tuple[int, int, int, int]:
    """(top, left, height, width), as torchvision's `RandomResizedCrop.get_params`."""
    for _ in range(10):
        area = height * width * rng.uniform(0.08, 1.0)
        ratio = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return int(rng.integers(height - h + 1)), int(rng.integers(width - w + 1)), h, w
    return 0, 0, height, width


def consume(dataset: Any, count: int) -> tuple[float, float]:
    """Receives all batches, and checks them. Returns images per second and per CPU second after the first batch."""
    seen = first = 0
    wall = cpu = 0.0
    for batch in dataset.iter_batches(batch_size=BATCH):
        images = batch["image"]
        assert images.shape[1:] == (3, SIDE, SIDE) and images.dtype == np.float32
        assert 0.05 < images.std() < 3 and np.isfinite(images).all()
        seen += len(images)
        if not first:
            first, wall, cpu = seen, time.perf_counter(), processor_seconds()
    assert seen == count, f"{seen} rows of {count}"
    return (count - first) / (time.perf_counter() - wall), (count - first) / (processor_seconds() - cpu)


def main() -> None:
    args = parse(__doc__, images=1024, repeats=4, cpus=2, repetitions=2)
    folder = write_photos(Path("bench-data") / f"500x375-{args.images}", args.images, 375, 500)
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - Ray's name; by default other processes come first
    os.environ["RAY_DATA_DISABLE_PROGRESS_BARS"] = "1"
    ray.init(num_cpus=args.cpus, object_store_memory=600_000_000, include_dashboard=False, log_to_driver=False)
    files = [str(path) for path in sorted(folder.resolve().glob("*.jpg"))] * args.repeats
    count = len(files)
    settings = {"transforms": CHAIN, "key": "path", "out": "image", "device": "cpu"}
    reads = {"include_paths": True, "override_num_blocks": max(8, count // 256)}

    def actors() -> tuple[float, float]:
        pool = ray.data.ActorPoolStrategy(size=args.cpus)
        dataset = ray.data.read_binary_files(files, num_cpus=0.25, **reads)
        options = {"fn_constructor_kwargs": settings, "compute": pool, "num_cpus": 0.75, "batch_size": BATCH}
        return consume(dataset.map_batches(cuaug.ray.Augment, **options), count)

    def tasks() -> tuple[float, float]:
        dataset = ray.data.read_binary_files(files, **reads)
        return consume(dataset.map_batches(cuaug.ray.Augment(**settings), batch_size=BATCH), count)

    def read_images() -> tuple[float, float]:
        dataset = ray.data.read_images(files, mode="RGB", **reads)
        return consume(dataset.map_batches(augment_with_numpy, batch_size=BATCH), count)

    contenders: dict[str, Callable[[], tuple[float, float]]] = {
        "actors": actors,
        "tasks": tasks,
        "read_images": read_images,
    }
    rows: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for _ in range(args.repetitions):
        for name, call in contenders.items():
            rows[name].append(call())
    result: dict[str, Any] = circumstances(["ray", "torch", "numpy", "pillow"])
    result["settings"] = {key: value for key, value in vars(args).items() if key != "out"}
    for column, measure in enumerate(("images_per_second", "images_per_cpu_second")):
        rates = {name: [row[column] for row in turns] for name, turns in rows.items()}
        result[measure] = {name: spread(values) for name, values in rates.items()}
        result[f"{measure}_ratio"] = {
            name: spread([own / theirs for own, theirs in zip(rates[name], rates["read_images"], strict=True)])
            for name in ("actors", "tasks")
        }
        print(measure)
        print_spreads(result[measure])
        print("ratio to read_images, within a turn")
        print_spreads(result[f"{measure}_ratio"])
    if args.out:
        write_json(args.out, result)


if __name__ == "__main__":
    main()
