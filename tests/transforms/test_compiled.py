"""Transforms and functions inside code compiled by torch.compile."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cuaug import functional as F
from cuaug import transforms as T

CHAIN = T.Compose([T.RandomResizedCrop(8), T.ColorJitter(0.4, 0.4), T.Normalize(0.5, 0.5)])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: T.RandomHorizontalFlip()(x),
        lambda x: CHAIN(x) * 2,
        lambda x: CHAIN.replay(CHAIN.trace(x)[1], x),
        lambda x: T.MixUp(num_classes=4)(x, torch.arange(4))[1],
        lambda x: F.rotate(F.resize(x, [8, 8]), 30.0),
        lambda x: F.gaussian_noise(x) + F.five_crop(x, 9)[0].sum(),
    ],
    ids=["transform", "chain", "replay", "labels", "functional", "functional of several"],
)
def test_compiled_code_gives_the_same_results(function):
    """The graph breaks at the call, and continues after it."""
    x = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (4, 3, 27, 36), dtype=np.uint8))
    compiled = torch.compile(lambda x: function(x).float().cumsum(-1), backend="eager")
    for seed in range(2):
        torch.manual_seed(seed)
        got = compiled(x)
        torch.manual_seed(seed)
        assert torch.equal(got, function(x).float().cumsum(-1))
