"""States: their content, other savers, and refusal of other loaders' states."""

from __future__ import annotations

import pickle
import re
import zlib

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.utils.data import RandomSampler

from cuaug import Loader, LoaderError, ShardSampler, WeightedSampler
from tests.loader.test_resume import CHAIN, rest, stopped
from tests.support.loader.further_pictures import Memory, Named

# --- content and savers ----------------------------------------------------------------------------------------------


def test_states_hold_plain_values(tmp_path):
    with Loader(Memory(10), batch_size=np.int64(4), seed=np.int64(3), sampler=WeightedSampler(np.ones(10))) as loader:
        loader.set_epoch(np.int64(2))
        state = stopped(loader, 1)
        assert loader.state_dict() == state == pickle.loads(pickle.dumps(state))
        assert {type(value) for value in loader.state_dict().values()} <= {int, str, type(None)}
        torch.save(state, tmp_path / "state.pt")
        loader.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))


def test_a_loader_is_a_stateful_of_torch_and_of_torchdata():
    with Loader(Memory(1)) as loader:
        assert isinstance(loader, dcp.stateful.Stateful)
        torchdata = pytest.importorskip("torchdata.stateful_dataloader.stateful")
        assert isinstance(loader, torchdata.Stateful)


@pytest.mark.filterwarnings("ignore:torch.distributed is")
def test_torch_saves_a_loader_in_a_distributed_checkpoint(tmp_path):
    def loader() -> Loader:
        return Loader(Memory(20), CHAIN, batch_size=4, sampler=RandomSampler(range(20)), seed=2)

    with loader() as one, loader() as two, loader() as three:
        seen = rest(one, 2)
        dcp.save({"model": torch.nn.Linear(2, 2).state_dict(), "data": one}, checkpoint_id=tmp_path)
        dcp.load({"data": two}, checkpoint_id=tmp_path)
        assert two.state_dict() == one.state_dict()
        assert seen + rest(two) == rest(three)


# --- states of other loaders -----------------------------------------------------------------------------------------


def weighted(*weights: float) -> WeightedSampler:
    return WeightedSampler([*weights, *[1.0] * (20 - len(weights))])


def generated(seed: int) -> RandomSampler:
    return RandomSampler(range(20), generator=torch.Generator().manual_seed(seed))


def drawn(count: int) -> RandomSampler:
    return RandomSampler(range(20), num_samples=count)


def shards(*sizes: int) -> ShardSampler:
    return ShardSampler(sizes, 5)


GIVES = r"checksum of that epoch's order: \d+ in the state, \d+ here"
SEED = "seed: 1 in the state, 2 here"
SHUFFLED = "order of the samples: 'ShuffledOrder' in the state, 'SequentialOrder' here"
LENGTH = "length of the source: 21 in the state, 20 here"
NAMES = r"fingerprint of the source \(its names and labels\): 'cats' in the state, 'dogs' here"
BACKWARDS = [*range(19, -1, -1)]


def samples(count: int) -> str:
    return f"number of samples in an epoch: {count} in the state, 20 here"


@pytest.mark.parametrize(
    ("there", "here", "differ"),
    [
        pytest.param({"seed": 1}, {"seed": 2}, [SEED], id="seed"),
        pytest.param({"files": Memory(21)}, {}, [LENGTH, samples(21), GIVES], id="length"),
        pytest.param({"files": Named("cats", 20)}, {"files": Named("dogs", 20)}, [NAMES], id="names"),
        pytest.param({"shuffle": True}, {}, [SHUFFLED, GIVES], id="shuffle"),
        pytest.param({"sampler": drawn(10)}, {"sampler": drawn(20)}, [samples(10), GIVES], id="samples"),
        pytest.param({"sampler": weighted(2)}, {"sampler": weighted(20)}, [GIVES], id="weights"),
        pytest.param({"sampler": generated(1)}, {"sampler": generated(2)}, [GIVES], id="generator"),
        pytest.param({"sampler": shards(9, 11)}, {"sampler": shards(10, 10)}, [GIVES], id="shards"),
        pytest.param({"sampler": [*range(20)]}, {"sampler": [*range(19), 18]}, [GIVES], id="indices"),
        pytest.param({"sampler": BACKWARDS}, {}, [GIVES], id="indices to none"),
        pytest.param({}, {"sampler": BACKWARDS}, [GIVES], id="none to indices"),
        pytest.param({"seed": 1, "shuffle": True}, {"seed": 2}, [SEED, SHUFFLED, GIVES], id="two things"),
    ],
)
def test_a_state_of_another_loader_is_refused_with_the_differences(there, here, differ):
    common = {"files": Memory(20), "batch_size": 4, "seed": 0}
    with Loader(**common | there) as loader:
        state = stopped(loader, 1)
    with Loader(**common | here) as loader:
        before = loader.state_dict()
        with pytest.raises(LoaderError) as caught:
            loader.load_state_dict(state)
        begin, *parts = str(caught.value).split("; ")
        assert begin == "state_dict does not belong to this loader"
        assert len(parts) == len(differ) and all(map(re.fullmatch, differ, parts)), parts
        assert loader.state_dict() == before and len(list(loader)) == len(loader), "the loader is unchanged"


