"""Steps divide each epoch exactly: no sample is lost or repeated, and all ranks have the same steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cuaug.sampling import LAST_BATCH, RankSlice, Steps

counts, batch_sizes, world_sizes = st.integers(1, 60), st.integers(1, 9), st.integers(1, 5)


def all_steps(
    count: int, batch_size: int, last_batch: str, world_size: int, start: int = 0, interleaved: bool = False
) -> list[list[RankSlice]]:
    """The rank slices of each step."""
    options = {"world_size": world_size, "start": start, "interleaved": interleaved}
    steps = [Steps(count, batch_size, last_batch, rank=rank, **options) for rank in range(world_size)]
    ranks = [list(slices) for slices in steps]
    assert {*map(len, steps)} == {*map(len, ranks)}, "len is the number of steps, the same on every rank"
    return [list(step) for step in zip(*ranks, strict=True)]


@given(counts, batch_sizes, st.sampled_from(LAST_BATCH), world_sizes, st.integers(0, 60))
@example(count=13, batch_size=4, last_batch="partial", world_size=3, start=0)  # borrows 2 samples
@example(count=2, batch_size=4, last_batch="partial", world_size=5, start=0)
def test_every_sample_once(count, batch_size, last_batch, world_size, start):
    """After each step, all ranks together have loaded a prefix of the order."""
    seen = list(range(start))
    for slices in all_steps(count, batch_size, last_batch, world_size, start):
        assert len({rank_slice.end for rank_slice in slices}) == 1
        seen += [p for rank_slice in slices for p in rank_slice.positions[rank_slice.valid].tolist()]
        assert sorted(seen) == list(range(slices[0].end))
    remaining = max(0, count - start)
    if last_batch == "drop":
        remaining -= remaining % (batch_size * world_size)
    assert len(seen) == start + remaining


@given(counts, batch_sizes, st.sampled_from(LAST_BATCH), world_sizes)
@example(count=5, batch_size=2, last_batch="partial", world_size=2)  # borrows 1 sample, of the smallest batches
def test_sizes_of_batches(count, batch_size, last_batch, world_size):
    steps = all_steps(count, batch_size, last_batch, world_size)
    for number, slices in enumerate(steps):
        for rank_slice in slices:
            assert len(rank_slice.positions) == len(rank_slice.valid) > 0
            assert (rank_slice.positions >= 0).all() and (rank_slice.positions < count).all()
            assert rank_slice.kept in (0, len(rank_slice.positions)) and len(rank_slice.positions) <= batch_size
            if last_batch != "partial" or number < len(steps) - 2:
                assert rank_slice.kept == batch_size
        kept = [rank_slice.kept for rank_slice in slices]
        assert max(kept) - min(kept) <= 1, "ranks have equal work"
        if last_batch == "partial" and batch_size > 1 and count >= world_size:
            assert min(kept) >= 1, "no rank is left without a sample"
    if last_batch == "drop":
        assert all(rank_slice.valid.all() for slices in steps for rank_slice in slices)


@given(counts, batch_sizes, world_sizes)
def test_padding_repeats_the_start_of_the_order(count, batch_size, world_size):
    steps = all_steps(count, batch_size, "pad", world_size)
    flat = np.concatenate([rank_slice.positions for slices in steps for rank_slice in slices])
    np.testing.assert_array_equal(flat, np.arange(len(flat)) % count)
    valid = np.concatenate([rank_slice.valid for slices in steps for rank_slice in slices])
    np.testing.assert_array_equal(valid, np.arange(len(flat)) < count)


def test_a_missing_step_is_an_index_error():
    steps = Steps(10, 4, "drop")
    for step in (2, -1):
        with pytest.raises(IndexError, match="of 2"):
            steps[step]
