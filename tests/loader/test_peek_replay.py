"""`peek` moves nothing; `replay` makes any batch again."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import RandomSampler

from cuaug import ArgumentError, Batch, Loader, LoaderError
from cuaug import transforms as T
from tests.support.loader.further_pictures import Memory

pytestmark = pytest.mark.cpu_only
CHAIN = [T.RandomHorizontalFlip(), T.ColorJitter(0.4), T.MixUp(num_classes=20)]


def loader(count: int = 20, **options) -> Loader:
    return Loader(Memory(count), CHAIN, **{"batch_size": 3, "shuffle": True, "seed": 5, "threads": 1} | options)


def same(a: Batch, b: Batch) -> bool:
    fields = ("images", "labels", "indices", "valid")
    return a.epoch == b.epoch and all(torch.equal(getattr(a, name), getattr(b, name)) for name in fields)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 8), max_size=3), st.integers(1, 3))
def test_peeking_moves_nothing(stops, times):
    """At the beginning, in the middle (after a loaded state), and between epochs."""
    with loader() as peeked, loader() as other:
        for stop in stops:
            both = iter(peeked), iter(other)
            for batch, want in ([next(each, None) for each in both] for _ in range(stop)):
                assert batch is want is None or same(batch, want)
            for each in (peeked, other):
                each.load_state_dict(each.state_dict())
            before = peeked.state_dict(), peeked.epoch
            try:
                views = [peeked.peek() for _ in range(times)]
            except LoaderError as error:
                assert "no batch is left" in str(error) and len(list(other)) == len(list(peeked)) == 0
                continue
            assert (peeked.state_dict(), peeked.epoch) == before
            batch = next(iter(peeked))
            assert same(batch, next(iter(other))) and all(same(view, batch) for view in views)


def test_peeking_asks_a_sampler_with_its_own_generator_once():
    sampler = RandomSampler(range(20), generator=torch.Generator().manual_seed(1))
    with loader(sampler=sampler, shuffle=False) as peeked:
        for _ in range(2):
            view = peeked.peek()
            assert same(view, next(iter(peeked)))


def test_peeking_during_an_iteration_shows_the_next_epoch():
    with loader() as peeked:
        batches = iter(peeked)
        first = next(batches)
        assert peeked.peek().epoch == 1 and first.epoch == 0
        assert sum(len(batch) for batch in batches) >= 0


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 3), st.sampled_from(["partial", "drop", "pad"]), st.integers(0, 1))
def test_any_batch_can_be_made_again(epoch, last_batch, rank):
    with (
        loader(last_batch=last_batch, rank=rank, world_size=2) as first,
        loader(last_batch=last_batch, rank=rank, world_size=2, threads=2) as second,
    ):
        first.set_epoch(epoch)
        batches = list(first)
        next(iter(second))
        state = second.state_dict()
        for step, batch in reversed([*enumerate(batches)]):
            assert same(second.replay(epoch, step), batch)
        assert second.state_dict() == state and second.epoch == 1


def test_an_epoch_has_no_more_steps():
    with loader() as made, pytest.raises(ArgumentError, match=r"^step must be from 0 to 6, .* not 7$"):
        made.replay(0, 7)
    with loader() as made, pytest.raises(LoaderError, match=r"^epoch must be an integer of at least 0"):
        made.replay(-1, 0)
    made = loader()
    made.close()
    with pytest.raises(LoaderError, match="closed"):
        made.peek()
