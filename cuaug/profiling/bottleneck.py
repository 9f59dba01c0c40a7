"""The totals of a loader: its bottleneck in one line, and a table.

The consumer's time is its waits for batches plus its own work between them. If it hardly waits, the loader has no
bottleneck. Otherwise the busiest group of threads, or the GPU, holds the bottleneck: its longest stage. If no group was
busy for long, they waited for each other, and the loader must prefetch more batches. But that does not help where the
producer thread and the GPU work in turn: then the busier of these two holds the bottleneck.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

# The loader has no bottleneck if the consumer waits for less than this share of its time, ...
_MIN_WAIT = 0.05
# ... unless its waits for the first batch of each iteration are more than this share.
_MAX_STARTUP = 0.2
# A group of threads that works for less than this share of the time is not the bottleneck.
_MIN_BUSY = 0.6

_WORK = ("read", "parse", "plan", "decode", "augment", "targets", "finish")
_GPU = ("copy", "wait_for_gpu", "gpu_decode", "gpu_augment")
_PRODUCER = "the producer thread"
_CONSUMER = ("wait_for_first_batch", "wait_for_data", "wait_for_consumer")

# The stages as the bottleneck's line names them.
_LABELS = {
    "read": "reading",
    "parse": "parsing",
    "copy": "copying",
    "plan": "planning",
    "decode": "decoding",
    "augment": "augmenting",
    "targets": "targets",
    "finish": "finishing",
    "gpu_decode": "decoding",
    "gpu_augment": "augmenting",
}
# These decode by a call of the producer thread, which does some of it on the CPU.
_NVIMGCODEC = {"gpu", "cpu", "cpu_fallback", "pillow"}


def stages_of(device: str) -> tuple[str, ...]:
    """The stages of a loader on "cpu" or "cuda"; `Stats` explains them."""
    return _WORK + (_GPU if device == "cuda" else ()) + _CONSUMER


@dataclass(frozen=True)
class RuntimeConfig:
    """How a loader runs.

    Attributes:
        device: "cpu" or "cuda".
        threads: worker threads. They read, parse and plan; on the CPU they also decode and augment.
        prefetch: batches in progress ahead of the consumer's batch.
        threads_because, prefetch_because: the reason for each number.
        sample: "image" or "clip".
    """

    device: str
    threads: int
    prefetch: int
    threads_because: str = "as given"
    prefetch_because: str = "as given"
    sample: str = "image"

    def __str__(self) -> str:
        return (
            f"device={self.device!r}, threads={self.threads} ({self.threads_because}), "
            f"prefetch={self.prefetch} ({self.prefetch_because})"
        )


@dataclass(frozen=True)
class Stats:
    """Totals of a loader, or of a profile. `print` shows the bottleneck and a table.

    | `seconds[...]` | time spent |
    |---|---|
    | "read" | reading files, or looking up the cache |
    | "parse" | parsing headers |
    | "plan" | planning transforms |
    | "decode", "augment" | decoding, and running the kernels; on CUDA queueing them, and decoding on the CPU |
    | "targets" | moving boxes, masks and keypoints |
    | "finish" | batch transforms and collating |
    | "wait_for_first_batch" | the consumer waits for an iteration's first batch |
    | "wait_for_data" | the consumer waits for a later batch |
    | "wait_for_consumer" | the consumer works between two batches |
    | "copy" | CUDA: copying input to pinned memory |
    | "wait_for_gpu" | CUDA: the producer thread waits for the GPU's work on a batch |
    | "gpu_decode", "gpu_augment" | CUDA: on the producer's stream, by events that are read some batches later |

    During a profile CUDA events measure each batch. Otherwise they measure the first four batches and one in sixteen;
    each other batch counts as the last measured one.

    | `decoded_by[...]` | decoder |
    |---|---|
    | "cpu" | nvImageCodec's CPU decoders |
    | "kernels" | our CUDA kernels |
    | "gpu" | nvImageCodec, by the hardware engine or its CUDA kernels |
    | "cpu_fallback" | the CPU, for JPEGs and clips that the GPU could not decode |
    | "pillow" | Pillow |
    | "cache" | none: decoded in an earlier epoch |
    | "source" | none: the source yields pixels |
    | "video" | FFmpeg, for clips |
    | "nvdec" | the GPU's video engine, for clips |

    Attributes:
        samples, batches: number yielded.
        failed: samples that could not be read or decoded, and were skipped or replaced.
        begun: samples that were read, including prefetched batches that were never taken.
        seconds: time per stage, summed over threads.
        decoded_by: number of samples by decoder.
        parts: number of samples that were decoded in part, by restart markers or a JPEG index.
        kernels: number of launches on CUDA by kernel: "specialized" for the chain, or "full", which runs every chain.
        ready: ready[n] counts how often n batches were ready when the consumer requested one.
        setup: the device, the threads and the prefetching, with reasons.
        remote: of remote shards, else empty: "requests" for byte ranges that succeeded, their "bytes", and requests
            "repeated", all since the source was opened; "held_bytes" and "max_held_bytes" of read-aheads, now and at
            most.
    """

    samples: int
    batches: int
    failed: int
    begun: int
    seconds: dict[str, float]
    decoded_by: dict[str, int]
    parts: int
    kernels: dict[str, int]
    ready: tuple[int, ...]
    setup: RuntimeConfig
    remote: dict[str, int] = field(default_factory=dict)

    @property
    def bottleneck(self) -> str:
        """The bottleneck of training, with the figures that show it."""
        return find_bottleneck(self)

    def since(self, earlier: Stats) -> Stats:
        """The difference to an earlier snapshot."""
        return replace(
            self,
            samples=self.samples - earlier.samples,
            batches=self.batches - earlier.batches,
            failed=self.failed - earlier.failed,
            begun=self.begun - earlier.begun,
            seconds={name: value - earlier.seconds[name] for name, value in self.seconds.items()},
            decoded_by=dict(Counter(self.decoded_by) - Counter(earlier.decoded_by)),
            parts=self.parts - earlier.parts,
            kernels=dict(Counter(self.kernels) - Counter(earlier.kernels)),
            remote={
                name: value if name.endswith("held_bytes") else value - earlier.remote.get(name, 0)
                for name, value in self.remote.items()
            },
            ready=tuple(now - before for now, before in zip(self.ready, earlier.ready, strict=True)),
        )

    def __str__(self) -> str:
        return "\n".join([f"bottleneck: {self.bottleneck}", *_table(self)])


@dataclass(frozen=True)
class _Group:
    """Threads that share the work of some stages; or the GPU."""

    name: str
    threads: int
    stages: tuple[str, ...]

    def busy(self, stats: Stats) -> float:
        """The share of the consumer's time that the group worked."""
        total = _total_seconds(stats)
        return min(sum(stats.seconds[stage] for stage in self.stages) / (self.threads * total), 1.0) if total else 0.0


