"""Samples a second that the CPU loader's Python lets through where threads are many, on a machine with few cores.

What needs no Python, which is decoding, the kernels and cutting parts out of JPEGs, is replaced by sleeping as long as
it takes on a core: so 16 threads are at work here as they are on 16 cores. What is left is real: Python, the system's
calls, the copying of files, and the threads' waiting for the interpreter. All of it shares the cores that there are, so
that more of them would do better; the processor time a sample is what it takes.

RandomResizedCrop(224), flip, Normalize, batches of 128, JPEGs of about 500 x 375 from files, after the epochs in which
they are indexed. The numbers of threads take turns.

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
from cuaug.codec._nvimgcodec_c import FROM_PART

#: Seconds a sample, as on a core of an EPYC of 2.4 GHz with AVX2.
CUT, DECODE, AUGMENT = 0.00008, 0.0009, 0.0003
THREADS = (2, 4, 8, 16, 32)
CHAIN = [T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.Normalize(0.5, 0.25)]
EPOCHS = 2


def decoded(decoder: int, wanted: int, count: int, index: int | None, done: int, *text: int) -> None:
    """As if of each a part had been cut out."""
    time.sleep((CUT + DECODE) * count)
    ctypes.memset(done, FROM_PART, count)
    ctypes.memset(text[-1], 0, 8 * count)  # nothing was printed


def ran(isa: int, some: int, count: int, *others: Any) -> int:
    time.sleep(AUGMENT * count)
    return -1


def epoch(loader: cuaug.Loader) -> tuple[float, float]:
    """Samples a second, and microseconds of processor time for each."""
    start, processor = time.perf_counter(), time.process_time()
    count = sum(len(batch.valid) for _ in range(EPOCHS) for batch in loader)
    return count / (time.perf_counter() - start), (time.process_time() - processor) * 1e6 / count


def main() -> None:
    arguments = parse(__doc__, files=2048, repetitions=5)
    folder = write_photos(Path("bench-data") / f"500x375-{arguments.files}", arguments.files, 375, 500)
    files = [str(path) for path in sorted(folder.glob("*.jpg"))]
    options = {"batch_size": 128, "shuffle": True, "last_batch": "drop", "device": "cpu", "dtype": torch.float32}
    library.cuaug_decode, library.cuaug_run_samples = decoded, ran
    loaders = {threads: cuaug.Loader(files, CHAIN, threads=threads, **options) for threads in THREADS}  # type: ignore[arg-type]
    measured: dict[int, list[tuple[float, float]]] = {threads: [] for threads in THREADS}
    for _ in range(arguments.repetitions + 1):
        for threads, loader in loaders.items():
            measured[threads].append(epoch(loader))
    found = {}
    for threads, turns in measured.items():
        speeds, costs = zip(*turns[1:], strict=True)  # the first turn warms up
        found[f"{threads} threads: samples/s"] = spread(list(speeds))
        found[f"{threads} threads: us of processor time a sample"] = spread(list(costs))
    print(f"a thread that never waits: {1 / (CUT + DECODE + AUGMENT):.0f} samples/s")
    print_spreads(found)
    if arguments.out:
        write_json(arguments.out, circumstances(["torch", "nvidia-nvimgcodec-cu12"]) | {"found": found})


if __name__ == "__main__":
    main()
