"""Locks that survive a fork."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from typing import Any

__all__ = ["ForkSafeLock", "ForkWaitsLock"]


class ForkSafeLock:
    """A lock that is free in a forked child: the thread that held it in the parent does not exist there.

    What it guards must be usable however far that thread had come.
    """

    def __init__(self) -> None:
        self._renew()
        _locks.add(self)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *exception: Any) -> None:
        self._lock.release()


_locks: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()


def _renew_all() -> None:
    for lock in _locks:
        lock._renew()


os.register_at_fork(after_in_child=_renew_all)


class ForkWaitsLock:
    """A lock that a fork takes as well: what it guards is never half done in a child, where nobody would go on with it.

    It is kept for good. The thread that holds it may take it again, and fork.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        os.register_at_fork(before=self._lock.acquire, after_in_parent=self._free, after_in_child=self._free)

    def _free(self) -> None:
        with contextlib.suppress(RuntimeError):  # a Ctrl-C ended the waiting, and the fork went on
            self._lock.release()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *exception: Any) -> None:
        self._lock.release()
