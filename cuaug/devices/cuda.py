"""Runs plans on a GPU: the same kernels, through NVRTC and CuPy; memory and streams are torch's.

One launch a pass for the whole batch, one upload of its tables from pinned memory; the zeros that statistics begin with
travel in it, or where they are many take a fill of their own. Everything is queued on torch's current stream and
nothing waits for the device.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug._runtime.fork import fork_safe_lock
from cuaug._runtime.native import address, library
from cuaug.devices import nvrtc
from cuaug.errors import DeviceError
from cuaug.plan import CompiledPlan

__all__ = ["THREADS", "CudaExecutor", "Kernels", "Workspace"]
__all__ += ["fills", "forked", "kernels", "scratch_bytes", "unavailable"]

#: Threads a block: any multiple of a warp, up to the 256 that `resample` is compiled for.
THREADS = 128
# Output pixels that one block computes, (rows, most columns), in order of preference: the first whose scratch fits.
_TILES = ((32, 128), (8, 128), (4, 64), (4, 32), (2, 32), (1, 16), (1, 4), (1, 1))
# Shared memory that every architecture grants without asking.
_DEFAULT_SHARED_BYTES = 48 << 10
# The grid's third side: a larger batch takes more launches.
_MOST_SAMPLES = 65535
_ALIGN = 256
# So many zeros are uploaded with the tables; more are filled in on the device, which is a launch more.
_MOST_ZEROS_BYTES = 256 << 10
# Memory of a workspace goes after it was more than this times too large for so many batches in a row.
_FAR_TOO_LARGE, _PATIENCE = 4, 64


def forked() -> str:
    """What keeps a forked process from CUDA; empty where nothing does."""
    if not torch.cuda._is_in_bad_fork():
        return ""
    return (
        "this process was forked from one that had used CUDA already, and cannot use it itself: start processes with "
        "spawn (DataLoader(multiprocessing_context='spawn')), or load on the GPU in the parent"
    )


def unavailable(device: torch.device) -> str:
    """Why plans cannot run on this device; empty where they can."""
    if reason := forked():
        return reason
    if not torch.cuda.is_available():
        return "torch finds no CUDA device" if torch.version.cuda else "this torch is built without CUDA"
    if (device.index or 0) >= torch.cuda.device_count():
        return f"there is no {device}: torch sees {torch.cuda.device_count()} CUDA device(s)"
    try:
        kernels(torch.cuda.current_device() if device.index is None else device.index)
    except DeviceError as error:
        return str(error)
    return ""


class Kernels(NamedTuple):
    """The entry points of kernels/cuda/augment.cu, which says what each is for."""

    augment: Any
    resample: Any


# By the device's number; never replaced: a module that goes takes its kernels with it, also those that are queued.
_kernels: dict[int, Kernels] = {}
_loading = fork_safe_lock()


def kernels(device_index: int) -> Kernels:
    """The compiled kernels, loaded on one device: the same ones for all threads.

    Raises:
        DeviceError: CuPy or NVRTC is missing, or the kernels do not compile or load there.
    """
    with _loading:
        if device_index not in _kernels:
            _kernels[device_index] = _load(device_index)
        return _kernels[device_index]


def _load(device_index: int) -> Kernels:
    try:
        major, minor = torch.cuda.get_device_capability(device_index)
        cubin = nvrtc.cached(f"{major}{minor}")
        from cupy.cuda import function

        # Not CuPy's guard: on leaving, that makes a context on the device that was current before.
        with torch.cuda.device(device_index):
            module = function.Module()
            module.load(cubin)
            return Kernels(*map(module.get_function, Kernels._fields))
    except DeviceError:
        raise
    except RuntimeError as error:  # torch's, or CuPy's of the driver or of its runtime
        raise DeviceError(f"the kernels do not load on CUDA device {device_index}: {error}") from error


class _Stream(NamedTuple):
    """All that CuPy's launcher asks of a stream. The public ways to wrap one differ between CuPy 13 and 14."""

    ptr: int


