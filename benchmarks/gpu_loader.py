"""Images a second of `Loader(device="cuda")`, by the decoder's `load_hint` (the hardware engine's share) and threads.

RandomResizedCrop(224), flip, normalise to float16, from JPEG files of about 500 x 375 that were read before. Beside it
the decoder alone, with the spread of its batches: the tail, not the mean, decides whether training waits.

    python benchmarks/gpu_loader.py --out results/gpu_loader.json
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from report import circumstances, spread, write_json

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
from photos import write_photos

import cuaug
from cuaug import transforms as T
from cuaug.codec import CudaDecoder, read_header
from cuaug.pipeline import cuda as pipeline

CHAIN = [T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]


def decoder_alone(paths: list[str], batch_size: int, load_hint: float, threads: int, batches: int) -> dict[str, Any]:
    """Milliseconds a batch takes from bytes to device memory, over different batches."""
    stream = torch.cuda.Stream()
    decoder = CudaDecoder(torch.cuda.current_device(), threads=threads, load_hint=load_hint)
    headers = [read_header(Path(path).read_bytes()) for path in paths]
    capacity = max(header.height * header.width for header in headers)
    times = []
    with torch.cuda.stream(stream):
        memory = [torch.empty((1, capacity, 3), dtype=torch.uint8, device="cuda") for _ in range(batch_size)]
        slots = [decoder.wrap(array, stream.cuda_stream) for array in memory]
        for number in range(batches + 3):
            part = [headers[(number * batch_size + i) % len(headers)] for i in range(batch_size)]
            stream.synchronize()
            start = time.perf_counter()
            outcomes = decoder.decode(part, slots, stream.cuda_stream)
            stream.synchronize()
            times.append(1e3 * (time.perf_counter() - start))
            assert all(outcome is None for outcome in outcomes), "the GPU left images to Pillow"
    times = sorted(times[3:])
    return {
        "images_per_second": round(1e3 * batch_size / statistics.median(times)),
        "batch_ms": spread(times) | {"p95": round(times[int(0.95 * (len(times) - 1))], 3)},
    }


def loader(paths: list[str], batch_size: int, load_hint: float, threads: int, epochs: int) -> dict[str, Any]:
    pipeline.CudaDecoder = functools.partial(CudaDecoder, load_hint=load_hint)
    options: dict[str, Any] = {"batch_size": batch_size, "shuffle": True, "last_batch": "drop", "dtype": torch.float16}
    with cuaug.Loader(paths, CHAIN, device="cuda", threads=threads, prefetch=3, **options) as batches:
        for _ in range(2):
            for _ in batches:
                pass
        torch.cuda.synchronize()
        rates, cpu, before = [], time.process_time(), batches.stats().seconds
        for _ in range(epochs):
            count, start = 0, time.perf_counter()
            for images, _ in batches:
                count += len(images)
            torch.cuda.synchronize()
            rates.append(count / (time.perf_counter() - start))
        images_made = epochs * count
        after = batches.stats().seconds
    return {
        "images_per_second": spread(rates),
        "cpu_us_per_image": round(1e6 * (time.process_time() - cpu) / images_made, 1),
        "stage_us_per_image": {k: round(1e6 * (after[k] - before[k]) / images_made, 1) for k in after},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("bench-data"), help="where the photos are or go")
    parser.add_argument("--files", type=int, default=2048)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--load-hints", nargs="+", type=float, default=[0.0, 0.5, 0.65, 0.8, 1.0])
    parser.add_argument("--threads", nargs="+", type=int, default=[4, 8, 16])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--out", type=Path, help="write the result here as JSON")
    args = parser.parse_args()
    folder = write_photos(args.data / f"500x375-{args.files}", args.files, 375, 500)
    paths = [str(path) for path in sorted(folder.glob("*.jpg"))]
    result: dict[str, Any] = circumstances(["torch", "nvidia-nvimgcodec-cu12", "nvidia-nvjpeg-cu12"])
    result["device"] = torch.cuda.get_device_name()
    result["settings"] = {key: value for key, value in vars(args).items() if key not in ("data", "out")}
    result["decoder"], result["loader"] = [], []
    print(f"{result['device']}, {len(paths)} files, batches of {args.batch_size}")
    for threads in args.threads:
        for hint in args.load_hints:
            at = {"threads": threads, "load_hint": hint}
            alone = decoder_alone(paths, args.batch_size, hint, threads, batches=20)
            whole = loader(paths, args.batch_size, hint, threads, args.epochs)
            result["decoder"].append(at | alone)
            result["loader"].append(at | whole)
            print(
                f"  {threads:2} threads, load_hint {hint:4}: decoder {alone['images_per_second']:6} images/s "
                f"(p95 {alone['batch_ms']['p95']:.1f} ms), loader {whole['images_per_second']['median']:8.0f} images/s,"
                f" {whole['cpu_us_per_image']:.0f} us of CPU each",
                flush=True,
            )
            if args.out:  # after each: a run that is cut short leaves what it has
                write_json(args.out, result)


if __name__ == "__main__":
    main()
