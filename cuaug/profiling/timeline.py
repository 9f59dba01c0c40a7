"""`Loader.profile()`: the totals of a period, its events, and a trace for Perfetto."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cuaug.errors import LoaderError
from cuaug.profiling.bottleneck import Stats
from cuaug.profiling.recorder import Recorder


class Event(NamedTuple):
    """One stage of a lane, which is a thread or the GPU.

    Attributes:
        start, end: nanoseconds since the profile began.
        batch: number of the batch, in the order of submission; None for a stage without a batch.
        sample: index in the source; None for a stage of several samples.
    """

    stage: str
    start: int
    end: int
    batch: int | None
    sample: int | None


def chrome_trace(
    lanes: Mapping[str, Sequence[Event]], queue: Sequence[tuple[int, int]], bottleneck: str
) -> dict[str, Any]:
    """A JSON object in the trace event format: an event per stage, and a counter of ready batches.

    Times are microseconds since the profile began, with nanosecond precision.
    """
    pid = os.getpid()
    events: list[dict[str, Any]] = [_metadata("process_name", pid, 0, "cuaug loader")]
    for tid, (lane, lane_events) in enumerate(lanes.items(), 1):
        events.append(_metadata("thread_name", pid, tid, lane))
        events.append({"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": tid}})
        for event in lane_events:
            arguments = {"batch": event.batch, "sample": event.sample}
            arguments = {name: value for name, value in arguments.items() if value is not None}
            times = {"ts": event.start / 1e3, "dur": (event.end - event.start) / 1e3}
            event_type = {"ph": "X", "name": event.stage, "cat": "cuaug", "pid": pid, "tid": tid}
            events.append(event_type | times | {"args": arguments})
    events += [
        {"ph": "C", "name": "batches ready", "ts": moment / 1e3, "pid": pid, "tid": 0, "args": {"ready": ready}}
        for moment, ready in queue
    ]
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"bottleneck": bottleneck}}


def _metadata(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


# A profile drops events beyond this number, as each takes some 200 bytes; its totals stay complete.
_MAX_EVENTS = 1_000_000


class Profile:
    """A profile of a loader. A context manager: the profile lasts from entering it to leaving it.

    On CUDA the stages are also NVTX ranges, for Nsight Systems, and the GPU's lane lacks the last two batches.

    >>> with loader.profile() as profile:  # doctest: +SKIP
    ...     for images, labels in loader:
    ...         train(images, labels)
    >>> print(profile)  # doctest: +SKIP
    >>> profile.export_chrome_trace("trace.json")  # doctest: +SKIP
    """

    def __init__(self, recorder: Recorder, ranges: Any = None) -> None:
        self.ranges = ranges
        self._recorder = recorder
        self._before: Stats | None = None
        self._stats: Stats | None = None
        self._start = self._stop = 0
        self._events: list[tuple[str, str, int, int, int | None, int | None]] = []
        self._requests: list[tuple[int, int]] = []

    def __enter__(self) -> Profile:
        if self._before is not None:
            raise LoaderError("a profile can be entered once only: call loader.profile() for a new one")
        if self._recorder.listener is not None:
            raise LoaderError("another profile of this loader is running: leave it first")
        self._before = self._recorder.stats()
        self._start = time.perf_counter_ns()
        self._recorder.listener = self
        return self

    def __exit__(self, *exception: Any) -> None:
        self._recorder.listener = None
        self._stop = time.perf_counter_ns()
        self._stats = self.stats

    @property
    def stats(self) -> Stats:
        """The totals of the profile; the totals so far while it runs."""
        if self._before is None:
            raise LoaderError("the profile has not begun: use `with loader.profile() as profile:`")
        return self._stats or self._recorder.stats().since(self._before)

    @property
    def bottleneck(self) -> str:
        """The bottleneck of training, with the figures that show it."""
        return self.stats.bottleneck

    @property
    def complete(self) -> bool:
        """Whether the profile has all events; it keeps a million."""
        return len(self._events) < _MAX_EVENTS

    def lanes(self) -> dict[str, list[Event]]:
        """Events by lane, in order of time, without overlap; the consumer comes first."""
        stop = self._stop or time.perf_counter_ns()
        lanes: dict[str, list[Event]] = {}
        for lane, stage, start, end, batch, sample in sorted(self._events.copy(), key=lambda event: event[2:4]):
            event = Event(stage, max(start, self._start) - self._start, min(end, stop) - self._start, batch, sample)
            if event.end > event.start:
                lanes.setdefault(_free_lane(lanes, lane, event.start), []).append(event)
        return {lane: lanes[lane] for lane in sorted(lanes, key=_lane_order)}

    def on_next(self, ready: int) -> None:
        """Called by the recorder."""
        self._requests.append((time.perf_counter_ns(), ready))

    def on_stage(self, lane: str, stage: str, start: int, end: int, batch: int | None, sample: int | None) -> None:
        """Called by the recorder."""
        if not self._stop and len(self._events) < _MAX_EVENTS:
            self._events.append((lane, stage, start, end, batch, sample))

    def queue(self) -> list[tuple[int, int]]:
        """(nanoseconds since the profile began, number of ready batches) for each request of a batch."""
        return [(moment - self._start, ready) for moment, ready in self._requests.copy()]

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes a trace for Perfetto (ui.perfetto.dev) and chrome://tracing; named as in torch.profiler."""
        trace = chrome_trace(self.lanes(), self.queue(), self.bottleneck)
        Path(path).write_text(json.dumps(trace))

    def __str__(self) -> str:
        note = "" if self.complete else f"\nthe timeline ends after {_MAX_EVENTS} events"
        return f"{self.stats}{note}"


def _free_lane(lanes: dict[str, list[Event]], lane: str, start: int) -> str:
    """The lane's name; numbered if the lane is busy, as with two iterations in one thread."""
    name, number = lane, 1
    while name in lanes and lanes[name][-1].end > start:
        number += 1
        name = f"{lane} ({number})"
    return name


def _lane_order(lane: str) -> tuple[int, int, str]:
    """Sort key: the consumer, the GPU, the producer thread, then the workers by number."""
    kinds = ("consumer", "GPU", "cuaug-producer", "cuaug-worker")
    kind = next((i for i, name in enumerate(kinds) if lane.startswith(name)), len(kinds))
    return kind, len(lane), lane
