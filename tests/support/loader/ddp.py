"""Epochs with a DistributedDataParallel step for each batch, in which a rank that stops early would hang the others.

    torchrun -m tests.support.loader.ddp FOLDER

writes what each rank has loaded to FOLDER/<rank>.json.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from cuaug import Batch, Loader
from cuaug import transforms as T
from tests.support.loader.further_pictures import Memory, checksums
from tests.support.loader.launch import begin, leave

CHAIN = [T.RandomHorizontalFlip(), T.ColorJitter(0.4), T.RandomErasing(1.0, value="random")]


class Case(NamedTuple):
    """One epoch's settings."""

    count: int
    batch_size: int
    last_batch: str
    on_error: str = "raise"
    damaged: tuple[int, ...] = ()

    def loader(self, **options: object) -> Loader:
        """Not shuffled where files are damaged, so that their rank is known."""
        settings = self._asdict() | {"shuffle": not self.damaged, "seed": 3, "threads": 1} | options
        return Loader(Memory(settings.pop("count"), settings.pop("damaged")), CHAIN, **settings)


# Whole and uneven, also one sample more than fits, which then goes round the ranks; fewer samples than ranks; and
# a whole batch of rank 1 that is damaged, and a part of it.
CASES = [
    *[Case(count, 4, last_batch) for count in (24, 25, 29) for last_batch in ("partial", "drop", "pad")],
    Case(7, 1, "partial"),
    Case(1, 4, "partial"),
    Case(1, 4, "pad"),
    *[
        Case(29, 4, last_batch, on_error, damaged)
        for last_batch in ("partial", "pad")
        for on_error in ("skip", "replace")
        for damaged in ((4, 5, 6, 7), (5, 6))
    ],
]


def step(model: torch.nn.Module, batch: Batch) -> None:
    model.zero_grad()
    model(batch.images.float().mean((2, 3)).cpu()).sum().backward()


def main(folder: Path) -> None:
    rank = int(os.environ["RANK"])
    begin(folder, rank)
    dist.init_process_group("gloo", timeout=timedelta(seconds=300))
    model = DistributedDataParallel(torch.nn.Linear(3, 1))
    epochs = []
    for case in CASES:
        with case.loader() as loader:
            batches = []
            for batch in loader:
                step(model, batch)
                batches.append([batch.indices.tolist(), batch.valid.tolist(), checksums(batch.images)])
            epochs.append({"length": len(loader), "batches": batches, "failed": loader.stats().failed})
    (folder / f"{rank}.json").write_text(json.dumps(epochs))
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
