"""One batch on its way, up to its plan: what both devices share.

`Job` reads its samples' bytes and headers on the worker threads. When the last is in, it plans the batch, over the
samples that can be decoded, and goes on to `_run`, which each device defines.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug.codec import Header, read_header
from cuaug.errors import DecodeError, LoaderError, TransformError
from cuaug.pipeline.stats import Recorder
from cuaug.pipeline.workers import Workers
from cuaug.plan import Layout, Plan, Tables, Type
from cuaug.random import Draws
from cuaug.sources import Source
from cuaug.transforms import Compose

__all__ = ["Job", "Settings"]

# Samples that one task of a worker handles: enough to make the queue's cost vanish, few enough to share a batch evenly.
SAMPLES_PER_TASK = 8
# How often a waiting consumer looks whether somebody has closed the loader.
_LOOK_SECONDS = 0.25
_NOTHING = torch.empty(0), torch.empty(0)


@dataclass(frozen=True)
class Settings:
    """What a loader's jobs have in common."""

    source: Source
    transforms: Compose
    seed: int
    target_type: Type | None
    layout: Layout
    apply_exif: bool
    fancy_upsampling: bool
    max_pixels: int


def _sample(given: Any, index: int) -> tuple[Any, Any]:
    """(path or bytes, label) as a source gave them."""
    if isinstance(given, (tuple, list)) and len(given) == 2:
        if isinstance(given[0], (str, os.PathLike)):
            return given[0], given[1]
        with contextlib.suppress(TypeError):
            memoryview(given[0])  # bytes, or anything that lends them
            return given[0], given[1]
    raise LoaderError(f"a source's read(i) returns (path or encoded bytes, label); read({index}) gave {given!r:.200}")


