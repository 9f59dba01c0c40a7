"""A slow source, a slow consumer, a read that hangs: order and counts hold, and what is stuck is named."""

from __future__ import annotations

import ctypes
import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuaug import Batch, Loader, LoaderError
from cuaug.codec import CpuDecoder
from tests.loader.pictures import Bytes, Memory, numbers_of, png, slow_to_decode
from tests.loader.programs import Program


class Watched(Memory):
    """Notes which samples it was asked for; `before` is called before each is read. It knows paths."""

    def __init__(self, count: int, before: Callable[[int], object] = lambda index: None, damaged: object = ()) -> None:
        super().__init__(count, damaged)
        self.asked: list[int] = []
        self._before = before

    def read(self, index: int) -> tuple[bytes, int]:
        self.asked.append(index)
        self._before(index)
        return super().read(index)

    def path(self, index: int) -> str:
        return f"disk/{index}.png"


@pytest.fixture
def let_go() -> Iterator[threading.Event]:
    """What stuck reads wait for; set at the end, so that their threads end."""
    event = threading.Event()
    yield event
    event.set()


def checked_labels(batch: Batch) -> list[int]:
    assert numbers_of(batch.images) == batch.labels.tolist() == batch.indices.tolist() and batch.valid.all()
    return batch.labels.tolist()


def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.001)
    return condition()


# --- slow, but it moves ----------------------------------------------------------------------------------------------


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
@settings(max_examples=40)
def test_order_labels_and_counts_hold(count, batch_size, threads, prefetch, source_seconds, consumer_seconds, shuffle):
    """However long each read and the consumer take, which varies from sample to sample."""
    source = Watched(count, lambda index: time.sleep(random.random() * source_seconds))
    options = {"batch_size": batch_size, "shuffle": shuffle}
    with (
        Loader(Memory(count), **options, threads=1, prefetch=1) as unhurried,
        Loader(source, **options, threads=threads, prefetch=prefetch, timeout_seconds=60) as loader,
    ):
        for epoch in range(2):
            got = []
            for batch in loader:
                time.sleep(random.random() * consumer_seconds)
                got.append(checked_labels(batch))
            assert got == [checked_labels(batch) for batch in unhurried]
            assert len(got) == len(loader) and sorted(source.asked) == sorted([*range(count)] * (epoch + 1))


