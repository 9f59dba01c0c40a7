"""The CUDA pipeline with all of CUDA replaced: host memory, one stream, kernels run by the host build.

This shows that the Python around the kernels is right: slots, memory, order, who is told of which stream. Programs by
themselves are tested in `kernels/test_cuda_executor.py`; what a GPU adds, `tests/cuda/` tests. Whether those tests are
right themselves, `fake_gpu.py` and `test_fake_gpu.py` try without a GPU.
"""

from __future__ import annotations

from cuaug import transforms as T

CHAIN = [T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.RandomErasing(p=0.5), T.Normalize([0.5] * 3, [0.2] * 3)]
