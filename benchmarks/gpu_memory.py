"""A loader while GPU memory is scarce: how many JPEGs leave the GPU for the CPU, and at what cost.

- "cache full": torch's caching allocator holds nearly all memory, none of it in use, as after a large evaluation. No
  JPEG may be decoded on the CPU: the loader empties the cache and tries again.
- "N MB left": tensors hold all but N MB. JPEGs may be decoded on the CPU, and are counted as `cpu_fallback`; or the
  loader raises an error, which the result holds.

    python benchmarks/gpu_memory.py --out benchmarks/results/gpu_memory.json
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from gpu_feeds import Cuaug, Settings
from gpu_photos import origin, write_files
from report import gpu_circumstances, write_json

from cuaug.errors import CuaugError

BLOCK = 64 << 20
CACHE_FULL_LEAVES = 64 << 20


def fill(leave: int) -> list[torch.Tensor]:
    """Allocates blocks until `leave` bytes of the GPU's memory are free."""
    blocks: list[torch.Tensor] = []
    for _ in range((torch.cuda.mem_get_info()[0] - leave) // BLOCK):
        try:
            blocks.append(torch.empty(BLOCK, dtype=torch.uint8, device="cuda"))
        except torch.cuda.OutOfMemoryError:  # what is free is in pieces
            break
    return blocks


def epochs(settings: Settings) -> dict[str, Any]:
    """Two epochs of a loader: images a second in the second, and who decoded; or the loader's error."""
    feed = None
    try:
        feed = Cuaug(settings)
        for _ in range(2):
            start, count = time.perf_counter(), 0
            for images in feed.epoch():
                count += len(images)
            torch.cuda.synchronize()
            seconds = time.perf_counter() - start
        decoded_by = feed.loader.stats().decoded_by
    except (RuntimeError, CuaugError) as error:
        return {"error": f"{type(error).__name__}: {error}"[:1000]}
    finally:
        if feed is not None:
            feed.close()
    fallback = decoded_by.get("cpu_fallback", 0)
    return {"images_per_second": round(count / seconds), "decoded_by": decoded_by, "cpu_fallback": fallback}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("bench-data"), help="photo directory (made if missing)")
    parser.add_argument("--files", type=int, default=1024)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--threads", type=int, default=6)
    parser.add_argument("--megabytes-left", nargs="+", type=int, default=[2048, 1024, 512, 256])
    parser.add_argument("--out", type=Path, help="write the result here as JSON")
    args = parser.parse_args()
    settings = Settings(write_files(args.data, args.files), args.batch_size, args.threads)
    result: dict[str, Any] = gpu_circumstances([])
    result |= {"photos": origin(), "files": args.files, "batch_size": args.batch_size, "cases": {}}

    def record(name: str) -> dict[str, Any]:
        free, total = torch.cuda.mem_get_info()
        before = {"free_bytes": free, "total_bytes": total, "reserved_bytes": torch.cuda.memory_reserved()}
        row = result["cases"][name] = {**before, **epochs(settings)}
        print(f"  {name:14} {free / 1e6:8.0f} MB free before: {describe(row)}", flush=True)
        if args.out:
            write_json(args.out, result)
        return row

    print(f"{result['device']}, {args.files} files, batches of {args.batch_size}")
    record("memory free")
    blocks = fill(CACHE_FULL_LEAVES)
    blocks.clear()  # the cache keeps them
    cache_full = record("cache full")
    torch.cuda.empty_cache()
    for left in args.megabytes_left:
        blocks = fill(left << 20)
        record(f"{left} MB left")
        blocks.clear()
        torch.cuda.empty_cache()
    if "error" in cache_full or cache_full["cpu_fallback"]:
        raise SystemExit("a full cache kept JPEGs from the GPU")


def describe(row: dict[str, Any]) -> str:
    if "error" in row:
        return str(row["error"])
    return f"{row['images_per_second']} images/s, {row['cpu_fallback']} of {sum(row['decoded_by'].values())} by the CPU"


if __name__ == "__main__":
    main()
