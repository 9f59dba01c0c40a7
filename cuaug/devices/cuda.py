"""`CudaExecutor`: runs plans on a GPU. The only module that launches CUDA kernels.

NVRTC compiles the kernels, CuPy launches them; memory and streams are torch's. The module handles:
    - an empty batch, and one whose samples are all skipped: no launch;
    - the grid: tiles by ceil-division, a launch per pass, more of them for a batch beyond the grid's third side;
    - streams: everything is queued on torch's current stream, and nothing waits for the device;
    - caching per device: compiled kernels are loaded once, a `Workspace` reuses its memory from batch to batch;
    - uploads: one copy of a batch's tables from pinned memory. A few zeros for statistics travel in it; many take a
      fill of their own.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug._runtime.native import address, library
from cuaug.devices.kernel_loading import Kernels, kernels, shared_memory_limit
from cuaug.errors import DeviceError
from cuaug.plan import CompiledPlan

__all__ = ["THREADS", "CudaExecutor", "Kernels", "Workspace"]
__all__ += ["availability_error", "count_fills", "fork_error", "kernels", "scratch_bytes"]

#: Threads per block: any multiple of a warp, up to the 256 that `resample` is compiled for.
THREADS = 128
# Output pixels per block, (rows, most columns), in order of preference: the first whose scratch memory fits.
_TILES = ((32, 128), (8, 128), (4, 64), (4, 32), (2, 32), (1, 16), (1, 4), (1, 1))
# Shared memory per block that every architecture grants without opting in.
_DEFAULT_SHARED_BYTES = 48 << 10
# Limit of the grid's third side; a larger batch takes more launches.
_MAX_SAMPLES = 65535
_ALIGN = 256
# More zeros than this are filled in on the device, which is a launch more, instead of uploaded.
_MAX_ZEROS_BYTES = 256 << 10
# A buffer shrinks after it was this many times too large for this many requests in a row.
_SHRINK_FACTOR, _SHRINK_AFTER = 4, 64


def fork_error() -> str:
    """Why this forked process cannot use CUDA; empty if it can."""
    if not torch.cuda._is_in_bad_fork():
        return ""
    return (
        "this process was forked from one that had used CUDA already, and cannot use it itself: start processes with "
        "spawn (DataLoader(multiprocessing_context='spawn')), or load on the GPU in the parent"
    )


def availability_error(device: torch.device) -> str:
    """Why plans cannot run on this device; empty if they can."""
    if error := fork_error():
        return error
    if not torch.cuda.is_available():
        return "torch finds no CUDA device" if torch.version.cuda else "this torch is built without CUDA"
    if (device.index or 0) >= torch.cuda.device_count():
        return f"there is no {device}: torch sees {torch.cuda.device_count()} CUDA device(s)"
    try:
        kernels(torch.cuda.current_device() if device.index is None else device.index)
    except DeviceError as error:
        return str(error)
    return ""


class _Stream(NamedTuple):
    """A stream as CuPy's launcher reads it."""

    ptr: int


