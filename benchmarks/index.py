"""Gain and cost of the JPEG index by epoch, against the same loader without it (`index_bytes=0`).

A first run makes the index in its first epoch; a later run finds it. Chains, images and threads are those of
end_to_end.py, which measures the same by the clock; here several repetitions alternate. Rates are those of threads that
never wait: images per second of CPU time, times the threads. Other programs change them less.

    python benchmarks/index.py --out benchmarks/results/index.json

With `--cuda` it measures what the index does to the input of the CUDA pipeline, by the code that the worker threads run
there, on one thread of a CPU: CPU time to stage an image, bytes that nvJPEG gets, and 8 x 8 blocks that it decodes.
Ordinary memory takes the place of pinned memory. Whether fewer bytes and blocks make a GPU faster, only a GPU can tell.

    python benchmarks/index.py --cuda --out benchmarks/results/index_cuda.json
"""

from __future__ import annotations

import argparse
import io
import time
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from end_to_end import index_path
from peers import Task
from peers.ours import chain
from PIL import Image
from ranks import EPOCHS, measure_runs
from report import circumstances, spread, write_json
from suites import SUITES, prepare

from cuaug.codec import EncodedJpeg, JpegIndex, nv, read_jpeg_headers
from cuaug.errors import DecodeError
from cuaug.pipeline.cuda.staging import StagedBatch, StagingPool
from cuaug.pipeline.planning import plan_samples
from cuaug.pipeline.reader import Item
from cuaug.plan import Layout
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import Compose

CUDA_EPOCHS = 5


def epochs(task: Task) -> dict[str, list[float]]:
    """Images/s of each epoch, by CPU time: without an index, in the run that makes it, and in a later run."""
    runs = measure_runs(list(task.samples), task, index_path(task))
    return {
        name: [1000 * task.threads / epoch.cpu_seconds_per_1000_images for epoch in epochs]
        for name, epochs in runs.items()
    }


class _PageablePool(StagingPool):
    """Ordinary memory for one batch at a time: without CUDA none can be pinned."""

    memory = torch.empty(0, dtype=torch.uint8)

    def take(self, size: int) -> torch.Tensor:
        if size > len(self.memory):
            self.memory = torch.zeros(2 * size, dtype=torch.uint8)
        return self.memory


def cuda_input(task: Task, index: JpegIndex | None) -> list[dict[str, float]]:
    """Per image and epoch: microseconds of CPU time to stage it, bytes, and blocks to decode."""
    files = [Path(path).read_bytes() for path, _ in task.samples]
    blocks = [_blocks_per_pixel(data) for data in files]
    transforms, pool, epochs = Compose(chain(task)), _PageablePool(torch.device("cpu")), []
    for epoch in range(CUDA_EPOCHS):
        seconds, total_bytes, total_blocks, crops = 0.0, 0, 0.0, 0
        for begin in range(0, len(files), task.batch_size):
            rows = range(begin, begin + task.batch_size)
            items = read_jpeg_headers([files[i] for i in rows], apply_exif=True, max_pixels=1 << 28)
            rng = SampleRNG(0, epoch, np.array(rows))
            planned = plan_samples(transforms, items, [None] * len(items), rng, None, Layout.CHW, str)
            staged = StagedBatch(cast(list[Item], items), planned, pool, index)
            start = time.thread_time()
            crops += staged.stage(range(len(staged.rows)), _raise)
            seconds += time.thread_time() - start
            total_bytes += sum(len(item.data) for item in cast(list[EncodedJpeg], staged.items))
            total_blocks += sum(blocks[i] * size / 3 for i, size in zip(rows, staged.sizes.tolist(), strict=True))
        count = len(files)
        epochs.append(
            {
                "cpu_microseconds": 1e6 * seconds / count,
                "bytes": total_bytes / count,
                "blocks": total_blocks / count,
                "crops": crops / count,
            }
        )
    return epochs


def _raise(_: int, error: DecodeError) -> None:
    raise error


def _blocks_per_pixel(data: bytes) -> float:
    """8 x 8 blocks of a JPEG's components, per pixel."""
    factors = [(h, v) for _, h, v, _ in Image.open(io.BytesIO(data)).layer]
    mcu_pixels = 64 * max(h for h, _ in factors) * max(v for _, v in factors)
    return sum(h * v for h, v in factors) / mcu_pixels


def measure_cuda_input(task: Task, repetitions: int) -> dict[str, Any]:
    """`cuda_input` without an index and with one, in turns; the least CPU time of each epoch."""
    nv()  # the first code stream imports nvImageCodec
    result: dict[str, Any] = {}
    turns = [
        {"without": cuda_input(task, None), "with": cuda_input(task, JpegIndex(1 << 28, len(task.samples)))}
        for _ in range(repetitions)
    ]
    for name in ("without", "with"):
        result[name] = turns[0][name]
        for epoch, row in enumerate(result[name]):
            row["cpu_microseconds"] = min(turn[name][epoch]["cpu_microseconds"] for turn in turns)
            print(
                f"    {name:8} epoch {epoch + 1}: {row['cpu_microseconds']:7.1f} us{row['bytes'] / 1000:8.1f} kB"
                f"{row['blocks']:8.0f} blocks, {row['crops']:.0%} crops",
                flush=True,
            )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("bench-data"), help="photo directory (made if missing)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--cuda", action="store_true", help="measure the input of the CUDA pipeline, on the CPU")
    parser.add_argument("--limit", type=int, help="use only this many files")
    parser.add_argument("--out", type=Path, help="write the result here as JSON")
    args = parser.parse_args()

    result: dict[str, Any] = circumstances(["torch", "numpy", "cuaug"])
    result["settings"] = {key: value for key, value in vars(args).items() if key not in ("data", "out")}
    result["suites"] = {}
    print(f"{result['machine']['cpu']}, {result['machine']['cores']} cores, commit {result['commit']}")
    for name in ("classification", "1080p"):
        suite = SUITES[name]
        limit = args.limit or suite.limit
        task = prepare(args.data, suite.pictures, suite.batch_size, args.threads, limit, suite.chain, suite.size)
        if args.cuda:
            print("  per image, on one CPU thread")
            result["suites"][name] = measure_cuda_input(task, args.repetitions)
            continue
        turns = [epochs(task) for _ in range(args.repetitions)]
        print(f"  {name}: images/s of epochs 1 to {EPOCHS}, and the ratio to no index")
        rows: dict[str, list[Any]] = {}
        for run in ("first run", "later run"):
            rows[run] = []
            for epoch in range(EPOCHS):
                ratios = [turn[run][epoch] / turn["without"][epoch] for turn in turns]
                rate = spread([turn[run][epoch] for turn in turns])
                rows[run].append({"images_per_second": rate, "to_without": spread(ratios)})
                median = rows[run][-1]["to_without"]["median"]
                print(
                    f"    {run}, epoch {epoch + 1}: {rate['median']:6.0f}"
                    f"{median:8.2f}x ({min(ratios):.2f} to {max(ratios):.2f})",
                    flush=True,
                )
        result["suites"][name] = rows
    if args.out:
        write_json(args.out, result)
        print(f"\nwritten to {args.out}")


if __name__ == "__main__":
    main()
