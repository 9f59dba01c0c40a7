"""Planning alone, without pixels: microseconds per sample by batch size, and where they go.

It times the functions that a loader calls between a batch's last header and its first pixel, on one thread:
`plan_samples` (random numbers, transforms, compiling, table fusion), the output shapes, the regions to decode, and
moving the boxes of labels. The clock is the thread's processor time, which other load on the machine lengthens little.
Chains and batch sizes take turns; every call plans another epoch. It prints medians and ranges.

    python benchmarks/planning.py --out benchmarks/results/planning.json
    python benchmarks/planning.py --profile heavy
"""

from __future__ import annotations

import argparse
import cProfile
import functools
import itertools
import pstats
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from report import circumstances, spread, write_json

from cuaug import transforms as T
from cuaug.codec import EncodedImage
from cuaug.pipeline import planning
from cuaug.plan import BoxesKeypoints, Layout, Plan
from cuaug.sampling.rng import SampleRNG
from cuaug.targets import Targets

SIZE, MEAN, STD = 224, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
BOXES = 7  # per image, as in COCO
CHAINS = {
    "classification": [T.RandomResizedCrop(SIZE), T.RandomHorizontalFlip(), T.Normalize(MEAN, STD)],
    "heavy": [
        T.RandomResizedCrop(SIZE),
        T.RandomHorizontalFlip(),
        T.ColorJitter(0.4, 0.4, 0.4, 0.1),
        T.RandAugment(2, 9),
        T.Normalize(MEAN, STD),
        T.RandomErasing(0.25),
    ],
    "boxes: IoU crop": [
        T.RandomIoUCrop(),
        T.Resize((640, 640)),
        T.RandomHorizontalFlip(),
        T.SanitizeBoundingBoxes(),
        T.Normalize(MEAN, STD),
    ],
    "boxes: zoom out, scale jitter": [
        T.RandomZoomOut(),
        T.ScaleJitter((640, 640)),
        T.RandomCrop(640, pad_if_needed=True),
        T.RandomHorizontalFlip(),
        T.SanitizeBoundingBoxes(),
        T.Normalize(MEAN, STD),
    ],
}
#: The functions of each part; a call inside another part's function counts for the inner part.
PARTS: dict[str, list[tuple[Any, str]]] = {
    "random numbers": [(SampleRNG, "uniform")],
    "transforms": [(T.Compose, "plan")],
    "targets": [(Targets, name) for name in ("__init__", "attach", "moved")]
    + [(BoxesKeypoints, name) for name in ("move", "boxes", "empty")],
    "compile": [(Plan, "compile")],
    "table fusion": [(planning, "fuse_luts")],
    "regions": [(planning.Planned, "regions")],
    "the rest": [(planning, "plan_samples")],
}


def batch(name: str, n: int) -> Callable[[], object]:
    """A function that plans the same n samples, each time for the next epoch."""
    chain, epochs, rng = T.Compose(CHAINS[name]), itertools.count(), np.random.default_rng(0)
    sizes = rng.integers((300, 400), (450, 600), (n, 2)).tolist()
    items = [EncodedImage(height, width, b"", None, 1) for height, width in sizes]
    labels: list[Any] = list(range(n))
    if name.startswith("boxes"):
        labels = [boxes(rng, height, width) for height, width in sizes]
    keys = rng.integers(0, 1_281_167, n)

    def call() -> object:
        rng = SampleRNG(0, next(epochs), keys)
        planned = planning.plan_samples(chain, items, labels, rng, None, Layout.CHW, str)
        moved = planned.targets.moved(planned.tables) if planned.targets else None
        return planned.stacks, planned.regions(), moved

    return call


def boxes(rng: np.random.Generator, height: int, width: int) -> dict[str, Any]:
    ends = np.sort(rng.uniform(0, 1, (BOXES, 2, 2)), axis=1) * [width, height]
    return {"boxes": ends.reshape(BOXES, 4).astype(np.float32), "labels": rng.integers(0, 80, BOXES)}


