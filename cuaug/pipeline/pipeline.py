"""What the batches of one device share: threads, counters, and the kind of its jobs."""

from __future__ import annotations

import itertools
from typing import Any

from cuaug._runtime.libc import release_freed_memory
from cuaug.codec import MessageLog
from cuaug.pipeline.job import Job
from cuaug.pipeline.settings import BatchConfig
from cuaug.pipeline.thread_pool import ThreadPool
from cuaug.profiling.recorder import Recorder
from cuaug.sampling import Epoch, RankSlice

__all__ = ["Pipeline"]


class Pipeline:
    """What the jobs of one device share. Each device adds what it needs, and `job`, the kind of its jobs."""

    job: type[Job]
    #: What a profile marks stages with beside its own events, as torch.cuda.nvtx.
    ranges: Any = None

    def __init__(self, settings: BatchConfig, recorder: Recorder, threads: int) -> None:
        self.settings = settings
        self.recorder = recorder
        self.workers = ThreadPool(threads)
        self.numbers = itertools.count()
        self.messages = MessageLog()

    def start(self, epoch: Epoch, share: RankSlice) -> Job:
        return self.job(self, epoch, share).start()

    @property
    def pools(self) -> list[ThreadPool]:
        """All threads that work on batches."""
        return [self.workers]

    def rest(self) -> None:
        """Called when an iteration ends: what is kept for its next batch is let go."""

    def close(self) -> None:
        for pool in self.pools:
            pool.close()
        self.rest()
        release_freed_memory()
