"""Memory of a run beside its input and output images, and where the images between two passes lie in it.

Images between passes lie in two ping-pong buffers: pass 0 writes the first, pass 1 reads it and writes the second, pass
2 reads that and writes the first again. The conversion of video frames to RGB comes before pass 0 and writes the first
buffer instead. Each buffer has the size of its largest pass. A batch whose buffers exceed the budget runs in chunks of
samples, one after the other, in the same memory.

CUDA streams that no other code in the process uses: `torch.cuda.Stream()` hands out one of 32 streams in turn. The 33rd
request, be it for a training step's side stream or for a graph capture, may get the stream that a loader decodes on.
"""

from __future__ import annotations

import itertools
import os
import weakref
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug.errors import DeviceError


class LaunchStream(NamedTuple):
    """A stream as CuPy's launcher reads it."""

    ptr: int


# By device index. Streams are never destroyed: torch's allocator keeps memory by the stream that used it.
_unused: dict[int, list[int]] = {}


def acquire(device: torch.device) -> torch.cuda.ExternalStream:
    """A stream for the caller alone while it holds the object.

    A later caller gets the stream behind its queued work. It waits for no other stream, not even the default one. Its
    priority is 0, the lowest, as is the default stream's: a stream cannot rank below that. Training goes first on a
    stream of priority -1 (docs/cuda.md).
    """
    assert device.index is not None
    unused = _unused.setdefault(device.index, [])
    try:
        handle = unused.pop()
    except IndexError:
        handle = _create(device.index)
    stream: Any = torch.cuda.ExternalStream(handle, device=device)
    # No weak reference to the stream itself: torch 2.11 frees streams without clearing those, and the interpreter then
    # crashes at its exit.
    stream.lease = _Lease()
    weakref.finalize(stream.lease, unused.append, handle).atexit = False
    return stream


class _Lease:
    """Lives as long as the stream that holds it."""


def _create(device_id: int) -> int:
    from cupy.cuda import Device, runtime

    with Device(device_id):
        return int(runtime.streamCreateWithFlags(runtime.streamNonBlocking))


_ALIGN = 256
# A buffer shrinks after it was this many times too large for this many requests in a row.
_SHRINK_FACTOR, _SHRINK_AFTER = 4, 64
# More takes memory from training, and hardly fewer launches: 4 GiB hold 29 images of 12 megapixels.
_MAX_DEFAULT_BUDGET = 4 << 30


class ReusedBuffer:
    """Memory that grows to the largest request and is reused by later ones."""

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._memory: torch.Tensor | None = None
        self._too_large = 0

    def get(self, size: int) -> torch.Tensor:
        """(size,) uint8, uninitialized; valid until the next call."""
        memory = self._memory
        capacity = 0 if memory is None else memory.nelement()
        self._too_large = self._too_large + 1 if capacity > _SHRINK_FACTOR * size else 0
        if memory is None or capacity < size or self._too_large == _SHRINK_AFTER:
            self._too_large = 0
            self._memory = memory = None  # freed before the new allocation
            room = size // 8 if capacity else 0  # a request that grew once will grow again
            self._memory = memory = torch.empty(size + room, dtype=torch.uint8, **self._options)
        return memory[:size]


