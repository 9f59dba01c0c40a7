"""Reads byte ranges ahead of the samples that need them, in the order of an epoch.

    batches -> groups of samples, a quarter of the memory each -> requests: neighbours in a group make one
    requests -> threads claim them, in the order in which samples need them, while memory is left
    sample  -> `take` waits for its requests; it claims those that no thread has begun, so it never waits for memory

A request's bytes are freed when all its samples were taken, or when their batch is finished.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cuaug.remote.transport import RemoteObject

__all__ = ["RangeReader", "ReadAhead", "Span", "read_spans"]

# Neighbours this close are read by one request: bytes between them cost less than an answer's latency.
_GAP_BYTES = 128 << 10
# Longer requests keep few connections busy; no request takes more than a quarter of the memory.
_MAX_REQUEST_BYTES = 4 << 20
_GROUPS = 4
# `close` waits this long for requests under way; their threads end with them.
_CLOSE_SECONDS = 1.0


class RangeReader(Protocol):
    """An `ObjectStore` or a `CachedReader`."""

    @property
    def connections(self) -> int: ...

    def read(self, remote: RemoteObject, offset: int, size: int, stop: threading.Event | None = None) -> bytes: ...


class Span(NamedTuple):
    """A byte range of one of a source's objects."""

    number: int
    offset: int
    size: int


class _Request:
    """One request, for the spans of some samples.

    Attributes:
        users: samples that have not been taken.
        data: None until it has arrived, and after it was freed.
        failed: whether it has failed; each of its samples then reads for itself, and gets an error of its own.
    """

    def __init__(self, number: int, offset: int, end: int) -> None:
        self.number, self.offset, self.end = number, offset, end
        self.users = 0
        self.claimed = self.done = self.failed = False
        self.data: bytes | None = None

    @property
    def size(self) -> int:
        return self.end - self.offset


class _Sample(NamedTuple):
    batch: int
    number: int
    spans: list[tuple[Span, _Request]]


