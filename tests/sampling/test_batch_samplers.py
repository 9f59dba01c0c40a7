"""Batch samplers: a Loader yields their batches, on one rank and on several."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler, Sampler

from cuaug import Loader, LoaderError, TokenBudgetSampler, sources
from cuaug.sampling import BatchSteps, batch_samplers, order_of
from cuaug.sampling.batch_samplers import open_batch_sampler
from tests.support.loader.further_pictures import Memory, numbers_of


class Grouped(BatchSampler):
    """As torchvision's GroupedBatchSampler: the images of a batch are of one group; the epoch is full batches."""

    def __init__(self, sampler: Any, groups: list[int], batch_size: int) -> None:
        self.sampler, self.groups, self.batch_size = sampler, groups, batch_size

    def __iter__(self) -> Iterator[list[int]]:
        waiting, seen, count = defaultdict(list), defaultdict(list), 0
        for index in self.sampler:
            group = self.groups[index]
            waiting[group].append(index)
            seen[group].append(index)
            if len(waiting[group]) == self.batch_size:
                yield waiting.pop(group)
                count += 1
        for group, batch in sorted(waiting.items(), key=lambda item: -len(item[1])):
            if count < len(self):
                yield (batch + seen[group] * self.batch_size)[: self.batch_size]
                count += 1

    def __len__(self) -> int:
        return len(self.sampler) // self.batch_size


class OnlyIter:
    """A batch sampler with what DataLoader needs, and nothing else."""

    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)


class Batches(OnlyIter):
    def __init__(self, batches: list[Any], **attributes: Any) -> None:
        super().__init__(batches)
        self.__dict__.update(attributes)

    def __len__(self) -> int:
        return len(self.batches)


class OfEpoch(Sampler[int]):
    """Its order depends on its own epoch, as that of mmengine's DefaultSampler."""

    def __init__(self, count: int) -> None:
        self.count, self.epoch = count, 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        return iter(np.random.default_rng(self.epoch).permutation(self.count).tolist())

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


class Shifted(OnlyIter):
    """A batch sampler around another, with an epoch of its own; it chooses that of the sampler inside."""

    def __init__(self, inner: Any, name: str) -> None:
        super().__init__(inner)
        setattr(self, name, inner)
        self.epoch = 0

    def __iter__(self) -> Iterator[Any]:
        batches = list(self.batches)
        return iter(batches[self.epoch % len(batches) :] + batches[: self.epoch % len(batches)])

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches.sampler.set_epoch(epoch + 5)


GROUPS = [number % 3 for number in range(31)]


def grouped(count: int = 31, batch_size: int = 4) -> Grouped:
    return Grouped(RandomSampler(range(count)), GROUPS, batch_size)


def batches_of(batch_sampler: Any, count: int = 31, epoch: int = 0, **options: Any) -> list[list[int]]:
    with Loader(Memory(count), batch_sampler=batch_sampler, device="cpu", seed=0, threads=2, **options) as loader:
        loader.set_epoch(epoch)
        batches = [numbers_of(batch.images) for batch in loader]
        assert len(batches) == len(loader)
        return batches


def test_batches_of_one_group():
    first, second = batches_of(grouped()), batches_of(grouped(), epoch=1)
    assert first != second and first == batches_of(grouped()), "a function of seed and epoch"
    for batches in (first, second):
        assert [len(batch) for batch in batches] == [4] * 7
        assert all(len({GROUPS[index] for index in batch}) == 1 for batch in batches)


