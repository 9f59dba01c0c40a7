"""Kernel launches of RandAugment(2, 9) over 256 images: cuaug beside Kornia, counted without a GPU.

cuaug's count is the plan's, for the whole chain of RandomResizedCrop(224), RandAugment and Normalize with parameters of
its own for every image. On a GPU it is exact (cuaug/devices/cuda.py). One upload precedes the launches. If more than
256 kB of statistics must start at zero, a fill of that memory does too; fills are counted apart.

Kornia's count is of PyTorch operator calls by its RandAugment alone, for a finished 256 x 3 x 224 x 224 float32 batch
on the CPU. It counts operators that compute, fills among them, but no views, allocations or reads of a number. Each is
at least one launch on a GPU. Calls on images are separate from calls on parameters, which may stay on the CPU. Kornia
draws two operations for the whole batch; for operations per image it must be called for each.

    python benchmarks/launches.py --out benchmarks/results/launches.json
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from kornia.augmentation.auto import RandAugment
from report import circumstances, parse, print_spreads, spread, write_json
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

from cuaug import transforms as T
from cuaug.devices.cuda import count_fills
from cuaug.plan import CompiledPlan, Plan
from cuaug.sampling.rng import SampleRNG

HEIGHT, WIDTH, SIZE = 375, 500, 224
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
#: Operators that compute nothing, besides views: allocations, reshapes, reading one number.
NO_LAUNCH = (
    "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view", "_reshape_alias",
    "lift_fresh", "detach", "alias", "_local_scalar_dense", "resize_", "set_",
)  # fmt: skip


class Calls(TorchDispatchMode):
    """Counts calls of operators that compute: all, and the ones on `images` or tensors derived from them."""

    def __init__(self, images: torch.Tensor) -> None:
        super().__init__()
        self._of_images = WeakTensorKeyDictionary()
        self._of_images[images] = True
        self.all = self.on_images = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        inputs = (value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor))
        on_images = any(tensor in self._of_images for tensor in inputs)
        if on_images:
            for tensor in tree_leaves(result):
                if isinstance(tensor, torch.Tensor):
                    self._of_images[tensor] = True
        if not func.is_view and func.overloadpacket.__name__ not in NO_LAUNCH:
            self.all += 1
            self.on_images += on_images
        return result


def calls(augment: Callable[[torch.Tensor], Any], *batches: torch.Tensor) -> tuple[int, int]:
    """(calls on images, all calls) of one call per batch."""
    on_images = total = 0
    for images in batches:
        with Calls(images) as counted:
            augment(images)
        on_images, total = on_images + counted.on_images, total + counted.all
    return on_images, total


def planned(seed: int, n: int) -> CompiledPlan:
    chain = T.Compose([T.RandomResizedCrop(SIZE), T.RandAugment(2, 9), T.Normalize(MEAN, STD)])
    plan = Plan([HEIGHT] * n, [WIDTH] * n)
    chain.plan(plan, SampleRNG(seed, 0, np.arange(n)))
    return plan.compile()


def main() -> None:
    arguments = parse(__doc__, batch=256, draws=20)
    result = circumstances(["cuaug", "kornia", "numpy", "torch"])
    n = arguments.batch
    plans = [planned(seed, n) for seed in range(arguments.draws)]

    torch.manual_seed(0)
    images, augment = torch.rand(n, 3, SIZE, SIZE), RandAugment(n=2, m=9)
    whole = [calls(augment, images) for _ in range(arguments.draws)]
    one_by_one = calls(augment, *images.split(1))
    result["batch"], result["draws"] = n, arguments.draws
    result["launches"] = {
        "cuaug: the whole chain, every image its own operations": spread([plan.launches for plan in plans]),
        "cuaug: fills of memory beside them": spread([count_fills(plan) for plan in plans]),
        "Kornia: RandAugment, two operations for the batch, on images": spread([on_images for on_images, _ in whole]),
        "Kornia: RandAugment, two operations for the batch, all": spread([total for _, total in whole]),
        "Kornia: RandAugment, called for each image, on images": spread([one_by_one[0]]),
        "Kornia: RandAugment, called for each image, all": spread([one_by_one[1]]),
    }
    print_spreads(result["launches"])
    if arguments.out:
        write_json(arguments.out, result)


if __name__ == "__main__":
    main()