def _groups(stats: Stats) -> list[_Group]:
    threads = stats.setup.threads
    name = f"{threads} thread{'s' * (threads > 1)}"
    if stats.setup.device == "cpu":
        return [_Group(name, threads, _WORK)]
    decodes = stats.setup.sample == "clip"  # with FFmpeg; the producer thread decodes images
    return [
        _Group(name, threads, ("read", "parse", "copy", "plan", *(["decode"] if decodes else []), "targets")),
        _Group(_PRODUCER, 1, ("augment", "finish") if decodes else ("decode", "augment", "finish")),
        _Group("the GPU", 1, ("gpu_decode", "gpu_augment")),
    ]


def _total_seconds(stats: Stats) -> float:
    """The consumer's time."""
    return sum(stats.seconds[stage] for stage in _CONSUMER)


def find_bottleneck(stats: Stats) -> str:
    """The bottleneck in one word, and figures in parentheses."""
    first, later = stats.seconds["wait_for_first_batch"], stats.seconds["wait_for_data"]
    total = _total_seconds(stats)
    if not stats.batches or not total:
        return "unknown (no batch was taken)"
    if first > max(_MAX_STARTUP * total, later):
        return f"startup (the consumer waited {first / total:.0%} of its time for first batches)"
    waited = f"the consumer waited {(first + later) / total:.0%}"
    if later < _MIN_WAIT * total:
        requests = sum(stats.ready)
        ready = f"a batch was ready for {1 - stats.ready[0] / requests:.0%} of requests; " if requests else ""
        return f"none ({ready}{waited})"
    groups = _groups(stats)
    group = max(groups, key=lambda group: group.busy(stats))
    if group.busy(stats) < _MIN_BUSY and _share_in_turn(stats) >= _MIN_BUSY:
        group = max(groups[1:], key=lambda group: group.busy(stats))
    elif group.busy(stats) < _MIN_BUSY:
        ahead = f"{stats.setup.prefetch} batch{'es' * (stats.setup.prefetch > 1)} ahead"
        verb = "was" if group.threads == 1 else "were"
        return f"prefetch (with {ahead}, {group.name} {verb} busy only {group.busy(stats):.0%} of the time; {waited})"
    stage = max(group.stages, key=stats.seconds.__getitem__)
    share = stats.seconds[stage] / (group.threads * total)
    cost = f"{_duration(stats.seconds[stage] / max(stats.begun, 1))} per {stats.setup.sample} on {group.name}"
    whose = "its" if group.threads == 1 else "their"
    return f"{_label(stats, group, stage)} ({cost}, {share:.0%} of {whose} time; {waited})"


