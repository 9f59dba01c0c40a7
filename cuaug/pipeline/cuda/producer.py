"""The producer: decodes batches and launches kernels, on the one thread that owns the stream and the arenas.

For each batch the producer waits on the CPU until the arena's last work has run, as the hardware JPEG decoder may not
wait for work queued on its stream. Then it decodes, launches the kernels and records an event.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug.codec import CpuFallback, DecoderPaths, NvImageCodecDecoder
from cuaug.devices import PackedOutput, workspace
from cuaug.devices.cuda import CudaExecutor
from cuaug.devices.specialize import Specializer
from cuaug.images.interop import dtype_of
from cuaug.pipeline.config import BatchConfig
from cuaug.pipeline.cuda.arena import Arena, Scratch
from cuaug.pipeline.cuda.batch_decoding import BatchDecoding
from cuaug.pipeline.cuda.staged_clips import NvdecPool, StagedClips
from cuaug.pipeline.cuda.staging import StagedBatch, StagingPool
from cuaug.pipeline.part import BatchPart
from cuaug.pipeline.planning import Planned
from cuaug.pipeline.samples import Images
from cuaug.pipeline.thread_pool import ThreadPool
from cuaug.profiling.recorder import Clock, CudaClock, CudaEvents, Recorder

__all__ = ["CudaProducer"]

# The decoder fills one arena while the kernels read the other.
_ARENAS = 2


class CudaProducer:
    """Owns the producer thread's resources. That thread creates its CUDA objects, not the constructor."""

    def __init__(
        self, config: BatchConfig, recorder: Recorder, threads: int, device: torch.device, thread: ThreadPool
    ) -> None:
        self.device, self._thread = device, thread
        self.staging = StagingPool(device)
        self._config = config
        self._recorder = recorder
        self._paths = DecoderPaths(fancy_upsampling=config.decode.fancy_upsampling)
        # The other half of the threads reads and parses the next batches meanwhile.
        self._decode_threads = (threads + 1) // 2
        self._fallback = CpuFallback(fancy_upsampling=config.decode.fancy_upsampling, threads=self._decode_threads)
        self.specializer = Specializer()
        self.nvdec = NvdecPool(device) if config.decode.video_decoder == "nvdec" else None
        self.decoder: NvImageCodecDecoder
        self._prepared = False
        self._batches = 0
        self._max_images = 0

    def _prepare(self) -> None:
        if self._prepared:
            return
        torch.cuda.set_device(self.device)
        self.stream = workspace.acquire(self.device)
        clock = CudaClock(self._recorder, self.stream)
        scratch = Scratch(self.device)
        self._arenas = [Arena(self.device, self.stream, CudaEvents(clock), scratch) for _ in range(_ARENAS)]
        self._prepared = True

    def _open_decoder(self, images: int) -> NvImageCodecDecoder:
        """nvImageCodec's decoder, for batches of up to `images` images.

        The first batch that needs it opens it; a larger one, after the user edited the chain, opens another. That first
        closes the last one: two would hold twice the device memory.
        """
        images = max(images, self._config.max_images)
        if images > self._max_images:
            if self._max_images:
                self.stream.synchronize()
                self._max_images = 0  # if opening fails, the next batch opens one
                del self.decoder
            self.decoder = NvImageCodecDecoder(self.device.index, self._paths, threads=self._decode_threads)
            self.decoder.prime(images, self.stream.cuda_stream)
            self._max_images = images
        return self.decoder

    def release(self) -> None:
        """Frees the device memory, after all queued work has run."""
        if self.nvdec is not None:
            self.nvdec.close()
        if self._prepared:
            self.stream.synchronize()
            self._prepared = False
            with torch.cuda.device(self.device):
                del self._arenas
                if self._max_images:
                    del self.decoder
            self._max_images = 0
            del self.stream

    def produce(self, part: BatchPart, positions: NDArray[np.int64], staged: StagedBatch, planned: Planned) -> Images:
        """Decodes and augments a batch of images."""
        self._prepare()
        with self._begin_batch(part, staged) as (arena, clock):
            clock.at("decode")
            decoding = BatchDecoding(part, positions, staged, arena, self._fallback, clock)
            decoding.launch_kernels()
            decoding.decode_others(lambda: self._open_decoder(len(staged.images)))
            if decoding.entries:  # the cache keeps no damaged image
                decoding.replace_damaged()
                decoding.fill_cache()
            clock.at("augment")
            arena.times.decoded()

            def augment() -> list[torch.Tensor]:
                sources, pitches = staged.sources(decoding.addresses)
                return self._augment(planned, arena, sources, pitches, decoding.failed)

            outputs = augment()
            if decoding.replace_damaged():  # rarely: so the GPU decodes while the CPU prepares the launches
                clock.at("wait_for_gpu")
                self.stream.synchronize()  # the workspace is still read
                clock.at("augment")
                outputs = augment()
            self._recorder.add({("decoded_by", name): count for name, count in decoding.decoded_by.items() if count})
        part.job.track(self._thread)
        return Images(outputs, planned.stacks.views)

    def produce_clips(
        self, part: BatchPart, positions: NDArray[np.int64], staged: StagedClips, planned: Planned
    ) -> Images:
        """Uploads, converts and augments a batch of decoded clips."""
        self._prepare()
        with self._begin_batch(part, staged) as (arena, clock):
            clock.at("augment")
            failed = np.isin(positions, list(part.errors))
            staged.wait_for_decoders(self.stream)
            images, sources = staged.on_device(arena.upload(staged.blocks), failed)
            arena.times.decoded()
            pitches, skip = staged.pitches.repeat(planned.frames), failed.repeat(planned.frames)
            outputs = self._augment(planned, arena, sources, pitches, skip, images)
        part.job.track(self._thread)
        return Images(outputs, planned.stacks.views)

    @contextlib.contextmanager
    def _begin_batch(self, part: BatchPart, staged: StagedBatch | StagedClips) -> Iterator[tuple[Arena, Clock]]:
        """Waits for an arena and makes the stream current. At the end records the event that frees the arena."""
        arena = self._arenas[self._batches % _ARENAS]
        self._batches += 1
        with torch.cuda.stream(self.stream), self._recorder.at("wait_for_gpu", part.number) as clock:
            arena.free.synchronize()
            arena.times.read()
            arena.begin(staged)
            self._thread.track(clock)
            arena.times.begin(part.number)
            try:
                yield arena, clock
                arena.times.end()
            finally:
                arena.free.record(self.stream)

    def _augment(
        self,
        planned: Planned,
        arena: Arena,
        sources: NDArray[np.uint64],
        pitches: NDArray[np.int64],
        failed: NDArray[np.bool_],
        frames: NDArray[Any] | None = None,
    ) -> list[torch.Tensor]:
        """Queues the kernels for M images, each with its views, and returns their outputs; as `CudaExecutor.run`."""
        tables, stacks, views = planned.tables, planned.stacks, planned.stacks.count
        dtype = dtype_of(tables.target_type)
        outputs = [torch.empty(shape, dtype=dtype, device=self.device) for shape in stacks.shapes]
        if isinstance(stacks, PackedOutput):
            stacks.clear_padding(outputs[0])
        CudaExecutor(tables).run(
            sources.repeat(views),
            outputs[0],
            target_addresses=stacks.addresses(outputs),
            pitches=pitches.repeat(views),
            skip=failed.repeat(views) if failed.any() else None,
            workspace=arena.work,
            specializer=self.specializer,
            frames=frames,
        )
        launches = self.specializer.take_launches()
        self._recorder.add({("kernels", name): count for name, count in launches.items()})
        return outputs
