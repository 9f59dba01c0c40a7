"""Reads byte ranges ahead of the samples that need them, in the order of an epoch.

    batches -> groups of samples, a quarter of the memory each -> requests: neighbors in a group make one
    requests -> threads claim them, in the order in which samples need them, while memory is left; a later group that
                needs the same bytes while they are held makes no further request
    sample  -> `take` waits for its requests; it claims those that no thread has begun, so it never waits for memory

A request's bytes are freed when all its samples were taken, or when their batch is finished.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.threads import OwnThread, join_threads, start_threads

# Neighbors this close are read by one request: bytes between them cost less than an answer's latency.
_GAP_BYTES = 128 << 10
# Longer requests keep few connections busy; no request takes more than a quarter of the memory.
_MAX_REQUEST_BYTES = 4 << 20
_GROUPS = 4
# Where many samples share a request, as rows of a row group do, their batches are planned no further than this.
_MAX_PLANNED = 1 << 14
# `close` waits this long for requests under way; their threads end with them.
_CLOSE_SECONDS = 1.0

#: (n,) samples -> (n, K, 3) int64: number of the object, -1 if the sample lacks this span; offset and size in bytes.
SpansOf = Callable[[NDArray[np.int64]], NDArray[np.int64]]


class RangeReader(Protocol):
    """An `ObjectStore`, a `CachedReader`, or a reader of row groups as tables."""

    @property
    def connections(self) -> int: ...

    def read(self, remote: Any, offset: int, size: int, stop: threading.Event | None = None) -> Any: ...


class Part(NamedTuple):
    """The bytes of a request, or what else its reader gives, and their offset in the object."""

    data: Any
    offset: int


class _Request:
    """One request, for the spans of some samples.

    Attributes:
        users: samples that have not been taken.
        data: None until it has arrived, and after it was freed.
        held: bytes that it takes in memory.
        done: whether it has arrived or failed; after a failure each sample reads for itself, and gets its own error.
    """

    __slots__ = ("claimed", "data", "done", "held", "number", "offset", "size", "users")

    def __init__(self, number: int, offset: int, size: int) -> None:
        self.number, self.offset, self.size = number, offset, size
        self.users = self.held = 0
        self.claimed = self.done = False
        self.data: Any = None


class _Group(NamedTuple):
    """Samples whose requests were planned together.

    Attributes:
        first: position of its first sample in the epoch's order.
        request_of: (n, K) request of each span; -1: the sample lacks it.
    """

    first: int
    requests: list[_Request]
    request_of: NDArray[np.int64]


class _Batch(NamedTuple):
    number: int
    first: int  # position of its first sample
    indices: NDArray[np.int64]


class ReadAhead:
    """Requests the spans of samples ahead of time.

    Args:
        objects: the remote objects, by number.
        batches: indices of the samples of each batch, in order.
        spans: the byte ranges of samples.
        max_bytes: limit of the memory that requests hold, except those that a waiting sample makes.
        on_close: called by `close`.

    Attributes:
        held_bytes, max_held_bytes: memory that requests hold now, and have held at most.

    `close` it: it has threads.
    """

    def __init__(
        self,
        reader: RangeReader,
        objects: Sequence[Any],
        batches: Iterable[NDArray[np.int64]],
        spans: SpansOf,
        max_bytes: int,
        on_close: Callable[[ReadAhead], Any] = lambda ahead: None,
    ) -> None:
        self._reader, self._objects, self._spans, self._max_bytes = reader, objects, spans, max_bytes
        self._on_close = on_close
        self._batches: Iterator[tuple[int, NDArray[np.int64]]] = enumerate(batches)
        # Tuples of integers, since an object for each sample would be work for the garbage collector.
        self._positions: dict[int, tuple[int, ...]] = {}  # of a sample's occurrences that were not taken
        self._planned = 0
        self._groups: deque[_Group] = deque()
        self._by_batch: deque[_Batch] = deque()
        self._queue: deque[_Request] = deque()
        self._live: dict[tuple[int, int, int], _Request] = {}  # requests that some samples have not taken
        self.held_bytes = self.max_held_bytes = 0
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)  # wakes `take`
        self._has_room = threading.Condition(self._lock)  # wakes one thread, which wakes the next
        with self._lock:
            self._plan_group()
        self._threads = [OwnThread(self._work, self._wake_all, f"cuaug-remote-{i}") for i in range(reader.connections)]
        start_threads(self._threads)

    def take(self, index: int) -> list[Part | None] | None:
        """Returns the part that holds each span of a sample, None for a span that it lacks.

        None if the sample is not the next ones', or a request has failed. Each occurrence of a sample in the batches is
        given once.
        """
        with self._lock:
            requests = self._pop(index)
        if requests is None:
            return None
        try:
            parts: list[Part | None] = []
            for request in requests:
                data = None if request is None else self._wait(request)
                if request is not None and data is None:
                    return None
                parts.append(None if request is None or data is None else Part(data, request.offset))
            return parts
        finally:
            with self._lock:
                self._release(requests)

    def take_arrived(self, indices: Iterable[int]) -> list[list[Part] | None]:
        """Takes the samples whose spans are complete and have arrived; None for others."""
        taken: list[list[Part] | None] = []
        with self._lock:
            for index in indices:
                positions = self._positions.get(index)
                requests = self._requests_of(positions[0]) if positions else []
                parts = [
                    Part(each.data, each.offset) for each in requests if each is not None and each.data is not None
                ]
                if parts and len(parts) == len(requests):
                    self._pop(index)
                    self._release(requests)
                    taken.append(parts)
                else:
                    taken.append(None)
        return taken

    def finish(self, batches: int) -> None:
        """Drops the samples of the first `batches` batches that were not taken."""
        with self._lock:
            while self._by_batch and self._by_batch[0].number < batches:
                batch = self._by_batch.popleft()
                for position, index in enumerate(batch.indices.tolist(), batch.first):
                    if position in self._positions.get(index, ()):
                        self._release(self._pop(index) or [])
            while len(self._groups) > 1 and self._by_batch and self._groups[1].first <= self._by_batch[0].first:
                self._groups.popleft()
            self._has_room.notify()

    def close(self) -> None:
        """Ends the threads, and frees the memory."""
        self._on_close(self)
        if sys.is_finalizing():  # the interpreter has ended the threads, perhaps with the lock
            return
        self._wake_all()
        with self._lock:
            self._positions.clear()
            self._groups.clear()
            self._by_batch.clear()
            self._queue.clear()
            self._live.clear()
        join_threads(self._threads, _CLOSE_SECONDS)

    def _wake_all(self) -> None:
        self._stop.set()
        with self._lock:
            self._arrived.notify_all()
            self._has_room.notify_all()

    # --- planning; the caller holds the lock -------------------------------------------------------------------------

    def _plan_group(self) -> bool:
        """Plans the requests of the next batches. Returns whether there are any."""
        batches: list[tuple[int, NDArray[np.int64]]] = []
        spans: list[NDArray[np.int64]] = []
        size, limit = 0, self._max_bytes // _GROUPS
        while size < limit and (entry := next(self._batches, None)) is not None:
            batches.append(entry)
            spans.append(self._spans(entry[1]))
            size += int(spans[-1][..., 2].sum())
        if not batches:
            return False
        rows, request_of = _coalesce(np.concatenate(spans), limit)
        group = _Group(self._planned, [], request_of)
        for number, begin, end, users in rows.tolist():
            key = number, begin, end - begin
            if (request := self._live.get(key)) is None:
                request = self._live[key] = _Request(*key)
                self._queue.append(request)
            request.users += users
            group.requests.append(request)
        self._groups.append(group)
        for number, indices in batches:
            self._by_batch.append(_Batch(number, self._planned, indices))
            for position, index in enumerate(indices.tolist(), self._planned):
                self._positions[index] = (*self._positions.get(index, ()), position)
            self._planned += len(indices)
        self._has_room.notify()
        return True

    def _requests_of(self, position: int) -> list[_Request | None]:
        """The request of each span of a sample."""
        group = next(group for group in reversed(self._groups) if group.first <= position)
        numbers = group.request_of[position - group.first].tolist()
        return [None if i < 0 else group.requests[i] for i in numbers]

    def _pop(self, index: int) -> list[_Request | None] | None:
        """Removes a sample's first occurrence, and returns the request of each span; None if there is none."""
        position, *rest = self._positions.pop(index, (-1,))
        if rest:
            self._positions[index] = tuple(rest)
        return None if position < 0 else self._requests_of(position)

    def _release(self, requests: Iterable[_Request | None]) -> None:
        for request in set(requests):
            if request is not None:
                request.users -= 1
                if not request.users:
                    self._live.pop((request.number, request.offset, request.size), None)
                    if request.claimed:
                        self.held_bytes -= request.held
                        self._has_room.notify()
                    request.claimed, request.data = True, None

    # --- reading -----------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (request := self._next()) is not None:
            self._read(request)

    def _next(self) -> _Request | None:
        """Claims the next request once there is memory for it; None at the end."""
        with self._lock:
            while not self._stop.is_set():
                while self._queue and self._queue[0].claimed:
                    self._queue.popleft()
                while not self._queue and len(self._positions) < _MAX_PLANNED:
                    if not self._plan_group():
                        self._has_room.notify()
                        return None
                if self._may_claim():
                    request = self._claim(self._queue.popleft())
                    if not self._queue or self._may_claim():
                        self._has_room.notify()
                    return request
                self._has_room.wait()
            return None

    def _may_claim(self) -> bool:
        return bool(self._queue) and (not self.held_bytes or self.held_bytes + self._queue[0].size <= self._max_bytes)

    def _claim(self, request: _Request) -> _Request:
        request.claimed = True
        request.held = request.size
        self.held_bytes += request.held
        self.max_held_bytes = max(self.max_held_bytes, self.held_bytes)
        return request

    def _wait(self, request: _Request) -> Any:
        """Waits until a request has arrived, or makes it. Returns its bytes; None if it has failed."""
        with self._lock:
            is_own = not request.claimed
            if is_own:
                self._claim(request)
            while not is_own and not request.done and not self._stop.is_set():
                self._arrived.wait()
        if is_own:
            self._read(request)
        return request.data

    def _read(self, request: _Request) -> None:
        data: Any = None
        with contextlib.suppress(Exception):  # any: the samples read for themselves, and raise errors of their own
            data = self._reader.read(self._objects[request.number], request.offset, request.size, self._stop)
        with self._lock:
            request.done = True
            if request.users:
                request.data = data
                self.held_bytes -= request.held
                request.held = getattr(data, "nbytes", request.size)  # a row group may decode to more bytes
                self.held_bytes += request.held
            self._arrived.notify_all()


