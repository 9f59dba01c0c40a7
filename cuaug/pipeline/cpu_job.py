"""Batches on the CPU: worker threads decode samples and run their plans, straight into the batch's memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from cuaug.devices import CpuExecutor
from cuaug.errors import DecodeError, DeviceError
from cuaug.images.interop import dtype_of
from cuaug.pipeline.clip_reader import EncodedClip, decode_clip
from cuaug.pipeline.config import SAMPLES_PER_TASK, BatchConfig
from cuaug.pipeline.job import Job
from cuaug.pipeline.native_work import SampleRuns, Times
from cuaug.pipeline.pending import PendingCacheEntry
from cuaug.pipeline.pipeline import BufferPool, Pipeline
from cuaug.pipeline.planning import Planned
from cuaug.pipeline.reader import Item
from cuaug.pipeline.samples import Images
from cuaug.profiling.recorder import Recorder
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

    def __init__(self, config: BatchConfig, recorder: Recorder, threads: int, **options: Any) -> None:
        super().__init__(config, recorder, threads, **options)
        self.job_type = _CpuJob
        self.buffer_pool = BufferPool(keep=config.prefetch + _EXTRA_BUFFERS)

    def start(self, epoch: Epoch, rank_slice: RankSlice) -> Job:
        load_codec()  # here, or else all workers would wait for it
        return super().start(epoch, rank_slice)

    def end_iteration(self) -> None:
        super().end_iteration()
        self.buffer_pool.clear()


class _CpuJob(Job):
    """A batch in host memory."""

    decodes_on_workers = True
    pipeline: CpuPipeline

    def _run(self, positions: NDArray[np.int64], items: list[Item], planned: Planned) -> None:
        with self._recorder.at("plan", self.number):
            tables, views = planned.tables, planned.stacks.count
            outputs = self.pipeline.buffer_pool.empty(planned.stacks.shapes, dtype_of(tables.target_type))
            images = Images(outputs, planned.stacks.views)
            regions, targets, executor = planned.regions(), planned.stacks.addresses(outputs), CpuExecutor(tables)
            run = _Run(positions, items, cast(list[Region], regions.tolist()), planned, executor, targets)

        def finish() -> None:
            self.finish_run(images.of_loader(planned, self.config.layout), positions)

        native: list[Any] = [item if not tables.others and _is_native(item) else None for item in items]
        own = [i for i, item in enumerate(native) if item is not None]
        if not own:
            self._run_in_python(run, list(range(len(items))), {}, finish)
            return
        times = Times(self.number, self.dropped, self.indices[positions[own]], ("decode", "augment"))
        runs = SampleRuns(
            native,
            regions,
            executor.compiled,
            targets,
            times,
            views=views,
            index=self.pipeline.index,
            fancy_upsampling=self.config.decode.fancy_upsampling,
            max_pixels=self.config.decode.max_pixels,
        )
        self.submit_step(lambda: self._finish_native(run, runs, times, finish), runs.work)

    def _finish_native(self, run: _Run, runs: SampleRuns, times: Times, then: Callable[[], None]) -> None:
        """Counts what native work has done; Python does the rest."""
        times.record(self._recorder, self._workers.name)
        counts = np.bincount(runs.statuses, minlength=5).tolist()
        if counts[4]:
            raise DeviceError("nvImageCodec gives no decoder for the CPU: is there memory for it?")
        numbers = {"parts": counts[2], ("decoded_by", "cpu"): counts[1] + counts[2]}
        numbers["decoded_by", self.config.reader.origin_of_decoded] = counts[3]
        self._recorder.add({name: number for name, number in numbers.items() if number})
        for i in runs.lacking_memory:
            self.add_error(int(run.positions[i]), DecodeError(_TOO_MUCH_MEMORY))
        lines = runs.lines()
        failed = {runs.positions[i] for i in np.flatnonzero(runs.statuses == 0).tolist()}
        for i in lines.keys() - failed:
            self.warn(int(run.positions[i]), lines[i])
        done = set(runs.positions) - failed
        rest = [i for i in range(len(run.items)) if i not in done] if len(done) < len(run.items) else []
        self._run_in_python(run, rest, {i: lines.get(i, []) for i in failed}, then)

    def _run_in_python(
        self, run: _Run, rest: list[int], failed: dict[int, list[str]], then: Callable[[], None]
    ) -> None:
        """Decodes and augments some items by tasks, then calls `then()`.

        Args:
            failed: items that nvImageCodec could not decode, and what it printed; Pillow tries them.
        """

        def decode_and_augment(rows: range) -> None:
            with self._recorder.at(batch=self.number) as clock:
                self._workers.track(clock)
                for i in rest[rows.start : rows.stop]:
                    if self.cancelled:
                        return
                    k = int(run.positions[i])
                    clock.at("decode", int(self.indices[k]))
                    try:
                        if i in failed:
                            pixels, decoded_by = self._decode_with_pillow(run, i, failed[i])
                        else:
                            pixels, decoded_by = self._decode(run, i)
                    except DecodeError as error:
                        self.add_error(k, error.with_traceback(None))
                        continue
                    clock.count(("decoded_by", decoded_by))
                    clock.at("augment", int(self.indices[k]))
                    if run.augment(i, pixels, self.config.decode.max_pixels):
                        self.add_error(k, DecodeError(_TOO_MUCH_MEMORY))

        if rest:
            self._submit_tasks(len(rest), decode_and_augment, then, _samples_per_task([run.items[i] for i in rest]))
        else:
            then()

    def _decode_with_pillow(self, run: _Run, i: int, lines: list[str]) -> DecodeResult:
        outcome, more_lines = cast(EncodedImage, run.items[i]).decode_with_pillow(run.regions[i])
        if lines + more_lines:
            self.warn(int(run.positions[i]), lines + more_lines)
        if isinstance(outcome, DecodeError):
            raise outcome
        return DecodeResult(outcome, "pillow")

    def _decode(self, run: _Run, i: int) -> DecodeResult:
        """Decodes the region of an item that needs Python.

        Raises:
            DecodeError: it cannot be decoded.
        """
        item, region = run.items[i], run.regions[i]
        if isinstance(item, EncodedClip):
            result = decode_clip(item, region)
            if isinstance(result, DecodeError):
                raise result
            return result
        if isinstance(item, EncodedImage):
            return self._decode_with_pillow(run, i, [])
        y0, x0, y1, x1 = region
        if isinstance(item, DecodedImage):
            return DecodeResult(item.array[y0:y1, x0:x1], self.config.reader.origin_of_decoded)
        assert isinstance(item, PendingCacheEntry) and self.config.reader.decoded is not None
        decoder = thread_decoder(self.config.decode.fancy_upsampling)
        try:
            pixels = item.decode(decoder, self.config.reader.decoded)
        finally:
            if decoder.lines:
                self.warn(int(run.positions[i]), decoder.lines)
        return DecodeResult(pixels[y0:y1, x0:x1], decoder.decoded_by)


class _Run(NamedTuple):
    """What the samples of a batch are decoded from, and augmented by.

    Attributes:
        positions: (n,) in the batch.
        targets: addresses of the finished images.
    """

    positions: NDArray[np.int64]
    items: Sequence[Item]
    regions: Sequence[Region]
    planned: Planned
    executor: CpuExecutor
    targets: NDArray[np.uint64]

    def augment(self, i: int, pixels: NDArray[np.uint8], max_pixels: int) -> bool:
        """Runs all rows of an item. Returns whether they need more memory than allowed, or than there is."""
        # The first row's address: `pixels` has gaps if the decoder decoded more than the region.
        sources = [address(frame[0]) for frame in (pixels if pixels.ndim == 4 else (pixels,))]
        pitch, (y, x, _, _), views = pixels.strides[-3], self.regions[i], self.planned.stacks.count
        runs = [
            (row, source, pitch, y, x, int(self.targets[row]))
            for image, source in enumerate(sources, i * len(sources))
            for row in range(image * views, (image + 1) * views)
        ]
        group_bytes = getattr(self.items[i], "group_bytes", 0)
        return bool(self.executor.run_samples(runs, max_pixels=max_pixels, group_bytes=group_bytes))


def _is_native(item: Item) -> bool:
    """Whether native code decodes and augments it."""
    kind = type(item)
    return kind is EncodedJpeg or kind is DecodedImage or (isinstance(item, EncodedImage) and not item.for_pillow)