def test_unknown_fields_are_not_compared():
    """A source without a fingerprint, or a state between two epochs, which has no order."""
    with Loader(Named("cats", 20)) as named, Loader(Memory(20)) as unnamed:
        named.load_state_dict(stopped(unnamed, 3))
        unnamed.load_state_dict(stopped(named, 1))
        assert unnamed.state_dict()["position"] == 4


def test_a_restored_generator_makes_its_state_acceptable():
    """In the second epoch the generator has moved on."""
    generator = torch.Generator().manual_seed(1)
    sampler = RandomSampler(range(20), generator=generator)
    with Loader(Memory(20), CHAIN, batch_size=4, sampler=sampler) as loader:
        rest(loader)
        kept = generator.get_state()
        seen = rest(loader, 2)
        state = loader.state_dict()
        loader.set_epoch(1)
        whole = rest(loader)
    generator = torch.Generator().manual_seed(1)
    sampler = RandomSampler(range(20), generator=generator)
    with Loader(Memory(20), CHAIN, batch_size=4, sampler=sampler) as loader:
        with pytest.raises(LoaderError, match=GIVES):
            loader.load_state_dict(state)
        generator.set_state(kept)
        loader.load_state_dict(state)
        loader.load_state_dict(state)
        assert seen + rest(loader) == whole


GOOD = {
    "epoch": 0,
    "position": 4,
    "version": 2,
    "seed": 0,
    "source_length": 20,
    "source": None,
    "order": "SequentialOrder",
    "order_length": 20,
    "order_checksum": zlib.crc32(np.arange(20)),
}


def test_the_state_of_the_next_test_is_valid():
    with Loader(Memory(20), batch_size=4, seed=0) as loader:
        assert stopped(loader, 1) == GOOD
        loader.load_state_dict(GOOD)
        loader.load_state_dict(GOOD | {"order_checksum": None})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 1}, "state_dict has version 1; this cuaug reads version 2$"),
        ({"version": None}, "state_dict has version None; "),
        *[
            ({"epoch": value}, r"state_dict\['epoch'\] must be an integer of at least 0, not ")
            for value in (-1, "1", None, 0.0, True)
        ],
        *[
            ({"position": value}, r"state_dict\['position'\] must be an integer of at least 0, not ")
            for value in (-1, "1", None, 4.0, True)
        ],
        ({"position": 21}, r"state_dict\['position'\] must be at most 20, not 21"),
        ({"seed": None}, "seed: None in the state, 0 here"),
        ({"order": None}, "order of the samples: None in the state, 'SequentialOrder' here"),
        ({"order_length": None}, "number of samples in an epoch: None in the state, 20 here"),
        ({"source_length": "20"}, "length of the source: '20' in the state, 20 here"),
    ],
    ids=repr,
)
def test_an_invalid_state_is_refused(change, message):
    for sampler in (None, [*range(20)]):  # a sampler is called for the state's epoch
        with Loader(Memory(20), batch_size=4, sampler=sampler, seed=0) as loader:
            with pytest.raises(LoaderError, match=message):
                loader.load_state_dict(GOOD | change)
            assert len(list(loader)) == 5


@pytest.mark.parametrize(
    ("state", "message"),
    [
        *[(state, "state_dict is not a Loader's state: ") for state in (None, 5, "epoch position", [], [("epoch", 0)])],
        ({}, "state_dict is not a Loader's state: it lacks 'version', 'epoch', 'position', 'seed'"),
        ({"epoch": 0, "version": 2}, "it lacks 'position', 'seed'"),
        ({"_snapshot": {"_main_snapshot": {}}, "_steps_since_snapshot": 3}, "it lacks 'version', 'epoch'"),
    ],
    ids=repr,
)
def test_values_that_are_no_state_are_refused(state, message):
    with Loader(Memory(20)) as loader, pytest.raises(LoaderError, match=message):
        loader.load_state_dict(state)


@pytest.mark.parametrize("name", ["version", "seed", "source_length", "source", "order", "order_length"])
@pytest.mark.parametrize("value", [np.arange(2), torch.arange(2), np.arange(0)], ids=["array", "tensor", "empty"])
def test_states_with_arrays_are_refused(name, value):
    """For example states gathered from several ranks; comparing arrays yields no single bool."""
    with Loader([("a.jpg", 0), ("b.jpg", 1)]) as loader:
        state = loader.state_dict()
        with pytest.raises(LoaderError, match=r"^state_dict (has version|does not belong)"):
            loader.load_state_dict({**state, name: value})
