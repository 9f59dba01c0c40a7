"""Sampling: the order of an epoch, the random numbers of its samples, and the slice of each rank.

orders.py    samplers: the order of an epoch
epoch.py     one epoch: its order, the samples' RNG keys, replacements
steps.py     the order divided into steps and rank slices
progress.py  where a loader stands: the next epoch, the position in it, and the seed
state.py     checks of a loader's `state_dict`
rng.py       `SampleRNG`, the counter-based generator
clips.py     `ClipSampler`: which frames of a video a clip holds
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