def _share_in_turn(stats: Stats) -> float:
    """The share of the consumer's time that the producer thread worked or waited for the GPU; 0 on the CPU."""
    worked = sum(group.busy(stats) for group in _groups(stats) if group.name == _PRODUCER)
    return worked + stats.seconds.get("wait_for_gpu", 0.0) / _total_seconds(stats)


def _label(stats: Stats, group: _Group, stage: str) -> str:
    """The producer thread only launches kernels, unless nvImageCodec decodes there."""
    launches = stage == "augment" or (stage == "decode" and not _NVIMGCODEC & stats.decoded_by.keys())
    return "launching" if group.name == _PRODUCER and launches else _LABELS[stage]


def _table(stats: Stats) -> Iterator[str]:
    """The measurements, in lines of up to 100 characters; only the setup's may be longer."""
    seconds = stats.seconds
    total = _total_seconds(stats)
    rate = f", {_rate(stats.samples / total)} {stats.setup.sample}s/s" if total else ""
    yield f"{stats.samples} samples in {stats.batches} batches, {stats.failed} failed; {total:.2f} s{rate}"
    yield str(stats.setup)
    yield f"{'':24}{'seconds':>10}{'per ' + stats.setup.sample:>12}{'of the time':>14}"
    for group in _groups(stats):
        busy = group.busy(stats)
        yield f"{group.name:24}{sum(seconds[stage] for stage in group.stages):10.2f}{'':12}{busy:13.0%} busy"
        stages = (*group.stages, "wait_for_gpu") if group.name == _PRODUCER else group.stages
        for stage in stages:
            yield _row(stage, seconds[stage], stats.begun, group.threads * total)
    yield "consumer"
    for stage in _CONSUMER:
        yield _row(stage, seconds[stage], stats.samples, total)
    if requests := sum(stats.ready):
        mean = sum(count * times for count, times in enumerate(stats.ready)) / requests
        times = ", ".join(f"{count} ready {n} time{'s' * (n > 1)}" for count, n in enumerate(stats.ready) if n)
        yield f"batches ready when the consumer requested one: {mean:.1f} on average ({times})"
    if stats.decoded_by:
        decoders = ", ".join(f"{name} {count}" for name, count in sorted(stats.decoded_by.items()))
        yield f"decoded by: {decoders}" + (f"; {stats.parts} from a JPEG crop" if stats.parts else "")
    if remote := stats.remote:
        held = f"read-ahead holds {remote['held_bytes'] / 1e6:.0f} MB, at most {remote['max_held_bytes'] / 1e6:.0f} MB"
        size = f"{remote['bytes'] / 1e6:.0f} MB"
        yield f"remote: {remote['requests']} requests of {size}, {remote['repeated']} repeated; {held}"
    if stats.kernels:
        yield "kernel launches: " + ", ".join(f"{name} {count}" for name, count in sorted(stats.kernels.items()))


def _row(stage: str, seconds: float, samples: int, total: float) -> str:
    share = f"{seconds / total:.0%}" if total else ""
    return f"  {stage:22}{seconds:10.2f}{_duration(seconds / max(samples, 1)):>12}{share:>14}"


def _rate(samples: float) -> str:
    return f"{samples:.0f}" if samples >= 100 else f"{samples:.1f}"


def _duration(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 1e-6:.0f} us"
