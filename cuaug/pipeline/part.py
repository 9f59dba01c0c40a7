"""`BatchPart`: some samples of a batch, and the work that makes images of them.

`images` is all of it, from top to bottom: read, parse, plan, move targets, decode and run, replace damaged samples.
Devices differ in `Pipeline.run`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from cuaug.codec import EncodedJpeg, FileView, ResidentJpeg
from cuaug.errors import DecodeError, SourceError, TransformError, without_frames
from cuaug.pipeline.config import SAMPLES_PER_TASK, samples_per_read
from cuaug.pipeline.image_table import ImageTable
from cuaug.pipeline.native_work import FileReads, Times
from cuaug.pipeline.planning import PictureExecutor, Planned, UnfitSamplesError, plan_samples
from cuaug.pipeline.reader import UNREAD
from cuaug.pipeline.samples import Images, Samples, values_at
from cuaug.pipeline.thread_pool import Tasks, Turn, Work
from cuaug.profiling.recorder import Clock
from cuaug.sampling import RankSlice
from cuaug.sources.file_bytes import FileRanges
from cuaug.targets import TargetNameError
from cuaug.targets.collate import check_label, collate
from cuaug.targets.label_files import put_pictures
from cuaug.transforms.execute import typed_segment

if TYPE_CHECKING:
    from cuaug.pipeline.job import Job

__all__ = ["BatchPart"]

# A stage that takes less time does not check for cancellation.
_QUICK_NANOSECONDS = 100_000
# Replacements tried in a row for a damaged sample; if half of them are damaged, one run in 10**30 fails.
_MAX_REPLACEMENTS = 100


class BatchPart:
    """The samples of a batch, or replacements of damaged ones.

    Args:
        job: the batch.
        on_error: "raise", "skip" or "replace": what becomes of damaged samples.
        reported: a list that gets the errors of damaged samples, once they are all known.
        attempt: number of the replacement, from 1 on; 0 for the batch's own samples.

    Attributes:
        samples: their indices, labels and random numbers.
        errors: position in the part -> error of that sample, until they are reported.
    """

    def __init__(
        self, job: Job, rank_slice: RankSlice, on_error: str, reported: list[DecodeError], attempt: int = 0
    ) -> None:
        pipeline = job.pipeline
        self.job, self.pipeline, self.config = job, pipeline, pipeline.config
        self.recorder, self.workers, self.number = pipeline.recorder, pipeline.workers, job.number
        self.samples = Samples(job.epoch, rank_slice, 0 if attempt else self.config.transforms.partners)
        self.indices = self.samples.indices
        self.errors: dict[int, DecodeError] = {}
        self._rank_slice, self._on_error, self._reported, self._attempt = rank_slice, on_error, reported, attempt

    def images(self) -> Work[tuple[Images, NDArray[np.int64]] | None]:
        """The images of the part, and the positions in it that they have; None if its errors are to be raised.

        With on_error="skip" and no sound sample there are no positions; the images only give the shape.
        """
        self._data: list[Any] = [UNREAD] * len(self.indices)  # None once a sample has failed
        self._images = ImageTable(len(self.indices))
        self._is_begun = False  # whether all samples are counted
        try:
            yield from self._read()
            images, positions = yield from self._transform()
            if self.errors and self._on_error == "raise":
                return None
            return (yield from self._replace_damaged(images, positions))
        finally:
            self._report()

    def _report(self) -> None:
        self._reported += [self.errors[k] for k in sorted(self.errors)]
        self.errors = {}

    # --- messages -----------------------------------------------------------------------------------------------------

    def add_error(self, k: int, error: DecodeError) -> None:
        """Records the error of the sample at position k, with the sample's name."""
        index = int(self.indices[k])
        self.errors[k] = error.at(error.path or self.config.reader.path(index), index)
        self.errors[k].__cause__ = error.__cause__
        if self._on_error != "raise":  # or else frames would keep this batch alive as long as the error
            without_frames(error.__cause__)

    def warn(self, k: int, lines: Iterable[str]) -> None:
        """Logs the lines that image libraries printed for the sample at position k."""
        self.pipeline.messages.warn(self.name_at(k), lines)

    def name_at(self, k: int) -> str:
        """The name of the sample at position k, for messages."""
        return self.job.name(int(self.indices[k]))

    def times(self, positions: NDArray[np.int64], stages: tuple[str, str]) -> Times:
        """Where native work writes when each of the samples was at its two stages."""
        return Times(self.number, self.job.dropped, self.indices[positions], stages)

    # --- reading ------------------------------------------------------------------------------------------------------

    def _read(self) -> Work[None]:
        """Reads and parses the samples: native work for files, then tasks for those that need Python."""
        reader, workers = self.config.reader, self.pipeline.workers
        is_jpeg = np.zeros(len(self._data), dtype=np.bool_)
        if reader.locates:
            times = self.times(np.arange(len(self.indices)), ("read", "parse"))
            with self.recorder.at("read", self.number) as clock:
                ranges = self._locate()
                self._is_begun = ranges is not None
                clock.count("begun", len(self._data) - (0 if self._is_begun else self._data.count(UNREAD)))
                reads = reader.file_reads(self._data, ranges, times, self.pipeline.known_files)
            if reads is not None:
                yield Turn(workers, reads.work)
                with self.recorder.at("parse", self.number):
                    times.record(self.recorder, workers.name)
                    is_jpeg = self._parse(reads)
        rest = self._for_python(is_jpeg)
        if rest:
            self.job.prepares = self.job.prepares and not any(self._data[k] is UNREAD for k in rest)
            size = samples_per_read(len(rest), workers.threads)
            yield Tasks(rest, lambda chosen, clock: self._make_items(chosen, is_jpeg, clock), size)
        self.job.prepares = False
        self._data = []  # the images hold what they need of it

    def _parse(self, reads: FileReads) -> NDArray[np.bool_]:
        """Takes what native code has read. Returns which samples are JPEGs that need no more than their header."""
        is_read, labels = reads.finish()
        for k in labels:
            self.samples.labels[k] = labels[k]
        is_jpeg = self.config.reader.add_jpegs(self._images, reads, is_read)
        for k in (is_read & ~is_jpeg).nonzero()[0].tolist():
            self._data[k] = FileView(reads, k)
        return is_jpeg

    def _for_python(self, is_jpeg: NDArray[np.bool_]) -> list[int]:
        """The samples that `_make_items` has to read or parse: not these JPEGs, unless a cache or labels need more."""
        reader = self.config.reader
        reads_labels = reader.labels.may_read(self.samples.labels)
        if not reads_labels and not reader.takes_whole_files:
            return [k for k in (~is_jpeg).nonzero()[0].tolist() if self._data[k] is not None]
        for k, value in enumerate(self._data):
            if type(value) is ResidentJpeg and not reads_labels:
                self._images.add(k, value)
                self._data[k] = None
        return [k for k, value in enumerate(self._data) if value is not None]

    def _locate(self) -> FileRanges | None:
        """Takes the paths of files, and JPEGs in a cache, with their labels; returns the ranges of files."""
        data, labels, ranges = self.config.reader.locate(self.indices)
        if self.config.collate is collate:
            try:
                check_label(labels)
            except DecodeError:  # `_fetch` finds the label
                return ranges
        self._data, self.samples.labels = data, labels
        return ranges

    def _fetch(self, k: int, index: int) -> None:
        """Asks the source for a sample: its bytes, path or array, and its label."""
        try:
            data, label = self.config.reader.fetch(index)
            if self.config.collate is collate:  # the user's function may merge any labels
                check_label(label)
            self._data[k], self.samples.labels[k] = data, label
        except DecodeError as error:
            self._data[k] = None
            self.add_error(k, error)

    def _make_items(self, positions: Sequence[int], is_jpeg: NDArray[np.bool_], clock: Clock) -> None:
        """Reads and parses the samples at these positions; native code has parsed those of `is_jpeg`."""
        reader, labels, images = self.config.reader, self.samples.labels, self._images
        jpegs = [cast(EncodedJpeg, images.item(k)) if is_jpeg[k] else None for k in positions]
        unread = [k for k in positions if self._data[k] is UNREAD]
        for k in unread:
            index = int(self.indices[k])
            if clock.at("read", index) > _QUICK_NANOSECONDS and self.job.cancelled:
                return
            self._fetch(k, index)
        clock.at("parse")
        clock.count("begun", 0 if self._is_begun else len(unread))
        items, errors = reader.make_items(
            self.indices[positions].tolist(),
            [self._data[k] for k in positions],
            [labels[k] for k in positions],
            jpegs,
            clock,
            self.samples.draw_clips(positions, reader.clip_sampler),
        )
        clock.at(None)
        for k, item, jpeg in zip(positions, items, jpegs, strict=True):
            if item is None:
                images.remove(k)
            elif item is not jpeg:
                images.add(k, item)
        if reader.clip_sampler is not None:
            self.samples.set_clips(positions, items)
        for i in list(errors):
            self.add_error(positions[i], errors.pop(i))  # no variable keeps it: its traceback has this frame
        if reader.labels.may_read([labels[k] for k in positions]):
            self._read_labels(positions)

    def _read_labels(self, positions: Sequence[int]) -> None:
        """Reads the masks and further pictures that labels name."""
        config, samples = self.config, self.samples
        for k in positions:
            try:
                if size := self._images.size(k):
                    label = samples.labels[k]
                    samples.labels[k], pictures = config.reader.read_label(
                        label, size, config.transforms, config.decode.fancy_upsampling
                    )
                    samples.pictures |= {k: pictures} if pictures else {}
            except DecodeError as error:
                self._images.remove(k)
                self.add_error(k, error.with_traceback(None))
            except TransformError as error:
                raise TransformError(f"{self.name_at(k)}: {error}") from None

    # --- transforming -------------------------------------------------------------------------------------------------

    def _transform(self) -> Work[tuple[Images | None, NDArray[np.int64]]]:
        """Plans all samples that were read, moves their targets, decodes them and runs the plan.

        Returns:
            Their images and positions, without the samples that fail; None without any.
        """
        self.config.check()
        planned, positions = self._plan()
        images, self._images = self._images.select(positions), ImageTable(0)
        if planned is None:
            return None, positions
        if planned.mover is not None or self.samples.pictures:
            yield from self._move_targets(positions, planned)
        finished = yield from self.pipeline.run(self, positions, images, planned)
        with self.pipeline.on_stream():
            finished = finished.of_loader(planned, self.config.layout)
            if self.errors and self._on_error != "raise":
                decoded = np.flatnonzero([int(k) not in self.errors for k in positions])
                finished, positions = finished.select(decoded), positions[decoded]
        return (finished if len(positions) else None), positions

    def _plan(self) -> tuple[Planned | None, NDArray[np.int64]]:
        """The plan of the samples that were read, and their positions."""
        positions = self._images.positions
        while len(positions):
            try:
                return self._plan_samples(positions), positions
            except UnfitSamplesError as error:
                # `on_error` is for damaged samples: a name that nothing explains would drop sample after sample.
                if self._on_error == "raise" or error.applies_to_all:
                    raise
                for i, cause in error.causes.items():
                    self.add_error(int(positions[i]), DecodeError(str(cause)))
                positions = np.delete(positions, list(error.causes))
        return None, positions

    def _plan_samples(self, positions: NDArray[np.int64]) -> Planned:
        samples, config = self.samples, self.config
        with self.recorder.at("plan", self.number):
            planned = plan_samples(
                config.transforms.at_size(samples.size),
                self._images.select(positions),
                values_at(samples.labels, positions),
                samples.rng(positions),
                config.target_type if typed_segment(config.transforms.segments) == 0 else None,
                config.layout,
                lambda i: self.name_at(positions[i]),
                stack=config.stack,
                max_pixels=config.decode.max_pixels,
            )
            samples.set_trace(planned, positions)
        return planned

    def _move_targets(self, positions: NDArray[np.int64], planned: Planned) -> Work[None]:
        """Moves boxes, masks and keypoints of the samples' labels, and their further pictures, with their images."""
        self.config.reader.refuse_shrunken_targets()
        samples = self.samples
        moved = None if planned.mover is None else planned.mover(planned.tables)
        run_picture = PictureExecutor(planned, self.config.layout).run if samples.pictures else None

        def move(rows: Sequence[int], clock: Clock) -> None:
            for i in rows:
                if self.job.cancelled:
                    return
                k = int(positions[i])
                clock.at("targets", int(self.indices[k]))
                try:
                    label = samples.labels[k] if moved is None else moved(i)
                    if run_picture is not None:
                        pictures = samples.pictures.pop(k, {})
                        label = put_pictures(label, {path: run_picture(i, p) for path, p in pictures.items()})
                    samples.labels[k] = label
                except MemoryError as error:
                    self.add_error(k, DecodeError(f"not enough memory for its targets: {error}"))
                except TargetNameError as error:
                    raise TransformError(f"{self.name_at(k)}: {error}") from None
                except TransformError as error:
                    self.add_error(k, DecodeError(str(error)))

        yield Tasks(range(len(positions)), move, SAMPLES_PER_TASK)

    # --- replacing ----------------------------------------------------------------------------------------------------

    def _replace_damaged(
        self, images: Images | None, positions: NDArray[np.int64]
    ) -> Work[tuple[Images, NDArray[np.int64]]]:
        """Puts replacements at the positions of damaged samples, as `on_error` says.

        With on_error="skip", and if all samples are damaged, one replacement gives the shape of the empty batch.

        Args:
            images: of the samples at `positions`.
        """
        everything = np.arange(len(self.indices))
        if images is not None and (len(positions) == len(everything) or self._on_error == "skip"):
            return images, positions
        if self._attempt == _MAX_REPLACEMENTS:
            purpose = "" if self.config.on_error == "replace" else " for the shape of an empty batch"
            raise SourceError(
                f"{_MAX_REPLACEMENTS} replacements in a row{purpose} are damaged, too; "
                f"check the source with `cuaug check`; the last: {self.errors[max(self.errors)]}"
            )
        self._report()
        replaces = self._on_error == "replace"
        damaged = np.setdiff1d(everything, positions) if replaces else everything[:1]
        others = self.samples.epoch.replacements(self.samples.order_positions[damaged], self._attempt)
        valid, own = np.zeros(len(others), dtype=bool), self._rank_slice
        rank_slice = RankSlice(others, valid, len(others), own.end, own.size)
        reported = self._reported if replaces else []
        substitutes = BatchPart(self.job, rank_slice, "replace", reported, self._attempt + 1)
        yield Turn(self.pipeline.workers)  # a source may be slow: its reads would delay the producer thread
        made = yield from substitutes.images()
        assert made is not None
        self.samples.replace(damaged, substitutes.samples)
        with self.pipeline.on_stream():
            other_images, _ = made
            if images is not None:
                other_images = images.merge(positions, other_images, damaged, self.config.layout, self.name_at)
        return other_images, everything if replaces else everything[:0]
