"""`CudaExecutor`: runs plans on a GPU. The only module that launches CUDA kernels.

NVRTC compiles the kernels, CuPy launches them; memory and streams are torch's. The module handles:
    - an empty batch, and one whose samples are all skipped: no launch;
    - launches: one per pass, more for samples of very different scale, for a batch whose images between
      passes exceed the workspace (workspace.py), and for one beyond the grid's third side; one more for video frames;
    - streams: everything is queued on torch's current stream, and nothing waits for the device;
    - caching per device: compiled kernels are loaded once, a `Workspace` reuses its memory from batch to batch;
    - uploads: one copy of a batch's tables from pinned memory. A few zeros for statistics travel in it; many take a
      fill of their own.

A tile's scratch in shared memory grows with the scale of a resize, and a launch allocates the most that any of its
samples needs. Samples of very different scale are therefore launched apart, in up to three classes: one giant image
leaves the tiles of the others as they are. Most batches are of one class.

`decode_jpegs` launches the kernels that decode a batch of JPEGs (kernels/cuda/decode_jpeg.cu).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug._runtime.native import address, library
from cuaug.codec import JpegLaunch
from cuaug.devices.nvrtc import JpegKernels, convert_kernel, jpeg_kernels, kernels, shared_memory_limit
from cuaug.devices.specialize import Specializer
from cuaug.devices.workspace import (
    LaunchStream,
    Workspace,
    chunk_bounds,
    converted_bytes,
    intermediate_bytes,
    place,
    workspace_budget,
)
from cuaug.errors import DeviceError
from cuaug.plan import CompiledPlan, operations
from cuaug.plan.layout import RAW_SAMPLE, YUV_IMAGE, view_as

_counts = np.zeros(len(JpegKernels._fields), dtype=np.int64)
_TABLES_PER_SET = int(library.cuaug_jpeg_threads(address(_counts)))
#: Threads of a block of each kernel.
_THREADS = JpegKernels(*_counts.tolist())


def decode_jpegs(device: torch.device, launch: JpegLaunch, upload: int, lookups: int) -> None:
    """Queues the launches on torch's current stream of the device.

    Args:
        launch: of the batch, which `DeviceJpegs.finish` has finished for the same addresses.
        upload: address of the copy of the batch's memory, whose copy is queued on this stream.
        lookups: address of memory for Huffman look-up tables.
    """
    kernels, stream = jpeg_kernels(device.index), LaunchStream(torch.cuda.current_stream(device).cuda_stream)
    offsets = launch.definitions_at, launch.scans_at, launch.images_at, launch.blocks_at, launch.tiles_at
    definitions, scans, images, blocks, tiles = (np.uint64(upload + offset) for offset in offsets)
    launches: list[tuple[str, tuple[int, int, int], tuple[np.uint64, ...]]] = [
        ("build_lookups", (launch.sets, _TABLES_PER_SET, 1), (definitions, np.uint64(lookups))),
        ("scan_jpeg", (launch.scans, 1, 1), (scans,)),
        ("decode_jpeg", (launch.blocks, 1, 1), (images, blocks)),
        ("color_jpeg", (launch.tiles, 1, 1), (images, tiles)),
    ]
    with torch.cuda.device(device):
        for name, grid, arguments in launches:
            if grid[0]:
                block = (getattr(_THREADS, name), 1, 1)
                getattr(kernels, name)(grid, block, arguments, shared_mem=0, stream=stream)


#: Shared memory of a block that every GPU grants without opting in.
DEFAULT_SHARED_BYTES = 48 << 10
# A block may take up to this on request. Every GPU from Ampere on grants 99 KiB or more, Turing 64.
_MAX_SHARED_BYTES = 100 << 10


class _Tile(NamedTuple):
    max_rows: int
    max_columns: int
    max_shared_bytes: int


# The tiles of each class, the preferred first; a class takes the samples that its last tile fits. Blocks take more
# shared memory before they have fewer columns than threads, and fewer columns before they have fewer than 8 rows.
_CLASSES = (
    (_Tile(32, 128, DEFAULT_SHARED_BYTES), _Tile(8, 128, DEFAULT_SHARED_BYTES)),
    (_Tile(8, 128, _MAX_SHARED_BYTES),),
    (
        *(_Tile(*size, _MAX_SHARED_BYTES) for size in ((8, 64), (8, 32), (8, 16), (4, 8), (1, 4), (1, 1))),
        _Tile(1, 1, 1 << 30),  # all that the GPU grants
    ),
)


class Launch(NamedTuple):
    """A kernel launch for some samples of a pass.

    Attributes:
        samples: (n,) numbers of the samples, ascending.
        down, across: number of tiles.
        rows, columns: of a tile, in output pixels.
        shared_bytes: dynamic shared memory per block.
    """

    samples: NDArray[np.int64]
    down: int
    across: int
    rows: int
    columns: int
    shared_bytes: int


def plan_launches(rows: NDArray[Any], limit: int, tile: tuple[int, int] | None = None) -> list[Launch]:
    """The launches of a pass, none for samples that skip it.

    Args:
        rows: (N,) `SAMPLE`, contiguous.
        limit: bytes of shared memory that the GPU grants a block.
        tile: (rows, most columns) for all samples; None chooses.

    Raises:
        DeviceError: one pixel of a sample needs more shared memory than the GPU grants.
    """
    rest = rows["active"].nonzero()[0]
    if not len(rest):
        return []
    heights, widths = rows["y"]["out"], rows["x"]["out"]
    height, width = int(heights[rest].max()), int(widths[rest].max())
    scratch: dict[tuple[int, int], NDArray[np.int64]] = {}

    def size(tile: _Tile) -> tuple[int, int]:
        # Equal tiles, instead of full ones and a narrow rest.
        return min(tile.max_rows, height), -(-width // -(-width // tile.max_columns))

    def needs(tile: _Tile, group: NDArray[np.int64]) -> NDArray[np.int64]:
        shape = size(tile)
        if shape not in scratch:
            scratch[shape] = scratch_bytes(rows, *shape)
        return scratch[shape][group]

    def first_fit(tiles: Sequence[_Tile], group: NDArray[np.int64]) -> tuple[_Tile | None, int]:
        for tile in tiles:
            shared_bytes = int(needs(tile, group).max(initial=0))
            if shared_bytes <= min(tile.max_shared_bytes, limit):
                return tile, shared_bytes
        return None, 0

    launches = []
    for tiles in ((_Tile(*tile, limit),),) if tile else _CLASSES:
        group = rest
        chosen, shared_bytes = first_fit(tiles, group)
        if chosen is None:
            group = rest[needs(tiles[-1], rest) <= min(tiles[-1].max_shared_bytes, limit)]
            chosen, shared_bytes = first_fit(tiles, group)
        if chosen is None or not len(group):
            continue
        tile_rows, tile_columns = size(chosen)
        down = -(-int(heights[group].max()) // tile_rows)
        across = -(-int(widths[group].max()) // tile_columns)
        launches.append(Launch(group, down, across, tile_rows, tile_columns, shared_bytes))
        rest = np.setdiff1d(rest, group, assume_unique=True) if len(group) < len(rest) else rest[:0]
        if not len(rest):
            return launches
    least = scratch_bytes(rows, *(tile or (1, 1)))[rest].max()
    raise DeviceError(
        f"a resize shrinks so much that one output pixel needs {least} bytes of shared memory; this GPU has {limit} "
        "for a block. Resize in two steps, or on the CPU"
    )


def scratch_bytes(rows: NDArray[Any], tile_rows: int, tile_columns: int) -> NDArray[np.int64]:
    """(N,) bytes of scratch that a tile of each sample needs, 0 for samples that skip the pass.

    Args:
        rows: (N,) `SAMPLE`, contiguous.
    """
    words = np.empty(len(rows), dtype=np.int64)
    library.cuaug_scratch_words(address(rows), len(rows), tile_rows, tile_columns, address(words))
    return 4 * words


#: Threads per block: any multiple of a warp, up to the 256 that `resample` is compiled for.
THREADS = 128
# Limit of the grid's second and third side; a larger batch takes more launches.
_MAX_SAMPLES = _MAX_ROWS = 65535
_NO_FRAMES = np.zeros(0, dtype=YUV_IMAGE)
# More zeros than this are filled in on the device, which is a launch more, instead of uploaded.
_MAX_ZEROS_BYTES = 256 << 10


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
        specializer: Specializer | None = None,
        frames: NDArray[Any] | None = None,
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
            specializer: chooses kernels that are compiled for the chain; None: the full kernels run.
            frames: (F,) `YUV_IMAGE`: video frames whose planes are on the device, and ready on the current stream.
                Each is converted to RGB in the workspace, for N / F samples in a row. Their `sources`, and each
                `target` in `frames`, count from the start of the frame's RGB pixels, modulo 2^64. Frames without rows
                are not converted: their `sources` are addresses.

        Returns:
            the number of kernel launches.
        """
        device, compiled = target.device, self.compiled
        if not len(sources) or (skip is not None and skip.all()):
            return 0
        workspace = workspace or Workspace(device)
        zeros = np.zeros(0 if count_fills(compiled) else compiled.statistics, dtype=np.int64)
        frames = _NO_FRAMES if frames is None else frames
        rows, *_, frames = workspace.copy_to_pinned(compiled.rows, compiled.ops, compiled.luts, zeros, frames)
        if skip is not None:
            rows["active"][:, skip] = 0
        if pitches is not None:
            rows["source"]["pitch"][0] = pitches
        if target_addresses is None:
            step = target.stride(0) * target.element_size()
            offsets = np.arange(rows.shape[1], dtype=np.uint64) * np.uint64(step)
            target_addresses = np.uint64(target.data_ptr()) + offsets
        rows["source"]["address"][0], rows["target"]["address"] = sources, target_addresses
        chunks = _place_intermediates(rows, frames, workspace, device)
        launches = [self._plan_launches(rows, device, chunk, specializer) for chunk in chunks]
        conversions = [_plan_conversion(frames, chunk, rows.shape[1]) for chunk in chunks]
        rows_at, ops_at, luts_at, statistics_at, frames_at = workspace.upload_pinned()
        if count_fills(compiled):
            statistics_at = workspace.zeros(8 * compiled.statistics)

        stream = LaunchStream(torch.cuda.current_stream(device).cuda_stream)
        with torch.cuda.device(device):
            for conversion, passes in zip(conversions, launches, strict=True):
                if conversion is not None:
                    first_frame, grid = conversion
                    table = np.uint64(frames_at + first_frame * frames.itemsize)
                    convert_kernel(device.index)(grid, (THREADS, 1, 1), (table,), shared_mem=0, stream=stream)
                for function, first_row, launch in passes:
                    function(
                        (launch.down, launch.across, len(launch.samples)),
                        (THREADS, 1, 1),
                        (
                            np.uint64(rows_at + first_row * rows.itemsize),
                            np.uint64(ops_at),
                            np.uint64(luts_at),
                            np.uint64(statistics_at),  # null without statistics
                            np.int32(launch.rows),
                            np.int32(launch.columns),
                        ),
                        shared_mem=launch.shared_bytes,
                        stream=stream,
                    )
        return sum(map(len, launches)) + len(conversions) - conversions.count(None)

    def _plan_launches(
        self,
        rows: NDArray[Any],
        device: torch.device,
        chunk: tuple[int, int],
        specializer: Specializer | None,
    ) -> list[tuple[Callable[..., None], int, Launch]]:
        """(entry point, number of the first row, launch) of a chunk's passes, in order.

        The rows of a pass are sorted by launch if they take several, or if samples skip the pass.
        """
        functions, limit = kernels(device.index), shared_memory_limit(device.index)
        launches = []
        begin, end = chunk
        for number, row in enumerate(rows):
            part, position = row[begin:end], 0
            planned = plan_launches(part, limit, self._tile)
            if planned and len(planned[0].samples) < len(part):
                order = np.concatenate([launch.samples for launch in planned])
                raw = view_as(RAW_SAMPLE, part)
                raw[: len(order)] = raw[order]
            for launch in planned:
                count = len(launch.samples)
                signature = library.cuaug_signature(address(part[position:]), count, address(self.compiled.ops))
                is_simple = library.cuaug_is_resample_signature(signature, False)
                function = functions.resample if is_simple else functions.augment
                if specializer is not None:
                    called = self.compiled.functions if signature & operations.FUNCTION_BITS else ()
                    function = specializer.choose(device.index, number, signature, count, called) or function
                launches.append((function, number * rows.shape[1] + begin + position, launch))
                position += count
        return launches


