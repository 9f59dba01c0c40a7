"""The threads, counters and settings that the batches of one device share."""

from __future__ import annotations

import copy
import itertools
from functools import partial
from typing import Any

from cuaug._runtime.libc import release_freed_memory
from cuaug._runtime.native import library
from cuaug.codec import JpegIndex, MessageLog
from cuaug.pipeline.config import BatchConfig
from cuaug.pipeline.job import Job
from cuaug.pipeline.thread_pool import ThreadPool
from cuaug.profiling.recorder import Recorder
from cuaug.sampling import Epoch, RankSlice
from cuaug.sources.jpeg_index_file import open_index_file

__all__ = ["Pipeline"]


class Pipeline:
    """Base of the pipelines; each device adds its resources, and `job_type`."""

    job_type: type[Job]
    #: Receives profiling ranges, as torch.cuda.nvtx.
    ranges: Any = None
    #: Entry points of JPEGs, for crops.
    index: JpegIndex | None = None

    def __init__(
        self, config: BatchConfig, recorder: Recorder, threads: int, *, thread_name: str = "cuaug-worker"
    ) -> None:
        self.config = config
        self.recorder = recorder
        self.workers = ThreadPool(threads, thread_name, config.cpus)
        self.batch_numbers = itertools.count()
        self.messages = MessageLog()
        if config.index_bytes != 0:
            source = config.reader.source
            self.index = JpegIndex(config.index_bytes, len(source), partial(open_index_file, source))

    def with_config(self, config: BatchConfig) -> Pipeline:
        """A pipeline with other settings that shares the threads, the decoders and their memory."""
        pipeline = copy.copy(self)
        pipeline.config, pipeline.messages = config, MessageLog()
        return pipeline

    def start(self, epoch: Epoch, rank_slice: RankSlice) -> Job:
        return self.job_type(self, epoch, rank_slice).start()

    @property
    def known_files(self) -> JpegIndex | None:
        """The index of JPEGs that are read only once their batch is planned; None: all files are read before."""
        return None

    @property
    def pools(self) -> list[ThreadPool]:
        return [self.workers]

    def end_iteration(self) -> None:
        """Frees the memory that is kept for the next batch of an iteration; logs faults of the JPEG index."""
        if self.index is not None:
            self.index.report()

    def close(self) -> None:
        for pool in self.pools:
            pool.close()
        self.end_iteration()
        self.index = None  # a thread that still uses the index keeps it alive
        library.cuaug_free_kept_chunks()
        release_freed_memory()
