"""The devices that plans run on: the only place that launches a kernel.

host.py     the compiled kernels, one sample on the calling thread, or a stack on several
cuda.py     the same kernels through NVRTC and CuPy
nvrtc.py    how they are compiled for a GPU
streams.py  CUDA streams that nobody else gets
folding.py  what runs as one table instead of several operations
stacks.py   where finished images go
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from cuaug._runtime.intraop import threads_for
from cuaug.devices.cpu import CpuExecutor
from cuaug.devices.lut_fusion import fuse_luts
from cuaug.devices.output import OutputStacks, first_size_mismatch
from cuaug.plan import CompiledPlan

__all__ = ["CpuExecutor", "OutputStacks", "first_size_mismatch", "fuse_luts", "run"]


def run(tables: CompiledPlan, images: torch.Tensor, targets: Sequence[torch.Tensor], stacks: OutputStacks) -> None:
    """Runs a plan on a stack of images, (N, H, W, 3), into `targets`, of the shapes of `stacks`, where the images are.

    On CUDA the launches are queued on torch's current stream.
    """
    views, finals = stacks.count, stacks.addresses(targets)
    if images.is_cuda:
        from cuaug.devices.cuda import CudaExecutor  # CuPy, and a context, only once there is a GPU to use

        step = np.uint64(images.stride(0) * images.element_size())
        sources = np.uint64(images.data_ptr()) + np.arange(len(images), dtype=np.uint64) * step
        with torch.cuda.device(images.device):
            CudaExecutor(tables).run(sources.repeat(views), targets[0], finals=finals)
        return
    size = images.nbytes + sum(target.nbytes for target in targets)
    CpuExecutor(tables).run_stack(images.numpy(), finals, views=views, threads=threads_for(size))
