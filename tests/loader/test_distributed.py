"""torchrun with a DDP step per batch: equal steps on all ranks, which together make one epoch."""

from __future__ import annotations

import functools
import json
from collections import Counter

import pytest
import torch

from tests.support.loader import ddp, disagreeing
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


# --- ranks that are about to load different data, or that iterate alone ---------------------------------------------

COUNT = disagreeing.COUNT
DIFFERENCES = [
    "seed is 0 on rank 0, 1 on rank 1",
    "batch_size is 4 on rank 0, 5 on rank 1",
    "the fingerprint of the source is 'files 0' on rank 0, 'files 1' on rank 1",
    f"the number of samples is {COUNT} on rank 0, {COUNT + 1} on rank 1",
    "last_batch is 'drop' on rank 0, 'pad' on rank 1",
    "the checksum of the order is",
]


@pytest.mark.slow
@pytest.mark.cpu_only
def test_two_ranks(tmp_path):
    """All of them raise, and none hangs."""
    with Launch("tests.support.loader.disagreeing", tmp_path / "run", world_size=2) as launch:
        assert launch.wait() == 0, launch.output
    first, second = (json.loads((launch.folder / f"{rank}.json").read_text()) for rank in range(2))
    names = [getattr(case, "__name__", "") for case in disagreeing.CASES]
    cases = dict(zip(names, zip(first, second, strict=True), strict=True))
    for difference, outcomes in zip(DIFFERENCES, zip(first, second, strict=True), strict=False):
        for message in outcomes:
            assert difference in message, message
    for message in cases["peeking_by_next"]:
        assert "loader.peek()" in message, message
    nothing, message = cases["alone"]
    assert nothing == [] and "rank 0 did not begin this iteration" in message
    for name in ("peeking", "slow_checkpoint"):
        zero, one = cases[name]
        assert len(zero) == len(one) == COUNT
        assert sorted(zero[: COUNT // 2] + one[: COUNT // 2]) == [*range(COUNT)], "one exact epoch"
    assert "rank 1 waits for rank 0" in launch.output
    zero, one = cases["breaks"]
    assert len(zero) == len(one) == 8 + COUNT
    assert sorted(cases["one_rank_on_purpose"][0]) == [*range(COUNT)]
    (seed, *zero), (same, *one) = cases["drawn_seed"]
    assert seed == same and sorted(zero + one) == [*range(COUNT)]
    assert launch.output.count(f"the seed is {seed}, from torch's generator") == 2
