"""The CPU loader's samples a second with many threads, as limited by the GIL; measured on few cores.

Sleeping for a millisecond per sample replaces decoding and the kernels. So 16 threads run here as on 16 cores.
Everything else is real: Python, system calls, copying files, and waiting for the GIL. It shares the machine's few
cores, so more cores would be faster; processor time per sample is also reported.

The second part runs a training step of 40 ms of pure Python beside the loader, a batch each, and reports how much
longer the step takes than alone.

RandomResizedCrop(224), flip, Normalize, batches of 128, JPEGs of about 500 x 375 from files. Thread counts are measured
in turns. The program first builds the kernels anew, with the sleep (half a minute).

    python benchmarks/many_threads.py --out benchmarks/results/many_threads.json
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
SIMULATED_MS = 1
BATCH = 128
STEP_SECONDS = 0.04
EPOCHS = 1


def build(library: Path) -> None:
    """Compiles the kernels with the sleep in place of decoding and augmenting."""
    flags = ["-O2", "-std=c++17", "-pthread", "-fPIC", "-shared", "-fvisibility=hidden", "-DCUAUG_ISA=baseline"]
    flags += [f"-DCUAUG_SIMULATED_NANOSECONDS={SIMULATED_MS * 1_000_000}", f"-I{ROOT / 'kernels'}"]
    sources = [ROOT / "kernels" / "cpu" / name for name in ("run.cpp", "c_api.cpp")]
    subprocess.run([os.environ.get("CXX", "g++"), *flags, *map(str, sources), "-o", str(library)], check=True)


if "CUAUG_KERNEL_LIBRARY" not in os.environ:
    with tempfile.TemporaryDirectory() as folder:
        build(built := Path(folder) / "kernels.so")
        environment = os.environ | {"CUAUG_KERNEL_LIBRARY": str(built)}
        sys.exit(subprocess.run([sys.executable, *sys.argv], env=environment).returncode)

import torch  # noqa: E402
from report import circumstances, parse, print_spreads, spread, write_json  # noqa: E402

sys.path.insert(0, str(ROOT / "examples"))
from photos import write_photos  # noqa: E402

import cuaug  # noqa: E402
from cuaug import transforms as T  # noqa: E402

THREADS = (2, 4, 8, 16, 32)
CHAIN = [T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.Normalize(0.5, 0.25)]


def epoch(loader: cuaug.Loader) -> tuple[float, float]:
    """Samples a second, and microseconds of processor time per sample."""
    start, processor = time.perf_counter(), time.process_time()
    count = sum(len(batch.valid) for _ in range(EPOCHS) for batch in loader)
    return count / (time.perf_counter() - start), (time.process_time() - processor) * 1e6 / count


def step(rounds: int) -> float:
    """Runs Python code that never gives the GIL away by itself; returns its seconds."""
    start = time.perf_counter()
    total = 0
    for i in range(rounds):
        total += i * i % 7
    return time.perf_counter() - start


def stretch(loader: cuaug.Loader, rounds: int) -> float:
    """How much longer the step takes with the loader beside it than alone, as a ratio of medians."""
    alone = [step(rounds) for _ in range(12)]
    beside = [step(rounds) for _ in loader]
    return median(beside) / median(alone)


def main() -> None:
    arguments = parse(__doc__, files=2048, repetitions=5)
    folder = write_photos(Path("bench-data") / f"500x375-{arguments.files}", arguments.files, 375, 500)
    files = [str(path) for path in sorted(folder.glob("*.jpg"))] * 4
    options = {"batch_size": BATCH, "shuffle": True, "last_batch": "drop", "device": "cpu", "dtype": torch.float32}
    loaders = {threads: cuaug.Loader(files, CHAIN, threads=threads, **options) for threads in THREADS}  # type: ignore[arg-type]
    rounds = int(1_000_000 * STEP_SECONDS / min(step(1_000_000) for _ in range(5)))
    measured: dict[int, list[tuple[float, float, float]]] = {threads: [] for threads in THREADS}
    for _ in range(arguments.repetitions + 1):
        for threads, loader in loaders.items():
            measured[threads].append((*epoch(loader), stretch(loader, rounds)))
    results = {}
    for threads, turns in measured.items():
        speeds, costs, stretches = zip(*turns[1:], strict=True)  # the first turn warms up
        results[f"{threads} threads: samples/s"] = spread(list(speeds))
        results[f"{threads} threads: us of processor time a sample"] = spread(list(costs))
        results[f"{threads} threads: a step of pure Python takes times"] = spread(list(stretches))
    print(f"a thread that never waits: {1000 / SIMULATED_MS:.0f} samples/s")
    print_spreads(results)
    if arguments.out:
        write_json(arguments.out, circumstances(["torch", "nvidia-nvimgcodec-cu12"]) | {"found": results})


if __name__ == "__main__":
    main()
