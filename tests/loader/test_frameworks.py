"""Trainers' use of a loader, imitated in a few lines each: no framework is needed."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cuaug import Batch, Loader
from cuaug import transforms as T
from tests.loader.test_resume import CHAIN, content
from tests.support.loader.further_pictures import Memory, write_photos

# --- Lightning -------------------------------------------------------------------------------------------------------


class Lightning:
    """The order of Lightning 2.6's calls (loops/fit_loop.py, loops/training_epoch_loop.py).

    Lightning makes an iterator to test a loader, before it restores a state. It makes the iterator of the first epoch
    before it sets the sampler's epoch, and the others after. It counts batches and does not request one more at the
    end. It restores a checkpoint from the end of an epoch without the loader's state.
    """

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
        self.checkpoints: list[dict[str, Any]] = []  # one after each batch

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
    """As in Lightning's `_set_sampler_epoch` and timm's train.py."""
    set_epoch = getattr(getattr(loader, "sampler", None), "set_epoch", None)
    if callable(set_epoch):
        set_epoch(epoch)


def photos(**settings: Any) -> Loader:
    return Loader(Memory(20), CHAIN, **{"batch_size": 4, "shuffle": True, "seed": 0} | settings)


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


# --- any trainer -----------------------------------------------------------------------------------------------------


def test_beginning_an_iteration_begins_no_epoch():
    """An epoch starts with its first batch: trainers make iterators only to look."""
    with photos() as loader:
        iter(loader)
        batches = iter(loader)
        assert loader.epoch == 0
        loader.set_epoch(2)
        assert next(batches).epoch == 2 and loader.epoch == 3


def test_a_second_iterator_keeps_the_position_in_the_epoch():
    with photos() as loader:
        for _ in zip(range(2), loader, strict=False):
            pass
        state = loader.state_dict()
    with photos() as loader:
        loader.load_state_dict(state)
        iter(loader)
        assert len(list(iter(loader))) == 3


# --- the programs of docs/frameworks.md ------------------------------------------------------------------------------

CODE = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[2] / "docs/frameworks.md").read_text(), re.DOTALL)
TRAIN, VAL = 19, 11


class Accelerator:
    """One process of Accelerate."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        self.kept: list[Any] = []
        self.register_for_checkpointing = self.kept.append

    def prepare(self, *parts: Any) -> tuple[Any, ...]:
        return parts

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()

    def gather(self, tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        assert all(tensor.device == self.device and len(tensor) == 8 for tensor in tensors), "equal on all ranks"
        return tensors


class Trainer:
    """The attributes of a Transformers Trainer."""

    def __init__(self, train_dataset: Loader, eval_dataset: Loader) -> None:
        self.train_dataset, self.eval_dataset = train_dataset, eval_dataset


@pytest.fixture
def run(tmp_path, monkeypatch) -> Callable[[int], dict[str, Any]]:
    """Runs a program beside photos, with fakes of its libraries; returns its names."""
    for part, count in (("train", TRAIN), ("val", VAL)):
        (tmp_path / "photos" / part / "cat").mkdir(parents=True)
        write_photos(tmp_path / "photos" / part / "cat", count)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "lightning", SimpleNamespace(LightningDataModule=object))
    monkeypatch.setitem(sys.modules, "accelerate", SimpleNamespace(Accelerator=Accelerator))
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(Trainer=Trainer, TrainerCallback=object))
    monkeypatch.setitem(sys.modules, "keras", SimpleNamespace(utils=SimpleNamespace(PyDataset=object)))

    def run(number: int) -> dict[str, Any]:
        assert len(CODE) == 6, "the last two are for Ray: tests/ray/test_cluster.py"
        model = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(3, 2))
        names: dict[str, Any] = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.1)}
        names["chain"] = [T.RandomResizedCrop(32), T.Normalize(0.5, 0.5)]
        names["evaluation"] = [T.Resize((32, 32)), T.Normalize(0.5, 0.5)]
        exec(CODE[number], names)
        return names

    return run


def test_the_program_for_lightning(run):
    module = run(0)["Photos"]()
    with module.train_dataloader() as train, module.val_dataloader() as val:
        assert [batch.epoch for batch in Lightning(train).fit(2)] == [0, 0, 1, 1]
        assert sum(len(batch.labels) for batch in val) == VAL


def test_the_program_for_accelerate(run):
    names = run(1)
    assert names["accelerator"].kept == [names["train"]] and names["train"].epoch == 2
    assert names["count"] == VAL and names["right"] <= VAL


def test_the_program_for_transformers(run, tmp_path):
    names = run(2)
    (tmp_path / "checkpoint-1").mkdir()

    def photos_of(part: str, **settings: Any) -> Loader:
        chain = [T.RandomResizedCrop(32), T.Normalize(0.5, 0.5)]
        return Loader(tmp_path / "photos" / part, chain, batch_size=8, **settings)

    with photos_of("train", shuffle=True) as train, photos_of("val", last_batch="pad") as val:
        trainer = names["PhotoTrainer"](train_dataset=train, eval_dataset=val)
        inputs = trainer.get_train_dataloader()
        inputs.set_epoch(3)
        batches = iter(inputs)
        next(batches)
        names["SavePosition"](train).on_save(SimpleNamespace(output_dir=tmp_path), SimpleNamespace(global_step=1), None)
        rest_of_epoch = [batch["pixel_values"] for batch in batches]
        assert len(rest_of_epoch) == len(inputs) - 1 == 2
        labels = torch.cat([batch["labels"] for batch in trainer.get_eval_dataloader()])
        assert (labels >= 0).sum() == VAL and (labels == -100).sum() == 16 - VAL
    with photos_of("train", shuffle=True) as train:
        train.load_state_dict(torch.load(tmp_path / "checkpoint-1" / "loader.pt"))
        inputs = names["Inputs"](train)
        inputs.set_epoch(3)
        assert all(torch.equal(batch["pixel_values"], want) for batch, want in zip(inputs, rest_of_epoch, strict=True))


def test_the_program_for_keras(run):
    with photos() as loader:
        batches = run(3)["Batches"](loader)
        batches.on_epoch_begin()
        batches[0]  # Keras inspects its shape
        for _ in range(2):
            batches.on_epoch_begin()
            labels = [batches[i][1] for i in range(len(batches))]
            assert sorted(torch.cat(labels).tolist()) == [*range(20)]
