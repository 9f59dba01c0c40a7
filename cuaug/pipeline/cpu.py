"""Batches on the CPU: worker threads decode samples and run their plans, straight into the batch's memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.cpu_limits import own_memory
from cuaug._runtime.native import address
from cuaug.codec import (
    CpuDecoder,
    DecodedImage,
    DecodeResult,
    EncodedImage,
    JpegIndex,
    Region,
    load_codec,
    thread_decoder,
)
from cuaug.devices import CpuExecutor
from cuaug.errors import DecodeError
from cuaug.interop import dtype_of
from cuaug.pipeline.buffer_pool import BufferPool
from cuaug.pipeline.clips import EncodedClip, decode_clip
from cuaug.pipeline.config import SAMPLES_PER_TASK, BatchConfig
from cuaug.pipeline.job import Job
from cuaug.pipeline.pending import PendingCacheEntry
from cuaug.pipeline.pipeline import Pipeline
from cuaug.pipeline.planning import Planned
from cuaug.pipeline.reader import Item
from cuaug.pipeline.samples import Images
from cuaug.profiling.recorder import Recorder
from cuaug.sampling import Epoch, RankSlice

__all__ = ["CpuPipeline"]

# Buffers besides the prefetched batches': the consumer's batch, the one that it released last, and a spare.
_EXTRA_BUFFERS = 3
_INDEX_MEMORY_DIVISOR = 64  # the JPEG index may take 1/64 of the available memory
_TOO_MUCH_MEMORY = "the transforms need more memory for it than is available, or than images of max_pixels take"
_PIXELS_PER_TASK = 1 << 21  # one image of 1920 x 1080, or eight of 500 x 375: 13 ms of decoding


def _samples_per_task(items: Sequence[Item]) -> int:
    """Fewer samples if images are large: at an epoch's end a thread waits for the last task of another."""
    pixels = sum(item.height * item.width * getattr(item, "frames", 1) for item in items)
    return max(1, min(SAMPLES_PER_TASK, _PIXELS_PER_TASK * len(items) // pixels))


class CpuPipeline(Pipeline):
    """Its worker threads read, plan, decode and augment."""

    def __init__(self, config: BatchConfig, recorder: Recorder, threads: int, **options: Any) -> None:
        super().__init__(config, recorder, threads, **options)
        self.job_type = _CpuJob
        self.buffer_pool = BufferPool(keep=config.prefetch + _EXTRA_BUFFERS)
        limit = own_memory() // _INDEX_MEMORY_DIVISOR if config.index_bytes is None else config.index_bytes
        self.index: JpegIndex | None = JpegIndex(limit, len(config.reader.source)) if limit else None

    def start(self, epoch: Epoch, rank_slice: RankSlice) -> Job:
        load_codec()  # here, or else all workers would wait for it
        return super().start(epoch, rank_slice)

    def end_iteration(self) -> None:
        self.buffer_pool.clear()

    def close(self) -> None:
        super().close()
        self.index = None  # a thread that still uses the index keeps it alive


class _CpuJob(Job):
    """A batch in host memory."""

    pipeline: CpuPipeline

    def _run(self, positions: NDArray[np.int64], items: list[Item], planned: Planned) -> None:
        with self._recorder.at("plan", self.number):
            tables, views = planned.tables, planned.stacks.count
            outputs = self.pipeline.buffer_pool.empty(planned.stacks.shapes, dtype_of(tables.target_type))
            images = Images(outputs, planned.stacks.views)
            executors = [CpuExecutor(compiled) for compiled in (tables, *planned.others)]
            regions = cast(list[Region], planned.regions().tolist())
            addresses = [planned.stacks.addresses(outputs, 3 * group).tolist() for group in range(len(executors))]

        def decode_and_augment(task: range) -> None:
            decoder = thread_decoder(self.config.fancy_upsampling)
            with self._recorder.at(batch=self.number) as clock:
                self._workers.track(clock)
                for rows in self._decode_groups(task, items):
                    if self.cancelled:
                        return
                    group = positions[rows.start : rows.stop].tolist()
                    indices = self.indices[group].tolist()
                    clock.at_samples("decode", indices)
                    results = self._decode(decoder, [items[i] for i in rows], [regions[i] for i in rows])
                    for i, lines in decoder.messages.items():
                        self.warn(group[i], lines)
                    clock.at_samples("augment", indices)
                    runs: list[list[tuple[int, int, int, int, int, int]]] = [[] for _ in executors]
                    for i, k, result in zip(rows, group, results, strict=True):
                        if isinstance(result, DecodeError):
                            self.add_error(k, result)
                            continue
                        pixels, decoded_by, in_part = result
                        clock.count("parts", in_part)
                        if isinstance(items[i], DecodedImage):
                            decoded_by = self.config.reader.origin_of_decoded
                        clock.count(("decoded_by", decoded_by))
                        # The first row's address: `pixels` has gaps if the decoder decoded more than the region.
                        sources = [address(frame[0]) for frame in (pixels if pixels.ndim == 4 else (pixels,))]
                        pitch, (y, x, _, _), skipped = pixels.strides[-3], regions[i], 0
                        for own_runs, targets in zip(runs, addresses, strict=True):  # a group of channels each
                            for image, source in enumerate(sources, i * len(sources)):
                                own_runs += [
                                    (row, source + skipped, pitch, y, x, targets[row])
                                    for row in range(image * views, (image + 1) * views)
                                ]
                            skipped += getattr(items[i], "group_bytes", 0)
                    for executor, own_runs in zip(executors, runs, strict=True):
                        for row in executor.run_samples(own_runs, max_pixels=self.config.max_pixels):
                            k = int(positions[row // planned.rows_per_sample])
                            self.add_error(k, DecodeError(_TOO_MUCH_MEMORY))
                    results.clear()

        def finish() -> None:
            self.finish_run(images.of_loader(planned, self.config.layout), positions)

        self._submit_tasks(len(items), decode_and_augment, finish, _samples_per_task(items))

    def _decode_groups(self, task: range, items: Sequence[Item]) -> list[range]:
        """Splits a task into groups that are decoded in one call, and then augmented in one call.

        A thread waits for the GIL once per group, which takes long with many threads. With few threads, small groups
        are faster: the kernels find the pixels in the processor's cache.
        """
        size = min(len(task), self._workers.threads)
        if any(isinstance(items[i], PendingCacheEntry) for i in task):
            size = 1  # its pixels may be in the decoder's memory until the next call
        if isinstance(items[task.start], EncodedClip):
            size = 1
        return [task[begin : begin + size] for begin in range(0, len(task), size)]

    def _decode(
        self, decoder: CpuDecoder, items: Sequence[Item], regions: Sequence[Region]
    ) -> list[DecodeResult | DecodeError]:
        """Decodes the regions of a group; a PendingCacheEntry is a group of its own."""
        (first, *others) = items
        if isinstance(first, EncodedClip):
            return [decode_clip(first, regions[0])]
        if not isinstance(first, PendingCacheEntry):
            return decoder.decode_batch(
                cast(Sequence[EncodedImage | DecodedImage], items), regions, index=self.pipeline.index
            )
        assert self.config.reader.decoded is not None and not others
        y0, x0, y1, x1 = regions[0]
        try:
            pixels = first.decode(decoder, self.config.reader.decoded)
        except DecodeError as error:
            return [error]
        return [DecodeResult(pixels[y0:y1, x0:x1], decoder.decoded_by)]
