"""Memory and time of a shuffled order of N samples, for ten thousand to a hundred million samples.

cuaug's order is a function of (seed, epoch), the same on every rank. `DataLoader` and most training scripts shuffle
with `torch.randperm` or NumPy's `permutation`. All three return N 8-byte integers, on one thread.

Each size and contender runs in its own process. The first order gives the growth of peak resident memory (Linux only)
and is checked to hold every index once. Further orders are timed, and the median is printed. The figure is CPU time,
which other work on the machine disturbs less than wall time. Below a million samples the allocator's pages dominate
the memory figure.

    python benchmarks/shuffle.py --out benchmarks/results/shuffle.json
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from report import circumstances, spread, write_json

SIZES = [10**4, 10**5, 10**6, 10**7, 10**8]
CONTENDERS = ["cuaug", "torch.randperm", "numpy"]
SECONDS = 2.0  # timing per contender and size, with at least three orders


def shuffler(name: str) -> Callable[[int, int], np.ndarray]:
    """Returns a function (n, epoch) -> order, as a NumPy array without a copy."""
    if name == "cuaug":
        from cuaug.sampling import ShuffledOrder

        return lambda n, epoch: ShuffledOrder(n).order(0, epoch)
    if name == "torch.randperm":
        import torch

        return lambda n, epoch: torch.randperm(n, generator=torch.Generator().manual_seed(epoch)).numpy()
    return lambda n, epoch: np.random.default_rng(epoch).permutation(n)


def resident(field: str) -> int:
    """Resident bytes: "VmRSS" now, or "VmHWM" at most since `reset_peak`."""
    match = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    if match is None:
        raise RuntimeError(f"/proc/self/status has no {field}")
    return int(match[1]) * 1024


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def measure(name: str, n: int) -> dict[str, Any]:
    """One contender at one size, in this process."""
    make = shuffler(name)
    make(1000, 0)  # imports, and permanent allocations of the first call
    reset_peak()
    before = resident("VmRSS")
    order = make(n, 0)
    peak = resident("VmHWM") - before
    seen = np.zeros(n, dtype=bool)
    seen[order] = True
    if order.dtype != np.int64 or len(order) != n or not seen.all():
        raise AssertionError(f"{name}: not an order of {n} indices")
    del order, seen
    seconds: list[float] = []
    while len(seconds) < 3 or sum(seconds) < SECONDS:
        start = time.process_time()
        make(n, len(seconds))
        seconds.append(time.process_time() - start)
    return {
        "peak_bytes": peak,
        "bytes_per_sample": round(peak / n, 2),
        "ns_per_sample": spread([value / n * 1e9 for value in seconds]) | {"orders": len(seconds)},
    }


def measure_in_process(name: str, n: int) -> dict[str, Any]:
    """Calls `measure` in a new process."""
    run = subprocess.run([sys.executable, __file__, "--one", name, str(n)], stdout=subprocess.PIPE, check=True)
    return json.loads(run.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--out", type=Path, help="write the result here as JSON")
    parser.add_argument("--one", nargs=2, metavar=("CONTENDER", "N"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one[0], int(args.one[1]))))
        return

    result = circumstances(["torch", "numpy", "cuaug"])
    result["sizes"] = {}
    print(f"{result['machine']['cpu']}, commit {result['commit']}\n")
    print("  bytes (peak) and nanoseconds per sample")
    print(f"  {'samples':>11}" + "".join(f"{name:>24}" for name in CONTENDERS))
    for n in args.sizes:
        rows = result["sizes"][str(n)] = {name: measure_in_process(name, n) for name in CONTENDERS}
        cells = (f"{row['bytes_per_sample']:12.1f} B{row['ns_per_sample']['median']:7.1f} ns" for row in rows.values())
        print(f"  {n:11,}" + "".join(cells), flush=True)
    if args.out:
        write_json(args.out, result)
        print(f"\nwritten to {args.out}")


if __name__ == "__main__":
    main()