def read_spans(reader: RangeReader, objects: Sequence[Any], spans: NDArray[np.int64]) -> list[Part | None]:
    """Reads the spans (K, 3) of one sample now, neighbors by one request; returns the part that holds each.

    Raises:
        OSError: of `ObjectStore.read`.
    """
    requests, request_of = _coalesce(spans[None], _MAX_REQUEST_BYTES)
    parts: list[Part | None] = [
        Part(reader.read(objects[number], begin, end - begin), begin) for number, begin, end, _ in requests.tolist()
    ]
    parts.append(None)  # of a missing span, which has number -1
    return [parts[i] for i in request_of[0].tolist()]


def _coalesce(spans: NDArray[np.int64], max_bytes: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Requests for the spans of n samples; neighbors share one.

    Args:
        spans: (n, K, 3), see `SpansOf`.

    Returns:
        (m, 4) number of the object, begin, end, and number of samples, in the order in which samples need them.
        (n, K) request of each span; -1 for a missing span.
    """
    limit = min(max_bytes, _MAX_REQUEST_BYTES)
    n, k, _ = spans.shape
    flat = spans.reshape(-1, 3)
    order = np.lexsort((flat[:, 1], flat[:, 0]))
    order = order[np.count_nonzero(flat[:, 0] < 0) :]
    number, begin, size = flat[order].T
    if not len(order):
        return np.empty((0, 4), np.int64), np.full((n, k), -1)
    end = begin + size
    starts = _starts(number, begin, end, limit)
    samples = order // k
    rows = np.stack([number[starts], begin[starts], np.maximum.reduceat(end, starts), np.zeros_like(starts)], axis=1)
    by_need = np.argsort(np.minimum.reduceat(samples, starts), kind="stable")
    ranks = np.empty_like(by_need)
    ranks[by_need] = np.arange(len(by_need))
    of_span = np.repeat(ranks, np.diff(starts, append=len(order)))
    rows = rows[by_need]
    pairs = np.unique(of_span * n + samples)
    rows[:, 3] = np.bincount(pairs // n, minlength=len(rows))
    request_of = np.full(n * k, -1)
    request_of[order] = of_span
    return rows, request_of.reshape(n, k)


def _starts(
    number: NDArray[np.int64], begin: NDArray[np.int64], end: NDArray[np.int64], limit: int
) -> NDArray[np.int64]:
    """First span of each request, for spans sorted by object and offset."""
    is_new = (np.diff(number) != 0) | (begin[1:] - end[:-1] > _GAP_BYTES)
    starts = np.concatenate([[0], np.flatnonzero(is_new) + 1])
    stops = np.append(starts[1:], len(begin))
    if (np.maximum.reduceat(end, starts) - begin[starts] <= limit).all():
        return starts
    split: list[int] = []
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        reach = np.maximum.accumulate(end[start:stop])
        at = start
        while at < stop:
            split.append(at)
            at = max(at + 1, start + int(np.searchsorted(reach, begin[at] + limit, side="right")))
    return np.array(split)
