"""What one process must not take over from another: open files, locks."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from cuaug._runtime.fork import ForkSafeLock

__all__ = ["PerProcess"]

T = TypeVar("T")

_making = ForkSafeLock()


class PerProcess(Generic[T]):
    """Something that each process makes for itself, once, when it first asks for it.

    Args:
        make: makes it; must pickle if this is to pickle. What it raises goes to whoever asked.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._held: tuple[int, T] | None = None

    def get(self) -> T:
        """This process's own."""
        held = self._held
        if held is None or held[0] != os.getpid():
            with _making:
                held = self._held
                if held is None or held[0] != os.getpid():
                    self._held = held = os.getpid(), self._make()
        return held[1]

    def __reduce__(self) -> Any:
        return PerProcess, (self._make,)
