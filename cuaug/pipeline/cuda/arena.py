"""Device memory of the batches in progress: for our JPEG kernels, slots for nvImageCodec, and workspaces."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug.codec import JpegLaunch, NvImageCodecDecoder
from cuaug.devices.workspace import ReusedBuffer, Workspace
from cuaug.pipeline.cuda.staged_clips import StagedClips
from cuaug.pipeline.cuda.staging import StagedBatch
from cuaug.profiling.recorder import CudaEvents

__all__ = ["Arena", "JpegMemory", "Scratch", "Slot"]

# A slot larger than this, grown by one giant image, is freed after its batch.
_MAX_KEPT_BYTES = 3 * (21 << 20)
_ALIGN = 256  # bytes, of each upload


class Slot:
    """Device memory for one decoded image, wrapped for the decoder once."""

    def __init__(self, device: torch.device, stream: torch.cuda.Stream) -> None:
        self._device, self._stream = device, stream
        self.memory: torch.Tensor | None = None
        self.wrapped: Any = None

    def reallocate(self, size: int, decoder: NvImageCodecDecoder) -> tuple[int, int]:
        """Frees the memory and allocates at least `size` bytes. Returns the address and the capacity."""
        self.memory = self.wrapped = None
        pixels = -(-max(size, min(size * 9 // 8, _MAX_KEPT_BYTES)) // 3)  # an eighth more, for a larger image later
        self.memory = torch.empty((1, pixels, 3), dtype=torch.uint8, device=self._device)
        self.wrapped = decoder.wrap(self.memory, self._stream.cuda_stream)
        return self.memory.data_ptr(), 3 * pixels


class Scratch:
    """Device memory that arenas of one stream share: each batch's kernels have read it before the next one's write."""

    def __init__(self, device: torch.device) -> None:
        self.intermediates, self.jpegs = ReusedBuffer(device=device), ReusedBuffer(device=device)


class JpegMemory:
    """Device memory for a batch's JPEGs: what is uploaded, and scratch memory.

    Args:
        sizes: bytes of the scratch memory for samples, pixels, Huffman tables and segments.

    Attributes:
        upload: (n,) uint8.
        addresses: of the upload, and of the four parts of the scratch memory.
    """

    def __init__(self, upload: torch.Tensor, scratch: torch.Tensor, sizes: Sequence[int]) -> None:
        self.upload, self._scratch = upload, scratch
        self._ends = list(itertools.accumulate(sizes))
        begin = scratch.data_ptr()
        self.addresses = upload.data_ptr(), begin, *(begin + end for end in self._ends[:-1])

    # Views are made only where one is used: each call of torch may cost a wait for the GIL.

    @property
    def targets(self) -> torch.Tensor:
        """(n,) uint8: the pixels."""
        return self._scratch[self._ends[0] : self._ends[1]]

    @property
    def scans(self) -> torch.Tensor:
        """(n,) uint8: the segments."""
        return self._scratch[self._ends[2] : self._ends[3]]


class Arena:
    """The memory of one batch in progress.

    Attributes:
        device, stream: of the memory.
        slots: for decoded images, the largest first.
        addresses, capacities: (n,) of the slots; capacities in bytes.
        uploads: workspace for images that Pillow decoded.
        work: workspace for the kernels.
        shrunken: images that were scaled down for a cache, by row.
        settled: event that passes once the JPEG kernels have run and their statuses are on the CPU.
        free: event that passes once nothing uses the arena.
        times: times of the GPU's work.
    """

    def __init__(self, device: torch.device, stream: torch.cuda.Stream, times: CudaEvents, scratch: Scratch) -> None:
        self.device, self.stream, self.times, self._scratch = device, stream, times, scratch
        self.slots: list[Slot] = []
        self.addresses: NDArray[np.uint64] = np.zeros(0, dtype=np.uint64)
        self.capacities: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.uploads, self.work = Workspace(device), Workspace(device, scratch.intermediates)
        self._pixels, self._jpegs = ReusedBuffer(device=device), ReusedBuffer(device=device)
        self._found = ReusedBuffer(pin_memory=True)
        self._later: list[torch.Tensor] = []
        self._pinned: list[torch.Tensor] = []
        self.shrunken: dict[int, torch.Tensor] = {}
        # Waiting for them sleeps instead of spinning.
        self.settled, self.free = torch.cuda.Event(blocking=True), torch.cuda.Event(blocking=True)

    def begin(self, staged: StagedBatch | StagedClips) -> None:
        """Begins a batch, once `free` has passed: gives back the last batch's pinned memory, and keeps this batch's."""
        for memory in self._pinned:
            staged.pool.give_back(memory)
        self._pinned = staged.take_memory()
        self._later.clear()
        self.shrunken.clear()

    def jpeg_memory(self, launch: JpegLaunch) -> JpegMemory:
        """Memory for the JPEGs of a batch; the upload is valid until the arena's next batch."""
        needed = launch.sample_bytes, launch.target_bytes, launch.lookup_bytes, launch.scan_bytes
        sizes = [-(-size // _ALIGN) * _ALIGN for size in needed]
        return JpegMemory(self._jpegs.get(launch.upload_bytes), self._scratch.jpegs.get(sum(sizes)), sizes)

    def copy_back(
        self, memory: JpegMemory, launch: JpegLaunch, count: int
    ) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """Queues copies of what the kernels found to pinned memory; `settled` passes after them.

        Returns:
            the statuses, (count,) int32, and the segments of scans, (segment_bytes,) uint8.
        """
        found = self._found.get(4 * count + launch.segment_bytes)
        statuses = memory.upload[launch.statuses_at : launch.statuses_at + 4 * count]
        found[: 4 * count].copy_(statuses, non_blocking=True)
        if launch.segment_bytes:
            found[4 * count :].copy_(memory.scans[: launch.segment_bytes], non_blocking=True)
        self.settled.record(self.stream)
        copies: NDArray[np.uint8] = found.numpy()
        return copies[: 4 * count].view(np.int32), copies[4 * count :]

    def upload_more(self, arrays: Sequence[NDArray[np.uint8]]) -> list[torch.Tensor]:
        """Uploads further images, by a copy each that the CPU waits for."""
        uploaded = [torch.from_numpy(array.reshape(-1)).to(self.device) for array in arrays]
        self._later += uploaded
        return uploaded

    def upload_pixels(self, staged: StagedBatch) -> torch.Tensor | None:
        """Uploads the images that arrive decoded, by one copy on the current stream: (n,) uint8; None without any."""
        return self.upload([staged.pixels])[0] if len(staged.pixel_rows) else None

    def upload(self, blocks: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Uploads pinned memory, (n,) uint8 each, on the current stream; valid until the arena's next batch."""
        *starts, size = itertools.accumulate((-(-block.nelement() // _ALIGN) * _ALIGN for block in blocks), initial=0)
        memory = self._pixels.get(size)
        return [
            memory[start : start + block.nelement()].copy_(block, non_blocking=True)
            for start, block in zip(starts, blocks, strict=True)
        ]

    def reserve_slots(
        self, sizes: NDArray[np.int64], decoder: NvImageCodecDecoder
    ) -> tuple[list[Slot], NDArray[np.uint64]]:
        """Slots of at least these sizes in bytes, and their addresses.

        The largest images of every batch take the same slots, so that few slots grow large.
        """
        n = len(sizes)
        if (missing := n - len(self.slots)) > 0:
            self.slots += [Slot(self.device, self.stream) for _ in range(missing)]
            self.addresses = np.pad(self.addresses, (0, missing))
            self.capacities = np.pad(self.capacities, (0, missing))
        order = (-sizes).argsort(kind="stable")
        needed, capacities = sizes[order], self.capacities[:n]
        unfit = (capacities < needed) | (capacities > np.maximum(needed, _MAX_KEPT_BYTES))
        unfit_slots = unfit.nonzero()[0].tolist()
        self.capacities[unfit_slots] = 0  # until the allocation, which may fail, has succeeded
        for k in unfit_slots:
            self.addresses[k], self.capacities[k] = self.slots[k].reallocate(int(needed[k]), decoder)
        if unfit_slots:
            # Earlier work on this stream may still use memory from torch's allocator; the decoder might not wait.
            self.stream.synchronize()
        ranks = order.argsort()
        return [self.slots[k] for k in ranks.tolist()], self.addresses[ranks]
