"""`StagedClips`: the planes of a batch's clips in pinned memory, for their upload and the conversion on a GPU.

Worker threads decode clips with FFmpeg and copy the rows that the plan reads there, as they are: 4:2:0 takes 1.5 bytes
a pixel, where RGB takes 3. `CudaProducer` uploads them, and `CudaExecutor` converts the region of each clip.
With NVDEC, frames are decoded on the GPU and stay there; FFmpeg decodes the clips that NVDEC does not. `NvdecPool`
has one NVDEC decoder for each thread that decodes.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug._runtime.native import address, library
from cuaug.codec import Region
from cuaug.codec.video.nvdec import DeviceFrames, NvdecDecoder, NvdecError, load_nvdec
from cuaug.codec.video.yuv import PlaneRows, VideoFrame, describe_frames
from cuaug.devices import workspace
from cuaug.errors import DecodeError
from cuaug.pipeline.clip_reader import EncodedClip, decode_clip, decode_planes
from cuaug.pipeline.cuda.staging import StagingPool
from cuaug.pipeline.planning import Planned
from cuaug.plan.layout import YUV_IMAGE

__all__ = ["NvdecPool", "StagedClips"]


class NvdecPool:
    """Lends decoders to worker threads. Each decoder has a stream of its own.

    Raises:
        LoaderError: PyNvVideoCodec is not installed.
        DeviceError: it cannot be used on this machine.
    """

    def __init__(self, device: torch.device) -> None:
        load_nvdec()
        self._device = device
        self._unused: list[NvdecDecoder] = []
        self._is_closed = False
        self._lock = threading.Lock()

    def decode(self, clip: EncodedClip) -> DeviceFrames:
        """Decode a clip's frames on the GPU.

        Raises:
            NvdecError: FFmpeg should try.
            OSError: the file cannot be read.
        """
        decoder = self._take()
        try:
            return decoder.decode(clip.request.path, clip.index, clip.numbers)
        finally:
            self._give_back(decoder)

    def close(self) -> None:
        """Ends the sessions, now or when a thread gives its decoder back."""
        with self._lock:
            self._is_closed = True
            unused, self._unused = self._unused, []
        for decoder in unused:
            decoder.close()

    def _take(self) -> NvdecDecoder:
        with self._lock:
            if self._unused:
                return self._unused.pop()
        return NvdecDecoder(self._device, workspace.acquire(self._device))

    def _give_back(self, decoder: NvdecDecoder) -> None:
        with self._lock:
            if not self._is_closed:
                self._unused.append(decoder)
                return
        decoder.close()


class StagedClips:
    """The clips of a batch, for pinned memory: `fill` writes it, `take_memory` hands it to the batch's arena.

    The size of a clip is known once it is decoded. So the first clip chooses the size of a block for all, and a further
    block follows if that is too small.

    Args:
        items: N clips of T frames each.
        nvdec: decoders on the GPU; None: FFmpeg decodes all clips.

    Attributes:
        items: N clips.
        pitches: (N,) bytes from one row of a clip's RGB regions to the next.
        offsets: (N,) bytes from the start of an RGB region to where the whole frame would begin, modulo 2^64.
        pool: where the memory comes from.
        fallbacks: why NVDEC did not decode a clip that FFmpeg then decoded, by the clip's number.
    """

    def __init__(
        self, items: Sequence[EncodedClip], planned: Planned, pool: StagingPool, nvdec: NvdecPool | None = None
    ) -> None:
        self.items, self.pool, self._nvdec = items, pool, nvdec
        self.fallbacks: dict[int, str] = {}
        self._on_device: dict[int, DeviceFrames] = {}
        self._regions = cast(list[Region], planned.regions().tolist())
        y0, x0, _, x1 = planned.regions().T
        self.pitches = 3 * (x1 - x0)
        self.offsets = (-(y0 * self.pitches + 3 * x0)).astype(np.uint64)
        self._images = np.zeros((len(items), planned.frames), dtype=YUV_IMAGE)
        self._blocks: list[torch.Tensor] = []
        self._used: list[int] = []
        self._block_of = np.zeros(len(items), dtype=np.int64)
        self._rgb = np.zeros(len(items), dtype=np.uint64)  # addresses of clips that are staged as RGB
        self._sizes = np.zeros(len(items), dtype=np.uint64)  # bytes of a frame of theirs
        self._unplaced = len(items)
        self._is_taken = False
        self._lock = threading.Lock()

    def fill(self, i: int) -> str:
        """Decodes clip i and copies its planes, or its RGB region if a cache keeps decoded clips.

        Threads may fill different clips at once.

        Returns:
            what decoded it, as a key of `Stats.decoded_by`.

        Raises:
            DecodeError: the clip is damaged.
            OSError: too many files are open.
        """
        clip, region = self.items[i], self._regions[i]
        if clip.pixels is not None or clip.keep is not None:
            result = decode_clip(clip, region)
            if isinstance(result, DecodeError):
                raise result
            self._copy_rgb(i, result.pixels)
            return result.decoded_by
        if self._nvdec is not None:
            try:
                decoded = self._nvdec.decode(clip)
            except (NvdecError, OSError) as error:  # FFmpeg tries, or names what is wrong with the file
                cause = str(error)
            else:
                self._images[i] = self._describe(i, decoded.frames)
                with self._lock:
                    self._unplaced -= 1
                    self._on_device[i] = decoded
                return "nvdec"
        frames = decode_planes(clip)  # they hold the planes until these are copied
        rows = PlaneRows(self._describe(i, frames))
        self._block_of[i], target = self._reserve(rows.bytes)
        self._images[i] = rows.copy(target)
        if self._nvdec is None:
            return "video"
        self.fallbacks[i] = cause
        return "cpu_fallback"

    def _describe(self, i: int, frames: Sequence[VideoFrame]) -> NDArray[Any]:
        """(T,) `YUV_IMAGE` of clip i's frames."""
        targets, pitch = [0] * len(frames), int(self.pitches[i])
        orientation = self.items[i].index.orientation
        return describe_frames(frames, self._regions[i], targets, pitch, orientation=orientation)

    def wait_for_decoders(self, stream: torch.cuda.Stream) -> None:
        """Makes a stream wait for the frames that NVDEC decodes; their memory is kept for its work."""
        for decoded in self._on_device.values():
            stream.wait_event(decoded.ready)
            decoded.memory.record_stream(stream)

    def _copy_rgb(self, i: int, pixels: NDArray[np.uint8]) -> None:
        """Copies frames (T, h, w, 3), packed."""
        size, (_, height, width, _) = pixels[0].size, pixels.shape
        self._block_of[i], self._rgb[i] = self._reserve(-(-pixels.size // 64) * 64)
        table = np.empty((len(pixels), 5), dtype=np.int64)  # RowCopy: kernels/cpu/copy_rows.h
        for t, frame in enumerate(pixels):
            table[t] = address(frame[0]), frame.strides[0], height, 3 * width, int(self._rgb[i]) + t * size
        self._sizes[i] = size
        library.cuaug_copy_rows(address(table), len(table))

    def _reserve(self, size: int) -> tuple[int, int]:
        """A block with room for `size` bytes: its number, and the address of the room."""
        with self._lock:
            if not self._blocks or self._used[-1] + size > self._blocks[-1].nelement():
                self._blocks.append(self.pool.take(size * self._unplaced))
                self._used.append(0)
            self._unplaced -= 1
            begin = self._used[-1]
            self._used[-1] += size
            return len(self._blocks) - 1, self._blocks[-1].data_ptr() + begin

    @property
    def blocks(self) -> list[torch.Tensor]:
        """The used part of each block of pinned memory, (n,) uint8."""
        return [block[:used] for block, used in zip(self._blocks, self._used, strict=True)]

    def on_device(
        self, blocks: Sequence[torch.Tensor], failed: NDArray[np.bool_]
    ) -> tuple[NDArray[Any], NDArray[np.uint64]]:
        """All frames in copies of `blocks`, as `CudaExecutor.run` takes them.

        Args:
            failed: (N,) clips that are not staged.

        Returns:
            (N * T,) `YUV_IMAGE`, zeros for RGB and for clips that failed; and (N * T,) sources.
        """
        images, sources = self._images.copy(), np.repeat(self.offsets[:, None], self._images.shape[1], axis=1)
        if blocks:
            moves = [copy.data_ptr() - block.data_ptr() for copy, block in zip(blocks, self._blocks, strict=True)]
            move = np.array(moves, dtype=np.int64).astype(np.uint64)[self._block_of][:, None]
            move[list(self._on_device)] = 0
            for plane in ("y", "u", "v"):
                images[plane] += np.where(images[plane] == 0, np.uint64(0), move)  # u = 0: gray
            frames = np.arange(images.shape[1], dtype=np.uint64) * self._sizes[:, None]
            sources += np.where(self._rgb[:, None] == 0, np.uint64(0), self._rgb[:, None] + move + frames)
        images[failed] = 0
        return images.ravel(), sources.ravel()

    def take_memory(self) -> list[torch.Tensor]:
        """Hands the memory to the caller, who gives it back to `pool`; none if it was taken."""
        memory = [] if self._is_taken else self._blocks
        self._is_taken = True
        return memory
