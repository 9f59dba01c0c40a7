"""The fork registry: what a forked child renews."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref
from collections.abc import Callable

import pytest

from cuaug._runtime import fork

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def in_child(check: Callable[[], bool]) -> bool:
    """The result of a function in a forked child."""
    pid = os.fork()
    if pid == 0:
        os._exit(0 if check() else 1)
    return os.waitpid(pid, 0)[1] == 0


def test_a_fork_safe_lock_is_free_in_a_child():
    safe, plain = fork.fork_safe_lock(), threading.Lock()
    with safe, plain:
        assert in_child(lambda: safe.acquire(timeout=0)) and not in_child(lambda: plain.acquire(timeout=0))
        assert not safe.acquire(timeout=0), "the parent still holds it"


class Owner:
    def __init__(self):
        self.renewed = 0
        fork.renew_after_fork(self.renew)

    def renew(self):
        self.renewed += 1


def test_functions_and_methods_are_called_in_a_child(monkeypatch):
    called: list[int] = []
    monkeypatch.setattr(fork, "_functions", [*fork._functions])
    fork.renew_after_fork(lambda: called.append(1))
    owner = Owner()
    assert in_child(lambda: called == [1] and owner.renewed == 1)
    assert not called and owner.renewed == 0, "the parent is as it was"


def test_the_owner_of_a_method_is_held_weakly():
    owner = Owner()
    reference = weakref.ref(owner)
    assert owner in fork._methods
    del owner
    gc.collect()
    assert reference() is None


def test_a_fork_waits_for_the_lock_that_it_holds(monkeypatch):
    """The child sees the whole change, and both processes can take the lock afterwards, also where they hold it."""
    lock, state = threading.RLock(), []
    monkeypatch.setattr(fork, "_held_locks", [*fork._held_locks])
    fork.hold_during_fork(lock)
    begun = threading.Event()

    def change():
        with lock:
            state.append("begun")
            begun.set()
            time.sleep(0.2)
            state.append("done")

    thread = threading.Thread(target=change)
    thread.start()
    begun.wait()
    assert in_child(lambda: state == ["begun", "done"] and lock.acquire(timeout=0))
    thread.join()
    with lock:
        assert in_child(lambda: lock.acquire(timeout=0))
    assert lock.acquire(timeout=0)
    lock.release()
