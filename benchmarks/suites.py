"""The chains, image sets and batch sizes of the end-to-end benchmarks, and the files of a suite.

end_to_end.py measures all suites. The other programs measure one or two of them, or take an image set from here.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path

from gpu_photos import write_files
from peers import Task

__all__ = ["SETS", "SUITES", "Suite", "prepare"]

SETS = {"500x375": (500, 375, 2048), "1920x1080": (1920, 1080, 512)}  # width, height, number of files
QUICK_FILES = {"500x375": 256, "1920x1080": 64}


@dataclass(frozen=True)
class Suite:
    """A chain, its image set and its default settings.

    Attributes:
        ranks: numbers of ranks to simulate, on all files of the set.
        rank_batch_size: a rank's batch size there, small enough for several batches per rank.
    """

    title: str
    pictures: str
    chain: str = "classification"
    size: int = 224
    batch_size: int = 128
    repetitions: int = 3
    limit: int | None = None
    ranks: tuple[int, ...] = ()
    rank_batch_size: int = 32

    def quick(self) -> Suite:
        """The same with few files, only to try the programs: about two minutes for all suites."""
        files, least = QUICK_FILES[self.pictures], self.batch_size // 4
        batch_size, rank_batch_size = max(1, least), max(1, files // 32)
        limit = min(files, 4 * batch_size)
        changed = {"batch_size": batch_size, "rank_batch_size": rank_batch_size, "repetitions": 1, "limit": limit}
        return dataclasses.replace(self, **changed)


SUITES = {
    "classification": Suite("RandomResizedCrop(224), flip, normalize; 500 x 375", "500x375", ranks=(1, 2, 4, 8)),
    "1080p": Suite(
        "RandomResizedCrop(224), flip, normalize; 1920 x 1080",
        "1920x1080",
        batch_size=64,
        limit=256,
        ranks=(1, 2, 4, 8),
        rank_batch_size=16,
    ),
    "heavy": Suite("with ColorJitter, RandAugment, RandomErasing; 500 x 375", "500x375", "heavy", limit=1024),
    "detection": Suite("Resize to 800 x 800, flip, normalize; 1920 x 1080", "1920x1080", "detection", 800, 8, limit=96),
    "views": Suite(
        "two views of 224 and six of 96, flip, normalize; 500 x 375", "500x375", "views", batch_size=64, limit=512
    ),
}


def prepare(
    root: Path,
    name: str,
    batch_size: int,
    threads: int,
    limit: int | None,
    chain: str = "classification",
    size: int = 224,
    quick: bool = False,
) -> Task:
    """Write the image set if it is missing, warm its pages, and return the task."""
    width, height, count = SETS[name]
    if quick:
        count = QUICK_FILES[name]
    files = write_files(root, count, height, width)[:limit]
    files = files[: len(files) // batch_size * batch_size]
    total = sum(os.path.getsize(file) for file in files)
    print(f"\n{name}: {len(files)} files, {total / max(1, len(files)) / 1000:.0f} kB each", flush=True)
    samples = tuple((file, index) for index, file in enumerate(files))
    return Task(samples, batch_size, size, threads, chain=chain)
