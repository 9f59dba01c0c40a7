"""The order of an epoch and its division into batches: pure integers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cuaug.random import Draws

__all__ = ["batch_count", "batches", "epoch_order"]


def epoch_order(n: int, *, shuffle: bool, seed: int, epoch: int) -> NDArray[np.int64]:
    """(n,): the sample indices in the order of this epoch.

    Shuffling sorts the indices by a random number each, from the same generator as the transforms' draws: the order
    depends on (n, seed, epoch) alone and on no library's version.
    """
    order = np.arange(n)
    return np.argsort(Draws(seed, epoch, order).uniform(), kind="stable") if shuffle else order


def batch_count(n: int, batch_size: int, *, drop_last: bool) -> int:
    """How many batches n samples make."""
    return n // batch_size if drop_last else -(-n // batch_size)


def batches(order: NDArray[np.int64], batch_size: int, *, drop_last: bool) -> list[NDArray[np.int64]]:
    """The batches of an order, in order; a last short one is left out with drop_last."""
    count = batch_count(len(order), batch_size, drop_last=drop_last)
    return [order[i * batch_size : (i + 1) * batch_size] for i in range(count)]
