"""Runs plans on a GPU: the same kernels, through NVRTC and CuPy; memory and streams are torch's.

One launch a pass for the whole batch, one upload of its tables from pinned memory. Everything is queued on torch's
current stream and nothing waits for the device.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug.devices import nvrtc
from cuaug.errors import DeviceError
from cuaug.plan import Tables

__all__ = ["THREADS", "CudaProgram", "kernel", "unavailable"]

#: Threads a block. The kernels take any number.
THREADS = 128
# Output pixels that one block computes, (rows, most columns), in order of preference: the first whose scratch fits.
_TILES = ((8, 128), (4, 64), (2, 32), (1, 16), (1, 4), (1, 1))
# Shared memory that every architecture grants without asking.
_DEFAULT_SHARED_BYTES = 48 << 10
_ALIGN = 256


def unavailable(device: torch.device) -> str:
    """Why plans cannot run on this device; empty where they can."""
    if not torch.cuda.is_available():
        return "torch finds no CUDA device" if torch.version.cuda else "this torch is built without CUDA"
    if (device.index or 0) >= torch.cuda.device_count():
        return f"there is no {device}: torch sees {torch.cuda.device_count()} CUDA device(s)"
    try:
        kernel(torch.cuda.current_device() if device.index is None else device.index)
    except DeviceError as error:
        return str(error)
    return ""


@functools.cache
def kernel(device_index: int) -> Any:
    """The compiled kernel, loaded on one device.

    Raises:
        DeviceError: CuPy or NVRTC is missing, or the kernels do not compile or load there.
    """
    major, minor = torch.cuda.get_device_capability(device_index)
    cubin = nvrtc.cached(f"{major}{minor}")
    import cupy

    try:
        with cupy.cuda.Device(device_index):
            module = cupy.cuda.function.Module()
            module.load(cubin)
            return module.get_function("augment")
    except cupy.cuda.driver.CUDADriverError as error:
        raise DeviceError(f"the kernels do not load on CUDA device {device_index}: {error}") from error


class CudaProgram:
    """The tables of a batch, ready to run.

    Args:
        tables: what to do; not written to.
        tile: (rows, columns) of the output that one block computes; None: chosen. All give the same bits.
    """

    def __init__(self, tables: Tables, *, tile: tuple[int, int] | None = None) -> None:
        self.tables = tables
        self._tile = tile

    def run(
        self, sources: NDArray[np.uint64], target: torch.Tensor, *, skip: NDArray[np.bool_] | None = None
    ) -> int:
        """Queues the launches on torch's current stream of the target's device.

        Args:
            sources: (N,) device addresses of whole images, each (H, W, 3) packed, of the type the plan was made for.
            target: (N, ...) finished images, contiguous, of the type and layout that the tables give.
            skip: (N,) samples to leave out; their part of `target` is not written.

        Returns:
            how many kernels were launched.
        """
        import cupy

        device = target.device
        rows = self.tables.rows.copy()
        if skip is not None:
            rows["active"][:, skip] = 0
        if not rows["active"].any():
            return 0
        function = kernel(device.index)
        step = target.stride(0) * target.element_size()
        finals = np.uint64(target.data_ptr()) + np.arange(rows.shape[1], dtype=np.uint64) * np.uint64(step)
        scratch = _address(rows, sources, finals, device)
        memory, (rows_at, ops_at, luts_at, sums_at) = _upload(rows, self.tables.ops, self.tables.luts, device)

        stream = cupy.cuda.ExternalStream(torch.cuda.current_stream(device).cuda_stream, device.index)
        n, row_bytes = rows.shape[1], rows.itemsize
        with cupy.cuda.Device(device.index):
            for number, batch in enumerate(rows):
                tile_rows, tile_columns, shared = self._fit(batch, function)
                active = batch[batch["active"] != 0]
                down = -(-int(active["y"]["out"].max()) // tile_rows)
                across = -(-int(active["x"]["out"].max()) // tile_columns)
                function(
                    (across, down, n),
                    (THREADS, 1, 1),
                    (
                        np.uint64(rows_at + number * n * row_bytes),
                        np.uint64(ops_at),
                        np.uint64(luts_at),
                        np.uint64(sums_at + (number - 1) * n * 8 if number else 0),
                        np.uint64(sums_at + number * n * 8),
                        np.int32(tile_rows),
                        np.int32(tile_columns),
                    ),
                    shared_mem=shared,
                    stream=stream,
                )
        # Freed memory is handed out again only to work queued later on this same stream.
        del memory, scratch
        return len(rows)

    def _fit(self, rows: NDArray[Any], function: Any) -> tuple[int, int, int]:
        """(tile rows, tile columns, bytes of shared memory): the first tile whose scratch fits."""
        active = rows[rows["active"] != 0]
        for high, wide in [self._tile] if self._tile else _TILES:
            # Equal tiles, instead of full ones and a narrow rest.
            width = int(active["x"]["out"].max())
            columns = wide if self._tile else -(-width // -(-width // wide))
            shared = scratch_bytes(active, high, columns)
            if shared <= _DEFAULT_SHARED_BYTES:
                return high, columns, shared
        most = torch.cuda.get_device_properties(torch.cuda.current_device()).shared_memory_per_block_optin
        if shared > most:
            raise DeviceError(
                f"a resize shrinks so much that one output pixel needs {shared} bytes of shared memory; this GPU has "
                f"{most} for a block. Resize in two steps, or on the CPU"
            )
        function.max_dynamic_shared_size_bytes = max(function.max_dynamic_shared_size_bytes, shared)
        return high, columns, shared


def scratch_bytes(rows: NDArray[Any], tile_rows: int, tile_columns: int) -> int:
    """The most scratch that a tile of any of these samples needs: kernels/augment.h says of what it is made."""
    y, x = rows["y"], rows["x"]
    line = np.ceil(tile_columns * x["scale"]).astype(np.int64) + 2 * x["taps"] + 2
    line = np.minimum(line, x["high"].astype(np.int64) - x["low"])
    floats = tile_rows * (2 + y["taps"]) + tile_columns * (2 + x["taps"]) + 3 * line + 1
    return int(floats.max()) * 4


def _address(
    rows: NDArray[Any], sources: NDArray[np.uint64], finals: NDArray[np.uint64], device: torch.device
) -> list[torch.Tensor]:
    """Fills in where each pass of each sample reads and writes; returns the memory between the passes."""
    rows["source"][0] = sources
    scratch = []
    for number in range(len(rows)):
        goes_on = rows["active"][number + 1] != 0 if number + 1 < len(rows) else np.zeros(len(finals), dtype=bool)
        rows["target"][number] = np.where(goes_on, 0, finals)
        if goes_on.any():
            sizes = np.where(goes_on, rows["y"]["out"][number].astype(np.int64) * rows["x"]["out"][number] * 12, 0)
            ends = np.cumsum(-(-sizes // _ALIGN) * _ALIGN)
            scratch.append(torch.empty(int(ends[-1]), dtype=torch.uint8, device=device))
            starts = np.uint64(scratch[-1].data_ptr()) + np.concatenate([[0], ends[:-1]]).astype(np.uint64)
            rows["target"][number][goes_on] = starts[goes_on]
            rows["source"][number + 1][goes_on] = starts[goes_on]
    return scratch


def _upload(
    rows: NDArray[Any], ops: NDArray[Any], luts: NDArray[np.float32], device: torch.device
) -> tuple[torch.Tensor, list[int]]:
    """Rows, operations, tables and zeroed sums in one copy; their device addresses."""
    sums = np.zeros(rows.shape, dtype=np.int64)
    parts = [part.reshape(-1).view(np.uint8) for part in (rows, ops, luts, sums)]
    ends = np.cumsum([-(-len(part) // _ALIGN) * _ALIGN for part in parts])
    starts = [0, *ends[:-1].tolist()]
    # torch keeps a pinned block from reuse until the copy out of it has run.
    host = torch.empty(int(ends[-1]), dtype=torch.uint8, pin_memory=True)
    for start, part in zip(starts, parts, strict=True):
        host.numpy()[start : start + len(part)] = part
    memory = host.to(device, non_blocking=True)
    return memory, [memory.data_ptr() + start for start in starts]
