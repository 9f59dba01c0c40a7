"""Takes finished batches from a pipeline, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from cuaug.batch import Batch
from cuaug.errors import DecodeError
from cuaug.pipeline.failures import Failures
from cuaug.pipeline.job import Job
from cuaug.pipeline.pipeline import Pipeline
from cuaug.pipeline.prefetch import prefetch_in_order
from cuaug.sampling import Epoch, RankSlice

__all__ = ["take_batches"]


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
    recorder = pipeline.recorder

    def start_job(rank_slice: RankSlice) -> Job:
        return pipeline.start(epoch, rank_slice)

    def count_ready(under_way: Iterable[Job]) -> None:
        recorder.on_next(sum(job.ready for job in under_way))

    def take(job: Job) -> Batch:
        batch, dtypes = job.take(), pipeline.config.label_dtypes
        labels = batch.labels if dtypes is None else dtypes.unify(batch.labels, batch.indices)
        return batch if labels is batch.labels else batch._replace(labels=labels)

    try:
        with recorder.at("wait_for_first_batch", lane="consumer") as clock:
            for job in prefetch_in_order(steps, start_job, pipeline.config.prefetch, count_ready):
                clock.batch = job.number
                job.wait(settings.timeout_seconds)
                failures.report(job, settings.error_callback, settings.max_errors)
                job.check()
                received(job.rank_slice)
                clock.count("batches")
                clock.count("samples", job.sample_count)
                clock.at("wait_for_consumer")
                clock.flush()
                yield take(job)  # keep no reference here: the consumer frees the batch's memory
                clock.at("wait_for_data")
    finally:
        pipeline.end_iteration()