def _plan_conversion(
    frames: NDArray[Any], chunk: tuple[int, int], samples: int
) -> tuple[int, tuple[int, int, int]] | None:
    """The first frame and the grid of a chunk's conversion to RGB; None without frames."""
    begin, end = (bound * len(frames) // samples for bound in chunk)
    rows = frames["rows"][begin:end].max(initial=0)
    return (begin, (end - begin, min(int(rows), _MAX_ROWS), 1)) if rows else None


def _place_intermediates(
    rows: NDArray[Any], frames: NDArray[Any], workspace: Workspace, device: torch.device
) -> list[tuple[int, int]]:
    """Sets where the conversion and passes write and read images in between.

    Returns:
        [begin, end) of the samples that run together; the samples of one frame do.
    """
    passes, count = rows.shape
    if passes == 1 and not len(frames):
        return [(begin, min(begin + _MAX_SAMPLES, count)) for begin in range(0, count, _MAX_SAMPLES)]
    sizes, repeat = intermediate_bytes(rows), 1
    if len(frames):
        repeat = count // len(frames)
        converted = np.zeros((1, count), dtype=np.int64)
        converted[0, ::repeat] = converted_bytes(frames)  # the first of the frame's samples counts it
        sizes = np.concatenate([converted, sizes])
    # A buffer that grows takes an eighth more than requested.
    by_frame = sizes.reshape(len(sizes), -1, repeat).sum(axis=2)
    bounds = chunk_bounds(by_frame, workspace_budget(device) * 8 // 9, _MAX_SAMPLES // repeat)
    chunks = [(begin * repeat, end * repeat) for begin, end in bounds]
    places = [place(sizes[:, begin:end]) for begin, end in chunks]
    memory = np.uint64(workspace.intermediate_memory(max(size for _, size in places)))
    addresses = np.concatenate([offsets for offsets, _ in places], axis=1) + memory
    if len(frames):
        frames["target"] += addresses[0, ::repeat]
        rows["source"]["address"][0] += np.repeat(np.where(frames["rows"] > 0, addresses[0, ::repeat], 0), repeat)
        sizes, addresses = sizes[1:], addresses[1:]
    continues = sizes > 0
    rows["target"]["address"][:-1][continues] = addresses[continues]
    rows["source"]["address"][1:][continues] = addresses[continues]
    return chunks
