"""However an iteration ends, the loader works on, or its threads end with it.

`test_process_ends.py` and `test_processes.py` test the process.
"""

from __future__ import annotations

import gc
import itertools
import sys
import threading
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuaug import Batch, DecodeError, Loader, LoaderError
from cuaug import transforms as T
from tests.support.loader.further_pictures import Bytes, Memory, WatchedSource, noisy_jpeg, numbers_of, png
from tests.support.loader.programs import run_apart
from tests.support.waiting import eventually


def workers() -> list[threading.Thread]:
    """The threads of loaders; those of `cuaug.decode` live until the process ends."""
    return [t for t in threading.enumerate() if t.name.startswith("cuaug") and not t.name.startswith("cuaug-decode")]


def own_threads(loader: Loader) -> int:
    """Number of its threads while it iterates: with a GPU there is also the producer."""
    return loader.threads + (loader.device.type == "cuda")


def no_workers_left() -> bool:
    return eventually(lambda: (gc.collect() and False) or not workers())


@pytest.fixture(autouse=True)
def _starts_and_ends_without_workers():
    assert no_workers_left(), "threads of another test"
    yield
    assert no_workers_left(), f"left behind: {workers()}"


def labels_of(batches: Iterable[Batch]) -> list[list[int]]:
    """The labels of each batch, compared with its images."""
    labels = []
    for batch in batches:
        assert numbers_of(batch.images) == batch.labels.tolist() == batch.indices.tolist()
        labels.append(batch.labels.tolist())
    return labels


@pytest.mark.slow
@given(st.lists(st.integers(0, 12), min_size=1, max_size=6), st.integers(1, 3), st.integers(1, 4))
@settings(max_examples=25)
def test_break_and_iterate_again(breaks, threads, prefetch):
    """Each iteration is the next epoch from its start, wherever the last one was broken off."""
    options = {"batch_size": 4, "shuffle": True, "threads": threads, "prefetch": prefetch}
    with Loader(Memory(46), seed=0, **options) as loader, Loader(Memory(46), seed=0, **options) as unbroken:
        for epoch, consumed in enumerate(breaks):
            want = labels_of(unbroken)
            assert sorted(itertools.chain.from_iterable(want)) == list(range(46))
            for k, batch in enumerate(loader):
                assert batch.epoch == epoch and labels_of([batch]) == want[k : k + 1]
                if k == consumed:
                    break
        assert labels_of(loader) == labels_of(unbroken)


@pytest.mark.slow
@given(st.lists(st.integers(0, 3), max_size=40), st.integers(1, 30), st.integers(1, 5), st.integers(1, 3))
def test_several_iterators_of_one_loader(turns, count, batch_size, threads):
    """Each is a complete epoch of its own, numbered by first batches, in any interleaving, also if one is dropped."""
    options = {"batch_size": batch_size, "shuffle": True, "threads": threads}
    with Loader(Memory(count), seed=0, **options) as loader, Loader(Memory(count), seed=0, **options) as alone:
        want = [labels_of(alone) for _ in range(3)]
        batches = dict(enumerate([iter(loader), iter(loader), iter(loader)]))
        got: list[list[Batch]] = [[], [], []]
        for turn in turns:
            if turn == 3:
                batches.pop(2, None)
            elif turn in batches:
                got[turn] += itertools.islice(batches[turn], 1)
        for key in batches:
            got[key] += batches[key]
        began = [key for key in range(3) if got[key]]
        assert sorted(got[key][0].epoch for key in began) == list(range(len(began)))
        for key in began:
            labels, epoch = labels_of(got[key]), got[key][0].epoch
            assert labels == (want[epoch] if key in batches else want[epoch][: len(labels)])
            assert all(batch.epoch == epoch for batch in got[key])


def test_close_ends_the_threads():
    loader = Loader(Memory(8), threads=4)
    assert not workers(), "threads start with the first batch"
    next(iter(loader))
    assert len(workers()) == own_threads(loader)
    loader.close()
    assert not workers()
    loader.close()
    with pytest.raises(KeyError), Loader(Memory(8), threads=2) as loader:
        list(loader)
        raise KeyError
    assert not workers()


