"""nvImageCodec's decoder paths on a GPU, swept on mixed JPEGs (mixed_files.py).

Every combination of load hint and CPU threads decodes the same batches, from encoded bytes to device memory. The
default is measured just before and just after, as clocks drift, and the result is the ratio. The fastest combination is
also measured without fancy upsampling.

    python benchmarks/gpu_decode.py --out benchmarks/results/gpu_decode.json
    python benchmarks/gpu_decode.py --dry-run       # fakes for CUDA and tiny sizes: figures mean nothing
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from mixed_files import mixed_files
from report import gpu_circumstances, spread, write_json

from cuaug import codec
from cuaug.codec import DecoderPaths, EncodedImage, read_header

_WARM_UP_BATCHES = 2


class Batches:
    """The same batches for all combinations, and the device memory that they are decoded into."""

    def __init__(self, files: list[bytes], batch_size: int) -> None:
        headers = [read_header(data) for data in files]
        self.batches = [headers[i : i + batch_size] for i in range(0, len(headers) - batch_size + 1, batch_size)]
        self.stream = torch.cuda.Stream()
        self.batch_size = batch_size
        self.megapixels = sum(header.height * header.width for header in headers) / len(headers) / 1e6
        # The largest images of each batch take the same slots.
        sizes = [sorted((header.height * header.width for header in batch), reverse=True) for batch in self.batches]
        capacities = [max(column) for column in zip(*sizes, strict=True)]
        self.memory = [torch.empty((1, pixels, 3), dtype=torch.uint8, device="cuda") for pixels in capacities]
        torch.cuda.synchronize()

    def decode(self, paths: DecoderPaths, threads: int, repetitions: int) -> dict[str, Any]:
        """Milliseconds per batch, CPU microseconds per image, and how many images the GPU failed to decode."""
        decoder = codec.CudaDecoder(torch.cuda.current_device(), paths, threads=threads)
        handle = self.stream.cuda_stream
        decoder.prime(self.batch_size, handle)
        slots = [decoder.wrap(array, handle) for array in self.memory]
        times, fallbacks, cpu = [], 0, 0.0
        for number in range(_WARM_UP_BATCHES + repetitions * len(self.batches)):
            if number == _WARM_UP_BATCHES:
                cpu = time.process_time()
            batch = self.batches[number % len(self.batches)]
            ordered = self._slots(batch, slots)
            start = time.perf_counter()
            results = decoder.decode_batch(batch, ordered, handle)
            self.stream.synchronize()
            times.append(1e3 * (time.perf_counter() - start))
            fallbacks += len(decoder.fallbacks)
            failed = [result for result in results if isinstance(result, Exception)]
            if failed:
                raise SystemExit(f"a file of the benchmark is damaged: {failed[0]}")
        times = times[_WARM_UP_BATCHES:]
        cpu_us = 1e6 * (time.process_time() - cpu) / len(times) / self.batch_size
        late = sorted(times)[int(0.95 * (len(times) - 1))]
        return {
            "batch_ms": spread(times) | {"p95": round(late, 3)},
            "images_per_second": round(1e3 * self.batch_size / statistics.median(times)),
            "cpu_us_per_image": round(cpu_us, 1),
            "cpu_fallbacks": fallbacks,
        }

    @staticmethod
    def _slots(batch: list[EncodedImage], slots: list[Any]) -> list[Any]:
        """The slot of each image: the i-th largest takes the i-th slot."""
        order = sorted(range(len(batch)), key=lambda i: -batch[i].height * batch[i].width)
        ordered = [None] * len(batch)
        for slot, i in zip(slots, order, strict=True):
            ordered[i] = slot
        return ordered


def combinations(args: argparse.Namespace) -> Iterator[tuple[DecoderPaths, int]]:
    """Decoder paths, and numbers of CPU threads."""
    for hint, threads in itertools.product(args.load_hints, args.threads):
        yield DecoderPaths(load_hint=hint), threads


def sweep(batches: Batches, args: argparse.Namespace, store: Callable[[dict[str, Any]], None]) -> None:
    """Measures all combinations, and stores each; the fastest comes first in the end."""
    default, default_threads = DecoderPaths(), args.threads[-1]

    def measure(paths: DecoderPaths, threads: int) -> dict[str, Any]:
        before = batches.decode(default, default_threads, args.repetitions)
        row = batches.decode(paths, threads, args.repetitions)
        after = batches.decode(default, default_threads, args.repetitions)
        reference = statistics.mean(each["batch_ms"]["median"] for each in (before, after))
        row = {"paths": asdict(paths), "threads": threads} | row
        row["times_default"] = round(reference / row["batch_ms"]["median"], 3)
        print(
            f"  {row['images_per_second']:7} images/s, {row['times_default']:5.2f} times the default's, "
            f"p95 {row['batch_ms']['p95']:.1f} ms, {row['cpu_us_per_image']:.0f} us CPU/image: "
            f"{paths}, {threads} threads",
            flush=True,
        )
        return row

    rows = []
    for paths, threads in combinations(args):
        rows.append(measure(paths, threads))
        store({"rows": rows})
    rows.sort(key=lambda row: (row["cpu_fallbacks"], -row["times_default"]))
    winner, threads = DecoderPaths(**rows[0]["paths"]), rows[0]["threads"]
    without_fancy = measure(replace(winner, fancy_upsampling=False), threads)
    line = f"{torch.cuda.get_device_name()!r}: {winner},  # {rows[0]['images_per_second']} images/s, "
    line += f"{rows[0]['times_default']} times the default's, {threads} threads"
    print(f"fastest: {line}")
    store({"rows": rows, "without_fancy_upsampling": without_fancy, "fastest": line})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=256)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--repetitions", type=int, default=2, help="passes over the files")
    parser.add_argument("--load-hints", nargs="+", type=float, default=[0.0, 0.65, 0.85, 1.0])
    parser.add_argument("--threads", nargs="+", type=int, default=[4, 8], help="CPU threads; the last for the default")
    parser.add_argument("--out", type=Path, help="write the result here as JSON")
    parser.add_argument("--dry-run", action="store_true", help="fakes for CUDA, tiny sizes: figures mean nothing")
    args = parser.parse_args()
    scale, context = 1.0, contextlib.nullcontext()
    if args.dry_run:
        args.files, args.batch_size, args.repetitions, scale = 16, 8, 1, 0.002
        args.load_hints, args.threads = [0.0, 1.0], [2]
        if not torch.cuda.is_available():
            sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
            from tests.support.fake_gpu import BANNER, install

            print(BANNER)
            context = install()  # type: ignore[assignment]
    with context:
        result: dict[str, Any] = gpu_circumstances(["nvidia-nvjpeg-cu12"])
        batches = Batches(mixed_files(args.files, scale), args.batch_size)
        result["settings"] = {key: value for key, value in vars(args).items() if key != "out"}
        result["mean_megapixels"] = round(batches.megapixels, 2)
        print(f"{result['device']}: batches of {args.batch_size}, {batches.megapixels:.1f} megapixels on average")

        def store(found: dict[str, Any]) -> None:
            result.update(found)
            if args.out:  # after each combination, in case the run is interrupted
                write_json(args.out, result)

        sweep(batches, args, store)


if __name__ == "__main__":
    main()
