"""The GPU loader's images/s by number of threads, and by number of processes on one machine, without a GPU.

A stand-in for the GPU takes no time: uploads copy nothing, launches only give up the GIL. The rest is the loader's own.

threads    A loader with each number of threads, in turns. "python" has tiny files, so that nearly all work is Python's
           and the threads wait for the GIL; "files" has photos. More threads than cores must cost little.
processes  1 to 8 processes at once with a thread each, as ranks of one machine. They share the files' pages and a kept
           JPEG index. `share` is their images/s together over those of one process; on idle cores that would be their
           number, and on few cores it is the number of cores, less what they lose to each other's locks.

RandomResizedCrop(224), flip, Normalize, float16, batches of 256, from the third epoch on.

    python benchmarks/feed.py --out benchmarks/results/feed.json
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import torch
from gpu_photos import index_files, write_files
from report import PYTHON, circumstances, spread, write_json
from staging import CHAINS, replace_gpu

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import cuaug

BATCH = 256
THREADS = (1, 2, 6, 16)
PROCESSES = (1, 2, 4, 8)
SIZES = {"python": (48, 64), "files": (375, 500)}
WARM_UP = 2  # epochs: after the first, the files are known
READY, RESULT = "ready", "images/s: "


def launch(*_: Any, **__: Any) -> None:
    """In place of a launch: gives up the GIL, as a launch does."""
    time.sleep(0)


def loader_of(paths: list[str], passes: int, threads: int, **options: Any) -> cuaug.Loader:
    samples = [(path, number) for number, path in enumerate(paths)] * passes
    with mock.patch("cuaug.loader.resolve_device", lambda device: torch.device("cuda", 0)):
        return cuaug.Loader(
            samples, CHAINS["crop"], batch_size=BATCH, shuffle=True, last_batch="drop", dtype=torch.float16,
            prefetch=3, threads=threads, labels_device="cpu", seed=0, **options,
        )  # fmt: skip


def epoch(loader: cuaug.Loader) -> float:
    """Images/s."""
    start = time.perf_counter()
    count = sum(len(images) for images, _ in loader)
    return count / (time.perf_counter() - start)


def by_threads(paths: list[str], passes: int, repetitions: int) -> dict[str, dict[str, float]]:
    loaders = {threads: loader_of(paths, passes, threads) for threads in THREADS}
    for loader in loaders.values():
        for _ in range(WARM_UP):
            epoch(loader)
    rates: dict[int, list[float]] = {threads: [] for threads in THREADS}
    for _ in range(repetitions):
        for threads, loader in loaders.items():
            rates[threads].append(epoch(loader))
    for loader in loaders.values():
        loader.close()
    return {str(threads): spread(values) for threads, values in rates.items()}


def run_process(paths: list[str], passes: int, rank: int, ranks: int, repetitions: int) -> None:
    """One of the processes: says when it is ready, waits for a line, and prints its images/s."""
    with loader_of(paths, passes, 1, rank=rank, world_size=ranks) as loader:
        for _ in range(WARM_UP):
            epoch(loader)
        print(READY, flush=True)
        sys.stdin.readline()
        print(RESULT + str(median(epoch(loader) for _ in range(repetitions))), flush=True)


def by_processes(folder: Path, files: int, passes: int, repetitions: int) -> dict[str, Any]:
    """Images/s of all processes together; they begin at the same time."""
    rows: dict[str, Any] = {}
    for ranks in PROCESSES:
        command = [*PYTHON, __file__, "--data", str(folder), "--files", str(files), "--passes", str(passes * ranks)]
        command += ["--repetitions", str(repetitions), "--ranks", str(ranks), "--rank"]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        processes: list[Any] = [subprocess.Popen([*command, str(rank)], **pipes) for rank in range(ranks)]
        for process in processes:
            while (line := process.stdout.readline()) != f"{READY}\n":
                if not line:
                    raise SystemExit("a process ended early")
        outputs = []
        for process in processes:
            process.stdin.write("\n")
            process.stdin.flush()
        outputs = [process.communicate()[0] for process in processes]
        rates = [float(line.removeprefix(RESULT)) for line in "".join(outputs).splitlines() if RESULT in line]
        rows[str(ranks)] = {"images_per_second": round(sum(rates)), "of_each": [round(rate) for rate in rates]}
        rows[str(ranks)]["share"] = round(sum(rates) / rows["1"]["images_per_second"], 3)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("bench-data"), help="photo directory (made if missing)")
    parser.add_argument("--files", type=int, default=2048)
    parser.add_argument("--passes", type=int, default=8, help="uses of each file per epoch")
    parser.add_argument("--repetitions", type=int, default=5, help="epochs to measure")
    parser.add_argument("--rank", type=int, help="be one of the processes")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--out", type=Path, help="write the result here as JSON")
    args = parser.parse_args()
    paths = {name: write_files(args.data, args.files, *size) for name, size in SIZES.items()}
    if args.rank is not None:
        replace_gpu(launch)
        run_process(paths["files"], args.passes, args.rank, args.ranks, args.repetitions)
        return
    for each in paths.values():
        index_files(each)
    result: dict[str, Any] = circumstances(["cuaug"])
    result |= {"batch_size": BATCH, "files": args.files, "passes": args.passes, "processes": {}, "threads": {}}
    result["processes"] = by_processes(args.data, args.files, args.passes, args.repetitions)
    for ranks, row in result["processes"].items():
        print(f"{ranks} processes: {row['images_per_second']} images/s together, {row['share']:.2f} times one's")
    replace_gpu(launch)
    for name in SIZES:
        rows = result["threads"][name] = by_threads(paths[name], args.passes, args.repetitions)
        for threads, row in rows.items():
            print(f"{name}, {threads} threads: {row['median']:.0f} images/s ({row['min']:.0f} to {row['max']:.0f})")
    if args.out:
        write_json(args.out, result)


if __name__ == "__main__":
    main()
