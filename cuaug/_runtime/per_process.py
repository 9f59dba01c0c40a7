"""Objects that each process makes for itself, such as open files and locks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from cuaug._runtime.fork import fork_safe_lock, renew_after_fork

__all__ = ["PerProcess"]

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
