"""Batches on a GPU: worker threads read, parse and stage files; one producer thread decodes and launches kernels.

Clips of videos differ in one step: worker threads decode them, by FFmpeg into pinned memory, or by NVDEC.

The producer thread owns a stream and a ring of arenas. An arena holds the memory of a batch in progress: a slot of
device memory per image, and workspaces for uploads and passes. `take` makes the consumer's current stream wait for the
batch's event.

The output images come from torch's caching allocator, not from a ring: the consumer may keep them for any time, on any
stream. The allocator sees the last reference go. It knows the streams (`record_stream`), and reuses a block once their
queued work has run. After a few batches of one size it needs no memory from the driver.

Tensors in the labels of a batch are uploaded by one asynchronous copy from pinned memory.
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils._pytree import tree_flatten, tree_unflatten

from cuaug.batch import Batch, each_tensor
from cuaug.codec import JpegIndex
from cuaug.devices.cuda import fork_error
from cuaug.errors import ArgumentError, DecodeError, DeviceError
from cuaug.pipeline.clip_reader import EncodedClip
from cuaug.pipeline.config import BatchConfig, samples_per_read
from cuaug.pipeline.cuda.producer import CudaProducer
from cuaug.pipeline.cuda.staged_clips import StagedClips
from cuaug.pipeline.cuda.staging import StagedBatch
from cuaug.pipeline.job import Job
from cuaug.pipeline.native_work import JpegStaging, Times
from cuaug.pipeline.pipeline import Pipeline
from cuaug.pipeline.planning import Planned
from cuaug.pipeline.reader import Item
from cuaug.pipeline.thread_pool import ThreadPool
from cuaug.profiling.recorder import Recorder

__all__ = ["CudaJob", "CudaPipeline", "upload_labels"]

_ALIGN = 64  # bytes; any dtype, and vectorized kernels


def upload_labels(labels: Any, device: torch.device) -> tuple[Any, torch.Tensor | None]:
    """The labels with their dense CPU tensors on a device; all else stays as it is.

    The copy is queued on the current stream. torch reuses the pinned memory only after it.

    Returns:
        The labels, and the device memory that their tensors share; None if there are none.
    """
    leaves, spec = tree_flatten(labels)
    rows = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and _is_dense_on_cpu(leaf)]
    if not rows:
        return labels, None
    *starts, size = itertools.accumulate((-(-leaves[i].nbytes // _ALIGN) * _ALIGN for i in rows), initial=0)
    pinned = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    for i, start in zip(rows, starts, strict=True):
        _like(leaves[i], pinned, start).copy_(leaves[i].detach().as_subclass(torch.Tensor))
    memory = pinned.to(device, non_blocking=True)
    for i, start in zip(rows, starts, strict=True):
        given, uploaded = leaves[i], _like(leaves[i], memory, start)
        if type(given) is not torch.Tensor:  # a tv_tensor has attributes of its own
            uploaded = uploaded.as_subclass(type(given))
            vars(uploaded).update(vars(given))
        leaves[i] = uploaded
    return tree_unflatten(leaves, spec), memory


def _is_dense_on_cpu(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.layout == torch.strided and not tensor.is_quantized


def _like(tensor: torch.Tensor, memory: torch.Tensor, start: int) -> torch.Tensor:
    """The memory from a byte on, with a tensor's dtype and shape."""
    return memory[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape)


class CudaPipeline(Pipeline):
    """Decodes and augments on one GPU."""

    def __init__(self, config: BatchConfig, recorder: Recorder, threads: int, device: torch.device) -> None:
        if reason := fork_error():
            raise DeviceError(reason)
        super().__init__(config, recorder, threads)
        if config.reader.device_cache is not None and config.decode.decoder != "auto":
            raise ArgumentError(
                f"cache: EncodedCache(on_device=True) needs decoder='auto', not {config.decode.decoder!r}"
            )
        self.job_type = CudaJob
        self.ranges = torch.cuda.nvtx
        self.producer_thread = ThreadPool(1, "cuaug-producer", config.cpus)
        self.producer = CudaProducer(config, recorder, threads, device)

    @property
    def known_files(self) -> JpegIndex | None:
        reads_all = self.config.reader.takes_whole_files or self.config.decode.decoder != "auto"
        return None if reads_all else self.index

    @property
    def pools(self) -> list[ThreadPool]:
        return [self.workers, self.producer_thread]

    def close(self) -> None:
        super().close()
        self.producer.release()


