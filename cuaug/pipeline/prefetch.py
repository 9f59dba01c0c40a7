"""Keeps batches in progress ahead of the consumer, and cancels them when the iteration ends."""

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
    items: Iterable[I], start: Callable[[I], J], depth: int, on_next: Callable[[Iterable[J]], None]
) -> Iterator[J]:
    """Yields start(item) for each item, in order; up to `depth` jobs run ahead of the consumer.

    The end of the iteration, also by `break` or an exception, cancels all jobs that were not yielded.

    Args:
        on_next: called with the jobs in progress at each request except the first.
    """
    in_progress: deque[J] = deque()
    try:
        for item in items:
            in_progress.append(start(item))
            if len(in_progress) > depth:
                yield in_progress.popleft()
                on_next(in_progress)
        while in_progress:
            yield in_progress.popleft()
            if in_progress:
                on_next(in_progress)
    finally:
        for job in in_progress:
            job.cancel()
