"""Speedup by caches: later epochs, which the cache serves, compared with the first, which fills it.

Chain, images and threads are those of end_to_end.py at 500x375. Each repetition makes a loader with an empty cache,
then times its first epoch, and its second and third together. DALI from files takes turns with them. The page cache
holds all files.

    python benchmarks/cache.py --out benchmarks/results/cache.json
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from end_to_end import throughput

# `peers` makes the examples importable.
from peers import CONTENDERS, IMAGENET_MEAN, IMAGENET_STD, Task
from report import circumstances, spread, write_json
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


def epochs(task: Task, cache: Any, later: int) -> tuple[float, float, int]:
    """Images per second of the first epoch and of the `later` ones, and bytes in the cache."""
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
    return rates[0], rates[1], 0 if cache is None else cache.stats.bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("bench-data"), help="folder of the photos; made if missing")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--limit", type=int, help="use only this many files")
    parser.add_argument("--out", type=Path, help="write the result here as JSON")
    args = parser.parse_args()

    result: dict[str, Any] = circumstances(["torch", "numpy", "cuaug", CONTENDERS["dali"].package])
    result["settings"] = {key: value for key, value in vars(args).items() if key not in ("data", "out")}
    print(f"{result['machine']['cpu']}, {result['machine']['cores']} cores, commit {result['commit']}")
    task = prepare(args.data, "500x375", args.batch_size, args.threads, args.limit)
    dali = CONTENDERS["dali"](task)
    with tempfile.TemporaryDirectory(dir=args.data) as folder:
        caches_by_name = caches(Path(folder))
        results: dict[str, list[tuple[float, float, int]]] = {name: [] for name in caches_by_name}
        dali_rates = []
        for repetition in range(args.repetitions):
            dali_rates.append(throughput(dali, 1))
            for name, make in caches_by_name.items():
                results[name].append(epochs(task, make(), later=2))
            rates = ", ".join(f"{name} {values[-1][0]:.0f} -> {values[-1][1]:.0f}" for name, values in results.items())
            print(f"  {repetition + 1}/{args.repetitions}: {rates}; DALI {dali_rates[-1]:.0f}", flush=True)
    dali.close()

    result["DALI from files"] = {"images_per_second": spread(dali_rates)}
    result["caches"] = {}
    print(f"\n  {'images/s':26}{'first':>8}{'later':>8}{'later/first':>13}{'later/DALI':>12}{'MB':>7}")
    for name, values in results.items():
        first, later, sizes = zip(*values, strict=True)
        row = result["caches"][name] = {
            "first_epoch": spread(list(first)),
            "later_epochs": spread(list(later)),
            "later_to_first": spread([b / a for a, b in zip(first, later, strict=True)]),
            "later_to_dali": spread([b / a for a, b in zip(dali_rates, later, strict=True)]),
            "cached_bytes": max(sizes),
        }
        print(
            f"  {name:26}{row['first_epoch']['median']:8.0f}{row['later_epochs']['median']:8.0f}"
            f"{row['later_to_first']['median']:12.2f}x{row['later_to_dali']['median']:11.2f}x{max(sizes) / 1e6:7.0f}"
        )
    if args.out:
        write_json(args.out, result)
        print(f"\nwritten to {args.out}")


if __name__ == "__main__":
    main()
