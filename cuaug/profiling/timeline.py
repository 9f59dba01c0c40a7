"""A profile's events as a trace for Perfetto, and as an HTML page."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

__all__ = ["Event", "chrome_trace", "html_page"]


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


def html_page(
    lanes: Mapping[str, Sequence[Event]], queue: Sequence[tuple[int, int]], bottleneck: str, table: str
) -> str:
    """A self-contained HTML page. Its `bars` are [stage, start, length, batch, sample], times in us."""
    stages = sorted({event.stage for events in lanes.values() for event in events})
    number = {stage: i for i, stage in enumerate(stages)}
    data = {
        "stages": stages,
        "lanes": [
            {
                "name": name,
                "bars": [
                    [number[stage], start / 1e3, (end - start) / 1e3, batch, sample]
                    for stage, start, end, batch, sample in events
                ],
            }
            for name, events in lanes.items()
        ],
        "queue": [[moment / 1e3, ready] for moment, ready in queue],
    }
    template = resources.files("cuaug.profiling").joinpath("timeline.html").read_text(encoding="utf-8")
    for placeholder, text in (
        ("{{bottleneck}}", html.escape(bottleneck)),
        ("{{table}}", html.escape(table)),
        ("{{data}}", json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")),
    ):
        template = template.replace(placeholder, text)
    return template
