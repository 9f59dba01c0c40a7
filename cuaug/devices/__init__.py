"""The devices that plans run on: the only place that launches a kernel.

host.py     the compiled kernels, one sample on the calling thread, or a stack on several
cuda.py     the same kernels through NVRTC and CuPy
nvrtc.py    how they are compiled for a GPU
streams.py  CUDA streams that nobody else gets
folding.py  what runs as one table instead of several operations
"""

from __future__ import annotations

import numpy as np
import torch

from cuaug.devices.folding import folded
from cuaug.devices.host import HostProgram
from cuaug.plan import Tables
from cuaug.threads import threads_for

__all__ = ["HostProgram", "folded", "run"]


def run(tables: Tables, images: torch.Tensor, target: torch.Tensor, *, views: int = 1) -> None:
    """Runs a plan on a stack of images, (N, H, W, 3), into `target`, (N * views, ...), where the images are.

    On CUDA the launches are queued on torch's current stream.
    """
    if images.is_cuda:
        from cuaug.devices.cuda import CudaProgram  # CuPy, and a context, only once there is a GPU to use

        step = np.uint64(images.stride(0) * images.element_size())
        addresses = np.uint64(images.data_ptr()) + np.arange(len(images), dtype=np.uint64).repeat(views) * step
        with torch.cuda.device(images.device):
            CudaProgram(tables).run(addresses, target)
        return
    HostProgram(tables).run_stack(
        images.numpy(),
        target.data_ptr(),
        target.stride(0) * target.element_size(),
        views=views,
        threads=threads_for(images.nbytes + target.nbytes),
    )
