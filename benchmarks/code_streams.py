"""Opening code streams beside busy Python threads: what a C interface could save a loader on a GPU.

A worker thread of such a loader opens a CodeStream, a Python object, for each JPEG of its task. If it waits for the GIL
in between, two busy Python threads may delay it. A C interface would open all files of a task in one call. Our marker
parser (`cuaug_jpeg_headers`) stands for that call: it gives the GIL up once, for all files.

    python benchmarks/code_streams.py --out benchmarks/results/code_streams.json
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from mixed_files import mixed_files
from report import circumstances, parse, write_json

from cuaug.codec import nv
from cuaug.codec._nvimgcodec import open_streams
from cuaug.codec.sniff import jpeg_headers

BUSY_THREADS = 2
Work = Callable[[list[bytes]], Any]


def milliseconds(work: Work, files: list[bytes], repetitions: int, busy_threads: int) -> dict[str, float]:
    """Quantiles of a call's time, beside threads that run Python without pause."""
    stop = threading.Event()

    def be_busy() -> None:
        count = 0
        while not stop.is_set():
            count += 1

    threads = [threading.Thread(target=be_busy) for _ in range(busy_threads)]
    for thread in threads:
        thread.start()
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        opened = work(files)
        times.append(1e3 * (time.perf_counter() - start))
        del opened
        time.sleep(0.002)
    stop.set()
    for thread in threads:
        thread.join()
    times.sort()
    quantiles = {"median": 0.5, "p95": 0.95, "max": 1.0}
    return {name: round(times[int(share * (len(times) - 1))], 3) for name, share in quantiles.items()}


def main() -> None:
    args = parse(__doc__, files=64, repetitions=200)
    nv()
    files = mixed_files(args.files, 0.1)
    variants: dict[str, Work] = {"a CodeStream per file": open_streams, "one C call": jpeg_headers}
    result: dict[str, Any] = circumstances(["nvidia-nvimgcodec-cu12"]) | {"files": args.files, "milliseconds": {}}
    print(f"milliseconds to open {args.files} files: median, p95, max")
    for busy in (0, BUSY_THREADS):
        for name, work in variants.items():
            times = milliseconds(work, files, args.repetitions, busy)
            result["milliseconds"][f"{name}, {busy} busy threads"] = times
            print(f"  {name:24}{busy} busy threads" + "".join(f"{value:10.2f}" for value in times.values()))
    if args.out:
        write_json(args.out, result)


if __name__ == "__main__":
    main()
