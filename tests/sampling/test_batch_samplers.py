"""Batch samplers: a Loader yields their batches, on one rank and on several."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, SequentialSampler

from cuaug import Loader, LoaderError, sources
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


class Batches:
    """A batch sampler without a base class."""

    def __init__(self, batches: list[Any], **attributes: Any) -> None:
        self.batches = batches
        self.__dict__.update(attributes)

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)


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


@pytest.mark.parametrize("drop_last", [False, True])
def test_torchs_batch_sampler(drop_last):
    batches = batches_of(BatchSampler(SequentialSampler(range(10)), 4, drop_last), 10)
    assert batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]][: 3 - drop_last]


@given(st.integers(1, 40), st.integers(1, 7), st.booleans(), st.integers(1, 3))
def test_batches_are_those_of_the_batch_sampler(count, batch_size, drop_last, world_size):
    wanted = list(BatchSampler(SequentialSampler(range(count)), batch_size, drop_last))
    if not wanted:
        return
    ranks = []
    for rank in range(world_size):
        sampler = BatchSampler(SequentialSampler(range(count)), batch_size, drop_last)
        last_batch = "partial" if world_size == 1 else "drop"
        options = {"rank": rank, "world_size": world_size, "last_batch": last_batch, "device": "cpu", "seed": 0}
        if len([batch for batch in wanted if len(batch) == batch_size]) < world_size > 1:
            return
        with Loader(Memory(count), batch_sampler=sampler, threads=1, **options) as loader:
            ranks.append([batch.indices.tolist() for batch in loader])
    got = [batch for step in zip(*ranks, strict=True) for batch in step]
    full = [batch for batch in wanted if len(batch) == batch_size]
    assert got == (wanted if world_size == 1 else full[: len(full) // world_size * world_size])


@pytest.mark.parametrize("last_batch", ["drop", "pad"])
def test_ranks_take_batches_in_turn(last_batch):
    alone = batches_of(grouped())
    ranks = [batches_of(grouped(), rank=rank, world_size=2, last_batch=last_batch) for rank in range(2)]
    together = [batch for step in zip(*ranks, strict=True) for batch in step]
    assert together == (alone[:6] if last_batch == "drop" else [*alone, alone[0]])


def test_ranks_that_would_divide_a_batch_are_refused():
    message = (
        "batch_sampler: 2 ranks take whole batches of 4 in turn, which 28 samples do not fill: use last_batch='drop'"
    )
    with pytest.raises(LoaderError, match=message):
        Loader(Memory(31), batch_sampler=grouped(), rank=0, world_size=2, seed=0)
    assert len(batches_of(grouped(24), 24, rank=0, world_size=2)) == 3


def test_resuming_on_other_ranks():
    alone = batches_of(grouped(24), 24)
    with Loader(Memory(24), batch_sampler=grouped(24), device="cpu", seed=0) as loader:
        iterator = iter(loader)
        for _ in range(2):
            next(iterator)
        state = loader.state_dict()
        iterator.close()
    ranks = []
    for rank in range(2):
        with Loader(Memory(24), batch_sampler=grouped(24), rank=rank, world_size=2, device="cpu", seed=0) as loader:
            loader.load_state_dict(state)
            ranks.append([numbers_of(batch.images) for batch in loader])
    assert [batch for step in zip(*ranks, strict=True) for batch in step] == alone[2:]


@pytest.mark.parametrize(
    ("batch_sampler", "options", "message"),
    [
        (grouped(), {"shuffle": True}, "batch_sampler sets the order: leave out shuffle and sampler"),
        (grouped(), {"sampler": [1]}, "batch_sampler sets the order"),
        (grouped(), {"batch_size": 8}, "batch_size is 8, but batch_sampler has batches of 4"),
        (Batches([[0]]), {}, "batch_size: Batches has no attribute of that name: give batch_size="),
        (
            Grouped(DistributedSampler(range(31), 2, 0), GROUPS, 4),
            {},
            r"batch_sampler\.sampler is a DistributedSampler, which divides .* use shuffle=True, or an undivided",
        ),
        (Batches([[0]], num_replicas=2, rank=0), {}, "batch_sampler is a Batches, which divides the samples"),
        (iter([[1]]), {}, "batch_sampler has len.. and yields lists of indices, unlike list_iterator"),
        (7, {}, "batch_sampler has len.. and yields lists of indices, unlike int"),
        ([], {}, "batch_size: list has no attribute"),
        (Batches([[0]], batch_size=None), {}, "batch_size: Batches has no"),
        (Batches([[0]], batch_size="2"), {}, "batch_size of batch_sampler must be an integer"),
    ],
)
def test_unsuitable_batch_samplers_are_refused(batch_sampler, options, message):
    with pytest.raises(LoaderError, match=message):
        Loader(Memory(31), batch_sampler=batch_sampler, device="cpu", **options)


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([[0, 1], [2], [3, 4]], r"batches of 2 samples, only the last may be smaller; it yields one of 1"),
        ([[0, 1], [2, 3, 4]], "yields one of 3"),
        ([0, 1], "batch_sampler yields lists of indices, not 0: is it a sampler="),
        ([[0, 1], [2, 31]], "index 31"),
        ([[0, 1], [2, 0.5]], "one index at a time"),
    ],
)
def test_batches_that_do_not_fit_are_refused(batches, message):
    with (
        Loader(Memory(31), batch_sampler=Batches(batches), batch_size=2, device="cpu") as loader,
        pytest.raises(LoaderError, match=message),
    ):
        next(iter(loader))


@pytest.mark.parametrize("kind", [list, tuple, np.array, torch.tensor])
def test_lists_of_batches(kind):
    batches = [kind([3, 1]), kind([2, 0]), kind([4])]
    assert batches_of(batches) == batches_of(Batches(batches[:2] + [kind([4, 4])]), batch_size=2)[:2] + [[4]]
    with Loader(Memory(31), batch_sampler=batches, device="cpu") as loader:
        assert loader.batch_size == 2 and len(loader) == 3


def test_a_batch_sampler_as_sampler_names_the_argument():
    with (
        Loader(Memory(31), sampler=grouped(), device="cpu") as loader,
        pytest.raises(LoaderError, match=r"one index at a time.*batch_sampler="),
    ):
        next(iter(loader))


def test_streams_refuse_batch_samplers():
    source = sources.FromIterable([(np.zeros((2, 2, 3), np.uint8), 0)] * 8, 8)
    with pytest.raises(LoaderError, match="shuffle and sampler"):
        Loader(source, batch_sampler=[[0, 1]], device="cpu")
