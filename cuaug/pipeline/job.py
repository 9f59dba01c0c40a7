"""One batch on its way through the pipeline: its states, and its damaged samples.

    state       method             next state
    submitted   start              naming if the source names files or there is an encoded cache, else making
    naming      _read              reading: files, and headers of JPEGs, without Python; making if there are no files
    reading     _finish_reads      making
    making      _make_items        planning, once tasks have read and parsed the samples that need Python
    planning    _plan              running; also `_move_targets`, if the labels hold targets
    running     _run, finish_run   finished, or filling if replacements are needed; each device has its `_run`
    filling     _finish_filling    finished, once a child job has made the replacements' images
    any state   _end               finished, failed (an exception) or cancelled (`cancel`, or a closed loader)

The work of a state consists of tasks or native work. The thread that finishes it starts the next state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from cuaug.batch import Batch
from cuaug.errors import DecodeError, SourceError, TransformError, without_frames
from cuaug.pipeline.config import BatchConfig, samples_per_read
from cuaug.pipeline.native_work import FileReads, Times
from cuaug.pipeline.planning import PictureExecutor, Planned, UnfitSamplesError, plan_samples
from cuaug.pipeline.reader import UNREAD, Item
from cuaug.pipeline.samples import Images, Samples, values_at
from cuaug.pipeline.task_steps import TaskSteps
from cuaug.pipeline.thread_pool import ThreadPool
from cuaug.sampling import Epoch, RankSlice
from cuaug.targets import TargetNameError
from cuaug.targets.collate import check_label, collate
from cuaug.targets.label_files import put_pictures
from cuaug.transforms.execute import typed_segment

__all__ = ["Job"]

# A stage that takes less time does not check for cancellation.
_QUICK_NANOSECONDS = 100_000
# Replacements tried in a row for a damaged sample; if half of them are damaged, one run in 10**30 fails.
_MAX_REPLACEMENTS = 100


class Job(TaskSteps):
    """The batch of a rank slice: `start` it, `wait` for it, `take` it.

    Attributes:
        decodes_on_workers: whether worker threads decode the images.
        number: the batch's number in the pipeline; a child job has its parent's.
        errors: position in the batch -> error of that sample, until `failures` returns them.
    """

    decodes_on_workers = False

    def __init__(self, pipeline: Any, epoch: Epoch, rank_slice: RankSlice, *, parent: Job | None = None) -> None:
        super().__init__(pipeline, next(pipeline.batch_numbers) if parent is None else parent.number)
        self.config: BatchConfig = pipeline.config
        self.rank_slice = rank_slice
        self._samples = Samples(epoch, rank_slice, self.config.transforms.partners if parent is None else 0)
        self.errors: dict[int, DecodeError] = {}
        self._parent = parent
        self._child: Job | None = None
        self._attempt: int = 0 if parent is None else parent._attempt + 1
        self._on_error = self.config.on_error if parent is None else "replace"
        self._data: list[Any] = [UNREAD] * len(self.indices)  # None once a sample has failed
        self._items: list[Item | None] = [None] * len(self.indices)
        self._partial: tuple[Images, NDArray[np.int64]] | None = None
        self._batch: Batch | None = None
        if parent is not None:
            self.dropped = parent.dropped

    def start(self) -> Job:
        if self.config.reader.reads_natively or self.config.reader.looks_up:
            self.prepares = self.decodes_on_workers  # quick work: a slow source's would delay the first batch
            self.submit_step(self._read)
        else:
            self._make_items([None] * len(self._data))
        return self

    def cancel(self) -> None:
        """Drops the batch; tasks that have not begun do not run."""
        self.dropped[0] = 1
        if self.ready:
            self._forget_errors()

    @property
    def indices(self) -> NDArray[np.int64]:
        """(n,) indices of the samples; partners for batch transforms come last."""
        return self._samples.indices

    def check(self) -> None:
        """Raises the exception of a failed job; errors of single samples are in `failures`."""
        if self._failure is not None:
            try:
                raise self._failure
            finally:
                self._forget_errors()

    def failures(self) -> list[DecodeError]:
        """Returns the errors of damaged samples and damaged replacements, and forgets them."""
        errors = [self.errors[k] for k in sorted(self.errors)]
        if self._child is not None and self._on_error != "skip":  # else the child only gave the shape
            errors += self._child.failures()
        self.errors = {}
        return errors

    @property
    def sample_count(self) -> int:
        """Number of samples in the finished batch."""
        assert self._batch is not None
        return len(self._batch.valid)

    def take(self) -> Batch:
        """Returns the finished batch, and forgets it; call `wait` and `check` first."""
        assert self._batch is not None
        batch, self._batch = self._batch, None
        return batch

    def track_batch(self, pool: ThreadPool) -> None:
        """Marks the calling thread as busy with the whole batch; errors name the batch's first sample."""
        pool.track(self._recorder.at(batch=self.number, sample=int(self.indices[0])))

    def _end(self) -> None:
        """Ends the job: finished, failed or cancelled."""
        cancelled = self.cancelled
        self._data = self._items = []  # releases the encoded images
        parent, self._parent = self._parent, None  # breaks the cycle: the garbage collector would free it too late
        if parent is not None and (cancelled or self._failure is not None):
            parent._failure = self._failure
            parent._end()
            self._forget_errors()
        if not cancelled:
            self._done.put(None)
        if cancelled or self.dropped[0]:  # but not if the loader is closed meanwhile: a consumer may still ask
            self._forget_errors()

    def _forget_errors(self) -> None:
        """Drops errors: their tracebacks' frames hold this job and its threads in a cycle."""
        self._failure, self.errors, self._child = None, {}, None

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

    def _name(self, index: int | None) -> str:
        if index is None:
            return "samples"
        path = self.config.reader.path(index)
        return f"sample {index}" if path is None else f"{path!r} (sample {index})"

    def name_at(self, k: int) -> str:
        """The name of the sample at position k, for messages."""
        return self._name(int(self.indices[k]))

    # --- reading ----------------------------------------------------------------------------------------------------

    def _fetch(self, k: int, index: int) -> None:
        """Asks the source for a sample: its bytes, path or array, and its label."""
        try:
            data, label = self.config.reader.fetch(index)
            if self.config.collate is collate:  # the user's function may merge any labels
                check_label(label)
            self._data[k], self._samples.labels[k] = data, label
        except DecodeError as error:
            self._data[k] = None
            self.add_error(k, error)

    def _look_up(self) -> None:
        """Takes the samples that are in a cache, and the paths of files."""
        data, labels = self.config.reader.look_up(self.indices)
        if self.config.collate is collate:
            try:
                check_label(labels)
            except DecodeError:  # `_fetch` finds the label
                return
        self._data, self._samples.labels = data, labels

    def _read(self) -> None:
        """Reads files and the headers of JPEGs."""
        reader = self.config.reader
        with self._recorder.at("read", self.number) as clock:
            ranges = reader.file_ranges(self.indices)
            if ranges is None:
                self._look_up()
            if reader.reads_natively:
                clock.count("begun", len(self._data))
                for k in [k for k, value in enumerate(self._data) if value is UNREAD and ranges is None]:
                    self._fetch(k, int(self.indices[k]))
            else:
                clock.count("begun", sum(value is not UNREAD for value in self._data))
            times = Times(self.number, self.dropped, self.indices, ("read", "parse"))
            reads = reader.file_reads(self._data, ranges, times, self.pipeline.known_files)
        if reads is None:
            return self._make_items([None] * len(self._data))
        self.submit_step(partial(self._finish_reads, reads, times), reads.work)

    def _finish_reads(self, reads: FileReads, times: Times) -> None:
        with self._recorder.at("parse", self.number):
            times.record(self._recorder, self._workers.name)
            self._data, headers, labels = reads.finish()
            for k in labels:
                self._samples.labels[k] = labels[k]
            jpegs = self.config.reader.common_jpegs(self._data, headers)
        self._make_items(jpegs)

    def _make_items(self, jpegs: list[Item | None]) -> None:
        """Reads and parses the samples that need Python, in tasks, then plans; `jpegs` are the items that are ready."""
        reader, labels = self.config.reader, self._samples.labels
        self._items = reader.ready_items(self._data, labels, jpegs)
        rest = [k for k, item in enumerate(self._items) if item is None and self._data[k] is not None]
        if not rest:
            self._plan()
            return
        self.prepares = self.prepares and not any(self._data[k] is UNREAD for k in rest)

        def make(rows: range) -> None:
            positions = rest[rows.start : rows.stop]
            with self._recorder.at(batch=self.number) as clock:
                self._workers.track(clock)
                unread = [k for k in positions if self._data[k] is UNREAD]
                for k in unread:
                    index = int(self.indices[k])
                    if clock.at("read", index) > _QUICK_NANOSECONDS and self.cancelled:
                        return
                    self._fetch(k, index)
                clock.at("parse")
                clock.count("begun", 0 if reader.reads_natively else len(unread))
                items, errors = reader.make_items(
                    self.indices[positions].tolist(),
                    [self._data[k] for k in positions],
                    [labels[k] for k in positions],
                    [jpegs[k] for k in positions],
                    clock,
                    self._samples.draw_clips(positions, reader.clip_sampler),
                )
            for k, item in zip(positions, items, strict=True):
                self._items[k] = item
            if reader.clip_sampler is not None:
                self._samples.set_clips(positions, items)
            for i in list(errors):
                self.add_error(positions[i], errors.pop(i))  # no variable keeps it: its traceback has this frame
            if reader.labels.may_read([labels[k] for k in positions]):
                self._read_labels(positions)

        self._submit_tasks(len(rest), make, self._plan, samples_per_read(len(rest), self._workers.threads))

    def _read_labels(self, positions: Sequence[int]) -> None:
        """Reads the masks and further pictures that labels name."""
        config, samples = self.config, self._samples
        for k in positions:
            try:
                if (item := self._items[k]) is not None:
                    label = samples.labels[k]
                    samples.labels[k], pictures = config.reader.read_label(
                        label, item, config.transforms, config.decode.fancy_upsampling
                    )
                    samples.pictures |= {k: pictures} if pictures else {}
            except DecodeError as error:
                self._items[k] = None
                self.add_error(k, error.with_traceback(None))
            except TransformError as error:
                raise TransformError(f"{self.name_at(k)}: {error}") from None

    # --- planning ---------------------------------------------------------------------------------------------------

    def _plan(self) -> None:
        """Plans all samples that were read, and runs the plan."""
        self.config.check()
        self.prepares = False
        self._data = []  # the items hold what they need of it
        positions = np.arange(len(self._items))
        if None in self._items:
            positions = np.array([k for k, item in enumerate(self._items) if item is not None], dtype=np.int64)
        planned: Planned | None = None
        while planned is None and len(positions):
            try:
                planned = self._plan_samples(positions)
            except UnfitSamplesError as error:
                # `on_error` is for damaged samples: a name that nothing explains would drop sample after sample.
                if self._on_error == "raise" or error.applies_to_all:
                    raise
                for i, cause in error.causes.items():
                    self.add_error(int(positions[i]), DecodeError(str(cause)))
                positions = np.delete(positions, list(error.causes))
        if planned is None:
            self.finish_run(None, positions)
            return
        items = cast(list[Item], values_at(self._items, positions))
        if planned.mover is not None or self._samples.pictures:
            self._move_targets(positions, planned, lambda: self._run(positions, items, planned))
        else:
            self._run(positions, items, planned)

    def _plan_samples(self, positions: NDArray[np.int64]) -> Planned:
        samples, config = self._samples, self.config
        with self._recorder.at("plan", self.number):
            planned = plan_samples(
                config.transforms,
                values_at(self._items, positions),
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

    def _move_targets(self, positions: NDArray[np.int64], planned: Planned, then: Callable[[], None]) -> None:
        """Moves boxes, masks and keypoints of the samples' labels, and their further pictures, with their images."""
        self.config.reader.refuse_shrunken_targets()
        samples = self._samples
        moved = None if planned.mover is None else planned.mover(planned.tables)
        run_picture = PictureExecutor(planned, self.config.layout).run if samples.pictures else None

        def move(rows: range) -> None:
            with self._recorder.at(batch=self.number) as clock:
                self._workers.track(clock)
                for i in rows:
                    if self.cancelled:
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

        self._submit_tasks(len(positions), move, then)

    # --- running, filling, finishing --------------------------------------------------------------------------------

    def _run(self, positions: NDArray[np.int64], items: list[Item], planned: Planned) -> None:
        """Decodes and augments the samples at `positions`; ends with `finish_run`, on any thread."""
        raise NotImplementedError

    def finish_run(self, images: Images | None, positions: NDArray[np.int64]) -> None:
        """Finishes the batch, or starts filling damaged samples' positions.

        Args:
            images: of the samples at `positions`, some of which may have failed since planning.
        """
        required = np.arange(len(self.indices))  # the positions of the finished batch
        if self.errors and self._on_error == "raise":
            self._end()
            return
        if images is not None and self.errors:
            decoded = np.flatnonzero([int(k) not in self.errors for k in positions])
            images, positions = images.select(decoded), positions[decoded]
        if self.errors and self._on_error == "skip" and len(positions):
            required = positions
        if images is not None and len(positions) == len(required):
            self._finish(images, required)
        else:
            self._partial = None if images is None or not len(positions) else (images, positions)
            self._fill(np.setdiff1d(required, positions) if self._on_error == "replace" else required[:1])

    def _fill(self, positions: NDArray[np.int64]) -> None:
        """Starts a child job for replacements, which calls `_finish_filling`.

        With on_error="skip", and if all samples are damaged, one replacement gives the shape of the empty batch.
        """
        if self._attempt == _MAX_REPLACEMENTS:
            purpose = "" if self.config.on_error == "replace" else " for the shape of an empty batch"
            raise SourceError(
                f"{_MAX_REPLACEMENTS} replacements in a row{purpose} are damaged, too; "
                f"check the source with `cuaug check`; the last: {self.failures()[-1]}"
            )
        others = self._samples.epoch.replacements(self._samples.order_positions[positions], self._attempt)
        rank_slice = RankSlice(others, np.zeros(len(others), dtype=bool), len(others), self.rank_slice.end)
        self._child = type(self)(self.pipeline, self._samples.epoch, rank_slice, parent=self)
        self._fill_positions = positions
        self._child.start()

    def _finish_filling(self, images: Images) -> None:
        """Puts the child's images at the positions of damaged samples; runs on the child's thread."""
        child, positions = self._child, self._fill_positions
        assert child is not None
        self._samples.replace(positions, child._samples)
        if self._partial is not None:
            own_images, own_positions = self._partial
            images = own_images.merge(own_positions, images, positions, self.config.layout, self.name_at)
            self._partial = None
        self._finish(images, np.arange(len(self.indices) if self._on_error == "replace" else 0))

    def _finish(self, images: Images, positions: NDArray[np.int64]) -> None:
        """Finishes the batch of `images` at `positions`; if empty, `images` only give the shape."""
        if self._parent is not None:
            self._parent._finish_filling(images)
            self._parent = None  # the parent has ended, or continues alone
            self._end()
            return
        if not self.rank_slice.kept:
            positions = positions[:0]
        with self._recorder.at("finish", self.number):
            self._batch = self._samples.make_batch(images, positions, self.config)
            self._record_ready()
        self._end()

    def _record_ready(self) -> None:
        """Called once all work on the images is done, or queued on the current stream."""
