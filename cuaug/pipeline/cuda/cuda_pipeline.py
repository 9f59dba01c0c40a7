"""Batches on a GPU: worker threads read files into pinned memory; one producer thread decodes and launches kernels.

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
from collections.abc import Sequence
from contextlib import AbstractContextManager
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
from cuaug.pipeline.image_table import ImageTable
from cuaug.pipeline.part import BatchPart
from cuaug.pipeline.pipeline import FinishedBatch, Pipeline
from cuaug.pipeline.planning import Planned
from cuaug.pipeline.samples import Images
from cuaug.pipeline.thread_pool import Tasks, ThreadPool, Turn, Work
from cuaug.profiling.recorder import Clock, Recorder

__all__ = ["CudaBatch", "CudaPipeline", "upload_labels"]

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
            raise ArgumentError(f"cache: EncodedCache needs decoder='auto', not {config.decode.decoder!r}")
        self.ranges = torch.cuda.nvtx
        self.producer_thread = ThreadPool(1, "cuaug-producer")
        self.producer = CudaProducer(config, recorder, threads, device, self.producer_thread)

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

    def run(self, part: BatchPart, positions: NDArray[np.int64], images: ImageTable, planned: Planned) -> Work[Images]:
        if planned.is_clip:
            clips = [cast(EncodedClip, images.item(i)) for i in range(len(images))]
            return self._run_clips(part, positions, clips, planned)
        return self._run_images(part, positions, images, planned)

    def _run_images(
        self, part: BatchPart, positions: NDArray[np.int64], images: ImageTable, planned: Planned
    ) -> Work[Images]:
        with self.recorder.at("plan", part.number):
            staged = StagedBatch(
                images,
                planned,
                self.producer.staging,
                self.index,
                fancy_upsampling=self.config.decode.fancy_upsampling,
                decode_all=self.config.reader.device_cache is not None,
            )
        try:
            if self.config.decode.decoder == "auto":
                staging = staged.kernel_staging(lambda rows: part.times(positions[rows], ("read", "copy")))
                if staging is not None:
                    yield Turn(self.workers, staging.work)
                    with self.recorder.at("plan", part.number) as clock:
                        staging.times.record(self.recorder, self.workers.name)
                        staged.finish_kernel_staging(staging)
                        clock.count("parts", staged.launch.parts)

            def fill(chosen: Sequence[int], clock: Clock) -> None:
                clock.at("copy")
                staged.fill(chosen, lambda i, error: part.add_error(int(positions[i]), error))

            if rows := staged.rows_to_fill():
                yield Tasks(rows, fill, samples_per_read(len(rows), self.workers.threads))
            yield Turn(self.producer_thread)
            return self.producer.produce(part, positions, staged, planned)
        finally:
            _free(staged)

    def _run_clips(
        self, part: BatchPart, positions: NDArray[np.int64], items: list[EncodedClip], planned: Planned
    ) -> Work[Images]:
        with self.recorder.at("plan", part.number):
            staged = StagedClips(items, planned, self.producer.staging, self.producer.nvdec)

        def decode(rows: Sequence[int], clock: Clock) -> None:
            for i in rows:
                k = int(positions[i])
                if part.job.cancelled:
                    return
                if k in part.errors:  # its targets failed
                    continue
                clock.at("decode", int(part.indices[k]))
                try:
                    clock.count(("decoded_by", staged.fill(i)))
                except DecodeError as error:
                    part.add_error(k, error.with_traceback(None))
                if i in staged.fallbacks:
                    self.messages.warn_clip_fallback(part.name_at(k), staged.fallbacks[i])

        try:
            yield Tasks(range(len(items)), decode, 1)
            yield Turn(self.producer_thread)
            return self.producer.produce_clips(part, positions, staged, planned)
        finally:
            _free(staged)

    def on_stream(self) -> AbstractContextManager[object]:
        return torch.cuda.stream(self.producer.stream)

    def finish(self, batch: Batch) -> CudaBatch:
        labels, label_memory = batch.labels, None
        packing, _ = upload_labels(batch.packing, self.producer.device)
        if self.config.uploads_labels:
            labels, label_memory = upload_labels(labels, self.producer.device)
        return CudaBatch(batch._replace(labels=labels, packing=packing), label_memory, self.producer.device)


def _free(staged: StagedBatch | StagedClips) -> None:
    """Gives back the pinned memory of a batch that no arena has taken, since it was not decoded."""
    for memory in staged.take_memory():
        staged.pool.give_back(memory)


class CudaBatch(FinishedBatch):
    """A batch whose work is queued on the current stream.

    Args:
        label_memory: what the tensors in its labels share.
    """

    def __init__(self, batch: Batch, label_memory: torch.Tensor | None, device: torch.device) -> None:
        super().__init__(batch)
        self._label_memory, self._device = label_memory, device
        self._ready = torch.cuda.Event()  # after all work on the images, and after the labels' copy
        self._ready.record()

    def take(self) -> Batch:
        current = torch.cuda.current_stream(self._device)
        current.wait_event(self._ready)
        others = [self._label_memory, *(self.batch.packing or ())]
        for tensor in (*each_tensor(self.batch.images), *others):
            if not isinstance(tensor, torch.Tensor):
                continue
            tensor.record_stream(current)
        return self.batch
