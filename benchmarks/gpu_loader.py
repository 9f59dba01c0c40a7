"""Images a second of the decoder alone and of `Loader(device="cuda")`, by decode split.

RandomResizedCrop(224), flip, normalize to float16, from files of about 500 x 375 in the page cache. Two parts:

- the decoder alone, over a grid of `load_hint` (the hardware engine's share) and CPU threads, with the spread over
  batches: the slowest batches, not the mean, decide whether training waits;
- the loader with `--loader-threads` threads, by `load_hint`. An epoch has each file several times, so that its start,
  without prefetched batches, takes as small a share as in a real epoch.

    python benchmarks/gpu_loader.py --out benchmarks/results/gpu_loader.json
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from gpu_feeds import Cuaug, Feed, Settings
from gpu_photos import origin, write_files
from report import gpu_circumstances, spread, write_json

from cuaug.codec import CudaDecoder, DecoderPaths, read_header


def decoder_alone(paths: list[str], batch_size: int, load_hint: float, threads: int, batches: int) -> dict[str, Any]:
    """Milliseconds per batch, from bytes to device memory, over different batches."""
    stream = torch.cuda.Stream()
    decoder = CudaDecoder(torch.cuda.current_device(), DecoderPaths(load_hint=load_hint), threads=threads)
    headers = [read_header(Path(path).read_bytes()) for path in paths]
    capacity = max(header.height * header.width for header in headers)
    times = []
    with torch.cuda.stream(stream):
        memory = [torch.empty((1, capacity, 3), dtype=torch.uint8, device="cuda") for _ in range(batch_size)]
        slots = [decoder.wrap(array, stream.cuda_stream) for array in memory]
        for number in range(batches + 3):
            batch = [headers[(number * batch_size + i) % len(headers)] for i in range(batch_size)]
            stream.synchronize()
            start = time.perf_counter()
            results = decoder.decode_batch(batch, slots, stream.cuda_stream)
            stream.synchronize()
            times.append(1e3 * (time.perf_counter() - start))
            assert all(result is None for result in results), "Pillow decoded some images"
    times = sorted(times[3:])
    return {
        "load_hint": load_hint,
        "threads": threads,
        "images_per_second": round(1e3 * batch_size / statistics.median(times)),
        "batch_ms": spread(times) | {"p95": round(times[int(0.95 * (len(times) - 1))], 3)},
    }


def epoch_of(feed: Feed) -> tuple[float, float]:
    """Images a second and microseconds of processor time per image, over one epoch."""
    torch.cuda.synchronize()
    count, start, cpu = 0, time.perf_counter(), time.process_time()
    for images in feed.epoch():
        count += len(images)
    torch.cuda.synchronize()
    return count / (time.perf_counter() - start), 1e6 * (time.process_time() - cpu) / count


def measured(feed: Feed, epochs: int) -> dict[str, Any]:
    """Measures epochs after a warm-up epoch."""
    results = [epoch_of(feed) for _ in range(epochs + 1)][1:]
    return {
        "images_per_second": spread([rate for rate, _ in results]),
        "cpu_us_per_image": spread([cpu for _, cpu in results]),
    }


def print_row(name: str, row: dict[str, Any]) -> None:
    rate, cpu = row["images_per_second"], row["cpu_us_per_image"]["median"]
    print(
        f"  {name:44}{rate['median']:9.0f} images/s ({rate['min']:.0f} to {rate['max']:.0f}), {cpu:.0f} us CPU/image",
        flush=True,
    )


def sweep_loader(paths: list[str], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measures the loader by load_hint."""
    rows = []
    settings = Settings(paths, args.batch_size, args.loader_threads)
    for hint in args.load_hints:
        feed = Cuaug(settings, decoder="nvimgcodec", load_hint=hint, decode_threads=args.loader_threads)
        rows.append({"load_hint": hint, "decode_threads": args.loader_threads} | measured(feed, args.epochs))
        feed.close()
        print_row(f"load_hint {hint}", rows[-1])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("bench-data"), help="photo directory (made if missing)")
    parser.add_argument("--files", type=int, default=2048)
    parser.add_argument("--passes", type=int, default=4, help="uses of each file per epoch")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--load-hints", nargs="+", type=float, default=[0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
    parser.add_argument("--threads", nargs="+", type=int, default=[2, 4, 8, 16], help="for the decoder alone")
    parser.add_argument("--loader-threads", type=int, default=6)
    parser.add_argument("--batches", type=int, default=15, help="for the decoder alone")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--out", type=Path, help="write the result here as JSON")
    args = parser.parse_args()
    result: dict[str, Any] = gpu_circumstances(["nvidia-nvjpeg-cu12"])
    paths = write_files(args.data, args.files)
    result["photos"] = origin()
    result["settings"] = {key: value for key, value in vars(args).items() if key not in ("data", "out")}

    def store(**results: Any) -> None:
        result.update(results)
        if args.out:  # after each part, in case the run is interrupted
            write_json(args.out, result)

    print(f"{result['device']}, {len(paths)} files, batches of {args.batch_size}; the decoder alone:")
    grid: list[dict[str, Any]] = []
    for threads in args.threads:
        for hint in args.load_hints:
            grid.append(decoder_alone(paths, args.batch_size, hint, threads, args.batches))
            rate, late = grid[-1]["images_per_second"], grid[-1]["batch_ms"]["p95"]
            print(f"  {threads:2} threads, load_hint {hint:4}: {rate:6} images/s (p95 {late:.1f} ms)", flush=True)
        store(decoder=grid)
    print(f"the loader, {args.loader_threads} threads:")
    rows = sweep_loader(paths * args.passes, args)
    store(loader=rows)


if __name__ == "__main__":
    main()
