"""Launches the kernels that decode a batch of JPEGs (kernels/cuda/decode_jpeg.cu)."""

from __future__ import annotations

import numpy as np
import torch

from cuaug._runtime.native import address, library
from cuaug.codec import DevicePlan
from cuaug.devices.kernel_loading import JpegKernels, jpeg_kernels
from cuaug.devices.streams import LaunchStream

__all__ = ["decode_jpegs"]

_counts = np.zeros(len(JpegKernels._fields), dtype=np.int64)
_TABLES_PER_SET = int(library.cuaug_jpeg_threads(address(_counts)))
#: Threads of a block of each kernel.
_THREADS = JpegKernels(*_counts.tolist())


def decode_jpegs(device: torch.device, plan: DevicePlan, upload: int, lookups: int) -> None:
    """Queues the launches on torch's current stream of the device.

    Args:
        plan: of the batch, which `DeviceJpegs.finish` has finished for the same addresses.
        upload: address of the copy of the batch's memory, whose copy is queued on this stream.
        lookups: address of memory for Huffman look-up tables.
    """
    kernels, stream = jpeg_kernels(device.index), LaunchStream(torch.cuda.current_stream(device).cuda_stream)
    offsets = plan.definitions_at, plan.scans_at, plan.images_at, plan.blocks_at, plan.tiles_at
    definitions, scans, images, blocks, tiles = (np.uint64(upload + offset) for offset in offsets)
    launches: list[tuple[str, tuple[int, int, int], tuple[np.uint64, ...]]] = [
        ("build_lookups", (plan.sets, _TABLES_PER_SET, 1), (definitions, np.uint64(lookups))),
        ("scan_jpeg", (plan.scans, 1, 1), (scans,)),
        ("decode_jpeg", (plan.blocks, 1, 1), (images, blocks)),
        ("color_jpeg", (plan.tiles, 1, 1), (images, tiles)),
    ]
    with torch.cuda.device(device):
        for name, grid, arguments in launches:
            if grid[0]:
                block = (getattr(_THREADS, name), 1, 1)
                getattr(kernels, name)(grid, block, arguments, shared_mem=0, stream=stream)
