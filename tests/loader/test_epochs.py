"""Exact epochs: len(loader) batches, each sample once, and the fields of `Batch`."""

from __future__ import annotations

from collections import Counter, namedtuple
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import RandomSampler, SubsetRandomSampler

from cuaug import Batch, DecodeOptions, Loader, LoaderError, RepeatedSampler, ShardSampler, WeightedSampler
from cuaug import transforms as T
from cuaug.sampling import LAST_BATCH
from tests.loader.test_reproducible import training_chain
from tests.support.loader.further_pictures import (
    Arrays,
    Labeled,
    Memory,
    assert_epoch_raises,
    epoch_of,
    numbers_of,
    photo,
)


def photos(count: int) -> Arrays:
    """A source of arrays of different sizes."""
    return Arrays(*(photo(60 + i, 80 - i, seed=i) for i in range(count)))


# --- steps and samples -----------------------------------------------------------------------------------------------


@given(
    count=st.integers(1, 30),
    batch_size=st.integers(1, 8),
    world_size=st.integers(1, 4),
    last_batch=st.sampled_from(LAST_BATCH),
    shuffle=st.booleans(),
    on_error=st.sampled_from(["skip", "replace"]),
    damage=st.sets(st.integers(1, 29), max_size=6),
)
def test_epochs_are_exact(count, batch_size, world_size, last_batch, shuffle, on_error, damage):
    damage = {number for number in damage if number < count}
    ranks = [
        epoch_of(
            Memory(count, damaged=damage),
            seed=0,
            threads=1,
            batch_size=batch_size,
            world_size=world_size,
            rank=rank,
            last_batch=last_batch,
            shuffle=shuffle,
            on_error=on_error,
        )
        for rank in range(world_size)
    ]
    assert len({len(batches) for batches in ranks}) == 1, "all ranks make the same number of steps"
    seen: Counter[int] = Counter()
    for batch in (batch for batches in ranks for batch in batches):
        numbers = numbers_of(batch.images) if len(batch.images) else []
        assert numbers == batch.labels.tolist() == batch.indices.tolist()
        assert batch.indices.dtype == torch.int64 and batch.valid.dtype == torch.bool and batch.epoch == 0
        assert batch.valid.shape == batch.indices.shape
        if last_batch != "partial" and on_error == "replace":
            assert len(batch.images) == batch_size
        seen.update(batch.indices[batch.valid].tolist())
    whole = set(range(count))
    if last_batch == "drop":
        assert set(seen) <= whole - damage and max(seen.values(), default=1) == 1
        if not damage:
            assert len(seen) == count // (batch_size * world_size) * batch_size * world_size
    else:
        assert seen == Counter(whole - damage)


def test_padding_looks_like_the_samples_it_repeats():
    first, second = epoch_of(photos(5), training_chain(), batch_size=4, last_batch="pad", shuffle=True, seed=3)
    assert second.valid.tolist() == [True, False, False, False]
    assert second.indices[1:].tolist() == first.indices[:3].tolist()
    assert second.images[1:].equal(first.images[:3])


def test_empty_batches_have_a_shape():
    """Batches of one on three ranks: two ranks have no sample in the last step."""
    for rank in range(3):
        batches = epoch_of(photos(4), T.RandomCrop(32), rank=rank, world_size=3, seed=0, dtype=torch.float16)
        assert [len(batch.images) for batch in batches] == [1, int(rank == 0)]
        assert {batch.images.shape[1:] for batch in batches} == {(3, 32, 32)}
        assert {batch.images.dtype for batch in batches} == {torch.float16}
        assert {batch.labels.dtype for batch in batches} == {torch.int64}


def test_a_sampler_is_called_for_each_iteration():
    """Also for a repeated epoch."""

    class Some(torch.utils.data.Sampler):
        indices: ClassVar = [0, 1, 2, 3]

        def __len__(self):
            return len(self.indices)

        def __iter__(self):
            return iter(self.indices)

    sampler = Some()
    with Loader(Memory(10), batch_size=2, sampler=sampler) as loader:
        for indices in ([0, 1, 2, 3], [5, 6, 7, 8, 9, 4]):
            sampler.indices = indices
            loader.set_epoch(0)
            batches = [batch.indices for batch in loader]
            assert len(batches) == len(loader) and torch.cat(batches).tolist() == indices


