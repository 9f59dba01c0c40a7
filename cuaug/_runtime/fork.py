"""Locks that survive a fork.

`with` finds their `__enter__` and `__exit__` to be those of the lock inside, which run no Python: a Ctrl-C that came
after a lock was taken, in a method of ours, would leave it taken for ever.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable

__all__ = ["ForkSafeLock", "ForkWaitsLock"]


class ForkSafeLock:
    """A lock that is free in a forked child: the thread that held it in the parent does not exist there.

    What it guards must be usable however far that thread had come.
    """

    def __init__(self) -> None:
        self._renew()
        _locks.add(weakref.ref(self, _locks.discard))  # not a WeakSet: see cuaug/_runtime/finalizers.py

    def _renew(self) -> None:
        self._lock = threading.Lock()

    @property
    def __enter__(self) -> Callable[[], bool]:
        return self._lock.__enter__

    @property
    def __exit__(self) -> Callable[..., None]:
        return self._lock.__exit__


_locks: set[weakref.ref[ForkSafeLock]] = set()


def _renew_all() -> None:
    for lock in _locks.copy():
        if (living := lock()) is not None:
            living._renew()


os.register_at_fork(after_in_child=_renew_all)


class ForkWaitsLock:
    """A lock that a fork takes as well: what it guards is never half done in a child, where nobody would go on with it.

    It lives as long as the process. The thread that holds it may take it again, and fork.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        os.register_at_fork(before=self._lock.acquire, after_in_parent=self._free, after_in_child=self._free)

    def _free(self) -> None:
        with contextlib.suppress(RuntimeError):  # a Ctrl-C ended the waiting, and the fork went on
            self._lock.release()

    @property
    def __enter__(self) -> Callable[[], bool]:
        return self._lock.__enter__

    @property
    def __exit__(self) -> Callable[..., None]:
        return self._lock.__exit__