class ReadAhead:
    """Requests the spans of samples ahead of time.

    Args:
        objects: the remote objects, by number.
        batches: indices of the samples of each batch, in order.
        spans: the byte ranges of a sample.
        max_bytes: limit of the memory that requests hold, except those that a waiting sample makes.

    `close` it: it has threads.
    """

    def __init__(
        self,
        reader: RangeReader,
        objects: list[RemoteObject],
        batches: Iterable[NDArray[np.int64]],
        spans: Callable[[int], list[Span]],
        max_bytes: int,
    ) -> None:
        self._reader, self._objects, self._spans, self._max_bytes = reader, objects, spans, max_bytes
        self._batches: Iterator[tuple[int, NDArray[np.int64]]] = enumerate(batches)
        self._samples: dict[int, deque[_Sample]] = {}
        self._by_batch: deque[_Sample] = deque()
        self._queue: deque[_Request] = deque()
        self._held = 0
        self._stop = threading.Event()
        self._changed = threading.Condition()
        with self._changed:
            self._plan_group()
        self._threads = [
            threading.Thread(target=self._work, name=f"cuaug-remote-{i}", daemon=True)
            for i in range(reader.connections)
        ]
        try:
            for thread in self._threads:
                thread.start()
        except BaseException:  # a Ctrl-C, or too many threads
            self._stop.set()
            with self._changed:
                self._changed.notify_all()
            raise

    def take(self, index: int) -> dict[Span, bytes] | None:
        """Returns the bytes of a sample's spans; None if it is not the next ones', or a request has failed.

        Each occurrence of a sample in the batches is given once.
        """
        with self._changed:
            if index not in self._samples and self._held < self._max_bytes:
                self._plan_group()
            waiting = self._samples.get(index)
            if not waiting:
                return None
            sample = waiting.popleft()
            if not waiting:
                del self._samples[index]
        data: dict[Span, bytes] = {}
        try:
            for span, request in sample.spans:
                if not self._wait(request):
                    return None
                assert request.data is not None
                at = span.offset - request.offset
                data[span] = request.data[at : at + span.size]
        finally:
            with self._changed:
                self._release(sample)
        return data

    def finish(self, batches: int) -> None:
        """Drops what the first `batches` batches have left over."""
        with self._changed:
            while self._by_batch and self._by_batch[0].batch < batches:
                sample = self._by_batch.popleft()
                waiting = self._samples.get(sample.number, ())
                if any(other is sample for other in waiting):
                    self._samples[sample.number] = deque(other for other in waiting if other is not sample)
                    if not self._samples[sample.number]:
                        del self._samples[sample.number]
                    self._release(sample)

    def close(self) -> None:
        """Ends the threads, and frees the memory."""
        self._stop.set()
        with self._changed:
            self._samples.clear()
            self._by_batch.clear()
            self._queue.clear()
            self._changed.notify_all()
        end = time.monotonic() + _CLOSE_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    # --- planning; the caller holds the lock -------------------------------------------------------------------------

    def _plan_group(self) -> bool:
        """Plans the requests of the next batches. Returns whether there are any."""
        samples: list[_Sample] = []
        spans: list[tuple[Span, int]] = []
        size = 0
        while size < self._max_bytes // _GROUPS and (entry := next(self._batches, None)) is not None:
            number, indices = entry
            for index in indices.tolist():
                samples.append(_Sample(number, index, []))
                for span in self._spans(index):
                    spans.append((span, len(samples) - 1))
                    size += span.size
        requests: dict[int, _Request] = {}
        for request, span, i in _coalesce(spans, self._max_bytes // _GROUPS):
            samples[i].spans.append((span, request))
        for sample in samples:
            for own in {id(request): request for _, request in sample.spans}.values():
                own.users += 1
                requests.setdefault(id(own), own)
            self._samples.setdefault(sample.number, deque()).append(sample)
        self._by_batch += samples
        self._queue += requests.values()
        self._changed.notify_all()
        return bool(samples)

    def _release(self, sample: _Sample) -> None:
        for request in {id(request): request for _, request in sample.spans}.values():
            request.users -= 1
            if not request.users:
                if request.claimed:
                    self._held -= request.size
                request.claimed, request.data = True, None
        self._changed.notify_all()

    # --- reading -----------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (request := self._next()) is not None:
            self._read(request)

    def _next(self) -> _Request | None:
        """Claims the next request once there is memory for it; None at the end."""
        with self._changed:
            while not self._stop.is_set():
                while self._queue and self._queue[0].claimed:
                    self._queue.popleft()
                if not self._queue and not self._plan_group():
                    return None
                if self._queue and (not self._held or self._held + self._queue[0].size <= self._max_bytes):
                    return self._claim(self._queue.popleft())
                self._changed.wait()
            return None

    def _claim(self, request: _Request) -> _Request:
        request.claimed = True
        self._held += request.size
        return request

    def _wait(self, request: _Request) -> bool:
        """Waits until a request is done, or makes it. Returns whether it has succeeded."""
        with self._changed:
            is_own = not request.claimed
            if is_own:
                self._claim(request)
            while not is_own and not request.done and not self._stop.is_set():
                self._changed.wait()
        if is_own:
            self._read(request)
        return request.data is not None

    def _read(self, request: _Request) -> None:
        data = None
        try:
            data = self._reader.read(self._objects[request.number], request.offset, request.size, self._stop)
        except Exception:  # any: the samples read for themselves, and raise errors of their own
            request.failed = True
        with self._changed:
            request.done = True
            request.data = data if request.users else None
            self._changed.notify_all()


def read_spans(reader: RangeReader, objects: list[RemoteObject], spans: list[Span]) -> dict[Span, bytes]:
    """Reads the spans of one sample now, neighbours by one request.

    Raises:
        OSError: of `ObjectStore.read`.
    """
    data: dict[Span, bytes] = {}
    by_request: dict[int, tuple[_Request, list[Span]]] = {}
    for request, span, _ in _coalesce([(span, 0) for span in spans], _MAX_REQUEST_BYTES):
        by_request.setdefault(id(request), (request, []))[1].append(span)
    for request, own in by_request.values():
        blob = reader.read(objects[request.number], request.offset, request.size)
        for span in own:
            data[span] = blob[span.offset - request.offset :][: span.size]
    return data


def _coalesce(spans: list[tuple[Span, int]], max_bytes: int) -> Iterator[tuple[_Request, Span, int]]:
    """Yields each span with its request, which it shares with its neighbours."""
    request: _Request | None = None
    for span, i in sorted(spans):
        end = span.offset + span.size
        if (
            request is None
            or span.number != request.number
            or span.offset - request.end > _GAP_BYTES
            or max(end, request.end) - request.offset > min(max_bytes, _MAX_REQUEST_BYTES)
        ):
            request = _Request(span.number, span.offset, end)
        request.end = max(request.end, end)
        yield request, span, i
