"""First, second and later epochs with and without a kept JPEG index, for simulated ranks of one machine.

The set is shuffled globally: in each epoch a rank loads its own part of one order. Each rank is a loader with `rank`
and `world_size`. The ranks run one after another, in one process, each on all threads:

- Each rank has the cores to itself, as on a machine with that many cores per rank. Ranks that ran at once on two cores
  would show how threads compete for these.
- No rank loads a sample that another loads in the same epoch, so their order does not change which samples are in the
  index. Loaders share an index by its file alone, as processes do.
- A process per rank would add the start of Python, which first_batch.py measures.

`measure_runs` compares three runs, which take turns after each epoch: "without" an index, the "first run", which finds
no index and makes one, and a "later run", which opens the index when the first run has completed it.

end_to_end.py measures 1, 2, 4 and 8 ranks on its files. This program measures one large set, of copies of these files.
Each copy has a comment of its own, so it is another file to the index; copies are made in memory when read.

    python benchmarks/ranks.py --suite classification --out benchmarks/results/ranks_classification.json
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from peers import Task
from peers.ours import chain
from report import circumstances, write_json
from suites import SUITES, prepare

import cuaug
from cuaug.sources.jpeg_index_file import JPEG_INDEX_NAME

__all__ = ["EPOCHS", "RUNS", "Epoch", "epoch_rows", "measure_runs", "print_epochs"]

RUNS = ("without", "first run", "later run")
EPOCHS = 3


class Epoch(NamedTuple):
    """One epoch of all ranks.

    Attributes:
        crops: share of the samples that were decoded from a part of their file.
    """

    images_per_second: float
    cpu_seconds_per_1000_images: float
    crops: float


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


def measure_runs(
    source: Any,
    task: Task,
    index: Path,
    ranks: int = 1,
    epochs: int = EPOCHS,
    index_bytes: int | None = None,
) -> dict[str, list[Epoch]]:
    """The epochs of each run of `RUNS`. Deletes the index file `index` first, and leaves a complete one.

    Args:
        source: what each Loader reads; `task` has the chain, batch size and threads, its samples do not count.
        index: where the loaders keep the index of `source`.

    Raises:
        AssertionError: the index is not where it was expected, or a sample was not loaded exactly once.
    """
    index.unlink(missing_ok=True)
    limits = dict(zip(RUNS, (0, index_bytes, index_bytes), strict=True))
    rows: dict[str, list[Epoch]] = {name: [] for name in RUNS}
    with ExitStack() as stack:
        runs = {
            name: [stack.enter_context(_rank(source, task, rank, ranks, limit)) for rank in range(ranks)]
            for name, limit in limits.items()
        }
        for _ in range(epochs):
            for name in RUNS:
                rows[name].append(_epoch(runs[name]))
            if task.chain != "detection" and not index.is_file():
                raise AssertionError(f"the first run kept no index as {index}")
    return rows


def _rank(source: Any, task: Task, rank: int, ranks: int, index_bytes: int | None) -> cuaug.Loader:
    return cuaug.Loader(
        source,
        chain(task),
        batch_size=task.batch_size,
        shuffle=True,
        seed=task.seed,
        last_batch="drop",
        threads=task.threads,
        device="cpu",
        rank=rank,
        world_size=ranks,
        decode=cuaug.DecodeOptions(index_bytes=index_bytes),
    )


def _epoch(loaders: list[cuaug.Loader]) -> Epoch:
    """One epoch of each loader, one after another."""
    parts = sum(loader.stats().parts for loader in loaders)
    start, cpu_start = time.perf_counter(), time.process_time()
    samples: list[int] = []
    for loader in loaders:
        for batch in loader:
            samples += batch.indices.tolist()
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    if len(set(samples)) != len(samples):
        raise AssertionError(f"{len(samples)} samples of {len(set(samples))} files: ranks must not share samples")
    parts = sum(loader.stats().parts for loader in loaders) - parts
    return Epoch(len(samples) / seconds, 1000 * cpu_seconds / len(samples), parts / len(samples))


def epoch_rows(runs: dict[str, list[Epoch]]) -> dict[str, list[dict[str, float]]]:
    """For JSON: run -> a row per epoch, with its rate as a multiple of the same epoch "without"."""
    return {
        name: [
            {
                "images_per_second": round(epoch.images_per_second, 1),
                "to_without": round(epoch.images_per_second / base.images_per_second, 3),
                "cpu_to_without": round(base.cpu_seconds_per_1000_images / epoch.cpu_seconds_per_1000_images, 3),
                "cpu_seconds_per_1000_images": round(epoch.cpu_seconds_per_1000_images, 3),
                "crops": round(epoch.crops, 4),
            }
            for epoch, base in zip(epochs, runs["without"], strict=True)
        ]
        for name, epochs in runs.items()
    }


def print_epochs(rows: dict[str, list[dict[str, float]]], title: str) -> None:
    """Print a line per run: images/s, multiple of "without", and share of crops, for each epoch."""
    for name, epochs in rows.items():
        print(f"  {title:10}{name:10}" + "".join(f"{cell:>24}" for cell in _cells(epochs)), flush=True)


def _cells(epochs: list[dict[str, float]]) -> Iterator[str]:
    for row in epochs:
        yield f"{row['images_per_second']:.0f} ({row['to_without']:.2f}x, {row['crops']:.0%})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("bench-data"), help="photo directory (made if missing)")
    parser.add_argument("--suite", choices=["classification", "1080p"], default="classification")
    parser.add_argument("--pictures", type=int, default=20_000)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=1, help="of each run")
    parser.add_argument("--index-bytes", type=int, help="largest size of the index (default: as Loader)")
    parser.add_argument("--out", type=Path, help="write the result here as JSON")
    args = parser.parse_args()

    suite = SUITES[args.suite]
    task = prepare(args.data, suite.pictures, suite.rank_batch_size, args.threads, None, suite.chain, suite.size)
    result: dict[str, Any] = circumstances(["torch", "numpy", "cuaug"])
    result["settings"] = {key: value for key, value in vars(args).items() if key not in ("data", "out")}
    with tempfile.TemporaryDirectory(dir=args.data) as name:
        index = Path(name).resolve() / JPEG_INDEX_NAME
        source = Copies(task, args.pictures, index.parent)
        runs = measure_runs(source, task, index, args.ranks, args.epochs, args.index_bytes)
        result["index_bytes"] = index.stat().st_size
    result["ranks"] = {str(args.ranks): epoch_rows(runs)}
    print("  images/s (times the run without an index, crops from part of the file), by epoch")
    print_epochs(result["ranks"][str(args.ranks)], f"{args.ranks} ranks")
    print(f"index: {result['index_bytes'] / 1e6:.1f} MB")
    if args.out:
        write_json(args.out, result)


if __name__ == "__main__":
    main()
