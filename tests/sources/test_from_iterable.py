"""Iterable Datasets: exact epochs on any number of ranks, the shuffle buffer, resuming, and what is refused."""

from __future__ import annotations

import logging
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cuaug import DecodedCache, DecodeError, Loader, LoaderError
from cuaug import transforms as T
from cuaug.errors import ArgumentError
from cuaug.sources import FromIterable
from tests.support.loader.further_pictures import numbers_of, png
from tests.support.sources.loading import load, load_numbers


class Numbers(torch.utils.data.IterableDataset):
    """(image, label) of 0 ... count - 1, and how many items were taken."""

    def __init__(self, count: int) -> None:
        self.count, self.taken, self.epochs = count, 0, []

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)

    def __iter__(self):
        for number in range(self.count):
            self.taken += 1
            yield png(number), number


def epoch_of(source: FromIterable, **options) -> list[list[int]]:
    with Loader(source, **{"batch_size": 4, "threads": 3, **options}) as loader:
        return [batch.labels.tolist() for batch in loader]


def test_items_come_in_the_streams_order():
    with Loader(FromIterable(Numbers(10), 10), batch_size=4, threads=3) as loader:
        for _ in range(3):
            batches = list(loader)
            assert [numbers_of(batch.images) for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
            assert torch.cat([batch.labels for batch in batches]).tolist() == list(range(10))
        assert loader.source.dataset.epochs == [0, 1, 2]


@given(
    count=st.integers(1, 60),
    buffer=st.integers(0, 70),
    batch_size=st.integers(1, 7),
    ranks=st.integers(1, 4),
    last_batch=st.sampled_from(["partial", "drop"]),
)
def test_ranks_share_the_order_of_one(count, buffer, batch_size, ranks, last_batch):
    def labels(rank: int, world_size: int, size: int) -> list[list[int]]:
        source = FromIterable(Numbers(count), count, shuffle_buffer=buffer)
        options = {"rank": rank, "world_size": world_size, "seed": 5, "last_batch": last_batch, "batch_size": size}
        return epoch_of(source, **options) if last_batch == "partial" or count >= ranks * batch_size else []

    alone = [label for batch in labels(0, 1, batch_size * ranks) for label in batch]
    by_rank = [labels(rank, ranks, batch_size) for rank in range(ranks)]
    together = [label for step in zip(*by_rank, strict=True) for batch in step for label in batch]
    assert together == alone and len(set(alone)) == len(alone)
    if last_batch == "partial" and alone:
        assert sorted(alone) == list(range(count))


def test_the_shuffle_buffer_depends_on_seed_and_epoch():
    orders = set()
    for seed, epoch in ((0, 0), (0, 1), (1, 0)):
        with Loader(FromIterable(Numbers(50), 50, shuffle_buffer=20), batch_size=50, seed=seed) as loader:
            loader.set_epoch(epoch)
            first = next(iter(loader)).labels.tolist()
            loader.set_epoch(epoch)
            assert next(iter(loader)).labels.tolist() == first
            assert all(position > label - 20 for position, label in enumerate(first))
            orders.add(tuple(first))
    assert len(orders) == 3


def test_a_large_buffer_shuffles_uniformly():
    """The mean of each position over 300 epochs is within 5 standard errors of the middle."""
    order = []
    source = FromIterable(Numbers(20), 20, shuffle_buffer=20)
    for epoch in range(300):
        source.start_stream(3, epoch, np.arange(20))
        order.append([source.read(i)[1] for i in range(20)])
    errors = (np.mean(order, axis=0) - 9.5) / (np.sqrt((20**2 - 1) / 12 / 300))
    assert np.abs(errors).max() < 5


@pytest.mark.parametrize("buffer", [0, 7])
def test_resuming_reads_on(buffer, caplog):
    def loader() -> Loader:
        source = FromIterable(Numbers(30), 30, shuffle_buffer=buffer)
        return Loader(source, [T.RandomHorizontalFlip()], batch_size=4, seed=1)

    with loader() as whole:
        expected = [batch.labels.tolist() for batch in whole]
    with loader() as first:
        iterator = iter(first)
        got = [next(iterator).labels.tolist() for _ in range(3)]
        state = first.state_dict()
        del iterator
    with loader() as second, caplog.at_level(logging.INFO, "cuaug"):
        second.load_state_dict(state)
        got += [batch.labels.tolist() for batch in second]
    assert got == expected and "reads and discards 12 items" in caplog.text
    other = Loader(FromIterable(Numbers(30), 30, shuffle_buffer=3), batch_size=4, seed=1)
    with other, pytest.raises(LoaderError, match="fingerprint of the source"):
        other.load_state_dict(state)


def test_a_break_begins_the_next_epoch_at_the_first_item():
    with Loader(FromIterable(Numbers(40), 40), batch_size=4) as loader:
        for _ in range(3):
            for batch in loader:
                assert batch.labels.tolist() == [0, 1, 2, 3]
                break


def test_items_wait_only_while_batches_are_under_way():
    dataset = Numbers(400)
    with Loader(FromIterable(dataset, 400), batch_size=4, prefetch=2, threads=2) as loader:
        next(iter(loader))
        assert dataset.taken <= 4 * 6


def test_a_short_stream_is_an_error():
    with pytest.raises(LoaderError, match="Numbers ended after 10 items, before sample 1"):
        epoch_of(FromIterable(Numbers(10), 12))


def test_a_long_stream_is_warned_of_once(caplog):
    source = FromIterable(Numbers(10), 8)
    for _ in range(2):
        assert epoch_of(source) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert caplog.text.count("goes on after length=8 items") == 1


@pytest.mark.parametrize("buffer", [3, 100])
def test_the_shuffle_buffer_holds_nothing_beyond_the_length(buffer, caplog):
    batches = epoch_of(FromIterable(Numbers(30), 12, shuffle_buffer=buffer))
    assert sorted(number for batch in batches for number in batch) == list(range(12))
    assert caplog.text.count("goes on after length=12 items") == 1


class Broken(Numbers):
    """Raises an error in place of item 6."""

    def __init__(self, error: Exception) -> None:
        super().__init__(20)
        self.error = error

    def __iter__(self):
        for image, number in super().__iter__():
            if number == 6:
                raise self.error
            yield image, number


@pytest.mark.parametrize("buffer", [0, 4])
@pytest.mark.parametrize("error", [OSError("no network"), RuntimeError("no network")])
def test_a_stream_that_raises_is_named_by_all_errors(buffer, error):
    """No item is dropped without a word: what a stream gives after its own error is at no known position."""
    source = FromIterable(Broken(error), 20, shuffle_buffer=buffer)
    with pytest.raises((LoaderError, type(error)), match="no network"):
        epoch_of(source, on_error="skip")
    source.start_stream(0, 0, np.arange(20))
    with pytest.raises(type(error), match="no network"):
        [source.read(i) for i in range(20)]
    with pytest.raises(LoaderError, match=f"Broken raised {type(error).__name__}: no network"):
        source.read(19)


def test_two_loaders_over_one_stream_are_an_error():
    source = FromIterable(Numbers(50), 50)
    with pytest.raises(LoaderError, match="give each Loader a FromIterable of its own"):
        for _ in zip(*(Loader(source, batch_size=4, threads=2) for _ in range(2)), strict=True):
            pass


def test_a_damaged_item_is_skipped():
    class Damaged(Numbers):
        def __iter__(self):
            for image, number in super().__iter__():
                yield b"damaged" if number == 5 else image, number

    assert epoch_of(FromIterable(Damaged(8), 8), on_error="skip") == [[0, 1, 2, 3], [4, 6, 7]]
    with pytest.raises(DecodeError, match="Damaged item 5"):
        epoch_of(FromIterable(Damaged(8), 8))


def test_dicts_as_hugging_face_streams_them():
    class Items:
        def __init__(self):
            self.features = {"label": type("ClassLabel", (), {"names": ["a", "b"]})()}

        def __iter__(self):
            return iter([{"image": {"bytes": png(i), "path": None}, "label": i % 2} for i in range(4)])

    source = FromIterable(Items(), 4)
    assert source.classes == ["a", "b"]
    assert load_numbers(source) == ([0, 1, 2, 3], [0, 1, 0, 1])


def test_it_pickles_without_its_stream():
    source = FromIterable(Numbers(8), 8, shuffle_buffer=3)
    expected = epoch_of(source, seed=2)
    assert epoch_of(pickle.loads(pickle.dumps(source)), seed=2) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shuffle": True}, r"shuffle and sampler: needs samples by index, .* use FromIterable\(..., shuffle_buffer"),
        ({"sampler": [1, 0]}, "shuffle and sampler"),
        ({"last_batch": "pad"}, "last_batch='pad'.*use 'drop' or 'partial'"),
        ({"cache": DecodedCache()}, "cache: needs"),
        ({"on_error": "replace"}, "on_error='replace'"),
        ({"transforms": [T.MixUp(num_classes=10)]}, "transforms that mix samples"),
    ],
)
def test_options_that_need_samples_by_index(options, message):
    with pytest.raises(ArgumentError, match=message):
        Loader(FromIterable(Numbers(8), 8), batch_size=4, **options)


def test_samples_by_index_are_refused():
    source = FromIterable(Numbers(8), 8)
    with pytest.raises(LoaderError, match="has no samples by index: iterate over"):
        source.read(3)
    with Loader(source, batch_size=4) as loader:
        with pytest.raises(LoaderError, match="peek and replay need samples by index"):
            loader.peek()
        with pytest.raises(LoaderError, match="peek and replay need samples by index"):
            loader.replay(0, 1)
    with pytest.raises(LoaderError, match="has no samples by index"):
        load(torch.utils.data.Subset(source, [0, 3]))


def test_other_datasets_are_refused():
    with pytest.raises(ArgumentError, match="is an iterator, list_iterator, which ends with the first epoch"):
        FromIterable(iter([1]), 1)
    with pytest.raises(ArgumentError, match="must be iterable, unlike int"):
        FromIterable(3, 1)
    with pytest.raises(ArgumentError, match=r"use cuaug.sources.FromIterable\(dataset, length\)"):
        Loader(Numbers(8))
