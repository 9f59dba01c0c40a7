"""First, second and later epochs with and without a kept JPEG index, for simulated ranks of one machine.

The set is shuffled globally: in each epoch a rank loads its own part of one order. Each rank is a loader with `rank`
and `world_size`. The ranks run one after another, in one process, each on all threads; README.md in this folder says
why.

`measure_runs` compares three runs, which take turns after each epoch: "without" an index, the "first run", which finds
no index and makes one, and a "later run", which opens the index when the first run has completed it.

end_to_end.py uses it for 1, 2, 4 and 8 ranks.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from peers import Task
from peers.ours import chain

import cuaug
from cuaug.sources.jpeg_index_file import JPEG_INDEX_NAME

__all__ = ["epoch_rows", "measure_runs", "print_epochs"]

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


def measure_runs(task: Task, ranks: int = 1, epochs: int = EPOCHS) -> dict[str, list[Epoch]]:
    """The epochs of each run of `RUNS`. Deletes the files' kept index first, and leaves a complete one.

    Raises:
        AssertionError: the index is not where it was expected, or a sample was not loaded exactly once.
    """
    index = Path(task.samples[0][0]).resolve().parent / JPEG_INDEX_NAME
    index.unlink(missing_ok=True)
    rows: dict[str, list[Epoch]] = {name: [] for name in RUNS}
    with ExitStack() as stack:
        runs = {
            name: [stack.enter_context(_rank(task, rank, ranks, name != "without")) for rank in range(ranks)]
            for name in RUNS
        }
        for _ in range(epochs):
            for name in RUNS:
                rows[name].append(_epoch(runs[name]))
            if task.chain != "detection" and not index.is_file():
                raise AssertionError(f"the first run kept no index as {index}")
    return rows


def _rank(task: Task, rank: int, ranks: int, has_index: bool) -> cuaug.Loader:
    return cuaug.Loader(
        list(task.samples),
        chain(task),
        batch_size=task.batch_size,
        shuffle=True,
        seed=task.seed,
        last_batch="drop",
        threads=task.threads,
        device="cpu",
        rank=rank,
        world_size=ranks,
        decode=cuaug.DecodeOptions(index_bytes=None if has_index else 0),
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
        cells = [f"{row['images_per_second']:.0f} ({row['to_without']:.2f}x, {row['crops']:.0%})" for row in epochs]
        print(f"  {title:10}{name:10}" + "".join(f"{cell:>24}" for cell in cells), flush=True)
