"""What `Loader.profile()` gives: totals of a while, every stretch of time in it, and files that show them."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from cuaug.errors import LoaderError
from cuaug.profiling.recorder import Recorder, Stats
from cuaug.profiling.timeline import Event, chrome_trace, page

__all__ = ["Profile"]

# Events beyond this are not kept, for each takes some 200 bytes; totals go on.
_MOST_EVENTS = 1_000_000


class Profile:
    """A while of a loader's life, between entering and leaving it as a context manager.

    On CUDA the stages are NVTX ranges meanwhile, for Nsight Systems; and the GPU's lane lacks the last two batches.

    >>> with loader.profile() as profile:  # doctest: +SKIP
    ...     for images, labels in loader:
    ...         train(images, labels)
    >>> print(profile)  # doctest: +SKIP
    >>> profile.export_html("timeline.html")  # doctest: +SKIP
    """

    def __init__(self, recorder: Recorder, ranges: Any = None) -> None:
        self.ranges = ranges
        self._recorder = recorder
        self._before: Stats | None = None
        self._stats: Stats | None = None
        self._start = self._stop = 0
        self._events: list[tuple[str, str, int, int, int | None, int | None]] = []
        self._asked: list[tuple[int, int]] = []

    def __enter__(self) -> Profile:
        if self._before is not None:
            raise LoaderError("a profile is taken once: ask loader.profile() for another")
        if self._recorder.listener is not None:
            raise LoaderError("another profile of this loader is being taken")
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
        """The totals of that while; those so far while it lasts."""
        if self._before is None:
            raise LoaderError("nothing has been profiled: use it as `with loader.profile() as profile:`")
        return self._stats or self._recorder.stats().since(self._before)

    @property
    def bottleneck(self) -> str:
        """What holds back training, in one line."""
        return self.stats.bottleneck

    @property
    def complete(self) -> bool:
        """Whether all that happened is among the events; a million are kept."""
        return len(self._events) < _MOST_EVENTS

    def lanes(self) -> dict[str, list[Event]]:
        """Each lane's events, in order; the consumer comes first. No two of a lane overlap."""
        stop = self._stop or time.perf_counter_ns()
        found: dict[str, list[Event]] = {}
        for lane, stage, start, end, batch, sample in sorted(self._events.copy(), key=lambda event: event[2:4]):
            event = Event(stage, max(start, self._start) - self._start, min(end, stop) - self._start, batch, sample)
            if event.end > event.start:
                found.setdefault(_free(found, lane, event.start), []).append(event)
        return {lane: found[lane] for lane in sorted(found, key=_place)}

    def asked(self, ready: int) -> None:
        self._asked.append((time.perf_counter_ns(), ready))

    def stretch(self, lane: str, stage: str, start: int, end: int, batch: int | None, sample: int | None) -> None:
        if not self._stop and len(self._events) < _MOST_EVENTS:
            self._events.append((lane, stage, start, end, batch, sample))

    def queue(self) -> list[tuple[int, int]]:
        """(time in nanoseconds since the profile began, how many batches were ready), whenever one was asked for."""
        return [(at - self._start, ready) for at, ready in self._asked.copy()]

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes what Perfetto (ui.perfetto.dev) and chrome://tracing open, as torch.profiler's method of this name."""
        trace = chrome_trace(self.lanes(), self.queue(), self.bottleneck)
        Path(path).write_text(json.dumps(trace))

    def export_html(self, path: str | os.PathLike[str]) -> None:
        """Writes a page that needs nothing but a browser: verdict, table, and a timeline to zoom into."""
        Path(path).write_text(page(self.lanes(), self.queue(), self.bottleneck, str(self)), encoding="utf-8")

    def __str__(self) -> str:
        note = "" if self.complete else f"\nthe timeline ends after {_MOST_EVENTS} events"
        return f"{self.stats}{note}"


def _free(found: dict[str, list[Event]], lane: str, start: int) -> str:
    """That lane, or where it is busy then, as with two iterations in one thread, another of its name."""
    name, number = lane, 1
    while name in found and found[name][-1].end > start:
        number += 1
        name = f"{lane} ({number})"
    return name


def _place(lane: str) -> tuple[int, int, str]:
    """Sorts lanes: the consumer, the GPU, who feeds it, the workers by number."""
    kinds = ("consumer", "GPU", "cuaug-producer", "cuaug-worker")
    kind = next((i for i, name in enumerate(kinds) if lane.startswith(name)), len(kinds))
    return kind, len(lane), lane
