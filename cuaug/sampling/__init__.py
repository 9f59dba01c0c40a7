"""Sampling: the order of an epoch, the random numbers of its samples, and the slice of each rank.

orders.py        samplers: the order of an epoch
epoch.py         one epoch: its order, its steps and rank slices, the samples' RNG keys, replacements
loader_state.py  where a loader stands, and its `state_dict`, checked
rng.py           `SampleRNG`, the counter-based generator
clip_sampler.py  `ClipSampler`: which frames of a video a clip holds
"""

from __future__ import annotations

from cuaug.sampling.epoch import LAST_BATCH, Epoch, RankSlice, Steps
from cuaug.sampling.loader_state import Progress, open_seed
from cuaug.sampling.orders import (
    Order,
    SamplerView,
    SequentialOrder,
    ShardSampler,
    ShuffledOrder,
    TorchOrder,
    WeightedSampler,
    open_sampler,
    order_of,
)

__all__ = [
    "LAST_BATCH",
    "Epoch",
    "Order",
    "Progress",
    "RankSlice",
    "SamplerView",
    "SequentialOrder",
    "ShardSampler",
    "ShuffledOrder",
    "Steps",
    "TorchOrder",
    "WeightedSampler",
    "open_sampler",
    "open_seed",
    "order_of",
]
