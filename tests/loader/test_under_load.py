"""Slow sources, slow consumers and stuck reads: order and counts hold, and errors name the stuck sample."""

from __future__ import annotations

import os
import random
import re
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuaug import Batch, Loader, LoaderError
from cuaug._runtime.native import library
from tests.support.loader.further_pictures import (
    Bytes,
    Memory,
    WatchedSource,
    assert_epoch_raises,
    numbers_of,
    png,
    slow_to_decode,
)
from tests.support.loader.programs import Program
from tests.support.waiting import eventually


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """The event that stuck reads wait for; set at the end, so that their threads end."""
    event = threading.Event()
    yield event
    event.set()


def checked_labels(batch: Batch) -> list[int]:
    assert numbers_of(batch.images) == batch.labels.tolist() == batch.indices.tolist() and batch.valid.all()
    return batch.labels.tolist()


# --- slow, but progressing -------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(
    count=st.integers(1, 40),
    batch_size=st.integers(1, 9),
    threads=st.integers(1, 5),
    prefetch=st.integers(1, 4),
    source_seconds=st.sampled_from([0.0, 0.001, 0.004]),
    consumer_seconds=st.sampled_from([0.0, 0.001, 0.01]),
    shuffle=st.booleans(),
)
def test_order_labels_and_counts_hold(count, batch_size, threads, prefetch, source_seconds, consumer_seconds, shuffle):
    """With any durations of reads and of the consumer's steps."""
    source = WatchedSource(count, lambda index: time.sleep(random.random() * source_seconds))
    options = {"batch_size": batch_size, "shuffle": shuffle, "seed": 0}
    with (
        Loader(Memory(count), **options, threads=1, prefetch=1) as reference,
        Loader(source, **options, threads=threads, prefetch=prefetch, timeout_seconds=60) as loader,
    ):
        for epoch in range(2):
            got = []
            for batch in loader:
                time.sleep(random.random() * consumer_seconds)
                got.append(checked_labels(batch))
            assert got == [checked_labels(batch) for batch in reference]
            assert len(got) == len(loader) and sorted(source.reads) == sorted([*range(count)] * (epoch + 1))