class _Kept:
    """Memory that is asked for once, and used again by every batch that fits into it."""

    def __init__(self, **where: Any) -> None:
        self._where = where
        self._memory: torch.Tensor | None = None
        self._too_large = 0

    def hold(self, size: int) -> torch.Tensor:
        """(size,) uint8, uninitialised; valid until the next call."""
        memory = self._memory
        held = 0 if memory is None else memory.nelement()
        self._too_large = self._too_large + 1 if held > _FAR_TOO_LARGE * size else 0
        if memory is None or held < size or self._too_large == _PATIENCE:
            self._too_large = 0
            self._memory = memory = None  # before more is asked for
            room = size // 8 if held else 0  # the second time it is not the last, either
            self._memory = memory = torch.empty(size + room, dtype=torch.uint8, **self._where)
        return memory[:size]


class Workspace:
    """What a run needs beside images: pinned and device memory for its tables, and for what lies between its passes.

    Kept from batch to batch, it allocates nothing once it has seen the largest. It must not be used again before all
    that the last run queued has run: whoever keeps one waits for that. One that is let go needs no waiting: torch hands
    pinned memory out again once the copy from it has run, and device memory to work queued later on the same stream.
    """

    def __init__(self, device: torch.device) -> None:
        self._pinned = _Kept(pin_memory=True)
        self._tables, self._between, self._statistics = (_Kept(device=device) for _ in range(3))

    def between(self, size: int) -> int:
        """The address of so many bytes of device memory."""
        return self._between.hold(size).data_ptr()

    def zeros(self, size: int) -> int:
        """The address of so many bytes of device memory, of 0: a fill on the current stream."""
        return self._statistics.hold(size).zero_().data_ptr()

    def upload(self, *parts: NDArray[Any]) -> list[torch.Tensor]:
        """The bytes of each part in device memory: one copy on the current stream. Valid until the next upload."""
        self.stage(*parts)
        memory = self._sent()
        return [memory[start:end] for start, end in self._places]

    def stage(self, *parts: NDArray[Any]) -> list[NDArray[Any]]:
        """A copy of each part, to be changed and sent; in pinned memory."""
        flat = [part.reshape(-1).view(np.uint8) for part in parts]  # NumPy copies structured types field by field
        *starts, size = itertools.accumulate((-(-len(part) // _ALIGN) * _ALIGN for part in flat), initial=0)
        self._staged = self._pinned.hold(size)
        host = self._staged.numpy()
        self._places = [(start, start + len(part)) for start, part in zip(starts, flat, strict=True)]
        copies = []
        for (start, end), own, part in zip(self._places, flat, parts, strict=True):
            host[start:end] = own
            copies.append(host[start:end].view(part.dtype).reshape(part.shape))
        return copies

    def send(self) -> list[int]:
        """Like `upload`, of what is staged: the addresses; null of what is empty."""
        begin = self._sent().data_ptr()
        return [begin + start if end > start else 0 for start, end in self._places]

    def _sent(self) -> torch.Tensor:
        memory = self._tables.hold(self._staged.nelement())
        return memory.copy_(self._staged, non_blocking=True)


def fills(tables: CompiledPlan) -> int:
    """How many fills of memory running these tables takes beside its kernel launches: 1 or 0."""
    return int(8 * tables.statistics > _MOST_ZEROS_BYTES)


class CudaExecutor:
    """The tables of a batch, ready to run.

    Args:
        tables: what to do; not written to.
        tile: (rows, columns) of the output that one block computes; None: chosen. All give the same bits.
    """

    def __init__(self, tables: CompiledPlan, *, tile: tuple[int, int] | None = None) -> None:
        self.tables = tables
        self._tile = tile

    def run(
        self,
        sources: NDArray[np.uint64],
        target: torch.Tensor,
        *,
        finals: NDArray[np.uint64] | None = None,
        pitches: NDArray[np.int64] | None = None,
        skip: NDArray[np.bool_] | None = None,
        workspace: Workspace | None = None,
    ) -> int:
        """Queues the launches on torch's current stream of the target's device.

        Args:
            sources: (N,) device addresses of whole images, each (H, W, 3) packed, of the type the plan was made for.
            target: (N, ...) finished images, contiguous, of the type and layout that the tables give.
            finals: (N,) addresses of the finished images, where `target` has only some of them.
            pitches: (N,) bytes from one row to the next, where sources are not packed: of a picture that is there in
                part, `sources` has where its first pixel would be.
            skip: (N,) samples to leave out, if any; their part of `target` is not written.
            workspace: memory to work in, which no queued work uses any more; None: new.

        Returns:
            how many kernels were launched.
        """
        device = target.device
        tables = self.tables
        if not len(sources) or (skip is not None and skip.all()):
            return 0
        functions = kernels(device.index)
        workspace = workspace or Workspace(device)
        zeros = np.zeros(0 if fills(tables) else tables.statistics, dtype=np.int64)
        rows, *_ = workspace.stage(tables.rows, tables.ops, tables.luts, zeros)
        if skip is not None:
            rows["active"][:, skip] = 0
        if pitches is not None:
            rows["pitch"][0] = pitches
        if finals is None:
            step = target.stride(0) * target.element_size()
            finals = np.uint64(target.data_ptr()) + np.arange(rows.shape[1], dtype=np.uint64) * np.uint64(step)
        _address(rows, sources, finals, workspace)
        rows_at, ops_at, luts_at, statistics_at = workspace.send()
        if fills(tables):
            statistics_at = workspace.zeros(8 * tables.statistics)

        stream = _Stream(torch.cuda.current_stream(device).cuda_stream)
        (passes, n), launches = rows.shape, 0
        with torch.cuda.device(device):
            for number in range(passes):
                height, width = (int(rows[axis]["out"][number].max()) for axis in ("y", "x"))
                simple = library.cuaug_is_simple(address(rows[number]), n, address(tables.ops))
                function = functions.resample if simple else functions.augment
                tile_rows, tile_columns, shared = self._fit(rows[number], height, width, function, device)
                down, across = -(-height // tile_rows), -(-width // tile_columns)
                for first in range(0, n, _MOST_SAMPLES):
                    at = number * n + first
                    function(
                        (down, across, min(n - first, _MOST_SAMPLES)),
                        (THREADS, 1, 1),
                        (
                            np.uint64(rows_at + at * rows.itemsize),
                            np.uint64(ops_at),
                            np.uint64(luts_at),
                            np.uint64(statistics_at),  # null where nothing is measured
                            np.int32(tile_rows),
                            np.int32(tile_columns),
                        ),
                        shared_mem=shared,
                        stream=stream,
                    )
                    launches += 1
        return launches

    def _fit(
        self, rows: NDArray[Any], height: int, width: int, function: Any, device: torch.device
    ) -> tuple[int, int, int]:
        """(tile rows, tile columns, bytes of shared memory): the first tile whose scratch fits.

        height, width: of the largest output.
        """
        for high, wide in [self._tile] if self._tile else _TILES:
            # Equal tiles, instead of full ones and a narrow rest.
            high, columns = min(high, height), -(-width // -(-width // wide))
            shared = scratch_bytes(rows, high, columns)
            if shared <= _DEFAULT_SHARED_BYTES:
                return high, columns, shared
        from cupy.cuda import driver, runtime

        most = runtime.deviceGetAttribute(runtime.cudaDevAttrMaxSharedMemoryPerBlockOptin, device.index)
        if shared > most:
            raise DeviceError(
                f"a resize shrinks so much that one output pixel needs {shared} bytes of shared memory; this GPU has "
                f"{most} for a block. Resize in two steps, or on the CPU"
            )
        # Always the most: another thread may be about to launch with more than this one needs.
        driver.funcSetAttribute(function.ptr, driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most)
        return high, columns, shared


def scratch_bytes(rows: NDArray[Any], tile_rows: int, tile_columns: int) -> int:
    """The most scratch that a tile of any of these samples needs; `rows` are contiguous."""
    return 4 * int(library.cuaug_scratch_words(address(rows), len(rows), tile_rows, tile_columns))


def _address(rows: NDArray[Any], sources: NDArray[np.uint64], finals: NDArray[np.uint64], workspace: Workspace) -> None:
    """Fills in where each pass of each sample reads and writes; between the passes, in the workspace."""
    passes, n = rows.shape
    rows["source"][0], rows["target"] = sources, finals
    if passes == 1:
        return
    goes_on = rows["active"][1:] != 0
    area = rows["y"]["out"][:-1].astype(np.int64) * rows["x"]["out"][:-1]
    ends = np.cumsum(np.where(goes_on, -(-area * 12 // _ALIGN) * _ALIGN, 0))
    starts = np.concatenate([[0], ends[:-1]]).astype(np.uint64).reshape(passes - 1, n)
    starts += np.uint64(workspace.between(int(ends[-1])))
    rows["target"][:-1][goes_on] = rows["source"][1:][goes_on] = starts[goes_on]
