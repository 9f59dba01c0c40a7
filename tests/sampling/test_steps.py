"""Every epoch is divided exactly: no sample lost, none twice, and as many steps on every rank."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cuaug.sampling import LAST_BATCH, RankSlice, Steps

counts, batch_sizes, world_sizes = st.integers(1, 60), st.integers(1, 9), st.integers(1, 5)


def all_steps(count: int, batch_size: int, last_batch: str, world_size: int, start: int = 0) -> list[list[RankSlice]]:
    """For each step the shares of all ranks."""
    ranks = [
        list(Steps(count, batch_size, last_batch, rank=rank, world_size=world_size, start=start))
        for rank in range(world_size)
    ]
    lengths = {
        len(Steps(count, batch_size, last_batch, rank=rank, world_size=world_size, start=start))
        for rank in range(world_size)
    }
    assert lengths == {len(shares) for shares in ranks}, "len is the number of steps, the same on every rank"
    return [list(step) for step in zip(*ranks, strict=True)]


@given(counts, batch_sizes, st.sampled_from(LAST_BATCH), world_sizes, st.integers(0, 60))
@example(count=13, batch_size=4, last_batch="partial", world_size=3, start=0)  # 13 = 12 + 1: the last step borrows two
@example(count=2, batch_size=4, last_batch="partial", world_size=5, start=0)
def test_every_sample_once(count, batch_size, last_batch, world_size, start):
    steps = all_steps(count, batch_size, last_batch, world_size, start)
    seen = [p for shares in steps for share in shares for p in share.positions[share.valid].tolist()]
    left = max(0, count - start)
    if last_batch == "drop":
        left -= left % (batch_size * world_size)
    assert sorted(seen) == list(range(start, start + left)) if left else not seen


@given(counts, batch_sizes, st.sampled_from(LAST_BATCH), world_sizes, st.integers(0, 60))
def test_what_all_ranks_have_loaded_is_a_prefix_of_the_order(count, batch_size, last_batch, world_size, start):
    seen = list(range(start))
    for shares in all_steps(count, batch_size, last_batch, world_size, start):
        assert len({share.end for share in shares}) == 1
        seen += [p for share in shares for p in share.positions[share.valid].tolist()]
        assert sorted(seen) == list(range(shares[0].end))


@given(counts, batch_sizes, st.sampled_from(LAST_BATCH), world_sizes)
def test_sizes_of_batches(count, batch_size, last_batch, world_size):
    steps = all_steps(count, batch_size, last_batch, world_size)
    for number, shares in enumerate(steps):
        for share in shares:
            assert len(share.positions) == len(share.valid) > 0
            assert (share.positions >= 0).all() and (share.positions < count).all()
            assert share.kept in (0, len(share.positions)) and len(share.positions) <= batch_size
            if last_batch != "partial" or number < len(steps) - 2:
                assert share.kept == batch_size
        kept = [share.kept for share in shares]
        assert max(kept) - min(kept) <= 1, "ranks have equally much to do"
        if last_batch == "partial" and batch_size > 1 and count >= world_size:
            assert min(kept) >= 1, "no rank is left without a sample"
    if last_batch == "drop":
        assert all(share.valid.all() for shares in steps for share in shares)


@given(counts, batch_sizes, world_sizes)
def test_padding_is_the_orders_beginning(count, batch_size, world_size):
    steps = all_steps(count, batch_size, "pad", world_size)
    flat = np.concatenate([share.positions for shares in steps for share in shares])
    np.testing.assert_array_equal(flat, np.arange(len(flat)) % count)
    valid = np.concatenate([share.valid for shares in steps for share in shares])
    np.testing.assert_array_equal(valid, np.arange(len(flat)) < count)


@given(counts, batch_sizes, st.sampled_from(["partial", "pad"]), world_sizes, batch_sizes, world_sizes, st.data())
def test_going_on_with_other_ranks_and_batches(count, batch, last, world, batch_after, world_after, data):
    before = all_steps(count, batch, last, world)
    stop = data.draw(st.integers(0, len(before)))
    start = before[stop - 1][0].end if stop else 0
    after = all_steps(count, batch_after, last, world_after, start)
    seen = [p for shares in before[:stop] + after for s in shares for p in s.positions[s.valid].tolist()]
    assert sorted(seen) == list(range(count))
    if (batch, world) == (batch_after, world_after):
        for a, b in zip(before[stop:], after, strict=True):
            assert [s.positions[s.valid].tolist() for s in a] == [s.positions[s.valid].tolist() for s in b]


def test_a_step_that_is_not_there():
    steps = Steps(10, 4, "drop")
    for step in (2, -1):
        with pytest.raises(IndexError, match="of 2"):
            steps[step]
