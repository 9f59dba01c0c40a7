"""The CPU loader's samples a second with many threads, as limited by the GIL; measured on few cores.

Sleeping replaces the work without Python (decoding, kernels, cutting JPEG crops), for as long as it takes on one core.
So 16 threads run here as on 16 cores. Everything else is real: Python, system calls, copying files, and waiting for the
GIL. It shares the machine's few cores, so more cores would be faster; processor time per sample is also reported.

RandomResizedCrop(224), flip, Normalize, batches of 128, JPEGs of about 500 x 375 from files, after the epochs that make
the JPEG index. Thread counts are measured in turns.

    python benchmarks/many_threads.py --out benchmarks/results/many_threads.json
"""

from __future__ import annotations

import ctypes
import sys
import time
from pathlib import Path
from typing import Any

import torch
from report import circumstances, parse, print_spreads, spread, write_json

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
from photos import write_photos

import cuaug
from cuaug import transforms as T
from cuaug._runtime.native import library
from cuaug.codec._nvimgcodec_c import FROM_CROP

#: Seconds per sample on one core of an EPYC at 2.4 GHz with AVX2.
CUT, DECODE, AUGMENT = 0.00008, 0.0009, 0.0003
THREADS = (2, 4, 8, 16, 32)
CHAIN = [T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.Normalize(0.5, 0.25)]
EPOCHS = 2


def sleep_decode(decoder: int, requests: int, count: int, index: int | None, results: int, *text: int) -> None:
    """Reports a JPEG crop for each sample."""
    time.sleep((CUT + DECODE) * count)
    ctypes.memset(results, FROM_CROP, count)
    ctypes.memset(text[-1], 0, 8 * count)  # no messages


def sleep_run(isa: int, samples: int, count: int, *others: Any) -> int:
    time.sleep(AUGMENT * count)
    return 0  # failures


def epoch(loader: cuaug.Loader) -> tuple[float, float]:
    """Samples a second, and microseconds of processor time per sample."""
    start, processor = time.perf_counter(), time.process_time()
    count = sum(len(batch.valid) for _ in range(EPOCHS) for batch in loader)
    return count / (time.perf_counter() - start), (time.process_time() - processor) * 1e6 / count


def main() -> None:
    arguments = parse(__doc__, files=2048, repetitions=5)
    folder = write_photos(Path("bench-data") / f"500x375-{arguments.files}", arguments.files, 375, 500)
    files = [str(path) for path in sorted(folder.glob("*.jpg"))]
    options = {"batch_size": 128, "shuffle": True, "last_batch": "drop", "device": "cpu", "dtype": torch.float32}
    library.cuaug_decode, library.cuaug_run_samples = sleep_decode, sleep_run
    loaders = {threads: cuaug.Loader(files, CHAIN, threads=threads, **options) for threads in THREADS}  # type: ignore[arg-type]
    measured: dict[int, list[tuple[float, float]]] = {threads: [] for threads in THREADS}
    for _ in range(arguments.repetitions + 1):
        for threads, loader in loaders.items():
            measured[threads].append(epoch(loader))
    results = {}
    for threads, turns in measured.items():
        speeds, costs = zip(*turns[1:], strict=True)  # the first turn warms up
        results[f"{threads} threads: samples/s"] = spread(list(speeds))
        results[f"{threads} threads: us of processor time a sample"] = spread(list(costs))
    print(f"a thread that never waits: {1 / (CUT + DECODE + AUGMENT):.0f} samples/s")
    print_spreads(results)
    if arguments.out:
        write_json(arguments.out, circumstances(["torch", "nvidia-nvimgcodec-cu12"]) | {"found": results})


if __name__ == "__main__":
    main()
