"""What is to happen once an object is gone, without Python: a Ctrl-C there would be printed and forgotten.

`__del__`, `weakref.finalize` and the callbacks of `weakref.WeakSet` and its kin are Python functions, which run in
whichever thread lets go of the object. Where that is the main thread, a Ctrl-C may reach it in one of them, and nothing
that is raised there reaches anybody. Functions written in C have no such moment.
"""

from __future__ import annotations

import atexit
import ctypes
import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["Gone", "libc", "release_freed_memory", "when_gone"]

#: The C library; `ctypes.get_errno()` tells what went wrong in it.
libc = ctypes.CDLL(None, use_errno=True)
libc.close.argtypes = [ctypes.c_int]


class Gone(weakref.ref[Any]):
    """What a function is called with; ctypes passes on the number in it."""

    __slots__ = ("_as_parameter_",)
    _as_parameter_: int

    # Two of one object are two.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def number(self) -> int:
        return self._as_parameter_


# What is waited for: a reference that is itself let go of is never called back.
_awaited: dict[Gone, Gone] = {}
atexit.register(_awaited.clear)  # threads may be at work with what the end of the interpreter takes away


def when_gone(owner: Any, function: Callable[[Gone], object], number: int) -> None:
    """Has a function written in C called once `owner` is gone; not at the interpreter's end.

    Args:
        function: one of a ctypes library, which gets `number`; another gets a `Gone` that has it.
    """
    call = Gone(owner, function)
    call._as_parameter_ = number
    _awaited[Gone(owner, _awaited.pop)] = call


def release_freed_memory() -> None:
    """Returns freed memory to the system, if the C library can.

    glibc keeps it for later, for each thread apart.
    """
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(ctypes.c_size_t(0))
