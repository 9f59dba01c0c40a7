"""The GPU loader's images/s by number of threads, and by number of processes on one machine, without a GPU.

A stand-in for the GPU takes no time: uploads copy nothing, launches only give up the GIL. The rest is the loader's own.

threads    A loader with each number of threads, in turns. "python" has tiny files, so that nearly all work is Python's
           and the threads wait for the GIL; "files" has photos. More threads than cores must cost little.
processes  1 to 8 processes at once with a thread each, as ranks of one machine. They share the files' pages and a kept
           JPEG index. `share` is their images/s together over those of one process; on idle cores that would be their
           number, and on few cores it is the number of cores, less what they lose to each other's locks.
step       How much longer a training step takes beside the loader, in turns with the step alone. The step is a model of
           ResNet-50 at batches of 256 on an H200. A forward pass has 340 launches from Python, each with some Python
           under the GIL and some work without it. A backward pass follows, whose launches need no GIL, a wait for the
           GPU, as a `GradScaler` does, and the optimizer. The GPU is a queue of 41.4 ms per step.

RandomResizedCrop(224), flip, Normalize, float16, batches of 256, from the third epoch on.

    python benchmarks/feed.py --out benchmarks/results/feed.json
"""

from __future__ import annotations

import argparse
import gc
import itertools
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
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

# The modeled step. Seconds of the GPU's kernels, by launch; of a launch under the GIL, and without it.
FORWARD = [3e-4] * 5 + [7e-5] * 70 + [3.9e-5] * 90 + [2e-5] * 130 + [1.5e-5] * 45
BACKWARD, OPTIMIZER = [8e-5] * 330, [1.2e-4] * 12
LAUNCH = 8e-6, 15e-6
OPTIMIZER_LAUNCH = 70e-6, 20e-6
BACKWARD_LAUNCH = 22e-6
START_OF_A_KERNEL = 5e-6
WARM_UP_STEPS = 12


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


def count_up(steps: int) -> None:
    """Python that holds the GIL."""
    total = 0
    for i in range(steps):
        total += i


def seconds_of(work: Callable[[int], object], size: int) -> float:
    """The quickest of several runs."""
    times = []
    for _ in range(20):
        start = time.perf_counter()
        work(size)
        times.append(time.perf_counter() - start)
    return min(times)


class TrainingModel:
    """Plays training steps on a GPU that is a queue of times."""

    def __init__(self) -> None:
        self._free_at = 0.0
        self._zeros = bytes(1 << 20)
        self._counts = 20_000 / seconds_of(count_up, 20_000)  # per second
        self._bytes = len(self._zeros) / seconds_of(self._checksum, len(self._zeros))

    def _checksum(self, size: int) -> None:
        """Work that gives up the GIL."""
        zlib.crc32(memoryview(self._zeros)[:size])

    def _launch(self, kernel: float, python: float, native: float) -> None:
        count_up(int(python * self._counts))
        self._checksum(int(native * self._bytes))
        self._free_at = max(self._free_at, time.perf_counter() + START_OF_A_KERNEL) + kernel

    def step(self) -> None:
        for kernel in FORWARD:
            self._launch(kernel, *LAUNCH)
        now = start = time.perf_counter()
        for kernel in BACKWARD:  # a thread of C++ launches
            now += BACKWARD_LAUNCH
            self._free_at = max(self._free_at, now + START_OF_A_KERNEL) + kernel
        time.sleep(now - start)
        time.sleep(max(0.0, self._free_at - time.perf_counter()))
        for kernel in OPTIMIZER:
            self._launch(kernel, *OPTIMIZER_LAUNCH)

    def run(self, batches: Iterator[object], steps: int) -> tuple[float, float]:
        """The mean step, and the mean `next()`, in milliseconds."""
        times, waits = [], []
        for _ in range(WARM_UP_STEPS + steps):
            start = time.perf_counter()
            next(batches)
            waits.append(time.perf_counter() - start)
            self.step()
            times.append(time.perf_counter() - start)
        return tuple(1e3 * sum(values[WARM_UP_STEPS:]) / steps for values in (times, waits))


def for_ever(loader: Iterable[object]) -> Iterator[object]:
    while True:
        yield from loader


def by_steps(paths: list[str], passes: int, threads: int, steps: int, repetitions: int) -> dict[str, Any]:
    """Percent by which a step is longer beside the loader, and milliseconds of `next()`, in each of the turns."""
    model, longer, waits, alone = TrainingModel(), [], [], []
    with loader_of(paths, passes, threads) as loader:
        for _ in range(WARM_UP):
            epoch(loader)
        gc.freeze()
        batches = for_ever(loader)
        for _ in range(repetitions):
            without, _ = model.run(itertools.repeat(None), steps)
            beside, wait = model.run(batches, steps)
            alone.append(round(without, 3))
            longer.append(round(100 * (beside / without - 1), 2))
            waits.append(round(wait, 3))
        gc.unfreeze()
    return {"threads": threads, "step_alone_ms": alone, "percent_longer": longer, "next_ms": waits}


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
    parser.add_argument("--steps", type=int, default=150, help="training steps in each turn")
    parser.add_argument("--only-step", action="store_true", help="measure only the training step")
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
    if not args.only_step:
        result["processes"] = by_processes(args.data, args.files, args.passes, args.repetitions)
    for ranks, row in result["processes"].items():
        print(f"{ranks} processes: {row['images_per_second']} images/s together, {row['share']:.2f} times one's")
    replace_gpu(launch)
    result["step"] = by_steps(paths["python"], args.passes, 6, args.steps, 2 * args.repetitions)
    print(f"a step is longer by {result['step']['percent_longer']} %; next() takes {result['step']['next_ms']} ms")
    for name in SIZES if not args.only_step else ():
        rows = result["threads"][name] = by_threads(paths[name], args.passes, args.repetitions)
        for threads, row in rows.items():
            print(f"{name}, {threads} threads: {row['median']:.0f} images/s ({row['min']:.0f} to {row['max']:.0f})")
    if args.out:
        write_json(args.out, result)


if __name__ == "__main__":
    main()
