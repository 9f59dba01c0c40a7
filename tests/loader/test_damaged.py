"""Damaged files: replacements, callbacks, logs and `max_errors`."""

from __future__ import annotations

import logging
import os
import resource
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cuaug import DecodeError, Loader, LoaderError, TransformError
from cuaug import transforms as T
from cuaug.sampling import Epoch, ShuffledOrder
from cuaug.sources import open_source
from tests.loader.test_reproducible import samples, training_chain
from tests.support.loader.further_pictures import (
    Bytes,
    Memory,
    assert_epoch_raises,
    epoch_of,
    numbers_of,
    png,
    write_photos,
)


@pytest.mark.slow
@given(
    count=st.integers(2, 40),
    damage=st.sets(st.integers(0, 38), max_size=20),
    batch_size=st.integers(1, 9),
    threads=st.integers(1, 4),
    world_size=st.integers(1, 3),
    seed=st.integers(0, 3),
)
def test_a_replacement_is_a_function_of_the_sample(count, damage, batch_size, threads, world_size, seed):
    """Recomputed here from the draws; batches, threads and ranks do not matter."""
    damage = {number for number in damage if number < count - 1}
    epoch = Epoch(2, seed, ShuffledOrder(count).order(seed, 2))
    want: dict[int, int] = {}
    for position, index in enumerate(epoch.indices.tolist()):
        at, attempt = position, 0
        while int(epoch.indices[at]) in damage:
            at = int(epoch.replacements(torch.tensor([at]).numpy(), attempt)[0])
            attempt += 1
        want[index] = int(epoch.indices[at])
    got: dict[int, int] = {}
    for rank in range(world_size):
        loader = Loader(
            Memory(count, damaged=damage), batch_size=batch_size, shuffle=True, seed=seed, threads=threads,
            on_error="replace", rank=rank, world_size=world_size,
        )  # fmt: skip
        loader.set_epoch(2)
        with loader:
            for step, batch in enumerate(loader):
                numbers = numbers_of(batch.images) if len(batch.images) else []
                assert numbers == batch.labels.tolist() == batch.indices.tolist()
                share = loader._steps(count, 0)[step]
                own = epoch.indices[share.positions[: share.kept]].tolist()
                assert len(own) == len(numbers)
                for index, number, valid in zip(own, numbers, batch.valid.tolist(), strict=True):
                    got[index] = number
                    assert valid == (index not in damage)
    assert got == want


def test_a_replacement_is_augmented_as_at_its_own_position(tmp_path):
    paths = write_photos(tmp_path, 8)
    for k in (2, 5, 6):
        data = Path(paths[k]).read_bytes()
        Path(paths[k]).write_bytes(data[:-200] if k != 5 else b"no picture")  # found by the decoder, by the parser
    whole = samples(Loader(paths, training_chain(), batch_size=3, on_error="skip", seed=0))
    assert set(whole) == {0, 1, 3, 4, 7}
    for batch_size in (1, 3, 8):
        options = {"batch_size": batch_size, "on_error": "replace", "layout": "NHWC", "seed": 0}
        batches = epoch_of(paths, training_chain(), **options)
        assert [len(batch.images) for batch in batches] == {1: [1] * 8, 3: [3, 3, 2], 8: [8]}[batch_size]
        for batch in batches:
            assert batch.images.is_contiguous(memory_format=torch.channels_last)
            for image, index in zip(batch.images, batch.indices.tolist(), strict=True):
                assert image.equal(whole[index])
    assert [k for batch in batches for k in batch.valid.tolist()] == [k not in (2, 5, 6) for k in range(8)]


def test_replacements_come_from_the_sampler():
    """A training split must not get samples of the validation split."""
    source = Memory(40, damaged=range(0, 20, 2))
    with Loader(source, sampler=range(20), batch_size=7, on_error="replace") as loader:
        seen = {number for _ in range(5) for images, _ in loader for number in numbers_of(images)}
    assert seen == set(range(1, 20, 2))


def test_no_sample_can_replace():
    message = r"100 replacements in a row .* the last: cannot decode \(sample \d\)"
    assert_epoch_raises(LoaderError, message, Memory(6, damaged=range(6)), batch_size=2, on_error="replace")


def test_a_replacement_of_another_size():
    small, large = png(0, 4, 5), png(0, 6, 5)
    for order in ([0, 1, 2], [1, 2, 0]):  # the replacement comes after some decoded samples, or first
        with (
            Loader(Bytes(small, b"damaged", large), sampler=order, batch_size=2, on_error="replace") as loader,
            pytest.raises(TransformError, match=r"different sizes.*4 x 5.*6 x 5|different sizes.*6 x 5.*4 x 5"),
        ):
            for epoch in range(50):  # until one does not fit
                loader.set_epoch(epoch)
                next(iter(loader))


