"""One batch on its way, up to its plan: what both devices share.

`Job` reads its samples on the worker threads. When the last is in, it plans the batch, over the samples that can be
decoded, and goes on to `_run`, which each device defines and which ends with `ran`. Places of damaged samples that are
to be filled are filled by another job, for other samples, whose images are put among this one's.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from cuaug.batch import Batch
from cuaug.errors import DecodeError, LoaderError, without_frames
from cuaug.pipeline.config import SAMPLES_PER_TASK, samples_per_read
from cuaug.pipeline.images import Images
from cuaug.pipeline.planning import Planned, UnfitSamplesError, plan_samples
from cuaug.pipeline.reader import Item
from cuaug.pipeline.samples import Samples
from cuaug.pipeline.settings import BatchConfig
from cuaug.pipeline.thread_pool import LOOK_SECONDS, ThreadPool
from cuaug.profiling.recorder import Recorder
from cuaug.sampling import Epoch, RankSlice
from cuaug.transforms.execute import typed_stage

__all__ = ["Job"]

# What takes less is not worth the question whether to go on.
_QUICK_NANOSECONDS = 100_000
# So many others in a row are tried in place of a damaged sample; if half of them are damaged, one in 10**30 runs fails.
_MOST_STAND_INS = 100


class Job:
    """The batch of some samples of one epoch: `start` it, `wait` for it, `take` it.

    Attributes:
        number: tells the batches of a pipeline apart; what fills places of another has that one's.
        errors: position in the batch -> what is wrong with that sample, until `failures` tells.
    """

    def __init__(self, pipeline: Any, epoch: Epoch, share: RankSlice, *, fills: Job | None = None) -> None:
        self.pipeline = pipeline
        self.settings: BatchConfig = pipeline.settings
        self.share = share
        self._samples = Samples(epoch, share, self.settings.transforms.partners if fills is None else 0)
        self.errors: dict[int, DecodeError] = {}
        self._fills = fills
        self._filled_by: Job | None = None
        self._attempt: int = 0 if fills is None else fills._attempt + 1
        self.number: int = next(pipeline.numbers) if fills is None else fills.number
        self._on_error = self.settings.on_error if fills is None else "replace"
        self._workers: ThreadPool = pipeline.workers
        self._recorder: Recorder = pipeline.recorder
        self._items: list[Item | None] = [None] * len(self.indices)
        self._partial: tuple[Images, NDArray[np.int64]] | None = None
        self._finished: Batch | None = None
        self._failure: BaseException | None = None
        self._cancelled = False
        # Gets something once it is finished. Unlike Event.wait, its `get` leaves no lock behind at a Ctrl-C.
        self._done: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._open_tasks = 0

    def start(self) -> Job:
        count = len(self.indices)
        self._each_part(count, self._read, self._plan_and_run, samples_per_read(count, self._workers.threads))
        return self

    def cancel(self) -> None:
        """Nobody will ask for the result: what has not begun need not."""
        self._cancelled = True
        if self.ready:
            self._forget()

    @property
    def ready(self) -> bool:
        """Whether `wait` would return at once."""
        return not self._done.empty()

    @property
    def given(self) -> str:
        """Where samples come from that need no decoding."""
        return "source" if self.settings.reader.decoded is None else "cache"

    @property
    def indices(self) -> NDArray[np.int64]:
        """(n,) the samples; their partners, if a function looks at such, come last."""
        return self._samples.indices

    @property
    def cancelled(self) -> bool:
        whole = self._fills
        return self._cancelled or self._workers.stopping or (whole is not None and whole.cancelled)

    def wait(self, timeout_seconds: float | None = None) -> None:
        """Waits until the batch is finished.

        Raises:
            LoaderError: the loader was closed, this process is a forked child, or a thread has been at the same sample,
                or at finishing the batch, for more than `timeout_seconds` of this wait.
        """
        self._workers.check()
        watches: list[Iterator[None]] = []
        while True:
            with contextlib.suppress(queue.Empty):
                return self._done.get(timeout=LOOK_SECONDS)
            self._workers.check()
            if timeout_seconds is not None and not watches:
                watches = [pool.watch(self.number, timeout_seconds, self._one_of) for pool in self.pipeline.pools]
            for watch in watches:
                next(watch)

    def check(self) -> None:
        """Raises what a stage raised that was not one sample's fault."""
        if self._failure is not None:
            try:
                raise self._failure
            finally:
                self._forget()

    def failures(self) -> list[DecodeError]:
        """What was wrong with samples of this batch, in order, and those tried in their places; the job forgets it."""
        errors = [self.errors[k] for k in sorted(self.errors)]
        if self._filled_by is not None and self._on_error != "skip":  # else those only showed a shape
            errors += self._filled_by.failures()
        self.errors = {}
        return errors

    def _forget(self) -> None:
        """Lets go of errors: by the frames of their tracebacks they hold this job, and it the threads, in a cycle."""
        self._failure, self.errors, self._filled_by = None, {}, None

    @property
    def yields(self) -> int:
        """How many samples the batch has."""
        assert self._finished is not None
        return len(self._finished.valid)

    def take(self) -> Batch:
        """The batch, once `wait` has returned and if nothing is wrong that must be raised; the job forgets it."""
        assert self._finished is not None
        batch, self._finished = self._finished, None
        return batch

    # --- stages, on worker threads ----------------------------------------------------------------------------------

    def _each_part(
        self, count: int, work: Callable[[range], None], then: Callable[[], None], size: int = SAMPLES_PER_TASK
    ) -> None:
        """Runs work(positions) for 0 ... count - 1 in parts of `size`, in parallel, and `then()` after the last."""
        parts = [range(i, min(i + size, count)) for i in range(0, count, size)]
        self._open_tasks = len(parts)

        def run(part: range) -> None:
            try:
                if not self.cancelled and self._failure is None:
                    work(part)
            except BaseException as error:
                self._failure = error
            with self._lock:
                self._open_tasks -= 1
                last = self._open_tasks == 0
            if last:
                self.finishing(self._workers)
                self._go_on(then)

        for part in parts:
            # Batches that were begun earlier go first: what is read for later ones must not keep them waiting.
            self._workers.submit(partial(run, part), self.number)

    def finishing(self, workers: ThreadPool) -> None:
        """Notes that the calling thread, one of `workers`, is at the whole batch; its first sample stands for it."""
        workers.doing(self._recorder.at(batch=self.number, sample=int(self.indices[0])))

    def _go_on(self, then: Callable[[], None]) -> None:
        if self._failure is None and not self.cancelled:
            try:
                then()
                return
            except BaseException as error:
                self._failure = error
        self._end()

    def _end(self) -> None:
        """Nothing more will happen here."""
        cancelled = self.cancelled
        self._items = []  # the encoded bytes
        whole, self._fills = self._fills, None  # which refers to this: what it holds must not wait for the collector
        if whole is not None and (cancelled or self._failure is not None):  # nothing else will end it
            whole._failure = self._failure
            whole._end()
            self._forget()
        if not cancelled:
            self._done.put(None)
        if cancelled or self._cancelled:  # not where it was closed just now: a consumer may be about to ask
            self._forget()

    def _read(self, part: range) -> None:
        """Bytes, labels and headers of some samples."""
        reader, labels = self.settings.reader, self._samples.labels
        with self._recorder.at(batch=self.number) as clock:
            self._workers.doing(clock)
            indices, fetched = self.indices[part.start : part.stop].tolist(), []
            for k, index in zip(part, indices, strict=True):
                if clock.at("read", index) > _QUICK_NANOSECONDS and self.cancelled:
                    return
                data = None
                try:
                    data, labels[k] = reader.fetch(index)
                except DecodeError as error:
                    self.fail(k, error)
                fetched.append(data)
            errors = reader.read_files(indices, fetched, clock, lambda: self.cancelled)
            if self.cancelled:
                return
            clock.at("parse")
            own = labels[part.start : part.stop]
            self._items[part.start : part.stop] = reader.parse(indices, fetched, own, clock, errors)
            for i in list(errors):
                self.fail(part[i], errors.pop(i))  # kept nowhere here: its traceback has this frame
            clock.count("begun", len(part))

    def fail(self, k: int, error: DecodeError) -> None:
        """Notes what is wrong with the sample at position k, and where it comes from."""
        index = int(self.indices[k])
        self.errors[k] = error.at(error.path or self.settings.reader.path(index), index)
        self.errors[k].__cause__ = error.__cause__
        if self._on_error != "raise":  # else frames, and through them this batch, would live as long as the error
            without_frames(error.__cause__)

    def warn(self, k: int, lines: Iterable[str]) -> None:
        """Logs what the image libraries printed about the sample at position k."""
        self.pipeline.messages.warn(self._name_at(k), lines)

    def _name(self, index: int) -> str:
        path = self.settings.reader.path(index)
        return f"sample {index}" if path is None else f"{path!r} (sample {index})"

    def _one_of(self, indices: Sequence[int]) -> str:
        names = ", ".join(map(self._name, indices)) or "samples"
        return f"one of {names}" if len(indices) > 1 else names

    def _name_at(self, k: int) -> str:
        return self._name(int(self.indices[k]))

    def _plan_and_run(self) -> None:
        self.settings.check()
        good = np.array([k for k, item in enumerate(self._items) if item is not None], dtype=np.int64)
        planned: Planned | None = None
        while planned is None and len(good):
            try:
                planned = self._plan(good)
            except UnfitSamplesError as error:
                if self._on_error == "raise":
                    raise
                for i, cause in error.causes.items():
                    self.fail(int(good[i]), DecodeError(str(cause)))
                good = np.delete(good, list(error.causes))
        if planned is None:
            self.ran(None, good)
            return
        items = [cast(Item, self._items[k]) for k in good.tolist()]
        if planned.targets:
            self._move_targets(good, planned, lambda: self._run(good, items, planned))
        else:
            self._run(good, items, planned)

    def _plan(self, good: NDArray[np.int64]) -> Planned:
        """The plan of the samples at positions `good`."""
        samples, settings = self._samples, self.settings
        places = good.tolist()
        with self._recorder.at("plan", self.number):
            planned = plan_samples(
                settings.transforms,
                [self._items[k] for k in places],
                [samples.labels[k] for k in places],
                samples.rng(good),
                settings.target_type if typed_stage(settings.transforms.stages) == 0 else None,
                settings.layout,
                lambda i: self._name_at(good[i]),
                stack=settings.stack,
                max_pixels=settings.max_pixels,
            )
            samples.drew(planned.trace, good)
        return planned

    def _move_targets(self, good: NDArray[np.int64], planned: Planned, then: Callable[[], None]) -> None:
        """Has the plan move what is in the labels of the samples at positions `good`; goes on with `then()`."""
        cache = self.settings.reader.decoded
        if cache is not None and cache.short_side is not None:
            raise LoaderError(
                f"a decoded cache with short_side={cache.short_side} scales pictures down, and not their boxes, masks "
                "and keypoints: use one without short_side"
            )
        moved = planned.targets.mover(planned.tables)

        def move(part: range) -> None:
            with self._recorder.at(batch=self.number) as clock:
                self._workers.doing(clock)
                for i in part:
                    if self.cancelled:
                        return
                    k = int(good[i])
                    clock.at("targets", int(self.indices[k]))
                    try:
                        self._samples.labels[k] = moved(i)
                    except MemoryError as error:
                        self.fail(k, DecodeError(f"its targets find no room in memory: {error}"))

        self._each_part(len(good), move, then)

    def _run(self, good: NDArray[np.int64], items: list[Item], planned: Planned) -> None:
        """Decodes and augments the samples at positions `good`; ends with `ran`, on whatever thread."""
        raise NotImplementedError

    # --- for the devices --------------------------------------------------------------------------------------------

    def ran(self, images: Images | None, good: NDArray[np.int64]) -> None:
        """`images` hold what became of the samples at positions `good`, some of which may have failed meanwhile.

        That completes the batch, or else places that are left are filled first.
        """
        everyone = np.arange(len(self.indices))  # the positions that the batch is to have
        if self.errors and self._on_error == "raise":
            self._end()
            return
        if images is not None and self.errors:
            decoded = np.flatnonzero([int(k) not in self.errors for k in good])
            images, good = images.some(decoded), good[decoded]
        if self.errors and self._on_error == "skip" and len(good):
            everyone = good
        if images is not None and len(good) == len(everyone):
            self._complete(images, everyone if self.share.kept else everyone[:0])
        else:
            self._partial = None if images is None or not len(good) else (images, good)
            self._fill(np.setdiff1d(everyone, good) if self._on_error == "replace" else everyone[:1])

    def _queued(self) -> None:
        """Called when all that makes the images is done, or queued on the current stream."""

    # --- filling the places of damaged samples ------------------------------------------------------------------------

    def _fill(self, positions: NDArray[np.int64]) -> None:
        """Starts a job for other samples, which ends with `_filled`.

        Where every sample is damaged and all are to be skipped, one other sample tells the shape of the empty batch.
        """
        if self._attempt == _MOST_STAND_INS:
            replaces = self.settings.on_error == "replace"
            wanted = "to replace a damaged one" if replaces else "to show the shape of an empty batch"
            raise LoaderError(
                f"{_MOST_STAND_INS} samples in a row that were {wanted} are damaged themselves; the last: "
                f"{self.failures()[-1]}"
            )
        others = self._samples.epoch.replacements(self._samples.positions[positions], self._attempt)
        share = RankSlice(others, np.zeros(len(others), dtype=bool), len(others), self.share.end)
        self._filled_by = type(self)(self.pipeline, self._samples.epoch, share, fills=self)
        self._places = positions
        self._filled_by.start()

    def _filled(self, images: Images) -> None:
        """`images` are what the other job made for the places; called on its thread."""
        other, places = self._filled_by, self._places
        assert other is not None
        self._samples.put(places, other._samples)
        if self._partial is not None:
            made, good = self._partial
            images = made.joined(good, images, places, self.settings.layout, self._name_at)
            self._partial = None
        everyone = np.arange(len(self.indices))
        self._complete(images, everyone if self.share.kept and self._on_error == "replace" else everyone[:0])

    def _complete(self, images: Images, positions: NDArray[np.int64]) -> None:
        """`images` are those of `positions`; or `positions` is empty, and they only have the right shape."""
        if self._fills is not None:
            self._fills._filled(images)
            self._fills = None  # it has ended, or goes on by itself
            self._end()
            return
        with self._recorder.at("finish", self.number):
            self._finished = self._samples.batch(images, positions, self.settings)
            self._queued()
        self._end()
