"""Objects that each process makes for itself, such as open files and locks."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from cuaug._runtime.fork import ForkSafeLock

__all__ = ["PerProcess"]

T = TypeVar("T")

_make_lock = ForkSafeLock()


class PerProcess(Generic[T]):
    """An object that each process makes once, on first use.

    Args:
        make: makes the object. Its errors reach the caller of `get`. It must pickle if this object is to pickle.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._owned: tuple[int, T] | None = None  # (process id, object)

    def get(self) -> T:
        """This process's object."""
        owned = self._owned
        if owned is None or owned[0] != os.getpid():
            with _make_lock:
                owned = self._owned
                if owned is None or owned[0] != os.getpid():
                    self._owned = owned = os.getpid(), self._make()
        return owned[1]

    def __reduce__(self) -> Any:
        return PerProcess, (self._make,)
