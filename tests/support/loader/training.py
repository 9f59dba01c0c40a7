"""A training program to be killed: it keeps a log of the samples consumed and, after each step, the loader's state.

    python -m tests.support.loader.training FOLDER STATE PHOTOS STEPS ORDER

goes on from the file STATE, if there is one, to the end of the epoch; or it makes so many steps and waits to be killed.
Under torchrun a step is over when all ranks have written their log.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from cuaug import BUCKET, BucketSampler, Loader, make_buckets, sources
from cuaug import transforms as T
from tests.support.loader.further_pictures import checksums
from tests.support.loader.launch import begin, leave, write


def make_loader(photos: Path, order: str, batch_size: int = 2) -> Loader:
    """A loader whose order is "shuffled", or of "buckets"."""
    source = sources.open_source(photos)
    options: dict[str, Any] = {"batch_size": batch_size, "shuffle": True}
    size: Sequence[int] = (24, 24)
    if order == "buckets":
        buckets = make_buckets(24 * 24, multiple=4)
        sampler = BucketSampler(sources.sizes(source), buckets, pixels_per_batch=batch_size * 24 * 24)
        options, size = {"batch_sampler": sampler, "last_batch": "pad"}, BUCKET
    return Loader(
        source,
        [T.RandomResizedCrop(size), T.RandomHorizontalFlip(), T.ColorJitter(0.4, 0.4, 0.4)],
        **options,
        seed=8,
        on_error="replace",
        threads=2,
        prefetch=3,
    )


def main(folder: Path, state: Path, photos: Path, steps: int, order: str) -> None:
    rank = int(os.environ.get("RANK", "0"))
    begin(folder, rank)
    if "RANK" in os.environ:
        dist.init_process_group("gloo", timeout=timedelta(seconds=300))
    with make_loader(photos, order) as loader, (folder / f"{rank}.log").open("w") as log:
        if state.exists():
            loader.load_state_dict(json.loads(state.read_text()))
        for step, batch in enumerate(loader):
            if step == steps:
                time.sleep(600)
            position = loader.state_dict()["position"]
            samples = zip(batch.indices.tolist(), checksums(batch.images), strict=True)
            for sample in itertools.compress(samples, batch.valid.tolist()):
                log.write(json.dumps([position, *sample]) + "\n")
            log.flush()
            if dist.is_initialized():
                dist.barrier()
            if rank == 0:
                write(state, json.dumps(loader.state_dict()))
            time.sleep(0.02)
        if rank == 0:
            write(state, json.dumps(loader.state_dict()))
    if dist.is_initialized():
        leave()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]), int(sys.argv[4]), sys.argv[5])
