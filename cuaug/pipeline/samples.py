"""The samples of a batch: which they are, what belongs to each, and how they become one batch."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug.batch import Batch, empty_labels
from cuaug.pipeline.images import Images
from cuaug.pipeline.settings import BatchConfig
from cuaug.plan import Layout, Trace
from cuaug.sampling import Epoch, RankSlice
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms.execute import run_stages

__all__ = ["Drawn", "Samples"]


class Drawn(NamedTuple):
    """What was drawn for so many images."""

    trace: Trace
    images: int


class Samples:
    """The samples of one share, and then those that are only partners of these.

    Args:
        partners: how many of those that follow in the epoch's order.

    Attributes:
        own: how many are the share's.
        positions: (n,) places in the epoch's order.
        indices: (n,) which samples of the source they are.
        keys: (n,) what they draw under.
        valid: (n,) False where a sample fills a place that is not its own.
        labels: n of them; None until they are known.
        drawn, rows: where to find what was drawn for each of the n, and which of the images there it is.
    """

    def __init__(self, epoch: Epoch, share: RankSlice, partners: int) -> None:
        self.epoch = epoch
        self.own = len(share.positions)
        self.positions = epoch.with_next(share.positions, partners)
        self.indices = epoch.indices[self.positions]
        self.keys = epoch.keys(self.positions)
        self.valid = np.concatenate([share.valid, np.zeros(partners, dtype=bool)])
        self.labels: list[Any] = [None] * len(self.indices)
        self.drawn: list[Drawn | None] = [None] * len(self.indices)
        self.rows = np.zeros(len(self.indices), dtype=np.int64)

    def rng(self, which: NDArray[np.int64]) -> SampleRNG:
        return SampleRNG(self.epoch.seed, self.epoch.number, self.keys[which])

    def drew(self, trace: Trace, which: NDArray[np.int64]) -> None:
        """Notes that a record has what was drawn for those at `which`, in turn."""
        drawn = Drawn(trace, len(which))
        for k in which.tolist():
            self.drawn[k] = drawn
        self.rows[which] = np.arange(len(which))

    def put(self, places: NDArray[np.int64], others: Samples) -> None:
        """Others stand in at some places."""
        for i, k in enumerate(places.tolist()):
            self.labels[k], self.drawn[k], self.rows[k] = others.labels[i], others.drawn[i], others.rows[i]
            self.indices[k], self.keys[k] = others.indices[i], others.keys[i]
            self.valid[k] = False

    def batch(self, images: Images, which: NDArray[np.int64], settings: BatchConfig) -> Batch:
        """The finished batch.

        Args:
            images: what the chain's first stage made of the samples at `which`; its later stages run here.
            which: places; none for an empty batch: then one image and the first label give the shapes.
        """
        if settings.layout == Layout.HWC:
            images = images._replace(tensors=[tensor.movedim(-1, -3) for tensor in images.tensors])
        shown = which if len(which) else np.arange(1)
        places = shown.tolist()
        images, labels = images.first(len(places)), [self.labels[k] for k in places]
        drawn = [self.drawn[k] for k in places]
        later = Trace(first=0 if drawn[0] is None else drawn[0].trace.next)
        chain = settings.transforms
        if len(chain.stages) > 1:
            extra, rng = int((shown >= self.own).sum()), self.rng(shown)
            how, to = chain.target_format, settings.target_type
            stacks, mixed = run_stages(
                chain.stages, images.tensors, labels, how, rng, later, extra=extra, target_type=to
            )
            images, labels = images._replace(tensors=stacks), mixed or labels
        which = which[which < self.own]
        together = settings.collate(labels[: max(len(which), 1)])
        return Batch(
            images.first(len(which)).given,
            together if len(which) else empty_labels(together),
            torch.from_numpy(self.indices[which]),
            torch.from_numpy(self.valid[which]),
            self.epoch.number,
            functools.partial(_told, drawn[: len(which)], self.rows[which], later),
        )


def _told(drawn: list[Drawn | None], rows: NDArray[np.int64], later: Trace) -> list[list[dict[str, Any]]]:
    """What was applied to each sample: in the chain's first stage, and in those that follow."""
    first = {id(one): one.trace.params(one.images) for one in drawn if one is not None}
    rest = later.params(len(drawn))
    return [first[id(one)][rows[i]] + rest[i] for i, one in enumerate(drawn) if one is not None]
