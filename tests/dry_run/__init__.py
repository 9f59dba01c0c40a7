"""The CUDA pipeline with fakes for all of CUDA: host memory, one stream, kernels of the CPU build.

These tests check the Python around the kernels: slots, memory, order, and the streams that the allocator knows. The
executor alone is tested in `kernels/test_cuda_executor.py`, the GPU's own part in `tests/cuda/`. `fake_gpu.py` and
`test_fake_gpu.py` check the tests of `tests/cuda/` without a GPU.
"""

from __future__ import annotations

from cuaug import transforms as T

CHAIN = [T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.RandomErasing(p=0.5), T.Normalize([0.5] * 3, [0.2] * 3)]