# --- samplers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sampler", "count"),
    [
        ([7, 3, 3, 0], 4),
        (np.arange(9, -1, -1), 10),
        (SubsetRandomSampler(range(2, 9)), 7),
        (RandomSampler(range(10), replacement=True, num_samples=23), 23),
        (WeightedSampler([0, 0, 1, 1, 1, 5, 0, 0, 0, 0], 12), 12),
        (ShardSampler([4, 6], window=3), 10),
    ],
    ids=["list", "array", "subset", "with replacement", "weighted", "shards"],
)
def test_samplers_set_the_order_of_all_ranks(sampler, count):
    for epoch in (0, 4):
        orders = []
        for world_size in (1, 3):
            steps = []
            for rank in range(world_size):
                loader = Loader(Memory(10), batch_size=2, sampler=sampler, rank=rank, world_size=world_size, seed=0)
                loader.set_epoch(epoch)
                with loader:
                    steps.append([numbers_of(batch.images) if len(batch.images) else [] for batch in loader])
            orders.append([number for step in zip(*steps, strict=True) for batch in step for number in batch])
        assert orders[0] == orders[1] and len(orders[0]) == count
    if isinstance(sampler, list):
        assert orders[0] == sampler


def test_repetitions_go_to_different_ranks():
    """Three ranks with the repetitions of one sample in each step, which differ."""
    ranks = []
    for rank in range(3):
        sampler = RepeatedSampler(6, 3, num_samples=18)
        options = {"sampler": sampler, "rank": rank, "world_size": 3, "seed": 0, "batch_size": 2}
        ranks.append(epoch_of(photos(6), training_chain(), **options))
    for batches in zip(*ranks, strict=True):
        assert len({tuple(batch.indices.tolist()) for batch in batches}) == 1
        assert len({batch.images.cpu().numpy().tobytes() for batch in batches}) == 3
    assert sorted(torch.cat([batch.indices for batch in ranks[0]]).tolist()) == list(range(6))


def test_a_repeated_sample_looks_different():
    """The k-th repetition looks the same however the epoch is loaded."""
    order = [2, 0, 2, 1, 2, 0]

    def images(**how) -> list[torch.Tensor]:
        with Loader(photos(3), training_chain(), sampler=order, **how, seed=0) as loader:
            return [image for batch in loader for image in batch.images]

    alone, together = images(batch_size=1), images(batch_size=4, threads=3)
    assert all(a.equal(b) for a, b in zip(alone, together, strict=True))
    assert len({image.cpu().numpy().tobytes() for image in alone}) == 6
    plain = epoch_of(photos(3), training_chain(), batch_size=3, seed=0)[0].images
    assert alone[0].equal(plain[2]) and alone[1].equal(plain[0]), "the first time, as without a sampler"


# --- batches ---------------------------------------------------------------------------------------------------------


def test_a_batch_is_a_pair_with_further_fields():
    (batch,) = epoch_of(Memory(3), batch_size=3)
    images, labels = batch
    assert isinstance(batch, tuple) and len(batch) == 2 and batch[0] is images and batch[1] is labels
    assert images is batch.images and labels is batch.labels
    assert batch.indices.tolist() == [0, 1, 2] and batch.valid.all() and batch.epoch == 0
    assert f"(3, 3, 4, 5) torch.uint8 on {images.device}" in repr(batch)
    moved = type(batch)(*(part.double() for part in batch))  # trainers move a named tuple like this
    assert moved.images.dtype == torch.float64 and not hasattr(moved, "valid")
    with pytest.raises(AttributeError, match=r"^this Batch has no indices: .* batch\.to\(device\)$"):
        moved.indices  # noqa: B018
    listed = type(batch)([part.double() for part in batch])  # fastai moves a tuple like this
    assert listed.images.equal(moved.images) and listed.labels.equal(moved.labels)
    with pytest.raises(TypeError, match=r"required|unpack"):
        Batch()
    with pytest.raises(TypeError, match="labels is missing"):
        Batch(batch.images[:2])


class Tokens(list):
    """An object with its own `to`, as a `collate_fn` may return."""

    def to(self, device, non_blocking=False):
        return Tokens([device, non_blocking])


class Text:
    """An object whose `to` lacks `non_blocking`."""

    def to(self, device):
        return [device]


Point = namedtuple("Point", "x y")


