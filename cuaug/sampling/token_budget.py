"""`TokenBudgetSampler`: batches of images of any size that together fill a budget of tokens."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from cuaug._runtime.arguments import flag, integer
from cuaug._runtime.migration_hints import suggests_arguments
from cuaug.errors import ArgumentError
from cuaug.sampling.orders import ShuffledOrder

_SEEDS = 1 << 62
# Samples that are packed together: few leave gaps, many take memory and time.
_WINDOW = 2048
# A batch that is this full needs no further sample.
_FULL = 0.99


@suggests_arguments
class TokenBudgetSampler:
    """A batch sampler: each batch has as many samples as fit in a budget of tokens, for batches packed without padding.

    An epoch has each sample once. Windows of some thousand samples, in the epoch's order, are packed by best fit: the
    longest first, each into the batch that it fills best. Batches of a window that have room wait for the next one. So
    nearly all batches are full, but the last of an epoch. Shuffled by (seed, epoch) in a Loader, by torch's default
    generator in a DataLoader, as RandomSampler is. How many batches an epoch has is known once it is packed, so the
    sampler has no length.

        tokens = chain.count_patches(cuaug.sources.sizes(source))
        loader = Loader(source, chain, batch_sampler=cuaug.TokenBudgetSampler(tokens, 16_384))

    Args:
        tokens: (N,) tokens of each sample, such as its patches; 0 for a sample whose size is not known.
        budget: the most tokens of a batch.
        shuffle: False: windows follow the order of the indices.

    Raises:
        LoaderError: an argument has a wrong type or value, or a sample has more tokens than the budget.
    """

    def __init__(self, tokens: ArrayLike, budget: int, *, shuffle: bool = True) -> None:
        given = np.asarray(tokens)
        if given.ndim != 1 or not len(given) or given.dtype.kind not in "iu" or given.min() < 0:
            raise ArgumentError(f"tokens must be integers of at least 0, of shape (N,), not {tokens!r:.100}")
        self.budget = integer("budget", budget, 1)
        if (most := int(given.max())) > self.budget:
            raise ArgumentError(
                f"budget must be at least {most}, the tokens of sample {int(given.argmax())}, not {self.budget}: limit "
                "the sizes of images in the chain, as by ResizeToMultiple(max_pixels=)"
            )
        self.shuffle, self._tokens = flag("shuffle", shuffle), given.astype(np.int64)

    def __iter__(self) -> Iterator[list[int]]:
        count = len(self._tokens)
        seed = int(torch.randint(_SEEDS, ())) if self.shuffle else 0
        order = ShuffledOrder(count).order(seed, 0) if self.shuffle else np.arange(count)
        batches = self._pack(order)
        places = ShuffledOrder(len(batches)).order(seed, 1) if self.shuffle else np.arange(len(batches))
        for place in places.tolist():
            yield batches[place]

    def _pack(self, order: NDArray[np.int64]) -> list[list[int]]:
        batches: list[list[int]] = []
        waiting: list[int] = []  # samples of batches that have room
        for start in range(0, len(order), _WINDOW):
            found = self._best_fit(waiting + order[start : start + _WINDOW].tolist())
            found.sort(key=lambda batch: batch[0])
            # The emptiest batches wait; not all, or else many large samples would wait to the end.
            waiting = []
            while found and found[-1][0] > self.budget * (1 - _FULL) and len(waiting) < _WINDOW // 2:
                waiting += found.pop()[1]
            batches += [samples for _, samples in found]
        return batches + [samples for _, samples in self._best_fit(waiting)]

    def _best_fit(self, samples: list[int]) -> list[tuple[int, list[int]]]:
        """(room, samples) of batches: the longest samples first, each where it leaves the least room."""
        longest_first = sorted(samples, key=self._tokens.__getitem__, reverse=True)
        rooms: list[tuple[int, int]] = []  # (room, number of the batch), ascending
        batches: list[list[int]] = []
        for sample, tokens in zip(longest_first, self._tokens[longest_first].tolist(), strict=True):
            place = bisect_left(rooms, (tokens, -1))
            if place == len(rooms):
                batches.append([])
                rooms.append((self.budget, len(batches) - 1))
            room, number = rooms.pop(place)
            batches[number].append(sample)
            insort(rooms, (room - tokens, number))
        return [(room, batches[number]) for room, number in rooms]

    def __repr__(self) -> str:
        return f"TokenBudgetSampler({len(self._tokens)} samples, budget={self.budget})"
