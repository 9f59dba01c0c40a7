"""torchrun with a DDP step per batch: equal steps on all ranks, which together make one epoch."""

from __future__ import annotations

import functools
import json
from collections import Counter

import pytest
import torch

from tests.support.loader import ddp
from tests.support.loader.further_pictures import checksums
from tests.support.loader.launch import Launch


@functools.cache
def alone(case: ddp.Case, device: str) -> list[tuple[int, bool, str]]:
    """(index, valid, checksum) of an epoch in one process, in order."""
    with case.loader(batch_size=5, last_batch="partial", device=device) as loader:
        return [
            sample
            for batch in loader
            for sample in zip(batch.indices.tolist(), batch.valid.tolist(), checksums(batch.images), strict=True)
        ]


@pytest.mark.slow
def test_torchrun(tmp_path, loaders_device):
    world_size = 3  # uneven shares and empty ranks, as two would have, and a rank between the first and the last
    if loaders_device == "cuda" and 1 < torch.cuda.device_count() < world_size:
        pytest.skip(f"needs a GPU for each of {world_size} processes, or one that they share")
    with Launch("tests.support.loader.ddp", tmp_path / "run", world_size=world_size) as launch:
        assert launch.wait() == 0, launch.output
    ranks = [json.loads((launch.folder / f"{rank}.json").read_text()) for rank in range(world_size)]
    for number, case in enumerate(ddp.CASES):
        epochs = [rank[number] for rank in ranks]
        steps = {len(epoch["batches"]) for epoch in epochs} | {epoch["length"] for epoch in epochs}
        assert len(steps) == 1, f"{case}: {steps} steps"
        samples = [sample for epoch in epochs for batch in epoch["batches"] for sample in zip(*batch, strict=True)]
        valid = Counter(sample for sample in samples if sample[1])
        want = alone(case, loaders_device)
        whole = Counter(sample for sample in want if sample[1])
        if case.last_batch == "drop":
            full = steps.pop() * case.batch_size * world_size
            assert case.count - case.batch_size * world_size < full <= case.count
            assert valid == Counter(want[:full]), case
        else:
            assert valid == whole and sum(whole.values()) == case.count - len(case.damaged), case
        if case.damaged:
            assert [epoch["failed"] for epoch in epochs][1] >= len(case.damaged), "they are on rank 1"
        if case.on_error == "replace" and case.last_batch == "partial":
            assert Counter(samples) == Counter(want), "those in place of damaged ones are the same, too"
        if case.last_batch == "pad" and case.on_error != "skip":
            assert {len(batch[0]) for epoch in epochs for batch in epoch["batches"]} == {case.batch_size}
