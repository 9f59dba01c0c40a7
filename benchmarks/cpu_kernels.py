"""The augmentation alone, on one thread: a crop resized to 224 x 224, flipped and normalised, against the usual ways.

Contenders take turns; printed are the median and the range over the repetitions, in milliseconds. Also what a batch's
memory costs, fresh from the system and used before: what cuaug/pipeline/memory.py is for.

    python benchmarks/cpu_kernels.py --out benchmarks/results/cpu_kernels.json
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import torch
from PIL import Image
from report import circumstances, spread, write_json

from cuaug.devices import HostProgram
from cuaug.pipeline.memory import Recycler
from cuaug.plan import Plan

TOP, LEFT, HEIGHT, WIDTH, SIZE = 50, 60, 262, 350, 224
MEAN, STD = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
BATCH = (128, 3, SIZE, SIZE)


def cuaug_on(isa: str, image: np.ndarray) -> Callable[[], object]:
    plan = Plan([image.shape[0]], [image.shape[1]])
    plan.crop(TOP, LEFT, HEIGHT, WIDTH)
    plan.resize(SIZE, SIZE)
    plan.flip()
    plan.normalize(MEAN, STD)
    program = HostProgram(plan.tables(), isa=isa)
    target = np.empty((3, SIZE, SIZE), np.float32)
    return lambda: program.run(0, image, target.ctypes.data)


def opencv(image: np.ndarray) -> np.ndarray:
    resized = cv2.resize(image[TOP : TOP + HEIGHT, LEFT : LEFT + WIDTH], (SIZE, SIZE))[:, ::-1]
    return np.ascontiguousarray(((resized.astype(np.float32) / 255 - MEAN) / STD).transpose(2, 0, 1))


def contenders(image: np.ndarray) -> dict[str, tuple[int, Callable[[], object]]]:
    """Name -> (calls a turn, the call)."""
    recycler, picture = Recycler(keep=1), Image.fromarray(image)
    box = (LEFT, TOP, LEFT + WIDTH, TOP + HEIGHT)
    return {
        "cuaug, avx2": (20, cuaug_on("avx2", image)),
        "cuaug, baseline": (20, cuaug_on("baseline", image)),
        "cv2.resize (not antialiased), flip, normalise, transpose": (20, lambda: opencv(image)),
        "Pillow: crop and resize alone": (20, lambda: picture.resize((SIZE, SIZE), Image.Resampling.BILINEAR, box=box)),
        "write a batch of 128 into fresh memory": (1, lambda: torch.empty(BATCH).fill_(1.0)),
        "write a batch of 128 into memory used before": (1, lambda: recycler.empty(BATCH, torch.float32).fill_(1.0)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=30)
    parser.add_argument("--out", type=Path, help="write the result here as JSON")
    arguments = parser.parse_args()
    cv2.setNumThreads(0)
    torch.set_num_threads(1)

    result = circumstances(["cuaug", "numpy", "opencv-python-headless", "pillow", "torch"])
    image = np.random.default_rng(0).integers(0, 256, (375, 500, 3), dtype=np.uint8)
    calls = contenders(image)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(arguments.repetitions + 1):
        for name, (count, call) in calls.items():
            start = time.perf_counter()
            for _ in range(count):
                call()
            times[name].append((time.perf_counter() - start) / count * 1000)
    result["milliseconds"] = {name: spread(values[1:]) for name, values in times.items()}
    for name, found in result["milliseconds"].items():
        print(f"{name:58} {found['median']:7.3f}   {found['min']:.3f} - {found['max']:.3f}")
    if arguments.out:
        write_json(arguments.out, result)


if __name__ == "__main__":
    main()