COUNT = 20
_indices = st.lists(st.integers(0, COUNT - 1), min_size=1, max_size=7)
_kinds = st.sampled_from([list, tuple, np.array, torch.tensor, np.uint8, lambda batch: [*map(torch.tensor, batch)]])
_lists = st.lists(_indices, min_size=1, max_size=6)
_batch_samplers = st.one_of(
    st.tuples(_lists, _kinds, st.sampled_from([OnlyIter, Batches, list])).map(
        lambda drawn: lambda: drawn[2]([drawn[1](batch) for batch in drawn[0]])
    ),
    st.tuples(st.integers(1, 7), st.booleans()).map(lambda drawn: lambda: BatchSampler(OfEpoch(COUNT), *drawn)),
    st.tuples(st.integers(1, 7), st.sampled_from(["sampler", "batch_sampler", "inner"])).map(
        lambda drawn: lambda: Shifted(BatchSampler(OfEpoch(COUNT), drawn[0], False), drawn[1])
    ),
)


@given(_batch_samplers, st.integers(0, 3))
def test_batches_are_those_of_dataloader(make, epoch):
    """Of any object that DataLoader takes; its sampler and the one inside know the epoch."""
    sampler = make()
    for level in (getattr(sampler, "sampler", None), sampler):
        if hasattr(level, "set_epoch"):
            level.set_epoch(epoch)
    wanted = [[int(i) for i in batch] for batch in DataLoader(range(COUNT), batch_sampler=sampler, collate_fn=list)]
    order, _ = open_batch_sampler(make(), COUNT, 1, excluded=False)
    indices = order_of(order, 0, epoch, COUNT)
    assert [batch.tolist() for batch in np.split(indices, order.ends[:-1])] == wanted


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=12),
    st.integers(1, 4),
    st.sampled_from(["partial", "drop", "pad"]),
    st.integers(0, 12),
)
def test_ranks_share_whole_batches(sizes, world_size, last_batch, start):
    """From any batch on: all batches once, in turn; "drop" leaves out, and "pad" fills, what is not for every rank."""
    ends = np.cumsum(sizes)
    batches = [list(range(end - size, end)) for size, end in zip(sizes, ends.tolist(), strict=True)]
    begin, rest = ([0, *ends.tolist()])[min(start, len(sizes))], batches[start:]
    odd = len(rest) % world_size
    make = partial(BatchSteps, ends, last_batch, world_size=world_size, start=begin)
    if (odd and last_batch == "partial") or (not start and last_batch == "drop" and len(rest) < world_size):
        with pytest.raises(LoaderError, match=r"do not fill|fewer than"):
            make()
        return
    steps = [list(make(rank=rank)) for rank in range(world_size)]
    got = [rank_slice for step in zip(*steps, strict=True) for rank_slice in step]
    if last_batch == "drop":
        rest = rest[: len(rest) - odd]
    padded = (batches * world_size)[: -len(rest) % world_size]
    assert [rank_slice.positions.tolist() for rank_slice in got] == rest + padded
    assert [rank_slice.valid.all() for rank_slice in got] == [True] * len(rest) + [False] * len(padded)
    assert all(len({*rank_slice.valid}) == 1 and rank_slice.kept == len(rank_slice.positions) for rank_slice in got)
    done = [rest[min(begin + world_size, len(rest)) - 1][-1] + 1 for begin in range(0, len(rest), world_size)]
    assert [rank_slice.end for rank_slice in steps[0]] == done


def test_the_rest_of_a_divided_batch_is_a_batch():
    """A state of batches of 3 continues with batches of 4."""
    steps = BatchSteps(np.array([4, 6]), "partial", start=3)
    assert [rank_slice.positions.tolist() for rank_slice in steps] == [[3], [4, 5]]


