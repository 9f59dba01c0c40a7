"""Chains whose kernels are compiled for their signatures in tests, and the signatures of their passes."""

from __future__ import annotations

from typing import Any

import numpy as np

from cuaug import transforms as T
from cuaug._runtime.native import address, library
from cuaug.plan import CompiledPlan, Layout, Plan, Type
from cuaug.sampling.rng import SampleRNG

NORMALIZE = T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
#: By name.
CHAINS: dict[str, list[Any]] = {
    "crop": [T.RandomResizedCrop(224), T.RandomHorizontalFlip(), NORMALIZE],
    "erase": [T.RandomResizedCrop(224), T.RandomHorizontalFlip(), NORMALIZE, T.RandomErasing()],
    "color": [T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ColorJitter(0.4, 0.4, 0.4, 0.1), NORMALIZE],
    "pillow": [T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), NORMALIZE], pillow=13)],
    "rotate": [T.RandomRotation(30), NORMALIZE],
    "randaugment": [T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.RandAugment(), NORMALIZE],
}


def plan_chain(name: str, height: int, width: int, samples: int, dtype: Type = Type.FLOAT16) -> CompiledPlan:
    """The plan of a batch of uint8 images, as a loader makes it."""
    plan = Plan([height] * samples, [width] * samples, source_type=Type.UINT8, channels=3)
    T.Compose(CHAINS[name]).plan(plan, SampleRNG(0, 0, np.arange(samples)))
    return plan.compile(dtype, Layout.CHW)


def signatures(compiled: CompiledPlan) -> list[int]:
    """The signature of each pass."""
    n = compiled.rows.shape[1]
    return [library.cuaug_signature(address(rows), n, address(compiled.ops)) for rows in compiled.rows]
