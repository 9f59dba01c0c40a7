"""Settings of a loader; the default number of threads and of prefetched batches, with reasons.

Sources without samples by index exclude some options of a `Loader`: `open_stream`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from cuaug._runtime.cpus import allowed_cpus, local_ranks
from cuaug.codec.decode_options import DecodeOptions
from cuaug.errors import ArgumentError, TransformError
from cuaug.pipeline.reader import Reader
from cuaug.plan import Layout, Type
from cuaug.profiling.bottleneck import RuntimeConfig
from cuaug.sampling import Epoch, Steps
from cuaug.sources import Source, optional_method
from cuaug.targets.collate import LabelDtypes
from cuaug.transforms import Compose
from cuaug.transforms.base import BatchTransform

__all__ = ["SAMPLES_PER_TASK", "BatchConfig", "SourceStream", "choose", "open_stream", "samples_per_read"]


class _Options(Protocol):
    """The loader's attributes that are checked."""

    source: Source
    transforms: Compose
    last_batch: str
    on_error: Any


def open_stream(options: _Options, *, has_order: bool, has_cache: bool) -> SourceStream | None:
    """The source's stream; None for a source with samples by index.

    Args:
        has_order: `shuffle=True` or a sampler is given.

    Raises:
        ArgumentError: an option reads other samples than the next ones of the stream.
    """
    start = optional_method(options.source, "start_stream")
    if start is None:
        return None
    refused = {
        "shuffle and sampler": (has_order, "use FromIterable(..., shuffle_buffer=10_000)"),
        "last_batch='pad'": (options.last_batch == "pad", "use 'drop' or 'partial'"),
        "cache": (has_cache, "leave it out"),
        "on_error='replace'": (options.on_error == "replace", "use 'skip'"),
        "transforms that mix samples": (
            options.transforms.partners > 0,
            "apply them to finished batches, as in chain(images, labels)",
        ),
    }
    for name, (is_given, remedy) in refused.items():
        if is_given:
            raise ArgumentError(f"{name}: needs samples by index, which {options.source!r} does not have: {remedy}")
    return SourceStream(start)


class SourceStream:
    """Begins the iterations of a source without samples by index.

    Args:
        start: the source's `start_stream`.
    """

    def __init__(self, start: Any) -> None:
        self._start = start

    def start(self, epoch: Epoch, steps: Steps) -> None:
        """Begins to read the samples of these steps of a rank."""
        positions = [np.empty(0, np.int64), *(rank_slice.positions for rank_slice in steps)]
        self._start(epoch.seed, epoch.number, epoch.indices[np.concatenate(positions)])


# Samples of one task: enough to make the queue's cost vanish, few enough to share a batch evenly among threads.
SAMPLES_PER_TASK = 8
# Upper limit for a task that reads: a task costs 50 us of Python, under the GIL.
_MAX_SAMPLES_PER_READ = 64
# On a GPU, threads read and parse, mostly under the GIL: more threads only contend for it.
_MAX_THREADS_FOR_A_GPU = 16


@dataclass(frozen=True)
class BatchConfig:
    """The settings that all jobs of a loader share; `Loader` explains each.

    Raises:
        TransformError: stack=False, and the chain needs a stack.
    """

    reader: Reader
    transforms: Compose
    target_type: Type | None
    layout: Layout
    stack: bool
    decode: DecodeOptions
    prefetch: int
    max_images: int
    on_error: str
    collate: Callable[[list[Any]], Any]
    label_dtypes: LabelDtypes | None = None
    uploads_labels: bool = True
    time_axis: int = 1

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Checks the chain, which the user may have edited."""
        chain = self.transforms
        if self.reader.clip_sampler is not None:
            for segment in chain.segments:
                if isinstance(segment, BatchTransform) and not segment.takes_clips:
                    raise TransformError(f"{segment!r} combines images and their targets, and takes no clips")
        if not self.stack and chain.packing is not None:
            raise TransformError(f"stack=False makes a list of images, but {chain.packing!r} one tensor: leave out one")
        if not self.stack and (len(chain.segments) > 1 or chain.views > 1):
            batch_transforms = [segment for segment in chain.segments if isinstance(segment, BatchTransform)]
            names = ", ".join(dict.fromkeys(type(transform).__name__ for transform in batch_transforms))
            reason = f"{names} takes a batch of one size" if names else "MultiView, FiveCrop and TenCrop make more"
            raise TransformError(
                f"stack=False is for chains that make one image of each sample; {reason}: leave out stack=False, give "
                "the images one size before it, by T.Resize((h, w)) or T.FixedSizeCrop(size), and pass list(images) to "
                f"a detector. The chain is {chain!r:.300}"
            )


def samples_per_read(count: int, threads: int) -> int:
    """Samples per read task, within limits: few enough to give every thread a task of the batch."""
    return min(max(SAMPLES_PER_TASK, -(-count // threads)), _MAX_SAMPLES_PER_READ)


def choose(
    device: str,
    batch_size: int | None,
    threads: int | None,
    prefetch: int | None,
    sample: str = "image",
) -> RuntimeConfig:
    """The runtime of a loader on "cpu" or "cuda", with defaults in place of None."""
    threads_because = prefetch_because = "as given"
    if threads is None:
        threads, threads_because = _default_threads(device)
    if prefetch is None:
        prefetch, prefetch_because = _default_prefetch(batch_size, threads)
    return RuntimeConfig(device, threads, prefetch, threads_because, prefetch_because, sample=sample)


def _default_threads(device: str) -> tuple[int, str]:
    """One thread per CPU of this process; the ranks of a machine share its CPUs."""
    cpus, because = allowed_cpus()
    # All ranks see the same CPUs, unless the user has bound each rank to its own.
    if (ranks := local_ranks()) > 1:
        cpus, because = max(1, cpus // ranks), f"{because}, shared by {ranks} ranks"
    if device == "cuda" and cpus > _MAX_THREADS_FOR_A_GPU:
        return _MAX_THREADS_FOR_A_GPU, f"enough to read for a GPU; {because}"
    return cpus, because


def _default_prefetch(batch_size: int | None, threads: int) -> tuple[int, str]:
    """Two batches; more if they give too few tasks for all threads."""
    if batch_size is None:
        return 2, "the batch sampler has no batch_size"
    tasks = -(-batch_size // SAMPLES_PER_TASK)
    needed = 1 + -(-threads // tasks)
    if needed <= 2:
        return 2, "one ready, one in progress"
    return needed, f"batches of {batch_size} give {tasks} task{'s' * (tasks > 1)} each, for {threads} threads"
