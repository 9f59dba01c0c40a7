"""What trainers do with a loader that they did not write, in a few lines each: no framework is needed to run these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cuaug import Batch, Loader
from tests.loader.pictures import Memory
from tests.loader.test_resume import CHAIN, Seen, content, rest

# --- Lightning -------------------------------------------------------------------------------------------------------


class Lightning:
    """The order in which Lightning 2.6 asks a loader of things (loops/fit_loop.py, loops/training_epoch_loop.py).

    It looks whether a loader can be iterated by beginning to, before it restores a state. The iterator of the first
    epoch is made before the sampler is told the epoch's number, those of the others after. Having counted the batches,
    it does not ask for one more to learn that there is none. A checkpoint from the end of an epoch is restored without
    the loader's state, which it nevertheless has.
    """

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
        self.checkpoints: list[dict[str, Any]] = []  # one from behind each batch

    def fit(self, epochs: int, checkpoint: dict[str, Any] | None = None) -> Iterator[Batch]:
        epoch, seen, state = (checkpoint or {"epoch": 0, "seen": 0, "state": None}).values()
        iter(self.loader)
        if seen:
            self.loader.load_state_dict(state)
        iterator = iter(self.loader)
        if seen == len(self.loader):
            epoch, seen = epoch + 1, 0
        first = epoch
        for epoch in range(first, epochs):
            set_sampler_epoch(self.loader, epoch)
            if epoch > first:
                iterator = iter(self.loader)
            while seen < len(self.loader):
                batch = next(iterator)
                seen += 1
                self.checkpoints.append({"epoch": epoch, "seen": seen, "state": self.loader.state_dict()})
                yield batch
            seen = 0


def set_sampler_epoch(loader: object, epoch: int) -> None:
    """Lightning's `_set_sampler_epoch`; Hugging Face's Trainer has it as well."""
    set_epoch = getattr(getattr(loader, "sampler", None), "set_epoch", None)
    if callable(set_epoch):
        set_epoch(epoch)


def photos(**settings: Any) -> Loader:
    return Loader(Memory(20), CHAIN, **{"batch_size": 4, "shuffle": True} | settings)


def test_lightnings_epochs_are_the_loaders():
    with photos() as loader:
        batches = list(Lightning(loader).fit(3))
    assert [batch.epoch for batch in batches] == [0] * 5 + [1] * 5 + [2] * 5


@pytest.mark.parametrize("settings", [{}, {"last_batch": "drop", "batch_size": 6}], ids=["all", "some left out"])
def test_lightning_resumes_exactly(settings):
    with photos(**settings) as loader:
        run = Lightning(loader)
        whole = [content(batch) for batch in run.fit(3)]
    for number, checkpoint in enumerate(run.checkpoints, 1):
        with photos(**settings) as loader:
            assert [content(batch) for batch in Lightning(loader).fit(3, checkpoint)] == whole[number:]


def test_lightning_resumes_from_the_end_of_an_epoch_without_the_loaders_state():
    with photos() as loader:
        whole = [content(batch) for batch in Lightning(loader).fit(3)]
    with photos() as loader:
        resumed = Lightning(loader).fit(3, {"epoch": 2, "seen": 0, "state": None})
        assert [content(batch) for batch in resumed] == whole[10:]


def test_a_new_loader_for_each_epoch():
    """Lightning's reload_dataloaders_every_n_epochs."""
    with photos() as loader:
        want = [rest(loader), rest(loader)]
    seen: list[Seen] = []
    for epoch in (0, 1):
        with photos() as loader:
            batches = iter(loader)
            set_sampler_epoch(loader, epoch)
            seen.append(sum(map(content, batches), Seen()))
    assert seen == want


def test_lightning_asks_whether_it_is_shuffled():
    """Its `_is_dataloader_shuffled`, for validation: what has a sampler has a batch_sampler, too, as torch's have."""
    with photos() as loader:
        assert not hasattr(loader, "dataset"), "with one, Lightning would make a DataLoader of it"
        assert loader.batch_sampler is None
        assert len(loader.sampler) == 20 and type(loader.sampler) is not type(loader)
        with pytest.raises(AttributeError, match="sampler is fixed when a Loader is made"):
            loader.sampler = range(20)


# --- any trainer -----------------------------------------------------------------------------------------------------


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