def test_an_exception_while_replacing_is_raised():
    class Breaks(Memory):
        def read(self, index):
            if index == 1:
                return b"damaged", 1
            if self.ready:
                raise ZeroDivisionError("in the source")
            self.ready = index == 2
            return super().read(index)

        ready = False

    with (
        Loader(Breaks(3), batch_size=3, threads=1, on_error="replace") as loader,
        pytest.raises(ZeroDivisionError, match="in the source"),
    ):
        for epoch in range(10):
            loader.set_epoch(epoch)
            list(loader)


# --- callbacks, logs and limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_the_callback_and_the_log(on_error, tmp_path, caplog):
    paths = write_photos(tmp_path, 9)
    for k in (3, 7):
        Path(paths[k]).write_bytes(b"GIF89a")
    told: list[DecodeError] = []
    # With this seed no damaged sample is replaced by the other one.
    how = {"on_error": on_error, "error_callback": told.append, "threads": 3, "seed": 0}
    with Loader(paths, T.CenterCrop(32), batch_size=4, **how) as loader:
        for _ in range(2):
            list(loader)
    own = [error.index for error in told if error.index in (3, 7)]
    assert own[:2] == [3, 7] and len(own) >= 4, "every time, in order"
    assert {(error.path, error.index) for error in told} == {(paths[3], 3), (paths[7], 7)}
    assert all(error.cause and error.cause in str(error) for error in told)
    assert loader.stats().failed == len(told)
    messages = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(messages) == 2, "each once"
    for message, k in zip(messages, (3, 7), strict=True):
        verb = {"skip": "skipped", "replace": "replaced"}[on_error]
        assert message.startswith(f"{verb}: cannot decode {paths[k]!r} (sample {k}): ")


@pytest.fixture
def no_more_files():
    """After its call, no file can be opened until the test ends."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)

    def limit():
        lowest = os.open(os.devnull, os.O_RDONLY)
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, before[1]))

    yield limit
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
def test_too_many_open_files_are_no_damage(on_error, no_more_files, tmp_path):
    source = open_source(write_photos(tmp_path, 6, form="JPEG"))
    with Loader(source, [T.Resize((8, 8))], batch_size=3, on_error=on_error) as loader:
        assert [len(images) for images, _ in loader] == [3, 3]
        no_more_files()
        with pytest.raises(LoaderError, match=r"\.jpg' \(sample \d\): Too many open files; the sample is not damaged"):
            list(loader)
    assert not loader.stats().failed


@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
def test_an_error_that_is_its_own_cause(on_error):
    """As after `raise error from error`: the chain of causes is a cycle."""

    class Fails(Memory):
        def read(self, index):
            if index == 1:
                error = OSError("bad tile")
                raise error from error
            return super().read(index)

    with Loader(Fails(3), batch_size=3, on_error=on_error) as loader:
        if on_error == "raise":
            with pytest.raises(DecodeError, match="bad tile"):
                list(loader)
        else:
            assert [len(images) for images, _ in loader] == [3 if on_error == "replace" else 2]


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_max_errors_counts_different_samples(on_error):
    options = {"batch_size": 5, "on_error": on_error, "threads": 2}
    with Loader(Memory(20, damaged=[3, 4, 11]), max_errors=3, **options) as loader:
        for _ in range(4):
            assert len(list(loader)) == 4
    message = r"3 samples have failed, more than max_errors=2; the last: cannot decode \(sample 11\)"
    error = assert_epoch_raises(LoaderError, message, Memory(20, damaged=[3, 4, 11]), max_errors=2, **options)
    assert isinstance(error.__cause__, DecodeError)
    assert_epoch_raises(LoaderError, "1 sample", Memory(20, damaged=[3]), max_errors=0, **options)


@pytest.mark.parametrize("made", [None, torch.tensor(3), 5])
def test_collate_fn_and_a_batch_without_samples(made):
    options = {"batch_size": 2, "on_error": "skip", "collate_fn": lambda labels: made}
    with Loader(Memory(4, damaged=[0, 1]), **options) as loader:
        if made is None:
            assert [labels for _, labels in loader] == [None, None]
        else:
            with pytest.raises(LoaderError, match=r"collate_fn returned .*[35].* all its samples are damaged"):
                list(loader)