def timed(call: Callable[[], object], count: int) -> float:
    """Seconds of one call."""
    start = time.thread_time()
    for _ in range(count):
        call()
    return (time.thread_time() - start) / count


def split(call: Callable[[], object], count: int) -> dict[str, float]:
    """Seconds of one call in each of PARTS, without the parts inside."""
    seconds, running, last = dict.fromkeys(PARTS, 0.0), ["the rest"], [0.0]

    def switch(part: str | None) -> None:
        now = time.thread_time()
        seconds[running[-1]] += now - last[0]
        last[0] = now
        running.pop() if part is None else running.append(part)

    def timed_part(function: Any, part: str) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            switch(part)
            try:
                return function(*args, **kwargs)
            finally:
                switch(None)

        return wrapper

    places = [(owner, name, part) for part, functions in PARTS.items() for owner, name in functions]
    patches = [patch.object(owner, name, timed_part(getattr(owner, name), part)) for owner, name, part in places]
    for active in patches:
        active.start()
    try:
        last[0] = time.thread_time()
        for _ in range(count):
            call()
    finally:
        for active in patches:
            active.stop()
    return {part: total / count for part, total in seconds.items()}


def profile(call: Callable[[], object]) -> None:
    """Prints cProfile's view; its own overhead makes small functions look three times as slow."""
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(50):
        call()
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 64, 256, 1024], help="batch sizes")
    parser.add_argument("--chains", nargs="+", choices=CHAINS, default=list(CHAINS))
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.01, help="least duration of a measurement")
    parser.add_argument("--split-at", type=int, default=256, help="batch size for the split by part")
    parser.add_argument("--profile", choices=CHAINS, help="print cProfile's top for this chain and stop")
    parser.add_argument("--out", type=Path, help="write the result here as JSON")
    arguments = parser.parse_args()
    if arguments.profile:
        profile(batch(arguments.profile, arguments.split_at))
        return

    result = circumstances(["cuaug", "numpy", "torch"])
    calls = {(name, n): batch(name, n) for name in arguments.chains for n in arguments.batches}
    counts = {
        key: max(1, round(arguments.seconds / min(timed(call, 1) for _ in range(3)))) for key, call in calls.items()
    }
    splits = {name: batch(name, arguments.split_at) for name in arguments.chains}
    times: dict[Any, list[float]] = {key: [] for key in calls}
    parts: dict[str, dict[str, list[float]]] = {name: {part: [] for part in PARTS} for name in splits}
    for _ in range(arguments.repetitions):
        for key, call in calls.items():
            times[key].append(timed(call, counts[key]) / key[1] * 1e6)
        for name, call in splits.items():
            for part, seconds in split(call, 2).items():
                parts[name][part].append(seconds / arguments.split_at * 1e6)

    result["microseconds_a_sample"] = {
        name: {n: spread(times[name, n]) for n in arguments.batches} for name in arguments.chains
    }
    result["parts"] = {
        "batch": arguments.split_at,
        "microseconds_a_sample": {
            name: {part: spread(values) for part, values in chain.items()} for name, chain in parts.items()
        },
    }
    print(f"{'microseconds per sample, batch of':34}" + "".join(f"{n:>20}" for n in arguments.batches))
    for name, row in result["microseconds_a_sample"].items():
        cells = (f"{cell['median']:8.2f} {cell['min']:.2f}-{cell['max']:.2f}" for cell in row.values())
        print(f"{name:34}" + "".join(f"{cell:>20}" for cell in cells))
    print(f"\n{f'by part, batch of {arguments.split_at}':32}" + "".join(f"{part:>16}" for part in PARTS))
    for name, row in result["parts"]["microseconds_a_sample"].items():
        print(f"{name:32}" + "".join(f"{cell['median']:16.2f}" for cell in row.values()))
    if arguments.out:
        write_json(arguments.out, result)


if __name__ == "__main__":
    main()
