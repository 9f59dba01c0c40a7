"""Takes finished batches from a pipeline, in order, and keeps others in progress ahead of the consumer.

`Failures` decides what becomes of damaged samples: raised, or logged and counted.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from cuaug.batch import Batch
from cuaug.errors import DecodeError, SourceError
from cuaug.pipeline.config import BatchConfig
from cuaug.pipeline.job import Job
from cuaug.pipeline.pipeline import Pipeline
from cuaug.profiling.recorder import Recorder
from cuaug.sampling import Epoch, RankSlice
from cuaug.sources.source import ReadAhead

__all__ = ["Failures", "OnError", "prefetch_in_order", "take_batches"]

log = logging.getLogger("cuaug")

OnError = Literal["raise", "skip", "replace"]
_ACTION = {"skip": "skipped", "replace": "replaced"}


class Failures:
    """The damaged samples that a loader has met so far."""

    def __init__(self, on_error: OnError, recorder: Recorder) -> None:
        self._on_error, self._recorder = on_error, recorder
        self._names: set[str | int | None] = set()

    def report(
        self, job: Job, callback: Callable[[DecodeError], object] | None = None, max_errors: int | None = None
    ) -> None:
        """Raises the errors of a batch's damaged samples, or counts and logs them."""
        error: DecodeError | None = None
        try:
            for error in job.failures():
                if self._on_error == "raise":
                    raise error
                self._recorder.add({"failed": 1})
                name = error.path or error.index
                if name not in self._names:
                    self._names.add(name)
                    log.warning("%s: %s", _ACTION[self._on_error], error)
                if callback is not None:
                    callback(error)
                if max_errors is not None and len(self._names) > max_errors:
                    raise SourceError(
                        f"{len(self._names)} samples have failed, more than max_errors={max_errors}; the last: {error}"
                    ) from error
        finally:
            del error  # its traceback holds this frame


class _Cancellable(Protocol):
    def cancel(self) -> None: ...


J = TypeVar("J", bound=_Cancellable)
I = TypeVar("I")  # noqa: E741


def prefetch_in_order(
    items: Iterable[I], start: Callable[[I], J], depth: int, on_next: Callable[[Sequence[J]], None]
) -> Iterator[J]:
    """Yields start(item) for each item, in order; up to `depth` jobs run ahead of the consumer.

    The end of the iteration, also by `break` or an exception, cancels all jobs that were not yielded.

    Args:
        on_next: called with the jobs in progress at each request except the first.
    """
    in_progress: deque[J] = deque()
    try:
        for item in items:
            in_progress.append(start(item))
            if len(in_progress) > depth:
                yield in_progress.popleft()
                on_next(in_progress)
        while in_progress:
            yield in_progress.popleft()
            if in_progress:
                on_next(in_progress)
    finally:
        for job in in_progress:
            job.cancel()


class _Pace:
    """When the next batch begins: at once, or in the middle of the training step.

    Python's threads take turns at the interpreter. At the beginning of a step the training loop needs it most: it
    launches the forward pass, and the GPU waits for the first kernels. If all batches in progress are ready and a batch
    takes less than half a step, the next one can as well be made in the second half, while the GPU works.

    Attributes:
        not_before: time by `time.monotonic_ns`; 0: at once.
    """

    def __init__(self) -> None:
        self.not_before = self._last = 0

    def next_step(self, under_way: Sequence[Job]) -> None:
        """Called at each request for a batch, with the jobs in progress."""
        now = time.monotonic_ns()
        step, self._last = now - self._last if self._last else 0, now
        is_idle = all(job.ready for job in under_way) and len(under_way) > 0
        self.not_before = now + step // 2 if is_idle and step > 2 * under_way[-1].latency else 0


class _Settings(Protocol):
    """The loader's attributes that are read again for each batch."""

    timeout_seconds: float | None
    error_callback: Callable[[DecodeError], object] | None
    max_errors: int | None


def take_batches(
    pipeline: Pipeline,
    epoch: Epoch,
    steps: Iterable[RankSlice],
    failures: Failures,
    settings: _Settings,
    received: Callable[[RankSlice], None],
) -> Iterator[Batch]:
    """Yields the batches of these steps of an epoch; calls `received` before each."""
    recorder, reader = pipeline.recorder, pipeline.config.reader
    finished = 0

    pace = _Pace()

    def start_job(rank_slice: RankSlice) -> Job:
        return pipeline.start(epoch, rank_slice, pace.not_before)

    def on_next(under_way: Sequence[Job]) -> None:
        pipeline.workers.hurry()  # the consumer may have come early
        pace.next_step(under_way)
        recorder.on_next(sum(job.ready for job in under_way))

    def take(job: Job) -> Batch:
        batch, dtypes = job.take(), pipeline.config.label_dtypes
        labels = batch.labels if dtypes is None else dtypes.unify(batch.labels, batch.indices)
        return batch if labels is batch.labels else batch._replace(labels=labels)

    ahead: ReadAhead | None = None
    try:
        ahead = reader.read_ahead(_BatchIndices(epoch, steps, pipeline.config))
        with recorder.at("wait_for_first_batch", lane="consumer") as clock:
            for job in prefetch_in_order(steps, start_job, pipeline.config.prefetch, on_next):
                clock.batch = job.number
                job.wait(settings.timeout_seconds)
                failures.report(job, settings.error_callback, settings.max_errors)
                job.check()
                received(job.rank_slice)
                finished += 1
                if ahead is not None:
                    ahead.finish(finished)
                clock.count("batches")
                clock.count("samples", job.sample_count)
                clock.at("wait_for_consumer")
                clock.flush()
                yield take(job)  # keep no reference here: the consumer frees the batch's memory
                clock.at("wait_for_data")
    finally:
        if ahead is not None:
            ahead.close()
        pipeline.end_iteration()


class _BatchIndices:
    """The indices that each batch reads from the source, with the partners of batch transforms."""

    def __init__(self, epoch: Epoch, steps: Iterable[RankSlice], config: BatchConfig) -> None:
        self._epoch, self._steps, self._config = epoch, steps, config

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        for rank_slice in self._steps:
            positions = self._epoch.with_next(rank_slice.positions, self._config.transforms.partners)
            yield self._config.reader.uncached(self._epoch.indices[positions])
