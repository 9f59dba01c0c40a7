"""Sampling: the order of an epoch, the random numbers of its samples, and the slice of each rank.

orders.py          samplers: the order of an epoch
batch_samplers.py  samplers that yield whole batches
buckets.py         `BucketSampler`: batches of images of similar size
token_budget.py    `TokenBudgetSampler`: batches of images of any size, up to a budget of tokens
epoch.py           one epoch: its order, its steps and rank slices, the samples' RNG keys, replacements
loader_state.py    where a loader stands, and its `state_dict`, checked
rng.py             `SampleRNG`, the counter-based generator
clip_sampler.py    `ClipSampler`: which frames of a video a clip holds
"""

from __future__ import annotations

from cuaug.sampling.batch_samplers import BatchOrder, BatchSteps, SizedBatch, count_steps, open_batch_sampler
from cuaug.sampling.buckets import BucketSampler, make_buckets
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
from cuaug.sampling.token_budget import TokenBudgetSampler

__all__ = [
    "LAST_BATCH",
    "BatchOrder",
    "BatchSteps",
    "BucketSampler",
    "Epoch",
    "Order",
    "Progress",
    "RankSlice",
    "RepeatedSampler",
    "SamplerView",
    "SequentialOrder",
    "ShardSampler",
    "ShuffledOrder",
    "SizedBatch",
    "Steps",
    "TokenBudgetSampler",
    "TorchOrder",
    "WeightedSampler",
    "count_steps",
    "make_buckets",
    "open_batch_sampler",
    "open_sampler",
    "open_seed",
    "order_of",
]
