"""The fork registry: what a forked child renews."""

from __future__ import annotations

import os
import threading
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