class _ReusedBuffer:
    """Memory that grows to the largest request and is reused by later ones."""

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._memory: torch.Tensor | None = None
        self._too_large = 0

    def get(self, size: int) -> torch.Tensor:
        """(size,) uint8, uninitialised; valid until the next call."""
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
    """

    def __init__(self, device: torch.device) -> None:
        self._pinned = _ReusedBuffer(pin_memory=True)
        self._tables, self._intermediates, self._statistics = (_ReusedBuffer(device=device) for _ in range(3))

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


def count_fills(compiled: CompiledPlan) -> int:
    """Number of memory fills that a run queues: 0 or 1."""
    return int(8 * compiled.statistics > _MAX_ZEROS_BYTES)


class CudaExecutor:
    """Runs a compiled plan on a GPU.

    Args:
        compiled: read only.
        tile: (rows, columns) of the output per block; None chooses. The bits are the same.
    """

    def __init__(self, compiled: CompiledPlan, *, tile: tuple[int, int] | None = None) -> None:
        self.compiled = compiled
        self._tile = tile

    def run(
        self,
        sources: NDArray[np.uint64],
        target: torch.Tensor,
        *,
        target_addresses: NDArray[np.uint64] | None = None,
        pitches: NDArray[np.int64] | None = None,
        skip: NDArray[np.bool_] | None = None,
        workspace: Workspace | None = None,
    ) -> int:
        """Queues the launches on torch's current stream of the target's device.

        Args:
            sources: (N,) device addresses of whole images, each (H, W, 3) packed, of the plan's source type.
            target: (N, ...) finished images, contiguous, of the plan's target type and layout.
            target_addresses: (N,) addresses of the finished images, if `target` holds only some of them.
            pitches: (N,) bytes from one row to the next, if sources are not packed. For an image that is decoded in
                part, `sources` holds the address its first pixel would have.
            skip: (N,) bool, samples to leave out; their part of `target` is not written.
            workspace: reused memory that no queued work reads; None allocates.

        Returns:
            the number of kernel launches.
        """
        device, compiled = target.device, self.compiled
        if not len(sources) or (skip is not None and skip.all()):
            return 0
        functions = kernels(device.index)
        workspace = workspace or Workspace(device)
        zeros = np.zeros(0 if count_fills(compiled) else compiled.statistics, dtype=np.int64)
        rows, *_ = workspace.copy_to_pinned(compiled.rows, compiled.ops, compiled.luts, zeros)
        if skip is not None:
            rows["active"][:, skip] = 0
        if pitches is not None:
            rows["pitch"][0] = pitches
        if target_addresses is None:
            step = target.stride(0) * target.element_size()
            offsets = np.arange(rows.shape[1], dtype=np.uint64) * np.uint64(step)
            target_addresses = np.uint64(target.data_ptr()) + offsets
        _set_addresses(rows, sources, target_addresses, workspace)
        rows_at, ops_at, luts_at, statistics_at = workspace.upload_pinned()
        if count_fills(compiled):
            statistics_at = workspace.zeros(8 * compiled.statistics)

        stream = _Stream(torch.cuda.current_stream(device).cuda_stream)
        (passes, n), launches = rows.shape, 0
        with torch.cuda.device(device):
            for number in range(passes):
                height, width = (int(rows[axis]["out"][number].max()) for axis in ("y", "x"))
                simple = library.cuaug_is_resample_pass(address(rows[number]), n, address(compiled.ops))
                function = functions.resample if simple else functions.augment
                tile_rows, tile_columns, shared_bytes = self._choose_tile(rows[number], height, width, device)
                down, across = -(-height // tile_rows), -(-width // tile_columns)
                for first in range(0, n, _MAX_SAMPLES):
                    function(
                        (down, across, min(n - first, _MAX_SAMPLES)),
                        (THREADS, 1, 1),
                        (
                            np.uint64(rows_at + (number * n + first) * rows.itemsize),
                            np.uint64(ops_at),
                            np.uint64(luts_at),
                            np.uint64(statistics_at),  # null without statistics
                            np.int32(tile_rows),
                            np.int32(tile_columns),
                        ),
                        shared_mem=shared_bytes,
                        stream=stream,
                    )
                    launches += 1
        return launches

    def _choose_tile(self, rows: NDArray[Any], height: int, width: int, device: torch.device) -> tuple[int, int, int]:
        """(tile rows, tile columns, bytes of shared memory) for outputs of at most height x width."""
        for max_rows, max_columns in [self._tile] if self._tile else _TILES:
            # Equal tiles, instead of full ones and a narrow rest.
            tile_rows, tile_columns = min(max_rows, height), -(-width // -(-width // max_columns))
            shared_bytes = scratch_bytes(rows, tile_rows, tile_columns)
            if shared_bytes <= _DEFAULT_SHARED_BYTES:
                return tile_rows, tile_columns, shared_bytes
        limit = shared_memory_limit(device.index)
        if shared_bytes > limit:
            raise DeviceError(
                f"a resize shrinks so much that one output pixel needs {shared_bytes} bytes of shared memory; this GPU "
                f"has {limit} for a block. Resize in two steps, or on the CPU"
            )
        return tile_rows, tile_columns, shared_bytes


def scratch_bytes(rows: NDArray[Any], tile_rows: int, tile_columns: int) -> int:
    """The most scratch memory that a tile of any sample needs; `rows` are contiguous."""
    return 4 * int(library.cuaug_scratch_words(address(rows), len(rows), tile_rows, tile_columns))


def _set_addresses(
    rows: NDArray[Any], sources: NDArray[np.uint64], targets: NDArray[np.uint64], workspace: Workspace
) -> None:
    """Sets where passes read and write; intermediate images lie in the workspace."""
    passes, n = rows.shape
    rows["source"][0], rows["target"] = sources, targets
    if passes == 1:
        return
    continues = rows["active"][1:] != 0
    area = rows["y"]["out"][:-1].astype(np.int64) * rows["x"]["out"][:-1]
    ends = np.cumsum(np.where(continues, -(-area * 12 // _ALIGN) * _ALIGN, 0))
    starts = np.concatenate([[0], ends[:-1]]).astype(np.uint64).reshape(passes - 1, n)
    starts += np.uint64(workspace.intermediate_memory(int(ends[-1])))
    rows["target"][:-1][continues] = rows["source"][1:][continues] = starts[continues]