class Workspace:
    """Memory of a run beside its input and output images.

    It holds the tables, pinned and on the device, statistics and intermediate images. It is reused from batch to batch
    and allocates nothing once it has seen the largest. The caller must wait for the last run's queued work before
    reusing it. Dropping it needs no waiting: torch reuses pinned memory only after the copy from it, and device memory
    only for work queued later on the same stream.

    Args:
        intermediates: device memory for images between passes. Workspaces whose runs are queued on one stream can
            share it without waiting; None: of its own.
    """

    def __init__(self, device: torch.device, intermediates: ReusedBuffer | None = None) -> None:
        self._pinned = ReusedBuffer(pin_memory=True)
        self._tables, self._statistics = ReusedBuffer(device=device), ReusedBuffer(device=device)
        self._intermediates = intermediates or ReusedBuffer(device=device)

    def intermediate_memory(self, size: int) -> int:
        """Address of `size` bytes of device memory for images between passes."""
        return self._intermediates.get(size).data_ptr()

    def zeros(self, size: int) -> int:
        """Address of `size` zero bytes of device memory, filled on the current stream."""
        return self._statistics.get(size).zero_().data_ptr()

    def upload(self, *arrays: NDArray[Any]) -> list[torch.Tensor]:
        """Uploads arrays by one copy on the current stream; valid until the next upload."""
        self.copy_to_pinned(*arrays)
        memory = self._copy_to_device()
        return [memory[start:end] for start, end in self._ranges]

    def copy_to_pinned(self, *arrays: NDArray[Any]) -> list[NDArray[Any]]:
        """Copies of the arrays in pinned memory, to be edited before `upload_pinned`."""
        flat = [array.reshape(-1).view(np.uint8) for array in arrays]  # NumPy copies structured types field by field
        *starts, size = itertools.accumulate((-(-len(part) // _ALIGN) * _ALIGN for part in flat), initial=0)
        self._staged = self._pinned.get(size)
        host = self._staged.numpy()
        self._ranges = [(start, start + len(part)) for start, part in zip(starts, flat, strict=True)]
        copies = []
        for (start, end), part, array in zip(self._ranges, flat, arrays, strict=True):
            host[start:end] = part
            copies.append(host[start:end].view(array.dtype).reshape(array.shape))
        return copies

    def upload_pinned(self) -> list[int]:
        """Uploads the arrays of `copy_to_pinned`; their device addresses, null for an empty one."""
        begin = self._copy_to_device().data_ptr()
        return [begin + start if end > start else 0 for start, end in self._ranges]

    def _copy_to_device(self) -> torch.Tensor:
        memory = self._tables.get(self._staged.nelement())
        return memory.copy_(self._staged, non_blocking=True)


def workspace_budget(device: torch.device) -> int:
    """Bytes for images between passes: CUAUG_WORKSPACE_BYTES, or an eighth of the device's memory and at most 4 GiB.

    Raises:
        DeviceError: the variable is not a positive number of bytes.
    """
    if text := os.environ.get("CUAUG_WORKSPACE_BYTES"):
        if not (text.isascii() and text.isdecimal() and int(text) > 0):
            raise DeviceError(f"CUAUG_WORKSPACE_BYTES: {text!r} is not a positive number of bytes, such as 1000000000")
        return int(text)
    return min(torch.cuda.get_device_properties(device).total_memory // 8, _MAX_DEFAULT_BUDGET)


def intermediate_bytes(rows: NDArray[Any]) -> NDArray[np.int64]:
    """(P - 1, N) bytes of each sample's image after passes 0, 1, ..., float32 HWC; 0 if no pass follows.

    Args:
        rows: (P, N) `SAMPLE`.
    """
    area = rows["y"]["out"][:-1].astype(np.int64) * rows["x"]["out"][:-1]
    return np.where(rows["active"][1:] != 0, -(-area * 12 // _ALIGN) * _ALIGN, 0)


def converted_bytes(frames: NDArray[Any]) -> NDArray[np.int64]:
    """(F,) bytes of the RGB pixels of the converted part of each frame.

    Args:
        frames: (F,) `YUV_IMAGE`.
    """
    return -(-frames["rows"].astype(np.int64) * frames["columns"] * 3 // _ALIGN) * _ALIGN


def chunk_bounds(sizes: NDArray[np.int64], budget: int, max_samples: int) -> list[tuple[int, int]]:
    """[begin, end) of the samples that run together: as many as fit the budget, at least one.

    Args:
        sizes: of `intermediate_bytes`.
        budget: most bytes of both buffers.
    """
    bounds, n = [], sizes.shape[1]
    for begin in range(0, n, max_samples):
        end = min(begin + max_samples, n)
        if sum(_buffer_bytes(sizes[:, begin:end].sum(axis=1))) > budget:
            totals = np.zeros(len(sizes), dtype=np.int64)
            for i in range(begin, end):
                totals += sizes[:, i]
                if i > begin and sum(_buffer_bytes(totals)) > budget:
                    bounds.append((begin, i))
                    begin, totals = i, sizes[:, i].copy()
        bounds.append((begin, end))
    return bounds


def place(sizes: NDArray[np.int64]) -> tuple[NDArray[np.uint64], int]:
    """Where a chunk's images between passes lie: (P - 1, n) offsets in bytes, and the bytes of both buffers.

    Args:
        sizes: (P - 1, n) of `intermediate_bytes`.
    """
    ends = sizes.cumsum(axis=1)
    first, second = _buffer_bytes(ends[:, -1])
    offsets = ends - sizes
    offsets[1::2] += first
    return offsets.astype(np.uint64), first + second


def _buffer_bytes(totals: NDArray[np.int64]) -> tuple[int, int]:
    """Bytes of the two buffers for passes that write `totals`, (P - 1,) bytes."""
    return int(totals[0::2].max(initial=0)), int(totals[1::2].max(initial=0))
