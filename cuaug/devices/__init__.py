"""The devices that plans run on; the only package that launches kernels.

cpu.py            the compiled kernels, for one sample, several, or a stack on several threads
cuda.py           the same kernels on a GPU: launches, their tiles, and those that decode JPEGs
cpu_functions.py  pixel functions compiled by the user's C++ compiler
cxx_program.py    compilation of one C++ program, in a process of its own
background.py     a process that compiles while training goes on
workspace.py      memory of a run on a GPU, where images between passes lie in it, and streams of our own
nvrtc.py          compilation of the kernels for a GPU, and their loading by CuPy
nvrtc_program.py  compilation of one program, also in a process of its own
specialize.py     kernels for what a chain's batches contain, compiled in the background
output.py         the tensors that finished images are written to
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from cuaug._runtime.cpus import threads_for
from cuaug.devices.cpu import CpuExecutor
from cuaug.devices.output import OutputStacks, PackedOutput, first_size_mismatch
from cuaug.plan import CompiledPlan

__all__ = ["CpuExecutor", "OutputStacks", "PackedOutput", "first_size_mismatch", "run"]


def run(
    compiled: CompiledPlan,
    groups: Sequence[torch.Tensor],
    targets: Sequence[torch.Tensor],
    stacks: OutputStacks,
) -> None:
    """Runs a plan on the device of its images.

    On CUDA the launches are queued on torch's current stream.

    Args:
        groups: (N, H, W, 3) uint8 or float32 for each group of channels (`cuaug.plan.channels`).
        targets: tensors of the shapes of `stacks`, on the same device.
    """
    for number, (plan, images) in enumerate(zip((compiled, *compiled.others), groups, strict=True)):
        _run_group(plan, images, targets, stacks, 3 * number)


def _run_group(
    compiled: CompiledPlan, images: torch.Tensor, targets: Sequence[torch.Tensor], stacks: OutputStacks, channel: int
) -> None:
    views, addresses = stacks.count, stacks.addresses(targets, channel)
    if images.is_cuda:
        from cuaug.devices.cuda import CudaExecutor  # only here: it imports CuPy and makes a CUDA context

        step = np.uint64(images.stride(0) * images.element_size())
        sources = np.uint64(images.data_ptr()) + np.arange(len(images), dtype=np.uint64) * step
        with torch.cuda.device(images.device):
            CudaExecutor(compiled).run(sources.repeat(views), targets[0], target_addresses=addresses)
        return
    num_bytes = images.nbytes + sum(target.nbytes for target in targets)
    CpuExecutor(compiled).run_stack(images.numpy(), addresses, views=views, threads=threads_for(num_bytes))
