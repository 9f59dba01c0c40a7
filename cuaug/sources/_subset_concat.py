"""Sources made of sources: what torch's Subset, hence random_split, and ConcatDataset stand for."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from torch.utils.data import ConcatDataset, Subset

from cuaug.errors import LoaderError
from cuaug.sources._fingerprint import fingerprint, once
from cuaug.sources._repr import ReprMixin, some
from cuaug.sources.source import Source, optional_method

__all__ = ["ConcatSource", "SubsetSource", "inner", "leaves"]


def inner(dataset: Any) -> Sequence[Any]:
    """What a Subset or a ConcatDataset is made of; nothing for others, or for one that makes items in its own way."""
    get = getattr(type(dataset), "__getitem__", None)
    if isinstance(dataset, Subset) and get is Subset.__getitem__:
        return [dataset.dataset]
    return dataset.datasets if isinstance(dataset, ConcatDataset) and get is ConcatDataset.__getitem__ else []


def leaves(dataset: Any) -> Iterator[Any]:
    """What it is made of in the end, or itself."""
    within = inner(dataset)
    if not within:
        yield dataset
    for each in within:
        yield from leaves(each)


def _list_of(source: Source, name: str) -> list[Any] | None:
    """An attribute of a source that is a list, or the like."""
    found = getattr(source, name, None)
    return list(found) if isinstance(found, (Sequence, np.ndarray)) and not isinstance(found, str) else None


class _OfSources(ReprMixin):
    """Samples that are those of other sources, with all that these have."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources = list(sources)
        lists = [_list_of(source, "classes") for source in self.sources]
        self.classes = lists[0] if lists.count(lists[0]) == len(lists) else None  # or labels mean different things

    def _place(self, index: int) -> tuple[Source, int]:
        """Which source's sample this is, and which of that."""
        raise NotImplementedError

    def read(self, index: int) -> tuple[Any, Any]:
        source, i = self._place(index)
        return source.read(i)

    def label(self, index: int) -> Any:
        source, i = self._place(index)
        label = optional_method(source, "label")
        return source.read(i)[1] if label is None else label(i)

    def path(self, index: int) -> str:
        source, i = self._place(index)
        path = optional_method(source, "path")
        return f"{type(source).__name__}[{i}]" if path is None else path(i)

    def cache_key(self) -> str | None:
        """All of theirs; of a source without, its fingerprint is enough."""
        methods = [optional_method(source, "cache_key") for source in self.sources]
        origins: list[Any] = ["" if method is None else method() for method in methods]
        return None if None in origins else " + ".join(origins)

    def _fingerprints(self) -> list[str] | None:
        """Of all the sources; None where one has none."""
        methods = [optional_method(source, "fingerprint") for source in self.sources]
        prints: list[Any] = [None if method is None else method() for method in methods]
        return None if None in prints else prints

    def encoded_size(self, index: int) -> int:
        """Bytes of the encoded image; 0 where they are not known."""
        source, i = self._place(index)
        size = optional_method(source, "encoded_size")
        return 0 if size is None else size(i)

    def _picture_size(self, index: int) -> tuple[int, int]:
        source, i = self._place(index)
        size = optional_method(source, "picture_size")
        return (0, 0) if size is None else size(i)  # zeros: not known

    def _which(self) -> str:
        return some(self.sources)

    def __getattr__(self, name: str) -> Any:
        # A loader looks at every picture's size where there is such a method.
        if name == "picture_size" and any(optional_method(source, name) is not None for source in self.sources):
            return self._picture_size
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class SubsetSource(_OfSources):
    """Some samples of a source.

    Raises:
        LoaderError: no index, or one that is of no sample.
    """

    def __init__(self, source: Source, indices: Sequence[int]) -> None:
        super().__init__([source])
        name, count = type(source).__name__, len(source)
        if not len(indices):
            raise LoaderError(f"there is nothing to load: a Subset of {name} has no indices")
        wanted = f"a Subset's indices are integers from 0 to {count - 1}, for so many samples has its {name}"
        self.indices = np.asarray(indices)  # of Python's integers every process would come to have a copy
        if self.indices.dtype.kind not in "iu" or self.indices.ndim != 1:
            raise LoaderError(f"{wanted}: not {indices!r:.100}")
        wrong = np.flatnonzero((self.indices < 0) | (self.indices >= count))
        if len(wrong):
            raise LoaderError(f"{wanted}: the one at place {wrong[0]} is {self.indices[wrong[0]]}")

    def __len__(self) -> int:
        return len(self.indices)

    def _place(self, index: int) -> tuple[Source, int]:
        return self.sources[0], int(self.indices[index])

    @once
    def fingerprint(self) -> str | None:
        prints = self._fingerprints()
        return None if prints is None else fingerprint("subset", prints[0], self.indices)


class ConcatSource(_OfSources):
    """The samples of sources, one source after the other."""

    def __init__(self, sources: Sequence[Source]) -> None:
        super().__init__(sources)
        self._ends = list(itertools.accumulate(map(len, self.sources)))
        shards = [_list_of(source, "shard_sizes") for source in self.sources]
        if None not in shards:
            self.shard_sizes = [size for sizes in shards for size in sizes or ()]

    def __len__(self) -> int:
        return self._ends[-1]

    def _place(self, index: int) -> tuple[Source, int]:
        which = bisect.bisect_right(self._ends, index)
        source = self.sources[which]
        return source, index - self._ends[which] + len(source)

    @once
    def fingerprint(self) -> str | None:
        prints = self._fingerprints()
        return None if prints is None else fingerprint("concatenated", prints)