def test_batches_of_any_lengths_resume_and_replay():
    batches = [[3], [1, 2, 7, 4], [0, 5], [6, 3, 3]]
    with Loader(Memory(8), batch_sampler=OnlyIter(batches), device="cpu", seed=0) as loader:
        assert loader.batch_size is None and len(loader.sampler) == 8
        with pytest.raises(TypeError, match="the batch_sampler, OnlyIter, has no length"):
            len(loader)
        fresh, iterator = loader.state_dict(), iter(loader)
        first = [next(iterator) for _ in range(2)]
        state = loader.state_dict()
        iterator.close()
        assert loader.replay(0, 1).digest == first[1].digest
    with Loader(Memory(8), batch_sampler=OnlyIter(batches), device="cpu", seed=0) as loader:
        loader.load_state_dict(fresh)
        loader.load_state_dict(state)
        assert loader.peek().indices.tolist() == [0, 5]
        assert [batch.indices.tolist() for batch in loader] == batches[2:]
    with (
        Loader(Memory(8), batch_sampler=OnlyIter(batches[:3]), device="cpu", seed=0) as loader,
        pytest.raises(LoaderError, match="number of samples in an epoch: 10 in the state, 7 here"),
    ):
        loader.load_state_dict(state)


@pytest.mark.parametrize("length", [2**62, 2**64, -1, None, NotImplementedError()])
def test_the_length_is_not_needed(length):
    class Strange(OnlyIter):
        def __len__(self) -> Any:
            if isinstance(length, Exception):
                raise length
            return length

    with Loader(Memory(8), batch_sampler=Strange([[1, 2], [3]]), device="cpu", seed=0) as loader:
        assert [batch.indices.tolist() for batch in loader] == [[1, 2], [3]]
        if length == 2**62:
            assert len(loader) == 2**62
        else:
            with pytest.raises(TypeError, match="Strange, has no length"):
                len(loader)


def test_endless_batch_samplers_are_refused(monkeypatch):
    monkeypatch.setattr(batch_samplers, "_MOST_INDICES", 100)
    endless = OnlyIter(itertools.repeat([1, 2]))
    with pytest.raises(LoaderError, match="does not end: it yields more than 100 indices in an epoch"):
        batches_of(endless, 2)


def test_an_iterator_has_one_epoch():
    with Loader(Memory(8), batch_sampler=iter([[1, 2], [3]]), device="cpu") as loader:
        assert [batch.indices.tolist() for batch in loader] == [[1, 2], [3]]
        with pytest.raises(LoaderError, match="yields no batch; an iterator or generator ends with its first epoch"):
            next(iter(loader))


def test_ranks_that_would_divide_a_batch_are_refused():
    message = (
        "batch_sampler: 2 ranks take whole batches in turn, which 7 batches do not fill: use last_batch='drop' or 'pad'"
    )
    with pytest.raises(LoaderError, match=message):
        Loader(Memory(31), batch_sampler=grouped(), rank=0, world_size=2, seed=0)
    assert len(batches_of(grouped(24), 24, rank=0, world_size=2)) == 3
    with pytest.raises(LoaderError, match="leaves no batch: batch_sampler has 2, fewer than 3 ranks"):
        batches_of(OnlyIter([[1], [2]]), 9, rank=0, world_size=3, last_batch="drop")


@pytest.mark.parametrize(
    ("batch_sampler", "options", "message"),
    [
        (grouped(), {"shuffle": True}, "batch_sampler sets the order: leave out shuffle and sampler"),
        (grouped(), {"sampler": [1]}, "batch_sampler sets the order"),
        (grouped(), {"batch_size": 8}, "batch_size is 8, but batch_sampler has batches of 4"),
        (
            Grouped(DistributedSampler(range(31), 2, 0), GROUPS, 4),
            {},
            r"batch_sampler\.sampler is a DistributedSampler, which divides .* use shuffle=True, or an undivided",
        ),
        (Batches([[0]], num_replicas=2, rank=0), {}, "batch_sampler is a Batches, which divides the samples"),
        (7, {}, "batch_sampler yields lists of indices, unlike int"),
    ],
)
def test_unsuitable_batch_samplers_are_refused(batch_sampler, options, message):
    with pytest.raises(LoaderError, match=message):
        Loader(Memory(31), batch_sampler=batch_sampler, device="cpu", **options)


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([], "batch_sampler yields no batch"),
        ([[0, 1], []], "a batch without samples, number 1"),
        (["01"], "yields lists of indices, not '01'"),
        ([[0], [2**70]], "yields lists of indices, not .1180591620717411303424."),
        ([0, 1], "batch_sampler yields lists of indices, not 0: is it a sampler="),
        ([[0, 1], [2, 31]], "index 31"),
        ([[0, 1], [2, 0.5]], r"yields lists of indices, not \[2, 0.5\]"),
        ([np.zeros((2, 2), int)], "yields lists of indices, not array"),
    ],
)
def test_batches_that_do_not_fit_are_refused(batches, message):
    with pytest.raises(LoaderError, match=message):
        batches_of(Batches(batches), batch_size=2)


