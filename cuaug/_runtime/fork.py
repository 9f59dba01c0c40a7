"""One registry of everything that a forked child must renew, and objects that each process makes for itself.

A forked child has one thread. Locks that other threads held stay locked in it, and threads, file offsets and library
handles belong to its parent. Modules register their state here; `os.register_at_fork` is called nowhere else.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_functions: list[Callable[[], object]] = []
_methods: weakref.WeakKeyDictionary[Any, Callable[[Any], object]] = weakref.WeakKeyDictionary()
_held_locks: list[Any] = []


def fork_safe_lock() -> threading.Lock:
    """A lock that is free in a forked child. The data that it guards must be usable in any state."""
    lock = threading.Lock()
    _locks.add(lock)
    return lock


def renew_after_fork(function: Callable[[], object]) -> None:
    """Calls a function or bound method in each forked child; the owner of a method is held weakly."""
    if inspect.ismethod(function):
        _methods[function.__self__] = function.__func__
    else:
        _functions.append(function)


def hold_during_fork(lock: Any) -> None:
    """Makes each fork take an RLock first, so that a child never sees half of what the lock guards.

    For module locks: the registry keeps the lock.
    """
    _held_locks.append(lock)


def _before() -> None:
    for lock in _held_locks:
        lock.acquire()


def _after() -> None:
    for lock in _held_locks:
        with contextlib.suppress(RuntimeError):  # Ctrl-C ended the acquisition, and the fork went on
            lock.release()


def _after_in_child() -> None:
    _after()
    for lock in list(_locks):
        lock._at_fork_reinit()  # as the standard library does in `logging` and `concurrent.futures`
    for function in _functions:
        function()
    for owner, method in list(_methods.items()):
        method(owner)


os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)


T = TypeVar("T")

_make_lock = fork_safe_lock()


class PerProcess(Generic[T]):
    """An object that each process makes once, on first use.

    Args:
        make: makes the object. Its errors reach the caller of `get`. It must pickle if this object is to pickle.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._object: T | None = None
        self._is_made = False
        self._inherited: T | None = None
        renew_after_fork(self._renew)

    def get(self) -> T:
        """This process's object."""
        if not self._is_made:
            with _make_lock:
                if not self._is_made:
                    self._object = self._make()
                    self._is_made, self._inherited = True, None
        return cast(T, self._object)

    def _renew(self) -> None:
        # The parent's object is kept for now: closing it right after a fork may wait for a lock that is never free.
        self._inherited, self._is_made = self._object, False

    def __reduce__(self) -> Any:
        return PerProcess, (self._make,)
