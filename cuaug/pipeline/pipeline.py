"""What the batches of one device share: threads, counters, settings, and memory that is reused."""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug._runtime.huge_pages import empty, pages
from cuaug._runtime.native import library, release_freed_memory
from cuaug.batch import Batch
from cuaug.codec import JpegIndex, MessageLog
from cuaug.pipeline.config import BatchConfig
from cuaug.pipeline.job import Job
from cuaug.pipeline.thread_pool import ThreadPool, Work
from cuaug.profiling.recorder import Recorder
from cuaug.sampling import Epoch, RankSlice
from cuaug.sources.jpeg_index_file import open_index_file

if TYPE_CHECKING:
    from cuaug.pipeline.image_table import ImageTable
    from cuaug.pipeline.part import BatchPart
    from cuaug.pipeline.planning import Planned
    from cuaug.pipeline.samples import Images

__all__ = ["BufferPool", "FinishedBatch", "Pipeline", "SeparateBuffers"]

_ALIGN = 64  # bytes of a cache line


class BufferPool:
    """Allocates CPU tensors, in blocks whose earlier tensors no longer exist.

    The pool looks for a free block at the next allocation, without callbacks: a finalizer would run in the consumer's
    thread, where Python drops a Ctrl-C.

    Args:
        keep: number of blocks that may be reused: as many as are in use at once.
    """

    def __init__(self, keep: int) -> None:
        self._blocks: deque[tuple[list[weakref.ref[NDArray[np.uint8]]], NDArray[np.uint8]]] = deque(maxlen=keep)
        self._lock = threading.Lock()

    def empty(self, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype) -> list[torch.Tensor]:
        """Uninitialized contiguous tensors, in one block."""
        sizes = [math.prod(shape) * dtype.itemsize for shape in shapes]
        *starts, size = itertools.accumulate((-(-size // _ALIGN) * _ALIGN for size in sizes), initial=0)
        with self._lock:
            block = self._take_block(size)
            # New views at each use: torch keeps a view alive as long as any tensor or array shares its memory.
            # One view per tensor: saving a tensor then does not save the memory of the others.
            views = [block[start : start + size] for start, size in zip(starts, sizes, strict=True)]
            self._blocks.append(([weakref.ref(view) for view in views], block))
        return [torch.from_numpy(view).view(dtype).view(shape) for view, shape in zip(views, shapes, strict=True)]

    def clear(self) -> None:
        """Forgets all blocks; each lives as long as its tensors."""
        # Without the lock, which a fork may have copied locked; without the module's globals, which the interpreter
        # clears at exit before an iterator that another module holds.
        self._blocks = type(self._blocks)(maxlen=self._blocks.maxlen)

    def _take_block(self, size: int) -> NDArray[np.uint8]:
        for i, (views, block) in enumerate(self._blocks):
            if all(view() is None for view in views):
                del self._blocks[i]
                return block if size <= len(block) <= 4 * size else pages(size)
        return pages(size)


class SeparateBuffers(BufferPool):
    """Allocates each CPU tensor alone, and keeps nothing: for batches whose tensors live for different times."""

    def __init__(self) -> None:
        super().__init__(keep=0)

    def empty(self, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype) -> list[torch.Tensor]:
        return [empty(shape, dtype, torch.device("cpu")) for shape in shapes]


class FinishedBatch:
    """A batch that waits for the consumer."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch

    def take(self) -> Batch:
        """The batch, for work on the consumer's current stream."""
        return self.batch


class Pipeline:
    """Base of the pipelines; each device adds its resources, and `run`."""

    #: Whether worker threads decode the images.
    decodes_on_workers = False
    #: Receives profiling ranges, as torch.cuda.nvtx.
    ranges: Any = None
    #: Entry points of JPEGs, for crops.
    index: JpegIndex | None = None

    def __init__(
        self, config: BatchConfig, recorder: Recorder, threads: int, *, thread_name: str = "cuaug-worker"
    ) -> None:
        self.config = config
        self.recorder = recorder
        self.workers = ThreadPool(threads, thread_name)
        self.batch_numbers = itertools.count()
        self.messages = MessageLog()
        if config.decode.index_bytes != 0:
            source = config.reader.source
            self.index = JpegIndex(config.decode.index_bytes, len(source), partial(open_index_file, source))

    def with_config(self, config: BatchConfig) -> Pipeline:
        """A pipeline with other settings that shares the threads, the decoders and their memory."""
        pipeline = copy.copy(self)
        pipeline.config, pipeline.messages = config, MessageLog()
        return pipeline

    def start(self, epoch: Epoch, rank_slice: RankSlice, not_before: int = 0) -> Job:
        return Job(self, epoch, rank_slice).start(not_before)

    def run(self, part: BatchPart, positions: NDArray[np.int64], images: ImageTable, planned: Planned) -> Work[Images]:
        """Decodes and augments the samples at `positions`. Those that fail are in `part.errors`."""
        raise NotImplementedError

    def on_stream(self) -> AbstractContextManager[object]:
        """Where images are selected and merged: on the stream that makes them."""
        return contextlib.nullcontext()

    def finish(self, batch: Batch) -> FinishedBatch:
        """Called once all work on the images is done, or queued on the stream."""
        return FinishedBatch(batch)

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