@pytest.mark.parametrize("kind", [list, tuple, np.array, torch.tensor])
def test_lists_of_batches(kind):
    batches = [kind([3, 1]), kind([2, 0]), kind([4])]
    assert batches_of(batches) == batches_of(Batches(batches[:2] + [kind([4, 4])]), batch_size=2)[:2] + [[4]]
    with Loader(Memory(31), batch_sampler=batches, device="cpu") as loader:
        assert loader.batch_size == 2 and len(loader) == 3


def test_streams_refuse_batch_samplers():
    source = sources.FromIterable([(np.zeros((2, 2, 3), np.uint8), 0)] * 8, 8)
    with pytest.raises(LoaderError, match="shuffle and sampler"):
        Loader(source, batch_sampler=[[0, 1]], device="cpu")


# --- TokenBudgetSampler: each sample once, within the budget, and nearly no room left ---------------------------------

BUDGET = 16_384


@given(st.lists(st.integers(0, 50), min_size=1, max_size=300), st.integers(50, 200), st.booleans())
def test_an_epoch_has_each_sample_once_within_the_budget(tokens, budget, shuffle):
    sampler = TokenBudgetSampler(tokens, budget, shuffle=shuffle)
    torch.manual_seed(3)
    first = list(sampler)
    assert sorted(i for batch in first for i in batch) == list(range(len(tokens)))
    assert all(batch and sum(tokens[i] for i in batch) <= budget for batch in first)
    # Best fit never leaves two batches that would fit into one.
    sums = sorted(sum(tokens[i] for i in batch) for batch in first)
    assert len(sums) < 2 or sums[0] + sums[1] > budget
    torch.manual_seed(3)
    assert list(sampler) == first


@pytest.mark.parametrize("most", [1024, 4096, 16_000])
def test_nearly_no_room_is_left(most):
    """At most 2 % of the budget of all batches, for photos of many sizes and for the largest that fit."""
    tokens = np.random.default_rng(0).integers(most // 4, most + 1, 20_000) // (1 if most < 9000 else 4)
    sampler = TokenBudgetSampler(tokens, BUDGET)
    batches = list(sampler)
    assert tokens.sum() >= 0.98 * BUDGET * len(batches)
    assert list(sampler) != batches, "the next epoch has another order"


def test_large_samples_do_not_wait_to_the_end():
    """Of samples that no batch has room for two of, the memory of those that wait stays bounded."""
    batches = list(TokenBudgetSampler(np.full(10_000, 9000), BUDGET, shuffle=False))
    assert [len(batch) for batch in batches] == [1] * 10_000


@pytest.mark.parametrize(
    ("tokens", "budget", "message"),
    [
        ([], 5, "tokens must be integers"),
        ([[1]], 5, "tokens must be integers"),
        ([1.5], 5, "tokens must be integers"),
        ([-1], 5, "tokens must be integers"),
        ([3, 9], 8, "budget must be at least 9, the tokens of sample 1, not 8"),
        ([1], 0, "budget must be"),
    ],
)
def test_bad_arguments_are_refused(tokens, budget, message):
    with pytest.raises(LoaderError, match=message):
        TokenBudgetSampler(tokens, budget)
