"""A profile's events as files: a trace for Perfetto, and a page for a browser."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

__all__ = ["Event", "chrome_trace", "page"]


class Event(NamedTuple):
    """Some lane, which is a thread or the GPU, was at a stage; times in nanoseconds since the profile began.

    `batch` tells batches apart and grows in the order in which they were begun; `sample` is an index of the source.
    None: the stage is not about one.
    """

    stage: str
    start: int
    end: int
    batch: int | None
    sample: int | None


def chrome_trace(
    lanes: Mapping[str, Sequence[Event]], queue: Sequence[tuple[int, int]], bottleneck: str
) -> dict[str, Any]:
    """The trace event format's JSON object: complete events in threads that have names, a counter of ready batches.

    Times are microseconds since the profile began, to the nanosecond.
    """
    pid = os.getpid()
    events: list[dict[str, Any]] = [_named("process_name", pid, 0, "cuaug loader")]
    for tid, (lane, stretches) in enumerate(lanes.items(), 1):
        events.append(_named("thread_name", pid, tid, lane))
        events.append({"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": tid}})
        for event in stretches:
            about = {"batch": event.batch, "sample": event.sample}
            events.append(
                {
                    "ph": "X",
                    "name": event.stage,
                    "cat": "cuaug",
                    "ts": event.start / 1e3,
                    "dur": (event.end - event.start) / 1e3,
                    "pid": pid,
                    "tid": tid,
                    "args": {name: value for name, value in about.items() if value is not None},
                }
            )
    events += [
        {"ph": "C", "name": "batches ready", "ts": at / 1e3, "pid": pid, "tid": 0, "args": {"ready": ready}}
        for at, ready in queue
    ]
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"bottleneck": bottleneck}}


def _named(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def page(lanes: Mapping[str, Sequence[Event]], queue: Sequence[tuple[int, int]], bottleneck: str, table: str) -> str:
    """An HTML page that loads nothing. Its data are JSON: `bars` are [stage, start, length, batch, sample] in us."""
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
        "queue": [[at / 1e3, ready] for at, ready in queue],
    }
    template = resources.files("cuaug.profiling").joinpath("timeline.html").read_text(encoding="utf-8")
    for place, text in (
        ("{{bottleneck}}", html.escape(bottleneck)),
        ("{{table}}", html.escape(table)),
        ("{{data}}", json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")),
    ):
        template = template.replace(place, text)
    return template
