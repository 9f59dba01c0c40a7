"""Resuming: an epoch that was stopped anywhere, on any number of ranks, is exact."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import RandomSampler, SubsetRandomSampler

from cuaug import Batch, DecodeError, Loader, ShardSampler, WeightedSampler
from cuaug import transforms as T
from cuaug.sampling import LAST_BATCH
from tests.support.loader import training
from tests.support.loader.further_pictures import Memory, WatchedSource, checksums, write_photos
from tests.support.loader.launch import Launch
from tests.support.waiting import eventually

# Gives every sample different pixels in every epoch.
CHAIN = [T.RandomHorizontalFlip(), T.ColorJitter(0.4), T.RandomErasing(1.0, value="random")]
Seen = Counter[tuple[int, str]]


def content(batch: Batch) -> Seen:
    """(index, checksum of the pixels) of the valid samples."""
    samples = zip(batch.indices.tolist(), checksums(batch.images), strict=True)
    return Counter(itertools.compress(samples, batch.valid.tolist()))


def rest(loader: Loader, steps: int | None = None) -> Seen:
    """The content of an iteration, or of its first steps."""
    return sum((content(batch) for batch in itertools.islice(loader, steps)), Counter())


def stopped(loader: Loader, steps: int) -> dict[str, Any]:
    """The state after some steps, after a round trip through a file."""
    rest(loader, steps)
    return json.loads(json.dumps(loader.state_dict()))


# --- as a property ---------------------------------------------------------------------------------------------------

# A new one for each loader, as in a new process.
SAMPLERS = {
    "in sequence": lambda n: {},
    "shuffled": lambda n: {"shuffle": True},
    "weighted": lambda n: {"sampler": WeightedSampler(np.arange(1, n + 1), num_samples=n + 3)},
    "shards": lambda n: {"sampler": ShardSampler([n // 3, n - n // 3], window=4)},
    "indices": lambda n: {"sampler": [*range(n), 0, 0]},
    "torch": lambda n: {"sampler": RandomSampler(range(n))},
    "torch, repeating": lambda n: {"sampler": RandomSampler(range(n), replacement=True, num_samples=2 * n)},
    "torch, own generator": lambda n: {
        "sampler": SubsetRandomSampler(range(n), generator=torch.Generator().manual_seed(n))
    },
}
machines = st.fixed_dictionaries(
    {
        "world_size": st.integers(1, 3),
        "batch_size": st.integers(1, 7),
        "prefetch": st.integers(1, 4),
        "threads": st.integers(1, 3),
    }
)


def run(
    make: Callable[..., Loader], state: dict[str, Any] | None, steps: int | None, world_size: int, **machine: Any
) -> tuple[Seen, dict[str, Any]]:
    """The samples that all ranks consume in some steps after a state, and the new state."""
    seen: Seen = Counter()
    states = []
    for rank in range(world_size):
        with make(**machine, rank=rank, world_size=world_size) as loader:
            if state is not None:
                loader.load_state_dict(state)
                assert loader.state_dict() == state
            seen += rest(loader, steps)
            states.append(json.loads(json.dumps(loader.state_dict())))
    assert all(state == states[0] for state in states), "states are equal on all ranks"
    return seen, states[0]


@pytest.mark.slow
@given(
    count=st.integers(1, 30),
    order=st.sampled_from(sorted(SAMPLERS)),
    last_batch=st.sampled_from(["partial", "pad"]),
    on_error=st.sampled_from(["skip", "replace"]),
    damage=st.sets(st.integers(1, 29), max_size=5),
    stops=st.lists(st.tuples(machines, st.integers(0, 6)), min_size=1, max_size=4),
    end=machines,
)
def test_an_epoch_that_is_stopped_and_resumed_is_exact(count, order, last_batch, on_error, damage, stops, end):
    def make(**machine: Any) -> Loader:
        source = Memory(count, damaged=damage)
        return Loader(
            source, CHAIN, seed=5, on_error=on_error, last_batch=last_batch, **SAMPLERS[order](count), **machine
        )

    with make(batch_size=5) as loader:
        whole = rest(loader)
    seen, state = Counter(), None
    for machine, steps in stops:
        more, state = run(make, state, steps, **machine)
        seen += more
        if state["epoch"] == 1:
            break
        assert not seen - whole, "a sample came again, or with other pixels"
        if not damage:
            assert state["position"] == sum(seen.values()), "prefetched batches do not count"
    else:
        more, state = run(make, state, None, **end)
        seen += more
    assert seen == whole
    assert (state["epoch"], state["position"]) == (1, 0)


@pytest.mark.slow
@pytest.mark.parametrize("last_batch", LAST_BATCH)
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_the_same_ranks_make_the_same_steps(last_batch, world_size):
    """On equal ranks a resumed run is the same batch by batch, with padding and dropping."""
    for rank in range(world_size):
        options = {"batch_size": 3, "last_batch": last_batch, "rank": rank, "world_size": world_size, "shuffle": True}

        def batches(loader: Loader) -> list[tuple]:
            return [(b.indices.tolist(), b.valid.tolist(), checksums(b.images), b.epoch) for b in loader]

        with Loader(Memory(29), CHAIN, **options, seed=0) as loader:
            whole = batches(loader)
            following = batches(loader)
        assert len(whole) == len(loader)
        for steps in range(len(whole) + 1):
            with Loader(Memory(29), CHAIN, **options, seed=0) as loader:
                state = stopped(loader, steps)
            with Loader(Memory(29), CHAIN, **options, seed=0) as loader:
                loader.load_state_dict(state)
                assert batches(loader) == whole[steps:] and batches(loader) == following


# --- killed ----------------------------------------------------------------------------------------------------------


def logged(launch: Launch, position: int) -> Seen:
    """The samples that a run consumed up to a state; the rest of its log is an unfinished step."""
    lines = [line for log in launch.folder.glob("*.log") for line in log.read_text().splitlines(keepends=True)]
    samples = [json.loads(line) for line in lines if line.endswith("\n")]
    return Counter((index, pixels) for after, index, pixels in samples if after <= position)


@pytest.mark.slow
@pytest.mark.parametrize("order", ["shuffled", "buckets"])
def test_an_epoch_that_is_killed_and_resumed_on_other_ranks_is_exact(order, tmp_path):
    """kill -9 at a random moment, three times: alone, on two ranks, on three. Every fifth file is damaged."""
    photos, state = tmp_path / "photos", tmp_path / "state.json"
    (photos / "all").mkdir(parents=True)
    for path in write_photos(photos / "all", 96)[::5]:
        Path(path).write_bytes(Path(path).read_bytes()[:-200])
    with training.make_loader(photos, order, batch_size=2 if order == "buckets" else 7) as loader:
        whole = rest(loader)
    assert len(whole) == 76

    def launch(run: int, world_size: int | None, steps: int) -> Launch:
        arguments = [str(state), str(photos), str(steps), order]
        return Launch("tests.support.loader.training", tmp_path / f"run {run}", *arguments, world_size=world_size)

    seen: Seen = Counter()
    for run, (world_size, steps) in enumerate([(None, 9), (2, 8), (3, 5)]):
        with launch(run, world_size, steps) as killed:
            log = killed.folder / "0.log"
            killed.wait_until(lambda log=log: log.exists() and log.stat().st_size > 0)
            time.sleep(random.uniform(0, 0.3))
            os.kill(random.choice(killed.pids), signal.SIGKILL)
            assert killed.wait() != 0
        kept = json.loads(state.read_text()) if state.exists() else {"epoch": 0, "position": 0}
        assert kept["epoch"] == 0 and kept["position"] < 96
        seen += logged(killed, kept["position"])
        assert not seen - whole, "a sample came again, or with other pixels"
    with launch(3, None, -1) as last:
        assert last.wait() == 0, last.output
    assert seen + logged(last, 96) == whole
    kept = json.loads(state.read_text())
    assert (kept["epoch"], kept["position"]) == (1, 0)


# --- positions -------------------------------------------------------------------------------------------------------


def test_a_state_counts_consumed_and_not_prefetched_batches():
    source = WatchedSource(100)
    with Loader(source, batch_size=2, prefetch=8, threads=1) as loader:
        assert loader.state_dict()["position"] == 0
        batches = iter(loader)
        assert loader.state_dict()["position"] == 0
        for step in range(1, 4):
            next(batches)
            assert eventually(lambda step=step: len(source.reads) == 2 * (step + 8)), "the prefetched batches are read"
            assert loader.state_dict()["position"] == 2 * step
        batches.close()
        assert loader.state_dict()["position"] == 6, "a break keeps the state"
        list(loader)
        assert (loader.epoch, loader.state_dict()["epoch"], loader.state_dict()["position"]) == (2, 2, 0)


def test_an_error_leaves_the_state_at_the_last_batch():
    """So a program can skip the damaged file and continue."""
    with Loader(Memory(20, damaged=[9]), CHAIN, batch_size=4, on_error="skip", seed=0) as loader:
        whole = rest(loader)
    with Loader(Memory(20, damaged=[9]), CHAIN, batch_size=4, seed=0) as loader:
        seen: Seen = Counter()
        with pytest.raises(DecodeError, match=r"\(sample 9\)"):
            for batch in loader:
                seen += content(batch)
        state = loader.state_dict()
        assert state["position"] == 8
    with Loader(Memory(20, damaged=[9]), CHAIN, batch_size=3, on_error="skip", seed=0) as loader:
        loader.load_state_dict(state)
        assert seen + rest(loader) == whole


def test_a_state_after_the_last_batch_resumes_with_an_empty_rest():
    with Loader(Memory(10), CHAIN, batch_size=4, shuffle=True, seed=0) as loader:
        state = stopped(loader, 3)
        assert (state["epoch"], state["position"]) == (0, 10)
        following = rest(loader)
    for world_size in (1, 2, 3):
        with Loader(Memory(10), CHAIN, batch_size=1, shuffle=True, rank=0, world_size=world_size, seed=0) as loader:
            loader.load_state_dict(state)
            assert list(loader) == []
            assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (1, 0)
            assert len(list(loader)) == len(loader)
    with Loader(Memory(10), CHAIN, batch_size=3, shuffle=True, seed=0) as loader:
        loader.load_state_dict(state)
        for epoch in (0, 1):  # as a training script does it
            loader.set_epoch(epoch)
            seen = rest(loader)
        assert seen == following


def test_set_epoch_after_load_state_dict():
    """The state's epoch continues where it stopped; any other starts at its beginning."""
    with Loader(Memory(20), batch_size=4) as loader:
        loader.set_epoch(3)
        state = stopped(loader, 2)
    assert (state["epoch"], state["position"]) == (3, 8)

    def indices(*epochs: int) -> list[int]:
        with Loader(Memory(20), batch_size=4) as loader:
            loader.load_state_dict(state)
            for epoch in epochs:
                loader.set_epoch(epoch)
            batches = list(loader)
            assert {batch.epoch for batch in batches} == {epochs[-1] if epochs else 3}
            return [index for batch in batches for index in batch.indices.tolist()]

    assert indices() == indices(3) == indices(3, 3) == list(range(8, 20))
    assert indices(2) == indices(4) == indices(4, 3) == list(range(20))
    with Loader(Memory(20), batch_size=4) as loader:
        loader.load_state_dict(state)
        assert loader.epoch == 3
        assert [batch.epoch for batch in loader] == [3] * 3 and [batch.epoch for batch in loader] == [4] * 5
        loader.set_epoch(3)
        assert len(list(loader)) == 5


def test_loading_an_earlier_state_in_one_loader():
    with Loader(Memory(20), CHAIN, batch_size=4, shuffle=True) as loader:
        state = stopped(loader, 2)
        want = [rest(loader), rest(loader)]
        loader.load_state_dict(state)
        left = rest(loader)
        assert sum(left.values()) == 12 and [rest(loader), rest(loader)] == want


def test_the_state_follows_the_iterator_that_yielded_last():
    """Also where a sampler would yield another order if called again."""

    def loader() -> Loader:
        sampler = RandomSampler(range(20), generator=torch.Generator().manual_seed(4))
        return Loader(Memory(20), CHAIN, batch_size=4, sampler=sampler, seed=0)

    with loader() as one, loader() as two:
        first, second = iter(one), iter(one)
        seen = [content(next(first)), content(next(second))]
        assert one.state_dict()["epoch"] == 1
        seen[0] += content(next(first))
        state = one.state_dict()
        assert (state["epoch"], state["position"]) == (0, 8)
        for batch in first:
            seen[0] += content(batch)
        for batch in second:
            seen[1] += content(batch)
        assert seen == [rest(two), rest(two)]
    with loader() as three:
        three.load_state_dict(state)
        assert not rest(three) - seen[0]
