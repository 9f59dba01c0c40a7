"""However an iteration ends, it ends soon, with the real traceback, and leaves no thread behind."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cuaug import Loader, LoaderError
from tests.loader.pictures import Memory, numbers_of

ROOT = Path(__file__).parents[2]
PREAMBLE = """
import os, signal, sys, threading, time
from cuaug import Loader
from tests.loader.pictures import Memory, numbers_of
"""


def workers() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("cuaug")]


def no_workers_left(seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while workers() and time.monotonic() < end:
        gc.collect()
        time.sleep(0.01)
    return not workers()


@pytest.fixture(autouse=True)
def _starts_and_ends_without_workers():
    assert no_workers_left(), "another test left its threads"
    yield
    assert no_workers_left(), f"left behind: {workers()}"


class Script:
    """A program that uses a loader; `wait` gives its exit code, what it printed, and how long it took to end.

    The time counts from the line "ready", which each program prints once its imports are done.
    """

    def __init__(self, body: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PREAMBLE + body],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.first = self.process.stdout.readline().strip()
        self.begin = time.monotonic()

    def wait(self, seconds: float = 5.0) -> tuple[int, str, str]:
        try:
            out, err = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = self.process.communicate()
            pytest.fail(f"still running {seconds} s after {self.first!r}\n{out}\n{err}")
        assert self.first == "ready", err
        return self.process.returncode, out, err


# --- in this process -------------------------------------------------------------------------------------------------


def test_break_and_iterate_again():
    loader = Loader(Memory(64), batch_size=4, threads=2)
    for _ in range(3):
        for images, labels in loader:
            assert numbers_of(images) == labels.tolist() == [0, 1, 2, 3]
            break
    assert sum(len(labels) for _, labels in loader) == 64
    loader.close()


def test_two_iterators_at_once():
    with Loader(Memory(60), batch_size=7, shuffle=True, threads=3) as loader:
        first, second = iter(loader), iter(loader)
        orders: list[list[int]] = [[], []]
        for pair in zip(first, second, strict=True):
            for order, (images, labels) in zip(orders, pair, strict=True):
                assert numbers_of(images) == labels.tolist()
                order += labels.tolist()
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(60))
    assert orders[0] != orders[1], "two iterators are two epochs"


def test_an_exception_in_the_consumers_loop():
    loader = Loader(Memory(64), batch_size=4, threads=2)
    with pytest.raises(ZeroDivisionError):
        for _ in loader:
            1 / 0  # noqa: B018
    assert len(list(loader)) == 16
    loader.close()


def test_close_ends_the_threads():
    loader = Loader(Memory(8), threads=4)
    assert not workers(), "threads start with the first batch"
    next(iter(loader))
    assert len(workers()) == 4
    loader.close()
    assert not workers()
    loader.close()


def test_a_context_manager_closes_whatever_happens():
    with Loader(Memory(8), threads=2) as loader:
        list(loader)
    assert not workers()
    with pytest.raises(KeyError), Loader(Memory(8), threads=2) as loader:
        list(loader)
        raise KeyError
    assert not workers()


def test_iterating_after_close():
    loader = Loader(Memory(8))
    loader.close()
    with pytest.raises(LoaderError, match="closed"):
        next(iter(loader))
    assert len(loader) == 8 and loader.stats().batches == 0


@pytest.mark.parametrize("consumed", [1, 3])
def test_close_during_an_iteration(consumed):
    """Also where every batch that is left is already under way: nobody would ever finish those."""
    loader = Loader(Memory(4, slow=0.01), threads=1, prefetch=3)
    batches = iter(loader)
    kept = [next(batches) for _ in range(consumed)]
    loader.close()
    with pytest.raises(LoaderError, match="closed"):
        next(batches)
    assert [numbers_of(images) for images, _ in kept] == [[i] for i in range(consumed)]


def test_close_from_another_thread_wakes_the_consumer():
    let_go = threading.Event()

    class Stuck(Memory):
        def read(self, index):
            let_go.wait(20)
            return super().read(index)

    loader = Loader(Stuck(8), threads=1)
    closer = threading.Timer(0.2, loader.close)
    closer.start()
    begin = time.monotonic()
    with pytest.raises(LoaderError, match="closed"):
        next(iter(loader))
    assert time.monotonic() - begin < 2
    let_go.set()
    closer.join()


def test_a_loader_that_goes_away_takes_its_threads_with_it():
    loader = Loader(Memory(400, slow=0.001), batch_size=4, threads=4)
    batches = iter(loader)
    next(batches)
    assert len(workers()) == 4
    del batches
    del loader
    assert no_workers_left()


def test_an_abandoned_iterator_stops_its_work():
    reads = []

    class Counted(Memory):
        def read(self, index):
            reads.append(index)
            return super().read(index)

    with Loader(Counted(10_000), batch_size=10, threads=1, prefetch=4) as loader:
        for _ in loader:
            break
        time.sleep(0.1)
        assert len(reads) <= 60


def test_pickling_says_why_not():
    with pytest.raises(TypeError, match="make it in the process"), Loader(Memory(3)) as loader:
        pickle.dumps(loader)


def test_a_fork_uses_the_loader_anew():
    """Its locks may be held by threads that the fork does not have, here by this one."""
    loader = Loader(Memory(40), batch_size=4, threads=2)
    under_way = iter(loader)
    next(under_way)
    with loader._recorder._lock, loader._pipeline.workers._lock:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                signal.alarm(20)
                loader.stats()
                numbers = [n for images, _ in loader for n in numbers_of(images)]
                try:
                    next(under_way)
                except LoaderError as error:
                    code = 0 if "fork" in str(error) and numbers == list(range(40)) else 3
            finally:
                os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(list(under_way)) == 9, "the parent goes on"
    loader.close()


# --- processes -------------------------------------------------------------------------------------------------------


def test_exit_without_close():
    """At the end of the program, with batches under way."""
    body = """