class CudaJob(Job):
    """A batch in device memory."""

    pipeline: CudaPipeline
    _staged: StagedBatch | StagedClips | None = None

    def _run(self, positions: NDArray[np.int64], items: list[Item], planned: Planned) -> None:
        if planned.is_clip:
            self._run_clips(positions, cast(list[EncodedClip], items), planned)
            return
        with self._recorder.at("plan", self.number):
            staged = self._staged = StagedBatch(
                items,
                planned,
                self.pipeline.producer.staging,
                self.pipeline.index,
                fancy_upsampling=self.config.decode.fancy_upsampling,
                decode_all=self.config.reader.device_cache is not None,
            )

        def make_times(rows: NDArray[np.int64]) -> Times:
            return Times(self.number, self.dropped, self.indices[positions[rows]], ("read", "copy"))

        def stage(task: range) -> None:
            with self._recorder.at("copy", batch=self.number) as clock:
                self._workers.track(clock)
                clock.count("parts", staged.stage(task, lambda i, error: self.add_error(int(positions[i]), error)))

        def stage_rest() -> None:
            if count := len(staged.rows):
                self._submit_tasks(count, stage, produce, samples_per_read(count, self._workers.threads))
            else:
                produce()

        def finish_kernels(staging: JpegStaging) -> None:
            with self._recorder.at("plan", self.number) as clock:
                staging.times.record(self._recorder, self._workers.name)
                clock.count("parts", staged.finish_kernel_staging(staging))
            stage_rest()

        def produce() -> None:
            step = partial(self.pipeline.producer.produce, self, positions, staged, planned)
            self.pipeline.producer_thread.submit(partial(self.run_step, step), self.number)

        staging = staged.kernel_staging(make_times) if self.config.decode.decoder == "auto" else None
        if staging is None:
            stage_rest()
        else:
            self.submit_step(partial(finish_kernels, staging), staging.work)

    def _run_clips(self, positions: NDArray[np.int64], items: list[EncodedClip], planned: Planned) -> None:
        with self._recorder.at("plan", self.number):
            producer = self.pipeline.producer
            staged = self._staged = StagedClips(items, planned, producer.staging, producer.nvdec)

        def decode(task: range) -> None:
            with self._recorder.at(batch=self.number) as clock:
                self._workers.track(clock)
                for i in task:
                    k = int(positions[i])
                    if self.cancelled:
                        return
                    if k in self.errors:  # its targets failed
                        continue
                    clock.at("decode", int(self.indices[k]))
                    try:
                        clock.count(("decoded_by", staged.stage(i)))
                    except DecodeError as error:
                        self.add_error(k, error.with_traceback(None))
                    if i in staged.fallbacks:
                        self.pipeline.messages.warn_clip_fallback(self.name_at(k), staged.fallbacks[i])

        def produce() -> None:
            step = partial(self.pipeline.producer.produce_clips, self, positions, staged, planned)
            self.pipeline.producer_thread.submit(partial(self.run_step, step), self.number)

        self._submit_tasks(len(items), decode, produce, size=1)

    def _end(self) -> None:
        super()._end()
        staged, self._staged = self._staged, None
        if staged is not None:
            for memory in staged.take_memory():  # the batch was not decoded
                staged.pool.give_back(memory)

    def _record_ready(self) -> None:
        # On the producer's stream: the event comes after all work on the images and after the labels' copy.
        assert self._batch is not None
        self._label_memory: torch.Tensor | None = None
        if self.config.uploads_labels:
            labels, self._label_memory = upload_labels(self._batch.labels, self.pipeline.producer.device)
            self._batch = self._batch._replace(labels=labels)
        self._ready = torch.cuda.Event()
        self._ready.record()

    def take(self) -> Batch:
        batch = super().take()
        current = torch.cuda.current_stream(self.pipeline.producer.device)
        current.wait_event(self._ready)
        memory, self._label_memory = self._label_memory, None
        for tensor in (*each_tensor(batch.images), *([] if memory is None else [memory])):
            tensor.record_stream(current)
        return batch
