"""`BucketSampler`: batches of images of similar size; `make_buckets`: the sizes of their buckets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from cuaug._runtime.arguments import flag, integer, one_of
from cuaug._runtime.migration_hints import suggests_arguments
from cuaug.errors import ArgumentError
from cuaug.sampling.batch_samplers import SizedBatch
from cuaug.sampling.epoch import LAST_BATCH
from cuaug.sampling.orders import ShuffledOrder

_SEEDS = 1 << 62
# Samples whose distances to all buckets are in memory together.
_CHUNK = 1 << 15

By = Literal["aspect_ratio", "area"]


def make_buckets(pixels: int, *, multiple: int = 64, max_aspect_ratio: float = 2.0) -> list[tuple[int, int]]:
    """Make the bucket sizes of diffusion trainers: about as many pixels each, at many aspect ratios.

    One bucket is square. The others have, for a height, the largest width whose product is at most `pixels`; and the
    other way around.

    Args:
        pixels: largest height x width of a bucket.
        multiple: of which both sides are multiples, in pixels.
        max_aspect_ratio: largest long side / short side.

    Returns:
        (height, width) of each bucket, from wide to tall.
    """
    pixels, multiple = integer("pixels", pixels, 1), integer("multiple", multiple, 1)
    if not isinstance(max_aspect_ratio, (int, float)) or not 1 <= max_aspect_ratio < math.inf:
        raise ArgumentError(f"max_aspect_ratio must be a finite number of at least 1, not {max_aspect_ratio!r}")
    square = math.isqrt(pixels) // multiple * multiple
    if not square:
        raise ArgumentError(f"pixels must be at least {multiple**2}, {multiple} x {multiple}, not {pixels}")
    found = {(square, square)}
    for side in range(multiple, math.isqrt(int(pixels * max_aspect_ratio)) + 1, multiple):
        other = pixels // side // multiple * multiple
        if other and max(side, other) <= max_aspect_ratio * min(side, other):
            found |= {(side, other), (other, side)}
    return sorted(found, key=lambda size: (size[0] / size[1], size))


@suggests_arguments
class BucketSampler:
    """A batch sampler: each batch has images of one bucket, that is, of similar aspect ratio or area.

    A sample is in the bucket whose height / width is nearest to its own, by the logarithm; among buckets of equal
    ratio, in that of the nearest area. An epoch has each sample once. It is shuffled within and among the buckets:
    in a Loader by (seed, epoch), in a DataLoader by torch's default generator, as RandomSampler is.

    `cuaug.BUCKET` in the Loader's transforms is the bucket of each batch.

    Args:
        sizes: (N, 2) heights and widths of the samples, as `cuaug.sources.sizes` gives them. Samples of size (0, 0),
            which could not be read, go to the bucket with the most samples; the Loader's `on_error` decides there.
        buckets: (height, width) of each bucket in pixels: see `make_buckets`.
        batch_size: samples per batch.
        pixels_per_batch: instead of `batch_size`, a budget: a batch has as many samples as fit in, at the bucket's
            size. A budget of tokens is one of pixels: tokens x patch size ** 2.
        by: "aspect_ratio"; "area" compares areas first, then ratios.
        last_batch: what becomes of a bucket's last batch: "partial" leaves it smaller; "drop" leaves it out; "pad"
            fills it with samples of the bucket, for which `Batch.valid` is False in a Loader. The Loader's own
            `last_batch` says the same of the last step, where its ranks are more than the batches left.
        shuffle: False: the order of the indices; a batch comes when its last sample does.

    Attributes:
        buckets: as given.
        batch_sizes: samples of a full batch, by bucket.
        counts: samples of each bucket.
        batch_size: the one of all buckets, or None.

    Raises:
        LoaderError: an argument has a wrong type or value; or one image of a bucket exceeds the budget.
    """

    def __init__(
        self,
        sizes: ArrayLike,
        buckets: Sequence[tuple[int, int]],
        batch_size: int | None = None,
        *,
        pixels_per_batch: int | None = None,
        by: By = "aspect_ratio",
        last_batch: Literal["partial", "drop", "pad"] = "partial",
        shuffle: bool = True,
    ) -> None:
        checked = _checked_sizes(sizes)
        self.buckets = [_checked_bucket(bucket) for bucket in buckets]
        if not self.buckets:
            raise ArgumentError("buckets must have at least one (height, width)")
        self.by: By = one_of("by", by, get_args(By))
        self.last_batch = one_of("last_batch", last_batch, LAST_BATCH)
        self.shuffle = flag("shuffle", shuffle)
        self.batch_sizes = self._choose_batch_sizes(batch_size, pixels_per_batch)
        self.batch_size = self.batch_sizes[0] if len({*self.batch_sizes}) == 1 else None
        self._bucket_of = _nearest(checked, np.array(self.buckets), self.by)
        self.counts: list[int] = np.bincount(self._bucket_of, minlength=len(self.buckets)).tolist()
        full = zip(self.counts, self.batch_sizes, strict=True)
        self._length = sum(count // size + (last_batch != "drop" and count % size > 0) for count, size in full)
        if not self._length:
            raise ArgumentError(f"last_batch='drop' leaves no batch: {len(checked)} samples fill none in any bucket")

    def _choose_batch_sizes(self, batch_size: int | None, pixels_per_batch: int | None) -> list[int]:
        if (batch_size is None) == (pixels_per_batch is None):
            raise ArgumentError("batch_size or pixels_per_batch must be given, and not both")
        if pixels_per_batch is None:
            return [integer("batch_size", batch_size, 1)] * len(self.buckets)
        budget = integer("pixels_per_batch", pixels_per_batch, 1)
        height, width = max(self.buckets, key=math.prod)
        if height * width > budget:
            raise ArgumentError(
                f"pixels_per_batch must be at least {height * width}, one image of the bucket {height} x {width}, not "
                f"{budget}"
            )
        return [budget // (height * width) for height, width in self.buckets]

    def __len__(self) -> int:
        """Batches in an epoch."""
        return self._length

    def __iter__(self) -> Iterator[SizedBatch]:
        count = len(self._bucket_of)
        seed = int(torch.randint(_SEEDS, ())) if self.shuffle else 0
        order = ShuffledOrder(count).order(seed, 0) if self.shuffle else np.arange(count)
        order = order[np.argsort(self._bucket_of[order], kind="stable")]
        batches = self._cut()
        last = order[batches[:, 2] - 1]
        places = ShuffledOrder(len(batches)).order(seed, 1) if self.shuffle else np.argsort(last, kind="stable")
        for bucket, begin, end, padding in batches[places].tolist():
            members = order[begin:end].tolist()
            if padding:
                first = end - self.counts[bucket]  # it is the bucket's last batch
                others = order[first + np.arange(padding) % self.counts[bucket]]
                members += others.tolist()
            yield SizedBatch(members, self.buckets[bucket], padding)

    def _cut(self) -> NDArray[np.int64]:
        """(b, 4) each batch's bucket, its begin and end in the order by buckets, and its number of padding samples."""
        rows, first = [np.empty((0, 4), np.int64)], 0
        for bucket, (count, size) in enumerate(zip(self.counts, self.batch_sizes, strict=True)):
            begins = np.arange(0, count // size * size if self.last_batch == "drop" else count, size)
            ends = np.minimum(begins + size, count)
            padding = (begins + size - ends) * (self.last_batch == "pad")
            rows.append(np.stack([np.full_like(begins, bucket), first + begins, first + ends, padding], axis=1))
            first += count
        return np.concatenate(rows)

    def __repr__(self) -> str:
        return f"BucketSampler({len(self._bucket_of)} samples, {len(self.buckets)} buckets, {len(self)} batches)"


def _checked_sizes(sizes: ArrayLike) -> NDArray[np.int64]:
    try:
        checked = np.asarray(sizes)
    except (TypeError, ValueError, RuntimeError):  # ragged, or a tensor on a GPU
        checked = np.empty(0)
    if checked.ndim != 2 or checked.shape[1] != 2 or not len(checked) or checked.dtype.kind not in "iu":
        raise ArgumentError(f"sizes must be integers of shape (N, 2), heights and widths, not {sizes!r:.100}")
    bad = (checked < 0).any(axis=1) | ((checked == 0).sum(axis=1) == 1)
    if bad.any():
        sample = int(np.argmax(bad))
        raise ArgumentError(
            f"sizes must be above 0, or (0, 0), not {tuple(checked[sample].tolist())} (sample {sample})"
        )
    return checked.astype(np.int64)


def _checked_bucket(bucket: Any) -> tuple[int, int]:
    if not isinstance(bucket, Sequence) or len(bucket) != 2:
        raise ArgumentError(f"buckets must be (height, width) each, not {bucket!r:.100}")
    return integer("buckets", bucket[0], 1), integer("buckets", bucket[1], 1)


def _nearest(sizes: NDArray[np.int64], buckets: NDArray[np.int64], by: str) -> NDArray[np.int64]:
    """(N,) the number of each sample's bucket."""
    nearest = np.empty(len(sizes), np.int64)
    is_known = sizes[:, 0] > 0
    for begin in range(0, len(sizes), _CHUNK):
        distances = [
            np.abs(np.log(of_sizes)[:, None] - np.log(of_buckets))
            for of_sizes, of_buckets in zip(
                _ratio_and_area(np.maximum(sizes[begin : begin + _CHUNK], 1)), _ratio_and_area(buckets), strict=True
            )
        ]
        first, second = distances if by == "aspect_ratio" else distances[::-1]
        second[first > first.min(axis=1, keepdims=True)] = np.inf
        nearest[begin : begin + _CHUNK] = second.argmin(axis=1)
    nearest[~is_known] = np.bincount(nearest[is_known], minlength=1).argmax()
    return nearest


def _ratio_and_area(sizes: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    heights, widths = sizes.astype(np.float64).T
    return heights / widths, heights * widths