@given(st.integers(1, 5), st.integers(1, 9), st.integers(1, 4))
@settings(max_examples=20)
def test_prefetch_never_holds_more_than_its_depth(prefetch, batch_size, threads):
    """While the consumer holds batch k, batches k + 1 ... k + prefetch are read, and no others."""
    count = 60
    source = WatchedSource(count)
    with Loader(source, batch_size=batch_size, threads=threads, prefetch=prefetch) as loader:
        batches = iter(loader)
        assert source.reads == [], "no reads before the first batch is requested"
        for k in range(-(-count // batch_size)):
            assert checked_labels(next(batches))[0] == k * batch_size
            allowed = min(count, (k + 1 + prefetch) * batch_size)
            assert eventually(lambda allowed=allowed: len(source.reads) >= allowed)
            time.sleep(0.002)
            assert sorted(source.reads) == list(range(allowed))


def test_earlier_batches_have_priority(release):
    """A batch that is read need not wait for later reads, even on one thread."""
    source = WatchedSource(64, lambda index: index < 16 or release.wait())
    for threads in (1, 3):
        with Loader(source, batch_size=8, threads=threads, timeout_seconds=20) as loader:
            batches = iter(loader)
            assert [checked_labels(next(batches))[0] for _ in range(2)] == [0, 8]


@pytest.mark.slow
@pytest.mark.parametrize("timeout_seconds", [2.0, None])
def test_slow_batches_do_not_time_out(timeout_seconds):
    """Batches and the consumer take longer than the timeout; no single sample does."""
    source = WatchedSource(80, lambda index: time.sleep(0.055))
    with Loader(source, batch_size=40, threads=1, prefetch=1, timeout_seconds=timeout_seconds) as loader:
        begin = time.monotonic()
        for k, batch in enumerate(loader):
            assert checked_labels(batch) == list(range(40 * k, 40 * k + 40))
            time.sleep(2.1 * (k == 0))
        assert time.monotonic() - begin > 4.3 and k == 1


# --- stuck samples ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 4])
def test_a_stuck_source_is_reported_with_its_path(release, threads):
    """After the earlier batches. The loader continues with its other threads; other loaders are not affected."""
    stuck = [21]
    source = WatchedSource(40, lambda index: index not in stuck or release.wait())
    with (
        Loader(source, batch_size=4, threads=threads, timeout_seconds=1) as loader,
        Loader(Memory(400), batch_size=4, threads=1) as other,
    ):
        got = []
        message = r"^reading 'disk/21.png' \(sample 21\) has taken \d+\.\d s so far, more than timeout_seconds=1$"
        with pytest.raises(LoaderError, match=message):
            for batch in loader:
                got += checked_labels(batch)
        assert got == list(range(20))
        assert sum(len(labels) for _, labels in other) == 400
        stuck.clear()  # later reads succeed
        if threads == 1:
            with pytest.raises(LoaderError, match=r"reading 'disk/21.png' \(sample 21\) has taken"):
                next(iter(loader))
        else:
            assert [n for batch in loader for n in checked_labels(batch)] == list(range(40))


@pytest.mark.slow
def test_a_new_iteration_does_not_time_out_for_an_old_one(release):
    """Its own samples are slow but progress, while a thread is still stuck in the failed iteration."""
    slow = threading.Event()

    def before(index: int) -> None:
        if slow.is_set():
            time.sleep(0.05)
        elif index == 3:
            release.wait()

    with Loader(WatchedSource(60, before), batch_size=60, threads=2, timeout_seconds=2) as loader:
        with pytest.raises(LoaderError, match="sample 3"):
            list(loader)
        slow.set()
        assert [checked_labels(batch) for batch in loader] == [list(range(60))]


@pytest.mark.slow
def test_a_stuck_replacement_is_reported(release):
    """Of a damaged sample; no sample after 1 is prefetched here."""
    source = WatchedSource(30, lambda index: index < 2 or release.wait(), damaged=[0, 1])
    options = {"on_error": "replace", "threads": 4, "prefetch": 1, "timeout_seconds": 1}
    message = r"reading 'disk/\d+.png' \(sample \d+\) has taken"
    error = assert_epoch_raises(LoaderError, message, source, **options)
    assert any(f"'disk/{index}.png'" in str(error) for index in source.reads if index >= 2)


@pytest.mark.cpu_only
def test_a_stuck_decoder_is_reported():
    """An image that takes seconds, on one of two threads."""
    with Loader(Bytes(png(0), slow_to_decode(), png(2)), threads=2, timeout_seconds=0.5) as loader:
        batches = iter(loader)
        assert next(batches).labels.tolist() == [0]
        with pytest.raises(LoaderError, match=r"^decoding sample 1 has taken \d+\.\d s so far, more than"):
            next(batches)


def test_a_stuck_native_read_names_its_file(monkeypatch, release):
    """What a thread says of its native work decides; no file here blocks `read` itself."""

    def stuck_at_sample_5(pool: int, number: int, fields: Any) -> bool:
        fields[:] = [0, 5, 0, 1]  # batch, sample, reading, since the clock's first nanosecond
        return number == 0

    monkeypatch.setattr(library, "cuaug_pool_activity", stuck_at_sample_5)
    monkeypatch.setattr("cuaug.pipeline.reader.Reader.locate", lambda *_: release.wait())
    paths = [f"disk/{i}.png" for i in range(8)]
    message = r"^reading 'disk/5.png' \(sample 5\) has taken \d+\.\d s so far"
    assert_epoch_raises(LoaderError, message, paths, batch_size=8, threads=1, timeout_seconds=0.5)


@pytest.mark.slow
def test_a_stuck_collate_fn_is_reported(release):
    def collate(labels: list[int]) -> list[int]:
        if labels[0] == 8:
            release.wait()
        return labels

    with Loader(WatchedSource(40), batch_size=4, threads=2, timeout_seconds=1, collate_fn=collate) as loader:
        batches = iter(loader)
        assert [next(batches).labels[0] for _ in range(2)] == [0, 4]
        with pytest.raises(LoaderError, match=r"^finishing the batch of 'disk/8.png' \(sample 8\) has taken"):
            next(batches)


@pytest.mark.slow
def test_a_stopped_process_continues_without_a_timeout():
    """Ctrl-Z, or a paused container: the current sample is then older than the timeout."""
    program = Program("""
def before(index):
    if index == 2:
        ready()
    for _ in range(6):
        time.sleep(0.05)

list(Loader(WatchedSource(4, before), threads=1, timeout_seconds=1, device="cpu"))
""")
    os.kill(program.process, signal.SIGSTOP)
    time.sleep(1.5)
    os.kill(program.process, signal.SIGCONT)
    finished = program.ends(within=float("inf"))
    assert finished.code == 0, finished.err


@pytest.mark.slow
@pytest.mark.parametrize("stuck_in", ["read", "decode"])
def test_a_process_with_a_stuck_thread_ends(stuck_in):
    """In a call that nothing ends, or in Python code; a decoder's call is waited for, since it ends by itself."""
    finished = Program(f"""
from cuaug.codec import CpuDecoder

def hang(*_, **__):
    while True:
        time.sleep({600 if stuck_in == "read" else 0.05})

class Stuck(Memory):
    def read(self, index):
        if index == 30:
            ready()
            if {stuck_in!r} == "read":
                hang()
            CpuDecoder.decode = hang  # of samples that go to the cache
        return super().read(index)

cache = {"decoded" if stuck_in == "decode" else None!r}
list(Loader(Stuck(400), batch_size=4, threads=3, timeout_seconds=1, device="cpu", cache=cache))
""").ends()
    activity = {"read": "reading sample ", "decode": "decoding sample "}[stuck_in]
    assert finished.code == 1, finished.err
    assert re.match(f"cuaug.errors.LoaderTimeoutError: {activity}", finished.last_line), finished.err
    assert finished.err.count("Traceback") == 1
