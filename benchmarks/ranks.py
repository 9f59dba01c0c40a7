"""Crops from a kept JPEG index, for simulated ranks that share a set which is shuffled globally.

Each rank is a loader of its own, with `rank` and `world_size`, and loads its share of each epoch; the ranks take turns
by batches, in one process, on all threads. The set has as many pictures as asked for: copies of the benchmarks' photos
with a comment of their own, so that each is another file to the index. They are made in memory when read.

The first run makes the index in a new folder. The second run is new loaders, which find it. Chains are those of
end_to_end.py.

    python benchmarks/ranks.py --suite classification --out benchmarks/results/ranks_classification.json
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from end_to_end import SUITES, prepare
from peers import Task
from peers.ours import chain
from report import circumstances, write_json

import cuaug
from cuaug.sources.jpeg_index_file import JPEG_INDEX_NAME


class Copies:
    """Samples with a path each, below `folder`, made from a few files."""

    def __init__(self, task: Task, pictures: int, folder: Path) -> None:
        self._files = [Path(path).read_bytes() for path, _ in task.samples]
        self._pictures, self._folder = pictures, folder

    def __len__(self) -> int:
        return self._pictures

    def path(self, index: int) -> str:
        return f"{self._folder}/{index}.jpg"

    def read(self, index: int) -> tuple[bytes, int]:
        data = self._files[index % len(self._files)]
        comment = b"\xff\xfe\x00\x0a" + index.to_bytes(8, "little")
        return data[:2] + comment + data[2:], index


def run(source: Copies, task: Task, ranks: int, epochs: int, index_bytes: int | None) -> list[dict[str, float]]:
    """Seconds, and the share of crops from a part of the file, of each epoch of all ranks."""
    loaders = [
        cuaug.Loader(
            source,
            chain(task),
            batch_size=task.batch_size,
            shuffle=True,
            seed=0,
            last_batch="drop",
            threads=task.threads,
            prefetch=1,
            device="cpu",
            rank=rank,
            world_size=ranks,
            decode=cuaug.DecodeOptions(index_bytes=index_bytes),
        )
        for rank in range(ranks)
    ]
    rows, before = [], 0
    for _ in range(epochs):
        start, cpu_start, samples = time.perf_counter(), time.process_time(), 0
        for batches in zip(*loaders, strict=True):
            samples += sum(len(batch.images) for batch in batches)
        seconds = time.perf_counter() - start
        cpu_seconds = time.process_time() - cpu_start
        parts = sum(loader.stats().parts for loader in loaders)
        row = {"images_per_second": samples / seconds, "images_per_cpu_second": samples / cpu_seconds}
        rows.append({**row, "cropped": (parts - before) / samples})
        before = parts
    for loader in loaders:
        loader.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("bench-data"), help="photo directory (made if missing)")
    parser.add_argument("--suite", choices=["classification", "1080p"], default="classification")
    parser.add_argument("--pictures", type=int, default=20_000)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--index-bytes", type=int, help="largest size of the index (default: as Loader)")
    parser.add_argument("--out", type=Path, help="write the result here as JSON")
    args = parser.parse_args()

    suite = SUITES[args.suite]
    task = prepare(args.data, suite.pictures, suite.batch_size, args.threads, suite.limit, suite.chain, suite.size)
    result: dict[str, Any] = circumstances(["torch", "numpy", "cuaug"])
    result["settings"] = {key: value for key, value in vars(args).items() if key not in ("data", "out")}
    with tempfile.TemporaryDirectory(dir=args.data) as name:
        folder = Path(name)
        source = Copies(task, args.pictures, folder)
        result["without"] = run(source, task, args.ranks, 1, 0)
        result["first run"] = run(source, task, args.ranks, 1, args.index_bytes)
        result["second run"] = run(source, task, args.ranks, 1, args.index_bytes)
        result["without, again"] = run(source, task, args.ranks, 1, 0)
        result["index_bytes"] = (folder / JPEG_INDEX_NAME).stat().st_size
    for run_name in ("without", "first run", "second run", "without, again"):
        for row in result[run_name]:
            rates = f"{row['images_per_second']:8.0f} images/s {row['images_per_cpu_second']:8.0f} per CPU second"
            print(f"{run_name:16} {rates}  {row['cropped']:.1%} from part of the file")
    print(f"index: {result['index_bytes'] / 1e6:.1f} MB")
    if args.out:
        write_json(args.out, result)


if __name__ == "__main__":
    main()