@pytest.mark.parametrize("consumed", [1, 3])
def test_close_during_an_iteration(consumed):
    """Also where all remaining batches are under way: no thread would finish them."""
    loader = Loader(Memory(4, slow=0.01), threads=1, prefetch=3)
    batches = iter(loader)
    kept = [next(batches) for _ in range(consumed)]
    loader.close()
    with pytest.raises(LoaderError, match="closed"):
        next(batches)
    assert [numbers_of(images) for images, _ in kept] == [[i] for i in range(consumed)]


def test_close_from_another_thread_wakes_the_consumer():
    release = threading.Event()
    loader = Loader(WatchedSource(8, lambda index: release.wait()), threads=1)
    closer = threading.Timer(0.2, loader.close)
    closer.start()
    with pytest.raises(LoaderError, match="closed"):
        next(iter(loader))
    release.set()
    closer.join()


def test_the_threads_of_a_deleted_loader_end():
    loader = Loader(Memory(400, slow=0.001), batch_size=4, threads=4)
    batches = iter(loader)
    next(batches)
    assert len(workers()) == own_threads(loader)
    del batches
    del loader
    assert no_workers_left()


def fail(*_: object) -> None:
    raise ValueError("no")


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, DecodeError),
        ({"damaged": noisy_jpeg(9, 9)[:400]}, DecodeError),
        ({"on_error": "skip", "max_errors": 0}, LoaderError),
        ({"on_error": "skip", "error_callback": fail}, ValueError),
        ({"on_error": "skip", "collate_fn": fail}, ValueError),
        ({"on_error": "replace", "transforms": [T.Lambda(fail)]}, ValueError),
    ],
)
def test_the_threads_of_a_loader_that_raised_end(options, kind):
    """They end with the exception, without the garbage collector: no cycle holds the loader.

    Without the GIL, Python leaves the exception's frames to the collector.
    """
    data, options = [png(i) for i in range(20)], dict(options)
    data[7] = options.pop("damaged", b"no picture")

    def raise_and_catch() -> None:
        with pytest.raises(kind):
            list(Loader(Bytes(*data), batch_size=4, threads=3, **options))

    gc.disable()
    try:
        raise_and_catch()
        if not getattr(sys, "_is_gil_enabled", lambda: True)():
            gc.collect()
        assert eventually(lambda: not workers())
    finally:
        gc.enable()


def test_close_while_a_read_is_stuck():
    """It does not wait for the read; the thread ends with the read."""
    release, stuck = threading.Event(), threading.Event()

    def before(index: int) -> None:
        if index >= 4:
            stuck.set()
            release.wait()

    loader = Loader(WatchedSource(40, before), batch_size=4, threads=2)
    batches = iter(loader)
    kept = next(batches)
    stuck.wait()
    loader.close()
    with pytest.raises(LoaderError, match="closed"):
        next(batches)
    assert numbers_of(kept.images) == [0, 1, 2, 3]
    assert workers(), "the read is no longer stuck"
    release.set()
    assert no_workers_left()


@pytest.mark.cpu_only
@pytest.mark.parametrize("options", ["", ", rank=0, world_size=2, seed=0"])
def test_an_iterator_outlives_the_modules(options):
    """The interpreter clears modules in an order of its own: a module may hold an iterator to the end."""
    output = run_apart(
        f"""
batches = iter(Loader(Memory(4000), [T.Resize((200, 200))], batch_size=40, threads=2{options}))
next(batches)
atexit._run_exitfuncs()
for name, module in list(sys.modules.items()):
    if name.startswith("cuaug"):
        for key in [key for key in vars(module) if not key.startswith("__")]:
            vars(module)[key] = None  # as the interpreter does at exit
batches.close()
print("closed", flush=True)
os._exit(0)
""",
        {},
    )
    assert output == "closed\n"
