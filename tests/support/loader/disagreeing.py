"""Ranks that are about to load different data, one case after the other.

    torchrun -m tests.support.loader.disagreeing FOLDER

writes each rank's outcomes to FOLDER/<rank>.json: (seconds, an error's message or the indices that were loaded).
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from cuaug import Batch, Loader, RankError
from cuaug._runtime import ranks
from tests.support.loader.further_pictures import Memory, Named
from tests.support.loader.launch import begin, leave

COUNT = 24
WAIT = 2.0


def indices(batches: Iterable[Batch]) -> list[int]:
    return [index for batch in batches for index in batch.indices.tolist()]


def loader(files: Any = None, **settings: Any) -> Loader:
    return Loader(files or Memory(COUNT), **{"batch_size": 4, "shuffle": True, "seed": 3, "threads": 1} | settings)


def peeking_by_next(rank: int) -> list[int]:
    train = loader()
    if rank == 0:
        next(iter(train))
    return indices(train) + indices(train)


def peeking(rank: int) -> list[int]:
    train = loader()
    if rank == 0:
        peeked = train.peek()
    seen = list(train)
    if rank == 0:
        assert torch.equal(peeked.images, seen[0].images) and peeked.indices.equal(seen[0].indices)
    return indices(seen) + indices(train)


def alone(rank: int) -> list[int]:
    if rank == 1:
        return indices(loader())
    time.sleep(2 * WAIT)
    return []


def slow_checkpoint(rank: int) -> list[int]:
    """Rank 0 takes longer than the limit between two epochs."""
    train = loader()
    seen = indices(train)
    if rank == 0:
        time.sleep(1.5 * WAIT)
    return seen + indices(train)


def breaks(rank: int) -> list[int]:
    """All ranks leave an epoch early, and iterate twice at once."""
    train = loader()
    seen = indices(itertools.islice(train, 2))
    for first, second in zip(train, train, strict=True):
        seen += indices([first, second])
    return seen


def one_rank_on_purpose(rank: int) -> list[int]:
    return indices(loader(rank=0, world_size=1)) if rank == 0 else []


def drawn_seed(rank: int) -> list[int]:
    torch.manual_seed(rank)
    train = loader(seed=None)
    return [train.seed, *indices(train)]


CASES: list[Callable[[int], list[int]]] = [
    lambda rank: indices(loader(seed=rank)),
    lambda rank: indices(loader(batch_size=4 + rank)),
    lambda rank: indices(loader(Named(f"files {rank}", COUNT))),
    lambda rank: indices(loader(Memory(COUNT + rank))),
    lambda rank: indices(loader(last_batch=("drop", "pad")[rank])),
    lambda rank: indices(loader(sampler=[rank, 2, 3], shuffle=False)),
    peeking_by_next,
    peeking,
    slow_checkpoint,
    breaks,
    one_rank_on_purpose,
    drawn_seed,
    alone,
]


def main(folder: Path) -> None:
    rank = int(os.environ["RANK"])
    begin(folder, rank)
    logging.basicConfig(level="INFO")
    ranks.WAIT_SECONDS = WAIT
    dist.init_process_group("gloo", timeout=timedelta(seconds=300))
    outcomes: list[Any] = []
    for case in CASES:
        dist.barrier()
        try:
            outcome: Any = case(rank)
        except RankError as error:
            outcome = str(error)
        outcomes.append(outcome)
    dist.barrier()
    (folder / f"{rank}.json").write_text(json.dumps(outcomes))
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
