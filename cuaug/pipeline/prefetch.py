"""Keeps batches under way ahead of the consumer, and ends cleanly however the consumer stops."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

__all__ = ["prefetch_in_order"]


class _Cancellable(Protocol):
    def cancel(self) -> None: ...


J = TypeVar("J", bound=_Cancellable)
I = TypeVar("I")  # noqa: E741


def prefetch_in_order(
    items: Iterable[I], start: Callable[[I], J], depth: int, asked: Callable[[Iterable[J]], None]
) -> Iterator[J]:
    """start(item) for each item, yielded in order, `depth` of them begun ahead of the one that is being consumed.

    Whenever one after the first is asked for, `asked` is called with all that are under way.

    What was begun and never yielded is cancelled when the iteration ends: at its end, at a `break`, at an exception.
    """
    under_way: deque[J] = deque()
    waiting = iter(items)
    try:
        for item in waiting:
            under_way.append(start(item))
            if len(under_way) > depth:
                yield under_way.popleft()
                asked(under_way)
        while under_way:
            yield under_way.popleft()
            if under_way:
                asked(under_way)
    finally:
        for job in under_way:
            job.cancel()
