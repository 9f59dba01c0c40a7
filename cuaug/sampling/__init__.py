"""Which samples an epoch has, in what order, and which of them each rank loads in each step: pure integers.

source, sampler -> orders.py: the order of an epoch -> epoch.py: what is drawn for whom -> steps.py: this rank's share
"""

from __future__ import annotations

from cuaug.sampling.epoch import Epoch
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
from cuaug.sampling.steps import LAST_BATCH, RankSlice, Steps

__all__ = [
    "LAST_BATCH",
    "Epoch",
    "Order",
    "RankSlice",
    "SamplerView",
    "SequentialOrder",
    "ShardSampler",
    "ShuffledOrder",
    "Steps",
    "TorchOrder",
    "WeightedSampler",
    "open_sampler",
    "order_of",
]
