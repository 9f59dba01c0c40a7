"""Batches on the CPU: worker threads decode samples and run their plans, straight into the batch's memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.native import address
from cuaug.codec import (
    DecodedImage,
    DecodeResult,
    EncodedImage,
    EncodedJpeg,
    Region,
    load_codec,
    thread_decoder,
)
from cuaug.devices import CpuExecutor, PackedOutput
from cuaug.errors import DecodeError, DeviceError
from cuaug.images.interop import dtype_of
from cuaug.pipeline.clip_reader import EncodedClip, decode_clip
from cuaug.pipeline.config import SAMPLES_PER_TASK, BatchConfig
from cuaug.pipeline.image_table import ImageTable, Item
from cuaug.pipeline.job import Job
from cuaug.pipeline.native_work import SampleRuns
from cuaug.pipeline.part import BatchPart
from cuaug.pipeline.pending import PendingCacheEntry
from cuaug.pipeline.pipeline import BufferPool, Pipeline
from cuaug.pipeline.planning import Planned
from cuaug.pipeline.samples import Images
from cuaug.pipeline.thread_pool import Tasks, Turn, Work
from cuaug.profiling.recorder import Clock, Recorder
from cuaug.sampling import Epoch, RankSlice

__all__ = ["CpuPipeline"]

# Buffers besides the prefetched batches': the consumer's batch, the one that it released last, and a spare.
_EXTRA_BUFFERS = 3
_TOO_MUCH_MEMORY = "the transforms need more memory for it than is available, or than images of max_pixels take"
_PIXELS_PER_TASK = 1 << 21  # one image of 1920 x 1080, or eight of 500 x 375: 13 ms of decoding


def _samples_per_task(items: Sequence[Item]) -> int:
    """Fewer samples if images are large: at an epoch's end a thread waits for the last task of another."""
    pixels = sum(item.height * item.width * getattr(item, "frames", 1) for item in items)
    return max(1, min(SAMPLES_PER_TASK, _PIXELS_PER_TASK * len(items) // pixels))


class CpuPipeline(Pipeline):
    """Its worker threads read, plan, decode and augment."""

    decodes_on_workers = True

    def __init__(self, config: BatchConfig, recorder: Recorder, threads: int, **options: Any) -> None:
        super().__init__(config, recorder, threads, **options)
        self.buffer_pool = BufferPool(keep=config.prefetch + _EXTRA_BUFFERS)

    def start(self, epoch: Epoch, rank_slice: RankSlice, not_before: int = 0) -> Job:
        load_codec()  # here, or else all workers would wait for it
        return super().start(epoch, rank_slice, not_before)

    def end_iteration(self) -> None:
        super().end_iteration()
        self.buffer_pool.clear()

    def run(self, part: BatchPart, positions: NDArray[np.int64], images: ImageTable, planned: Planned) -> Work[Images]:
        with self.recorder.at("plan", part.number):
            tables, views = planned.tables, planned.stacks.count
            outputs = self.buffer_pool.empty(planned.stacks.shapes, dtype_of(tables.target_type))
            if isinstance(planned.stacks, PackedOutput):
                planned.stacks.clear_padding(outputs[0])
            regions, targets, executor = planned.regions(), planned.stacks.addresses(outputs), CpuExecutor(tables)
            run = _Run(part, positions, images, cast(list[Region], regions.tolist()), planned, executor, targets)
            rest = list(range(len(images)))
            odd = {i for i, item in images.objects.items() if not _is_native(item)}
            own = [] if tables.others else [i for i in rest if i not in odd] if odd else rest
        failed = dict[int, list[str]]()
        if own:
            times = part.times(positions[own], ("decode", "augment"))
            runs = SampleRuns(
                images,
                own,
                regions,
                executor.compiled,
                targets,
                times,
                views=views,
                index=self.index,
                fancy_upsampling=self.config.decode.fancy_upsampling,
                max_pixels=self.config.decode.max_pixels,
            )
            yield Turn(self.workers, runs.work)
            times.record(self.recorder, self.workers.name)
            rest, failed = run.finish_native(runs)
        if rest:
            size = _samples_per_task([images.item(i) for i in rest])
            yield Tasks(rest, lambda chosen, clock: run.run_in_python(chosen, failed, clock), size)
        return Images(outputs, planned.stacks.views)


class _Run(NamedTuple):
    """What the samples of a batch are decoded from, and augmented by.

    Attributes:
        positions: (n,) of the images in the part.
        targets: addresses of the finished images.
    """

    part: BatchPart
    positions: NDArray[np.int64]
    images: ImageTable
    regions: Sequence[Region]
    planned: Planned
    executor: CpuExecutor
    targets: NDArray[np.uint64]

    def finish_native(self, runs: SampleRuns) -> tuple[list[int], dict[int, list[str]]]:
        """Counts what native work has done.

        Returns:
            The items that are left to Python; and for each that nvImageCodec could not decode, what it printed.
        """
        part, positions = self.part, self.positions
        counts = np.bincount(runs.statuses, minlength=5).tolist()
        if counts[4]:
            raise DeviceError("nvImageCodec gives no decoder for the CPU: is there memory for it?")
        numbers = {"parts": counts[2], ("decoded_by", "cpu"): counts[1] + counts[2]}
        numbers["decoded_by", part.config.reader.origin_of_decoded] = counts[3]
        part.recorder.add({name: number for name, number in numbers.items() if number})
        for i in runs.lacking_memory:
            part.add_error(int(positions[i]), DecodeError(_TOO_MUCH_MEMORY))
        lines = runs.lines()
        failed = {runs.positions[i] for i in np.flatnonzero(runs.statuses == 0).tolist()}
        for i in lines.keys() - failed:
            part.warn(int(positions[i]), lines[i])
        done = set(runs.positions) - failed
        rest = [i for i in range(len(self.images)) if i not in done] if len(done) < len(self.images) else []
        return rest, {i: lines.get(i, []) for i in failed}

    def run_in_python(self, rest: Sequence[int], failed: dict[int, list[str]], clock: Clock) -> None:
        """Decodes and augments some items.

        Args:
            failed: items that nvImageCodec could not decode, and what it printed; Pillow tries them.
        """
        part = self.part
        for i in rest:
            if part.job.cancelled:
                return
            k = int(self.positions[i])
            clock.at("decode", int(part.indices[k]))
            try:
                if i in failed:
                    pixels, decoded_by = self._decode_with_pillow(i, failed[i])
                else:
                    pixels, decoded_by = self._decode(i)
            except DecodeError as error:
                part.add_error(k, error.with_traceback(None))
                continue
            clock.count(("decoded_by", decoded_by))
            clock.at("augment", int(part.indices[k]))
            if self._augment(i, pixels):
                part.add_error(k, DecodeError(_TOO_MUCH_MEMORY))

    def _decode_with_pillow(self, i: int, lines: list[str]) -> DecodeResult:
        outcome, more_lines = cast(EncodedImage, self.images.item(i)).decode_with_pillow(self.regions[i])
        if lines + more_lines:
            self.part.warn(int(self.positions[i]), lines + more_lines)
        if isinstance(outcome, DecodeError):
            raise outcome
        return DecodeResult(outcome, "pillow")

    def _decode(self, i: int) -> DecodeResult:
        """Decodes the region of an item that needs Python.

        Raises:
            DecodeError: it cannot be decoded.
        """
        item, region, reader = self.images.item(i), self.regions[i], self.part.config.reader
        if isinstance(item, EncodedClip):
            result = decode_clip(item, region)
            if isinstance(result, DecodeError):
                raise result
            return result
        if isinstance(item, EncodedImage):
            return self._decode_with_pillow(i, [])
        y0, x0, y1, x1 = region
        if isinstance(item, DecodedImage):
            return DecodeResult(item.array[y0:y1, x0:x1], reader.origin_of_decoded)
        assert isinstance(item, PendingCacheEntry) and reader.decoded is not None
        decoder = thread_decoder(self.part.config.decode.fancy_upsampling)
        try:
            pixels = item.decode(decoder, reader.decoded)
        finally:
            if decoder.lines:
                self.part.warn(int(self.positions[i]), decoder.lines)
        return DecodeResult(pixels[y0:y1, x0:x1], decoder.decoded_by)

    def _augment(self, i: int, pixels: NDArray[np.uint8]) -> bool:
        """Runs all rows of an item. Returns whether they need more memory than allowed, or than there is."""
        # The first row's address: `pixels` has gaps if the decoder decoded more than the region.
        sources = [address(frame[0]) for frame in (pixels if pixels.ndim == 4 else (pixels,))]
        pitch, (y, x, _, _), views = pixels.strides[-3], self.regions[i], self.planned.stacks.count
        runs = [
            (row, source, pitch, y, x, int(self.targets[row]))
            for image, source in enumerate(sources, i * len(sources))
            for row in range(image * views, (image + 1) * views)
        ]
        group_bytes = getattr(self.images.objects.get(i), "group_bytes", 0)
        return bool(
            self.executor.run_samples(runs, max_pixels=self.part.config.decode.max_pixels, group_bytes=group_bytes)
        )


def _is_native(item: Item) -> bool:
    """Whether native code decodes and augments it."""
    kind = type(item)
    return kind is EncodedJpeg or kind is DecodedImage or (isinstance(item, EncodedImage) and not item.for_pillow)
