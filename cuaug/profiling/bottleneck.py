"""What holds back training: from a loader's totals to one line, and to a table.

The consumer's time is what it waited and what it was busy elsewhere. If it hardly waited, nothing in the loader holds
it back. Otherwise something does: of the threads and the GPU, whichever was busy for the largest part of that time, and
there the stage that took most. If none was busy for long, they waited for each other, and more must be under way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cuaug.profiling.stages import CONSUMER, WORK

if TYPE_CHECKING:
    from cuaug.profiling.recorder import Stats

__all__ = ["bottleneck", "table"]

# Nothing in the loader binds if the consumer waits for less than this share of its time, ...
_HARDLY = 0.05
# ... unless waiting for the first batch of each iteration is more than this.
_MUCH = 0.2
# Of those who work: less, and none of them is what the rest waits for.
_BUSY = 0.6

# What a stage is called where it binds.
_NAMES = {
    "read": "reading",
    "parse": "parsing headers",
    "plan": "planning",
    "decode": "decoding",
    "augment": "augmentation",
    "targets": "moving targets",
    "finish": "finishing (mixes, collate_fn)",
    "gpu_decode": "decoding",
    "gpu_augment": "augmentation",
}


@dataclass(frozen=True)
class _Who:
    """Those who share the work of some stages."""

    name: str
    count: int
    stages: tuple[str, ...]


def bottleneck(stats: Stats) -> str:
    """One line."""
    first, waited = stats.seconds["wait_for_first_batch"], stats.seconds["wait_for_data"]
    total = _total(stats)
    if not stats.batches or not total:
        return "nothing to judge by: no batch was taken"
    if first > max(_MUCH * total, waited):
        return f"starting an epoch binds: waiting for first batches was {first / total:.0%} of the consumer's time"
    waits = f"waited {(first + waited) / total:.0%}"
    if waited < _HARDLY * total:
        asked = sum(stats.ready)
        ready = f"a batch was ready {1 - stats.ready[0] / asked:.0%} of the times it was asked for; " if asked else ""
        return f"nothing in the loader binds: {ready}the consumer {waits}"
    most = max(_workers(stats), key=lambda who: _busy(stats, who))
    if _busy(stats, most) < _BUSY:
        ahead = f"{stats.setup.prefetch} batch{'es' * (stats.setup.prefetch > 1)} ahead"
        busy = f"{'was' if most.count == 1 else 'were'} busy only {_busy(stats, most):.0%} of the time"
        return f"too small a prefetch binds: with {ahead}, {most.name} {busy}; the consumer {waits}"
    stage = max(most.stages, key=stats.seconds.__getitem__)
    share = stats.seconds[stage] / (most.count * total)
    each = _duration(stats.seconds[stage] / max(stats.begun, 1))
    whose = "its" if most.count == 1 else "their"
    return f"{_NAMES[stage]} binds: {each} per image on {most.name}, {share:.0%} of {whose} time; the consumer {waits}"


def _workers(stats: Stats) -> list[_Who]:
    threads = stats.setup.threads
    name = f"{threads} thread{'s' * (threads > 1)}"
    if stats.setup.device == "cpu":
        return [_Who(name, threads, WORK)]
    return [
        _Who(name, threads, ("read", "parse", "plan", "targets")),
        _Who("the producer thread", 1, ("decode", "augment", "finish")),
        _Who("the GPU", 1, ("gpu_decode", "gpu_augment")),
    ]


def _busy(stats: Stats, who: _Who) -> float:
    """Which part of the consumer's time they were at work."""
    total = _total(stats)
    return min(sum(stats.seconds[stage] for stage in who.stages) / (who.count * total), 1.0) if total else 0.0


def _total(stats: Stats) -> float:
    """The consumer's time."""
    return sum(stats.seconds[stage] for stage in CONSUMER)


def table(stats: Stats) -> str:
    """What was measured, in lines; no more than 100 characters wide where the setup is not."""
    return "\n".join(_lines(stats))


def _lines(stats: Stats) -> Iterator[str]:
    seconds = stats.seconds
    total = _total(stats)
    rate = f", {stats.samples / total:.0f} images/s" if total else ""
    yield f"{stats.samples} samples in {stats.batches} batches, {stats.failed} failed; {total:.2f} s{rate}"
    yield str(stats.setup)
    yield f"{'':24}{'seconds':>10}{'per image':>12}{'of the time':>14}"
    for who in _workers(stats):
        yield f"{who.name:24}{sum(seconds[stage] for stage in who.stages):10.2f}{'':12}{_busy(stats, who):13.0%} busy"
        for stage in who.stages:
            yield _row(stage, seconds[stage], seconds[stage] / max(stats.begun, 1), who.count * total)
        if who.stages[0] == "decode":
            yield _row("wait_for_gpu", seconds["wait_for_gpu"], seconds["wait_for_gpu"] / max(stats.begun, 1), total)
    yield "consumer"
    for stage in CONSUMER:
        yield _row(stage, seconds[stage], seconds[stage] / max(stats.samples, 1), total)
    if asked := sum(stats.ready):
        mean = sum(count * times for count, times in enumerate(stats.ready)) / asked
        times = ", ".join(f"{count} ready {n} time{'s' * (n > 1)}" for count, n in enumerate(stats.ready) if n)
        yield f"batches ready when the consumer asked: {mean:.1f} on average ({times})"
    if stats.decoded_by:
        whom = ", ".join(f"{name} {count}" for name, count in sorted(stats.decoded_by.items()))
        yield f"decoded by: {whom}" + (f"; {stats.parts} from a part of the file" if stats.parts else "")


def _row(stage: str, seconds: float, per_image: float, total: float) -> str:
    share = f"{seconds / total:.0%}" if total else ""
    return f"  {stage:22}{seconds:10.2f}{_duration(per_image):>12}{share:>14}"


def _duration(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 1e-6:.0f} us"