class Job:
    """The batch of some samples of one epoch: `start` it, `wait` for it, `take` it.

    Attributes:
        errors: position in the batch -> what was wrong with that sample; complete once `wait` has returned.
    """

    def __init__(
        self, settings: Settings, workers: Workers, recorder: Recorder, epoch: int, indices: NDArray[np.int64]
    ) -> None:
        self.settings = settings
        self.indices = indices
        self.errors: dict[int, DecodeError] = {}
        self._workers = workers
        self._recorder = recorder
        self._epoch = epoch
        self._labels: list[Any] = [None] * len(indices)
        self._headers: list[Header | None] = [None] * len(indices)
        self._finished = _NOTHING
        self._failure: BaseException | None = None
        self._cancelled = False
        self._process = os.getpid()
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._open_tasks = 0

    def start(self) -> Job:
        self._each_part(len(self.indices), self._read, self._plan_and_run)
        return self

    def cancel(self) -> None:
        """Nobody will ask for the result: what has not begun need not."""
        self._cancelled = True

    def wait(self) -> int:
        """Waits until the batch is finished and returns how many samples it has: those that could be decoded.

        Raises:
            LoaderError: the loader was closed, or this process is a fork of the one that began the batch.
            whatever a stage raised that was not one sample's fault.
        """
        if self._process != os.getpid():
            raise LoaderError("this iteration began before the process was forked: begin a new one")
        self._workers.check()
        while not self._done.wait(_LOOK_SECONDS):
            self._workers.check()
        if self._failure is not None:
            raise self._failure
        return len(self._finished[1])

    def take(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(images, labels) of the good samples, in order, once there are any; the job keeps neither."""
        images, labels = self._finished
        self._finished = _NOTHING
        return images, labels

    # --- stages, on worker threads ----------------------------------------------------------------------------------

    def _each_part(self, count: int, work: Callable[[range], None], then: Callable[[], None]) -> None:
        """Runs work(positions) for 0 ... count - 1 in parts, in parallel, and `then()` after the last."""
        parts = [range(i, min(i + SAMPLES_PER_TASK, count)) for i in range(0, count, SAMPLES_PER_TASK)]
        self._open_tasks = len(parts)

        def run(part: range) -> None:
            try:
                if not self._cancelled and self._failure is None:
                    work(part)
            except BaseException as error:
                self._failure = error
            with self._lock:
                self._open_tasks -= 1
                last = self._open_tasks == 0
            if last:
                self._go_on(then)

        for part in parts:
            self._workers.submit(functools.partial(run, part))
        if not parts:
            self._go_on(then)

    def _after(self, workers: Workers, then: Callable[[], None]) -> None:
        """Goes on with `then()` on another thread."""
        workers.submit(lambda: self._go_on(then))

    def _go_on(self, then: Callable[[], None]) -> None:
        if self._failure is None and not self._cancelled:
            try:
                then()
                return
            except BaseException as error:
                self._failure = error
        self._done.set()

    def _read(self, part: range) -> None:
        """Bytes, labels and headers of some samples."""
        settings, read, parse = self.settings, 0.0, 0.0
        for k in part:
            index = int(self.indices[k])
            start = time.perf_counter()
            path: str | None = None
            try:
                data, self._labels[k] = _sample(settings.source.read(index), index)
                if isinstance(data, (str, os.PathLike)):
                    path = os.fspath(data)
                    with open(path, "rb") as file:
                        data = file.read()
                read += (now := time.perf_counter()) - start
                self._headers[k] = read_header(data, apply_exif=settings.apply_exif, max_pixels=settings.max_pixels)
                parse += time.perf_counter() - now
            except OSError as error:
                cause = DecodeError(error.strerror or str(error) or type(error).__name__)
                cause.__cause__ = error
                self.fail(k, cause, path)
            except DecodeError as error:
                self.fail(k, error, path)
        self._recorder.add_seconds(read=read, parse=parse)

    def fail(self, k: int, error: DecodeError, path: str | None = None) -> None:
        index = int(self.indices[k])
        self.errors[k] = error.at(path or self._path(index), index)
        self.errors[k].__cause__ = error.__cause__

    def _path(self, index: int) -> str | None:
        named = getattr(self.settings.source, "path", None)
        return None if named is None else os.fspath(named(index))

    def _plan_and_run(self) -> None:
        good = np.array([k for k, header in enumerate(self._headers) if header is not None], dtype=np.int64)
        headers = [header for header in self._headers if header is not None]
        if not headers:
            self._done.set()
            return
        with self._recorder.stage("plan"):
            tables, channels = self._plan(headers, self.indices[good])
        self._run(good, headers, tables, channels)

    def _plan(self, headers: Sequence[Header], indices: NDArray[np.int64]) -> tuple[Tables, int]:
        try:
            tables, channels = self._write_plan(headers, indices)
        except TransformError:
            self._name_culprit(headers, indices)
            raise
        heights, widths = tables.sizes()
        if (heights != heights[0]).any() or (widths != widths[0]).any():
            k = int(np.argmax((heights != heights[0]) | (widths != widths[0])))
            raise TransformError(
                f"the transforms leave images of different sizes, which cannot be one batch: sample {indices[0]} is "
                f"{heights[0]} x {widths[0]}, sample {indices[k]} is {heights[k]} x {widths[k]} (height x width); "
                "end the chain with a transform that gives one size, such as RandomResizedCrop, CenterCrop or "
                "Resize((height, width))"
            )
        return tables, channels

    def _write_plan(self, headers: Sequence[Header], indices: NDArray[np.int64]) -> tuple[Tables, int]:
        settings = self.settings
        plan = Plan([header.height for header in headers], [header.width for header in headers])
        settings.transforms.plan(plan, Draws(settings.seed, self._epoch, indices))
        return plan.tables(settings.target_type, settings.layout), plan.channels

    def _name_culprit(self, headers: Sequence[Header], indices: NDArray[np.int64]) -> None:
        """Raises the error of the first sample that cannot be planned on its own: its draws are the same there."""
        for i, index in enumerate(indices.tolist()):
            try:
                self._write_plan(headers[i : i + 1], indices[i : i + 1])
            except TransformError as error:
                path = self._path(index)
                which = f"sample {index}" if path is None else f"{path!r} (sample {index})"
                raise TransformError(f"{which}: {error}") from error

    def _run(self, good: NDArray[np.int64], headers: list[Header], tables: Tables, channels: int) -> None:
        """Decodes and augments the samples at positions `good`; ends with `finish`, on whatever thread."""
        raise NotImplementedError

    # --- for the devices --------------------------------------------------------------------------------------------

    def shape(self, tables: Tables, channels: int) -> tuple[int, ...]:
        """Of the finished images, in the layout they are made in."""
        heights, widths = tables.sizes()
        n, h, w = len(heights), int(heights[0]), int(widths[0])
        return (n, channels, h, w) if self.settings.layout == Layout.CHW else (n, h, w, channels)

    def finish(self, images: torch.Tensor, good: NDArray[np.int64]) -> None:
        """`images` hold what became of the samples at positions `good`, some of which may have failed meanwhile."""
        decoded = np.array([int(k) not in self.errors for k in good], dtype=bool)
        if self.settings.layout == Layout.HWC:
            images = images.permute(0, 3, 1, 2)
        if not decoded.all():
            images = images[torch.from_numpy(np.flatnonzero(decoded)).to(images.device)]
        if decoded.any():
            self._finished = images, self._labels_of(good[decoded])
        self._headers = []  # the encoded bytes
        self._queued()
        self._done.set()

    def _queued(self) -> None:
        """Called when all that makes the images is done, or queued on the current stream."""

    def _labels_of(self, positions: NDArray[np.int64]) -> torch.Tensor:
        labels = [self._labels[k] for k in positions]
        try:
            return torch.from_numpy(np.asarray(labels))
        except (TypeError, ValueError) as error:
            raise LoaderError(f"labels do not make a tensor ({error}); the batch's first is {labels[0]!r}") from error
