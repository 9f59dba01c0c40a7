"""An epoch that is stopped and resumed on other numbers of ranks loads each sample once."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuaug.sampling import Order, Progress, ShardSampler, ShuffledOrder, Steps

SAMPLES = 3_000


def run(sampler: Order, jobs: list[tuple[int, int, int]], last_batch: str) -> np.ndarray:
    """How often each sample came. A job is (ranks, batch size, steps until it dies); the last one ends the epoch."""
    counts = np.zeros(SAMPLES, dtype=int)
    state: str | None = None
    for number, (ranks, batch_size, lifetime) in enumerate(jobs):
        reached = set()
        for rank in range(ranks):
            progress = Progress(sampler, SAMPLES, 7, None)
            if state is not None:
                progress.load_state_dict(json.loads(state))
            epoch, start = progress.begin()
            steps = Steps(SAMPLES, batch_size, last_batch, rank=rank, world_size=ranks, start=start)
            for step in range(len(steps) if number == len(jobs) - 1 else min(lifetime, len(steps))):
                rank_slice = steps[step]
                np.add.at(counts, epoch.indices[rank_slice.positions[rank_slice.valid]], 1)
                progress.advance(epoch, rank_slice.end)
            reached.add(json.dumps(progress.state_dict()))
        assert len(reached) == 1, "all ranks save the same state"
        state = reached.pop()
    return counts


SAMPLERS = {"shuffled": ShuffledOrder(SAMPLES), "shards": ShardSampler([700, 1, 999, 1_300], window=100)}


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_fifty_ranks_with_elastic_restarts(sampler):
    jobs = [(50, 8, 2), (48, 8, 1), (25, 8, 3), (50, 4, 1), (51, 8, 0)]
    assert (run(SAMPLERS[sampler], jobs, "partial") == 1).all()


@pytest.mark.parametrize("last_batch", ["partial", "pad"])
@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 64), st.integers(0, 5)), min_size=1, max_size=5))
def test_any_restarts(last_batch, jobs):
    assert (run(SAMPLERS["shuffled"], jobs, last_batch) == 1).all()
