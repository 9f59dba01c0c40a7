"""What trainers do with a loader that they did not write, in a few lines each: no framework is needed to run these."""

from __future__ import annotations

from typing import Any

from cuaug import Loader
from tests.loader.pictures import Memory
from tests.loader.test_resume import CHAIN


def photos(**settings: Any) -> Loader:
    return Loader(Memory(20), CHAIN, **{"batch_size": 4, "shuffle": True} | settings)


def test_beginning_an_iteration_begins_no_epoch():
    """It is one with its first batch: trainers make iterators to look, and make them again."""
    with photos() as loader:
        iter(loader)
        batches = iter(loader)
        assert loader.epoch == 0
        loader.set_epoch(2)
        assert next(batches).epoch == 2 and loader.epoch == 3


def test_beginning_twice_keeps_the_place_in_the_epoch():
    with photos() as loader:
        for _ in zip(range(2), loader, strict=False):
            pass
        state = loader.state_dict()
    with photos() as loader:
        loader.load_state_dict(state)
        iter(loader)
        assert len(list(iter(loader))) == 3