batches = iter(Loader(Memory(4000), batch_size=8, threads=4))
print(numbers_of(next(batches)[0]) and "ready", flush=True)
"""
    code, _, err = Script(body).wait()
    assert code == 0 and err == ""


def test_exit_while_a_source_is_stuck():
    body = """
class Stuck(Memory):
    def read(self, index):
        if index > 20:
            time.sleep(60)
        return super().read(index)

for images, labels in Loader(Stuck(4000), batch_size=8, threads=4):
    print("ready", flush=True)
    break
raise SystemExit(7)
"""
    code, _, err = Script(body).wait()
    assert code == 7 and err == ""


def test_an_exception_ends_the_process_with_its_traceback():
    body = """
def train():
    for images, labels in Loader(Memory(4000), batch_size=8, threads=4):
        print("ready", flush=True)
        raise ZeroDivisionError("the consumer's own")
train()
"""
    code, _, err = Script(body).wait()
    assert code == 1 and err.endswith("ZeroDivisionError: the consumer's own\n") and "in train" in err
    assert err.count("Traceback") == 1


def test_an_exception_in_a_transform_ends_the_process_with_its_traceback():
    body = """
from cuaug import transforms as T
class Broken(T.Transform):
    def write(self, plan, where, **params):
        return self.no_such_attribute
print("ready", flush=True)
list(Loader(Memory(400), Broken(), batch_size=8, threads=4))
"""
    code, _, err = Script(body).wait()
    assert code == 1 and "in write" in err and "no_such_attribute" in err.splitlines()[-1]
    assert err.count("Traceback") == 1


@pytest.mark.parametrize("stuck", [False, True], ids=["busy", "stuck"])
def test_ctrl_c(stuck):
    body = f"""
class Slow(Memory):
    def read(self, index):
        time.sleep(60 if {stuck} and index > 20 else 0.001)
        return super().read(index % 500)

for images, labels in Loader(Slow(10 ** 6), batch_size=8, threads=4):
    print("ready", flush=True)
"""
    script = Script(body)
    time.sleep(0.3)
    script.process.send_signal(signal.SIGINT)
    code, _, err = script.wait()
    assert code == -signal.SIGINT and err.rstrip().endswith("KeyboardInterrupt")


def test_processes_started_after_use():
    """A multiprocessing child under fork, and a DataLoader beside the loader."""
    body = """
import multiprocessing
loader = Loader(Memory(40), batch_size=4, threads=2)
list(loader)

def child():
    numbers = [n for images, _ in loader for n in numbers_of(images)]
    sys.exit(0 if numbers == list(range(40)) else 3)

print("ready", flush=True)
process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join()
print(process.exitcode, len(list(loader)))
"""
    code, out, err = Script(body).wait()
    assert code == 0 and out == "0 10\n", err
