"""Launches the kernels that decode a batch of JPEGs (kernels/cuda/decode_jpeg.cu)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from cuaug.codec import DevicePlan
from cuaug.devices.kernel_loading import jpeg_kernels
from cuaug.devices.streams import LaunchStream

__all__ = ["decode_jpegs"]

_TABLE_THREADS, _SCAN_THREADS, _DECODE_THREADS, _COLOR_THREADS = 128, 512, 128, 256
_TABLES_PER_SET = 4


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
    launches: list[tuple[Any, tuple[int, int, int], int, tuple[np.uint64, ...]]] = [
        (kernels.build_lookups, (plan.sets, _TABLES_PER_SET, 1), _TABLE_THREADS, (definitions, np.uint64(lookups))),
        (kernels.scan_jpeg, (plan.scans, 1, 1), _SCAN_THREADS, (scans,)),
        (kernels.decode_jpeg, (plan.blocks, 1, 1), _DECODE_THREADS, (images, blocks)),
        (kernels.color_jpeg, (plan.tiles, 1, 1), _COLOR_THREADS, (images, tiles)),
    ]
    with torch.cuda.device(device):
        for function, grid, threads, arguments in launches:
            if grid[0]:
                function(grid, (threads, 1, 1), arguments, shared_mem=0, stream=stream)