def test_a_batch_moves_with_all_its_fields():
    """To "meta" here, which is no device of the batch."""
    labels = {"boxes": [torch.ones(2, 4), torch.ones(0, 4)], "names": ["a", "b"], "at": Point(torch.ones(2), 5)}
    batch = Batch(torch.ones(2, 3, 4, 5), {**labels, "text": Tokens()}, torch.arange(2), torch.ones(2).bool(), 7)
    moved = batch.to("meta", non_blocking=True)
    assert isinstance(moved, Batch) and moved.epoch == 7 and moved.params() == [[], []]
    tensors = [moved.images, moved.indices, moved.valid, *moved.labels["boxes"], moved.labels["at"].x]
    assert all(tensor.is_meta for tensor in tensors)
    assert moved.labels["names"] == ["a", "b"] and moved.labels["at"].y == 5 and type(moved.labels["at"]) is Point
    assert moved.labels["text"] == ["meta", True]
    assert not batch.images.is_meta and not batch.labels["boxes"][0].is_meta, "the batch itself is unchanged"
    plain = Batch(torch.ones(2, 3, 4, 5), (torch.ones(2), torch.zeros(2), Text())).to("meta")
    assert plain.labels[1].is_meta and plain.labels[2] == ["meta"]
    assert not hasattr(plain, "indices") and not hasattr(plain, "epoch")


def test_batches_are_copied_into_static_tensors():
    images, labels = torch.empty((4, 3, 4, 5), dtype=torch.uint8), torch.empty(4, dtype=torch.int64)
    at = images.data_ptr()
    loader = Loader(Memory(10), batch_size=4, device="cpu")
    for batch in list(loader)[:2]:
        batch.copy_into(images, labels)
        assert images.data_ptr() == at and images.equal(batch.images) and labels.equal(batch.labels)
    last = list(loader)[-1]
    with pytest.raises(LoaderError, match=r"images is \(4, 3, 4, 5\) torch.uint8, but the batch has \(2, 3, 4, 5\)"):
        last.copy_into(images, labels)
    assert images.equal(batch.images)
    with pytest.raises(LoaderError, match=r"labels is \(4,\) torch.float32, but the batch has \(4,\) torch.int64"):
        batch.copy_into(images, labels.float())
    named = Batch(images, ["a", "b", "c", "d"])
    with pytest.raises(LoaderError, match="labels of the batch are a list, not a tensor"):
        named.copy_into(images, labels)
    named.copy_into(images)


def test_labels_of_any_kind():
    size = np.array([[0, 1, 2, 3]], dtype=np.float32)
    labels = [
        {"class": k, "size": size + k, "caption": f"picture {k}", "pair": (k, {"deep": torch.tensor([k, k])})}
        for k in range(3)
    ]
    source = Labeled(*labels, attribute="labels")
    (batch,) = epoch_of(source, batch_size=3)
    assert set(batch.labels) == {"class", "size", "caption", "pair"}
    assert batch.labels["class"].tolist() == [0, 1, 2] and batch.labels["caption"] == [f"picture {k}" for k in range(3)]
    assert batch.labels["size"].shape == (3, 1, 4) and batch.labels["size"].dtype == torch.float32
    number, deep = batch.labels["pair"]
    assert number.tolist() == [0, 1, 2] and deep["deep"].tolist() == [[0, 0], [1, 1], [2, 2]]
    with Loader(source, batch_size=2, rank=1, world_size=2, last_batch="partial", seed=0) as loader:
        assert next(iter(loader)).labels["caption"] == ["picture 2"]


def test_labels_of_an_empty_batch():
    labels = [{"class": k, "names": [str(k)], "pair": (k, "x")} for k in range(3)]
    ((_, got),) = epoch_of(Labeled(*labels, attribute="labels"), sampler=[0], rank=1, world_size=2, seed=0)
    assert got["class"].shape == (0,) and got["names"] == [] and got["pair"][0].shape == (0,) and got["pair"][1] == []


# --- arrays as images ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((4, 4, 3), np.float32),
        np.zeros((4, 4, 2), np.uint8),
        np.zeros((0, 4, 3), np.uint8),
        np.zeros((1, 2, 3, 4)),
    ],
    ids=lambda array: f"{array.dtype} {array.shape}",
)
def test_invalid_arrays_cost_one_sample(array):
    good = photo(8, 9)
    (batch,) = epoch_of(Arrays(good, array, good), batch_size=3, on_error="skip")
    assert batch.indices.tolist() == [0, 2]


def test_an_array_above_max_pixels_is_refused():
    options = DecodeOptions(max_pixels=71)
    assert_epoch_raises(ValueError, "8 x 9 = 72 pixels", Arrays(photo(8, 9)), decode=options)
