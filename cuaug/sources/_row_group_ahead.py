"""Decodes the row groups of the next batches of an iteration, into the cache that samples read from."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from cuaug.sources._row_groups import RowGroupCache

__all__ = ["RowGroupReadAhead"]

_THREADS = 8
# `close` waits this long for row groups that are being read; their threads end with them.
_CLOSE_SECONDS = 1.0


class RowGroupReadAhead:
    """Asks the cache for row groups in the order in which batches need them.

    A row group is pinned in the cache from its request until the last planned batch that needs it is finished. Requests
    wait while the cache has no room for another pinned one; samples never wait for them.

    Args:
        columns: that samples read.
        batches: indices of the samples of each batch, in order.
        groups_of: the distinct row groups of samples, in the order of need.

    `close` it: it has threads.
    """

    def __init__(
        self,
        cache: RowGroupCache,
        columns: tuple[str, ...],
        batches: Iterable[NDArray[np.int64]],
        groups_of: Callable[[NDArray[np.int64]], list[int]],
    ) -> None:
        self._cache, self._columns, self._groups_of = cache, columns, groups_of
        self._batches: Iterator[tuple[int, NDArray[np.int64]]] = enumerate(batches)
        self._number, self._groups = -1, deque[int]()  # the batch that is planned, and its groups that are not
        self._last_batch: dict[int, int] = {}  # of each pinned group, among the planned batches
        self._finished = 0
        self._is_closed = False
        self._lock = threading.Lock()
        self._has_room = threading.Condition(self._lock)
        self._threads = [
            threading.Thread(target=self._work, name=f"cuaug-parquet-{i}", daemon=True) for i in range(_THREADS)
        ]
        try:
            for thread in self._threads:
                thread.start()
        except BaseException:  # a Ctrl-C, or too many threads
            self._end()
            raise

    def finish(self, batches: int) -> None:
        """Unpins the row groups that only the first `batches` batches need."""
        with self._lock:
            self._finished = batches
            for group in [group for group, last in self._last_batch.items() if last < batches]:
                del self._last_batch[group]
                self._cache.unpin(group)
            self._has_room.notify_all()

    def close(self) -> None:
        """Ends the threads, and unpins all row groups; the cache keeps them while it has room."""
        if sys.is_finalizing():  # the interpreter has ended the threads, perhaps with the lock
            return
        self._end()
        end = time.monotonic() + _CLOSE_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _end(self) -> None:
        with self._lock:
            self._is_closed = True
            for group in self._last_batch:
                self._cache.unpin(group)
            self._last_batch.clear()
            self._has_room.notify_all()

    def _work(self) -> None:
        while (group := self._next()) is not None:
            self._cache.prefetch(group, self._columns)

    def _next(self) -> int | None:
        """Pins the next row group once there is room for it; None at the end."""
        with self._lock:
            while not self._is_closed:
                if not self._groups or self._number < self._finished:
                    entry = next(self._batches, None)
                    if entry is None:
                        return None
                    self._number, self._groups = entry[0], deque(self._groups_of(entry[1]))
                elif self._groups[0] in self._last_batch:
                    self._last_batch[self._groups.popleft()] = self._number
                elif self._cache.pin(self._groups[0]):
                    self._last_batch[self._groups[0]] = self._number
                    return self._groups.popleft()
                else:
                    self._has_room.wait()
            return None
