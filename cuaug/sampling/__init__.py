"""Sampling: the order of an epoch, the random numbers of its samples, and the slice of each rank.

orders.py          samplers: the order of an epoch
batch_samplers.py  samplers that yield whole batches
epoch.py           one epoch: its order, its steps and rank slices, the samples' RNG keys, replacements
loader_state.py    where a loader stands, and its `state_dict`, checked
rng.py             `SampleRNG`, the counter-based generator
clip_sampler.py    `ClipSampler`: which frames of a video a clip holds
"""

from __future__ import annotations

from cuaug.sampling.batch_samplers import BatchOrder, check_whole_batches, open_batch_sampler
from cuaug.sampling.epoch import LAST_BATCH, Epoch, RankSlice, Steps
from cuaug.sampling.loader_state import Progress, open_seed
from cuaug.sampling.orders import (
    Order,
    RepeatedSampler,
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
    "BatchOrder",
    "Epoch",
    "Order",
    "Progress",
    "RankSlice",
    "RepeatedSampler",
    "SamplerView",
    "SequentialOrder",
    "ShardSampler",
    "ShuffledOrder",
    "Steps",
    "TorchOrder",
    "WeightedSampler",
    "check_whole_batches",
    "open_batch_sampler",
    "open_sampler",
    "open_seed",
    "order_of",
]
