"""Speedup by caches: later epochs, which the cache serves, compared with the first, which fills it.

Chain, images and threads are those of end_to_end.py at 500x375. Each repetition makes a loader with an empty cache,
then times its first epoch, and its second and third together. DALI from files takes turns with them. The page cache
holds all files.

    python benchmarks/cache.py --out benchmarks/results/cache.json
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from end_to_end import turn

# `peers` makes the examples importable.
from peers import CONTENDERS, IMAGENET_MEAN, IMAGENET_STD, Task
from report import circumstances, in_turns, options, ratios, settings_of, spread, write_json
from suites import prepare

import cuaug
from cuaug import transforms as T

LIMIT_BYTES = 4 << 30


def caches(folder: Path) -> dict[str, Callable[[], Any]]:
    return {
        "none": lambda: None,
        "decoded": lambda: cuaug.DecodedCache(limit_bytes=LIMIT_BYTES),
        "decoded at 256": lambda: cuaug.DecodedCache(256, limit_bytes=LIMIT_BYTES),
        "decoded at 256, on disk": lambda: cuaug.DecodedCache(
            256, limit_bytes=LIMIT_BYTES, directory=tempfile.mkdtemp(dir=folder)
        ),
    }


class Rates(NamedTuple):
    """Images per second of the first epoch and of later ones, and bytes in the cache."""

    first: float
    later: float
    bytes: int


def epochs(task: Task, cache: Any, later: int) -> Rates:
    """A first epoch and `later` ones with a new cache."""
    chain = [T.RandomResizedCrop(task.size), T.RandomHorizontalFlip(), T.Normalize(IMAGENET_MEAN, IMAGENET_STD)]
    files = list(task.samples)
    rates = []
    with cuaug.Loader(
        files, chain, batch_size=task.batch_size, shuffle=True, threads=task.threads, device="cpu", cache=cache
    ) as loader:
        for count in (1, later):
            start = time.perf_counter()
            images = sum(len(batch.images) for _ in range(count) for batch in loader)
            rates.append(images / (time.perf_counter() - start))
    return Rates(*rates, 0 if cache is None else cache.stats.bytes)


def main() -> None:
    parser = options(__doc__, data="photos", batch_size=128, threads=2, repetitions=5)
    parser.add_argument("--limit", type=int, help="use only this many files")
    args = parser.parse_args()

    result: dict[str, Any] = circumstances(["torch", "numpy", "cuaug", CONTENDERS["dali"].package])
    result |= {"settings": settings_of(args), "caches": {}}
    task = prepare(args.data, "500x375", args.batch_size, args.threads, args.limit)
    dali = CONTENDERS["dali"](task)
    calls: dict[str, Callable[[], Rates]] = {"DALI": lambda: Rates(0.0, turn(dali, 1).images_per_second, 0)}
    with tempfile.TemporaryDirectory(dir=args.data) as folder:
        calls |= {name: lambda make=make: epochs(task, make(), 2) for name, make in caches(Path(folder)).items()}
        found = in_turns(
            calls, args.repetitions, warm_up=0, show=lambda rates: f"{rates.first:.0f} -> {rates.later:.0f}"
        )
    dali.close()

    dali_rates = [rates.later for rates in found.pop("DALI")]
    result["DALI from files"] = {"images_per_second": spread(dali_rates)}
    print(f"\n  {'images/s':26}{'first':>8}{'later':>8}{'later/first':>13}{'later/DALI':>12}{'MB':>7}")
    for name, values in found.items():
        first, later, sizes = zip(*values, strict=True)
        row = result["caches"][name] = {
            "first_epoch": spread(first),
            "later_epochs": spread(later),
            "later_to_first": ratios(later, first),
            "later_to_dali": ratios(later, dali_rates),
            "cached_bytes": max(sizes),
        }
        print(
            f"  {name:26}{row['first_epoch']['median']:8.0f}{row['later_epochs']['median']:8.0f}"
            f"{row['later_to_first']['median']:12.2f}x{row['later_to_dali']['median']:11.2f}x{max(sizes) / 1e6:7.0f}"
        )
    write_json(args.out, result)


if __name__ == "__main__":
    main()
