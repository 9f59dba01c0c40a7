"""What one process must not take over from another: open files, locks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from cuaug._runtime.fork import fork_safe_lock, renew_after_fork

__all__ = ["PerProcess"]

T = TypeVar("T")

_making = fork_safe_lock()


class PerProcess(Generic[T]):
    """Something that each process makes for itself, once, when it first asks for it.

    Args:
        make: makes it; must pickle if this is to pickle. What it raises goes to whoever asked.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._value: T | None = None
        self._is_made = False
        self._inherited: T | None = None
        renew_after_fork(self._renew)

    def get(self) -> T:
        """This process's own."""
        if not self._is_made:
            with _making:
                if not self._is_made:
                    self._value = self._make()
                    self._is_made, self._inherited = True, None
        return cast(T, self._value)

    def _renew(self) -> None:
        # The parent's value is let go of later: right after a fork, closing it may wait for a lock that is never free.
        self._inherited, self._is_made = self._value, False

    def __reduce__(self) -> Any:
        return PerProcess, (self._make,)
