"""Gain and cost of the JPEG index by epoch, against the same loader without it (`index_bytes=0`).

The loader indexes a file when it is read for the second time, or at once for small crops. From the third epoch on, all
crops are decoded from part of the file. Chains, images and threads are those of end_to_end.py. Each repetition makes
two new loaders, one with the default index and one without; their epochs are measured in turns.

    python benchmarks/index.py --out benchmarks/results/index.json
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from end_to_end import SUITES, prepare
from peers import Task
from peers.ours import chain
from report import circumstances, spread, write_json

import cuaug

EPOCHS = 5


def epochs(task: Task) -> dict[str, list[float]]:
    """Images per second of each epoch, with and without the index."""
    loaders = {
        name: cuaug.Loader(
            list(task.samples),
            chain(task),
            batch_size=task.batch_size,
            shuffle=True,
            last_batch="drop",
            threads=task.threads,
            device="cpu",
            decode=cuaug.DecodeOptions(index_bytes=limit),
        )
        for name, limit in (("without", 0), ("with", None))
    }
    rates: dict[str, list[float]] = {name: [] for name in loaders}
    for _ in range(EPOCHS):
        for name, loader in loaders.items():
            start = time.perf_counter()
            images = sum(len(batch.images) for batch in loader)
            rates[name].append(images / (time.perf_counter() - start))
    for loader in loaders.values():
        loader.close()
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("bench-data"), help="photo directory (made if missing)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--limit", type=int, help="use only this many files")
    parser.add_argument("--out", type=Path, help="write the result here as JSON")
    args = parser.parse_args()

    result: dict[str, Any] = circumstances(["torch", "numpy", "cuaug"])
    result["settings"] = {key: value for key, value in vars(args).items() if key not in ("data", "out")}
    result["suites"] = {}
    print(f"{result['machine']['cpu']}, {result['machine']['cores']} cores, commit {result['commit']}")
    for name in ("classification", "1080p", "heavy"):
        suite = SUITES[name]
        limit = args.limit or suite.limit
        task = prepare(args.data, suite.pictures, suite.batch_size, args.threads, limit, suite.chain, suite.size)
        turns = [epochs(task) for _ in range(args.repetitions)]
        print(f"  {name}: images/s of epochs 1 to {EPOCHS} with the index, and the ratio to no index")
        rows = []
        for epoch in range(EPOCHS):
            ratios = [turn["with"][epoch] / turn["without"][epoch] for turn in turns]
            rows.append(
                {
                    "images_per_second": spread([turn["with"][epoch] for turn in turns]),
                    "to_without": spread(ratios),
                }
            )
            print(
                f"    {epoch + 1}: {rows[-1]['images_per_second']['median']:6.0f}"
                f"{rows[-1]['to_without']['median']:8.2f}x ({min(ratios):.2f} to {max(ratios):.2f})",
                flush=True,
            )
        result["suites"][name] = rows
    if args.out:
        write_json(args.out, result)
        print(f"\nwritten to {args.out}")


if __name__ == "__main__":
    main()
