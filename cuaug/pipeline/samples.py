"""The samples of a batch: which they are, what belongs to each, and how they become one batch."""

from __future__ import annotations

import functools
from itertools import repeat
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug.batch import Batch, none_of
from cuaug.pipeline.settings import Settings
from cuaug.plan import Layout, Record
from cuaug.random import Draws
from cuaug.sampling import Epoch, Share
from cuaug.transforms.running import run_stages

__all__ = ["Samples", "rows_of"]


#: Where to find what was drawn for a sample: a record, how many images it is of, and which of these.
Drawn = tuple[Record, int, int]


class Samples:
    """The samples of one share, and then those that are only partners of these.

    Args:
        partners: how many of the epoch's order that follow.

    Attributes:
        own: how many are the share's.
        positions: (n,) places in the epoch's order.
        indices: (n,) which samples of the source they are.
        keys: (n,) what they draw under.
        valid: (n,) False where a sample fills a place that is not its own.
        labels, drawn: n of them; None until they are known.
    """

    def __init__(self, epoch: Epoch, share: Share, partners: int) -> None:
        self.epoch = epoch
        self.own = len(share.positions)
        self.positions = epoch.followed(share.positions, partners)
        self.indices = epoch.indices[self.positions]
        self.keys = epoch.keys(self.positions)
        self.valid = np.concatenate([share.valid, np.zeros(partners, dtype=bool)])
        self.labels: list[Any] = [None] * len(self.indices)
        self.drawn: list[Drawn | None] = [None] * len(self.indices)

    def __len__(self) -> int:
        return len(self.indices)

    def draws(self, which: NDArray[np.int64]) -> Draws:
        return Draws(self.epoch.seed, self.epoch.number, self.keys[which])

    def drew(self, record: Record, which: NDArray[np.int64]) -> None:
        """Those at `which` have the rows of a record, in turn."""
        n = len(which)
        for k, drawn in zip(which.tolist(), zip(repeat(record), repeat(n), range(n)), strict=True):
            self.drawn[k] = drawn

    def put(self, places: NDArray[np.int64], others: Samples) -> None:
        """Others stand in at some places."""
        for i, k in enumerate(places.tolist()):
            self.labels[k], self.drawn[k] = others.labels[i], others.drawn[i]
            self.indices[k], self.keys[k] = others.indices[i], others.keys[i]
            self.valid[k] = False

    def batch(self, images: torch.Tensor, which: NDArray[np.int64], settings: Settings) -> Batch:
        """The finished batch.

        Args:
            images: what the chain's first stage made of the samples at `which`; its later stages run here.
            which: places; empty for a batch that is: then one image and the first label give the shapes.
        """
        if settings.layout == Layout.HWC:
            images = images.movedim(-1, -3)
        shown = which if len(which) else np.arange(1)
        images, labels = images[: len(shown)], [self.labels[k] for k in shown]
        drawn = [self.drawn[k] for k in shown]
        later = Record(first=0 if drawn[0] is None else drawn[0][0].next)
        chain = settings.transforms
        if len(chain.stages) > 1:
            extra, draws = int((shown >= self.own).sum()), self.draws(shown)
            images, mixed = run_stages(chain.stages, images, labels, chain.how_targets_are, draws, later, extra=extra)
            labels = mixed or labels
        which = which[which < self.own]
        together = settings.collate(labels[: max(len(which), 1)])
        return Batch(
            images[: len(which)],
            together if len(which) else none_of(together),
            torch.from_numpy(self.indices[which]),
            torch.from_numpy(self.valid[which]),
            self.epoch.number,
            functools.partial(_told, drawn[: len(which)], later),
        )


def _told(drawn: list[Drawn | None], later: Record) -> list[list[dict[str, Any]]]:
    """What was applied to each sample: in the chain's first stage, and in those that follow."""
    first = {id(one[0]): one[0].params(one[1]) for one in drawn if one is not None}
    rest = later.params(len(drawn))
    return [first[id(one[0])][one[2]] + rest[i] for i, one in enumerate(drawn) if one is not None]


def rows_of(images: torch.Tensor, which: NDArray[Any]) -> torch.Tensor:
    """Copies of those images, which are numbers, or a mask of them all."""
    numbers = np.flatnonzero(which) if which.dtype == bool else which
    return images[torch.from_numpy(numbers).to(images.device)]