@given(st.integers(1, 5), st.integers(1, 9), st.integers(1, 4))
@settings(max_examples=20)
def test_prefetch_never_holds_more_than_its_depth(prefetch, batch_size, threads):
    """While the consumer holds batch k, all of batches k + 1 ... k + prefetch is read, and nothing beyond."""
    count = 60
    source = Watched(count)
    with Loader(source, batch_size=batch_size, threads=threads, prefetch=prefetch) as loader:
        batches = iter(loader)
        assert source.asked == [], "nothing before the first batch is asked for"
        for k in range(-(-count // batch_size)):
            assert checked_labels(next(batches))[0] == k * batch_size
            allowed = min(count, (k + 1 + prefetch) * batch_size)
            assert eventually(lambda allowed=allowed: len(source.asked) >= allowed)
            time.sleep(0.002)
            assert sorted(source.asked) == list(range(allowed))


def test_batches_begun_earlier_go_first(let_go):
    """A batch that is read need not wait until the next ones are, even on one thread."""
    source = Watched(64, lambda index: index < 16 or let_go.wait(60))
    for threads in (1, 3):
        with Loader(source, batch_size=8, threads=threads, timeout_seconds=20) as loader:
            batches = iter(loader)
            assert [checked_labels(next(batches))[0] for _ in range(2)] == [0, 8]


@pytest.mark.slow
@pytest.mark.parametrize("timeout_seconds", [1.0, None])
def test_what_is_slow_but_moves_does_not_time_out(timeout_seconds):
    """A batch takes longer than that here, and so does the consumer; no sample does."""
    source = Watched(16, lambda index: time.sleep(0.15))
    with Loader(source, batch_size=8, threads=1, prefetch=1, timeout_seconds=timeout_seconds) as loader:
        begin = time.monotonic()
        for k, batch in enumerate(loader):
            assert checked_labels(batch) == list(range(8 * k, 8 * k + 8))
            time.sleep(1.1 * (k == 0))
        assert time.monotonic() - begin > 2.3 and k == 1


# --- stuck -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 4])
def test_a_stuck_source_is_reported_with_its_path(let_go, threads):
    """After the batches before it. The loader goes on with the threads that are left, and others do with theirs."""
    stuck = [21]
    source = Watched(40, lambda index: index not in stuck or let_go.wait(60))
    with (
        Loader(source, batch_size=4, threads=threads, timeout_seconds=1) as loader,
        Loader(Memory(400), batch_size=4, threads=1) as other,
    ):
        got = []
        begin = time.monotonic()
        with pytest.raises(
            LoaderError,
            match=r"^reading 'disk/21.png' \(sample 21\) has taken (\d\.\d) s so far, more than timeout_seconds=1$",
        ):
            for batch in loader:
                got += checked_labels(batch)
        assert 1 < time.monotonic() - begin < 10 and got == list(range(20))
        assert sum(len(labels) for _, labels in other) == 400
        stuck.clear()  # for those who read it from now on
        if threads == 1:
            with pytest.raises(LoaderError, match=r"reading 'disk/21.png' \(sample 21\) has taken"):
                next(iter(loader))
        else:
            assert [n for batch in loader for n in checked_labels(batch)] == list(range(40))


@pytest.mark.slow
def test_another_iteration_is_not_blamed(let_go):
    """One whose own samples move, however slowly, while a thread is still stuck in those of one that has failed."""
    slow = threading.Event()

    def before(index: int) -> None:
        if slow.is_set():
            time.sleep(0.15)
        elif index == 3:
            let_go.wait(60)

    with Loader(Watched(6, before), batch_size=6, threads=2, timeout_seconds=0.7) as loader:
        with pytest.raises(LoaderError, match="sample 3"):
            list(loader)
        slow.set()
        assert [checked_labels(batch) for batch in loader] == [[0, 1, 2, 3, 4, 5]]


@pytest.mark.slow
def test_a_stuck_stand_in_is_reported(let_go):
    """Of a damaged sample that is replaced: nothing beyond sample 1 is prefetched here."""
    source = Watched(30, lambda index: index < 2 or let_go.wait(60), damaged=[0, 1])
    with (
        Loader(source, on_error="replace", threads=4, prefetch=1, timeout_seconds=1) as loader,
        pytest.raises(LoaderError, match=r"reading 'disk/\d+.png' \(sample \d+\) has taken") as caught,
    ):
        next(iter(loader))
    assert any(f"'disk/{index}.png'" in str(caught.value) for index in source.asked if index >= 2)


@pytest.mark.cpu_only
def test_a_stuck_decoder_is_reported():
    """By a picture that takes seconds, on one of two threads."""
    with Loader(Bytes(png(0), slow_to_decode(), png(2)), threads=2, timeout_seconds=0.5) as loader:
        batches = iter(loader)
        assert next(batches).labels.tolist() == [0]
        with pytest.raises(LoaderError, match=r"^decoding sample 1 has taken \d\.\d s so far, more than"):
            next(batches)


@pytest.mark.cpu_only
def test_of_pictures_that_are_decoded_together_all_are_named(monkeypatch, let_go):
    monkeypatch.setattr(CpuDecoder, "decode_batch", lambda *_, **__: let_go.wait(60))
    message = r"^decoding one of sample 0, sample 1 has taken \d\.\d s so far, more than"
    with (
        Loader(Bytes(png(0), png(1)), batch_size=2, threads=2, timeout_seconds=0.5) as loader,
        pytest.raises(LoaderError, match=message),
    ):
        next(iter(loader))


def test_of_files_that_are_read_together_the_stuck_one_is_named(monkeypatch, let_go):
    def stuck(paths: list[str], at: ctypes.c_int64, max_bytes: int) -> None:
        at.value = paths.index("disk/5.png")
        let_go.wait(60)

    monkeypatch.setattr("cuaug.pipeline.reader.read_files", stuck)
    with (
        Loader([f"disk/{i}.png" for i in range(8)], batch_size=8, threads=1, timeout_seconds=0.5) as loader,
        pytest.raises(LoaderError, match=r"^reading 'disk/5.png' \(sample 5\) has taken \d\.\d s so far"),
    ):
        next(iter(loader))


@pytest.mark.slow
def test_a_stuck_collate_fn_is_reported(let_go):
    def collate(labels: list[int]) -> list[int]:
        if labels[0] == 8:
            let_go.wait(60)
        return labels

    with Loader(Watched(40), batch_size=4, threads=2, timeout_seconds=1, collate_fn=collate) as loader:
        batches = iter(loader)
        assert [next(batches).labels[0] for _ in range(2)] == [0, 4]
        with pytest.raises(LoaderError, match=r"^finishing the batch of 'disk/8.png' \(sample 8\) has taken"):
            next(batches)


@pytest.mark.slow
def test_a_process_that_was_stopped_goes_on():
    """By Ctrl-Z, or with its container or virtual machine: what it was at is older then than the timeout."""
    program = Program("""
class Slow(Memory):
    def read(self, index):
        if index == 2:
            ready()
        for _ in range(12):
            time.sleep(0.05)
        return super().read(index)

list(Loader(Slow(4), threads=1, timeout_seconds=1, device="cpu"))
""")
    os.kill(program.process, signal.SIGSTOP)
    time.sleep(1.5)
    os.kill(program.process, signal.SIGCONT)
    ended = program.ends(within=float("inf"))
    assert ended.code == 0, ended.err


@pytest.mark.slow
@pytest.mark.parametrize("stuck_in", ["read", "decode"])
def test_a_process_with_a_stuck_thread_ends(stuck_in):
    ended = Program(f"""
from cuaug.codec import CpuDecoder

def hang(*_, **__):
    time.sleep(600)

class Stuck(Memory):
    def read(self, index):
        if index == 30:
            ready()
            if {stuck_in!r} == "read":
                hang()
            CpuDecoder.decode_batch = hang
        return super().read(index)

list(Loader(Stuck(400), batch_size=4, threads=3, timeout_seconds=1, device="cpu"))
""").ends()
    said = {"read": "reading sample ", "decode": "decoding (one of )?sample "}[stuck_in]
    assert ended.code == 1 and re.match(f"cuaug.errors.LoaderError: {said}", ended.last_line), ended.err
    assert ended.err.count("Traceback") == 1
