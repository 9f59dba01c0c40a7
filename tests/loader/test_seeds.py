"""`seed=None` follows torch's generator; the state, the repr and the log keep the number."""

from __future__ import annotations

import logging

import pytest
import torch

from cuaug import ArgumentError, Loader, LoaderError
from cuaug import transforms as T
from cuaug._runtime import ranks
from tests.support.loader.further_pictures import Memory, checksums

pytestmark = pytest.mark.cpu_only
CHAIN = [T.RandomHorizontalFlip(), T.ColorJitter(0.4)]


def drawn(**settings) -> Loader:
    return Loader(Memory(20), CHAIN, **{"batch_size": 4, "shuffle": True, "threads": 1} | settings)


def content(loader: Loader) -> list[tuple[list[int], list[str]]]:
    return [(batch.indices.tolist(), checksums(batch.images)) for batch in loader]


def epoch_after(torch_seed: int) -> list[tuple[list[int], list[str]]]:
    torch.manual_seed(torch_seed)
    with drawn() as loader:
        return content(loader)


def test_torchs_seed_decides():
    first = epoch_after(1)
    assert epoch_after(1) == first
    second = epoch_after(2)
    assert [i for i, _ in second] != [i for i, _ in first] and second != first


def test_two_loaders_draw_different_seeds():
    torch.manual_seed(0)
    with drawn() as one, drawn() as other:
        assert one.seed != other.seed and 0 <= one.seed < 2**53


def test_the_state_the_repr_and_the_log_have_the_seed(caplog):
    with caplog.at_level(logging.INFO, logger="cuaug"), drawn() as loader:
        assert loader.state_dict()["seed"] == loader.seed
        assert f"seed={loader.seed}," in repr(loader)
    assert caplog.text.count(f"the seed is {loader.seed}, from torch's generator") == 1


def test_a_state_brings_its_seed():
    """Also where the order of the drawn seed was in use before."""
    with drawn() as loader:
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        rest = content(batches)
    with drawn() as loader:
        next(iter(loader))
        loader.load_state_dict(state)
        assert loader.seed == state["seed"] and content(loader) == rest
    with drawn(seed=state["seed"] + 1) as loader, pytest.raises(LoaderError, match="seed: "):
        loader.load_state_dict(state)


def test_a_refused_state_leaves_the_seed():
    with drawn() as loader:
        before = loader.seed
        with pytest.raises(LoaderError, match="length of the source"):
            loader.load_state_dict(loader.state_dict() | {"seed": before + 1, "source_length": 3})
        assert loader.seed == before


def test_ranks_that_nothing_connects_need_a_seed(monkeypatch):
    with pytest.raises(ArgumentError, match=r"^seed must be given to each of 3 ranks .*pass seed=, or call torch\."):
        drawn(rank=1, world_size=3)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ArgumentError, match=r"^seed must be given"):
        drawn()
    drawn(seed=1).close()
    drawn(rank=0, world_size=1).close()


def test_a_backend_without_a_store(monkeypatch, caplog):
    """As MPI: ranks that cannot talk need a seed, and a log line says that they compare nothing."""
    monkeypatch.setattr(ranks, "group_rank", lambda: (0, 2))
    monkeypatch.setattr(ranks, "_warned", [])
    monkeypatch.setattr(torch.distributed.distributed_c10d, "_get_default_store", lambda: None)
    with pytest.raises(ArgumentError, match=r"^seed must be given"):
        drawn(rank=0, world_size=2)
    with drawn(rank=0, world_size=2, seed=1) as loader:
        assert len(list(loader)) == len(loader)
    assert caplog.text.count("the ranks cannot compare what they load") == 1
