"""Sources made of sources: torch's Subset (also from random_split) and ConcatDataset."""

from __future__ import annotations

import bisect
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import ConcatDataset, Subset

from cuaug.errors import ArgumentError, SourceError
from cuaug.sampling.clip_sampler import ClipSampler
from cuaug.sources.file_bytes import FilePaths, FileRanges, join_paths, join_ranges
from cuaug.sources.source import (
    ReadAhead,
    ReprMixin,
    Source,
    cached_method,
    describe_sources,
    fingerprint,
    locate,
    optional_method,
)


def wrapped_datasets(dataset: Any) -> Sequence[Any]:
    """The datasets inside a Subset or ConcatDataset; empty for others and for subclasses with their own items."""
    get = getattr(type(dataset), "__getitem__", None)
    if isinstance(dataset, Subset) and get is Subset.__getitem__:
        return [dataset.dataset]
    return dataset.datasets if isinstance(dataset, ConcatDataset) and get is ConcatDataset.__getitem__ else []


def leaf_datasets(dataset: Any) -> Iterator[Any]:
    """The innermost datasets of nested Subsets and ConcatDatasets, or the dataset itself."""
    members = wrapped_datasets(dataset)
    if not members:
        yield dataset
    for member in members:
        yield from leaf_datasets(member)


def _list_attribute(source: Source, name: str) -> list[Any] | None:
    value = getattr(source, name, None)
    return list(value) if isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, str) else None


def _common_sampler(sources: Sequence[Source]) -> ClipSampler | None:
    samplers = [getattr(source, "clip_sampler", None) for source in sources]
    clips: list[ClipSampler] = [sampler for sampler in samplers if sampler is not None]
    if clips and len(clips) < len(samplers):
        raise ArgumentError("files holds sources of images and of clips: a batch has one kind")
    counts = sorted({sampler.frames for sampler in clips})
    if len(counts) > 1:
        raise ArgumentError(f"files holds sources of clips of {', '.join(map(str, counts))} frames: give all one")
    return next((sampler for sampler in clips if sampler.is_random), clips[0] if clips else None)


class _Mapped:
    """The batches of a read-ahead, each mapped when it is iterated over."""

    def __init__(
        self, batches: Iterable[NDArray[np.int64]], function: Callable[[NDArray[np.int64]], NDArray[np.int64]]
    ) -> None:
        self._batches, self._function = batches, function

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        return map(self._function, self._batches)


class _ReadAheads:
    """The read-aheads of several sources."""

    def __init__(self, aheads: list[ReadAhead]) -> None:
        self._aheads = aheads

    def finish(self, batches: int) -> None:
        for ahead in self._aheads:
            ahead.finish(batches)

    def close(self) -> None:
        for ahead in self._aheads:
            ahead.close()


class _CompositeSource(ReprMixin):
    """Base of sources that take their samples and optional members from other sources."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources = list(sources)
        lists = [_list_attribute(source, "classes") for source in self.sources]
        # With different class names, equal labels mean different things.
        self.classes = lists[0] if lists.count(lists[0]) == len(lists) else None
        #: A random one of the sources' samplers, if any is random; None for images.
        self.clip_sampler = _common_sampler(self.sources)

    def _locate(self, index: int) -> tuple[Source, int]:
        """Returns (source, index in the source) of a sample."""
        raise NotImplementedError

    def read(self, index: int) -> tuple[Any, Any]:
        source, i = self._locate(index)
        return source.read(i)

    def read_ahead(self, batches: Iterable[NDArray[np.int64]]) -> ReadAhead | None:
        """The read-aheads of all sources, as of `Source`."""
        aheads: list[ReadAhead] = []
        for number, source in enumerate(self.sources):
            method = optional_method(source, "read_ahead")
            ahead = None if method is None else method(_Mapped(batches, partial(self._indices_of, number)))
            aheads += [] if ahead is None else [ahead]
        return _ReadAheads(aheads) if aheads else None

    def remote_counts(self) -> dict[str, int]:
        """The sums of the sources' counts."""
        counts = Counter[str]()
        for method in (optional_method(source, "remote_counts") for source in self.sources):
            counts.update({} if method is None else method())
        return dict(counts)

    def _indices_of(self, number: int, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """The indices in a source of those samples that it has."""
        raise NotImplementedError

    def label(self, index: int) -> Any:
        source, i = self._locate(index)
        label = optional_method(source, "label")
        return source.read(i)[1] if label is None else label(i)

    def path(self, index: int) -> str:
        source, i = self._locate(index)
        path = optional_method(source, "path")
        return f"{type(source).__name__}[{i}]" if path is None else path(i)

    def cache_key(self) -> str | None:
        """All sources' cache keys; a source without that method adds nothing beyond its fingerprint."""
        methods = [optional_method(source, "cache_key") for source in self.sources]
        keys: list[Any] = ["" if method is None else method() for method in methods]
        return None if None in keys else " + ".join(keys)

    def _fingerprints(self) -> list[str] | None:
        """All sources' fingerprints; None if one has none."""
        methods = [optional_method(source, "fingerprint") for source in self.sources]
        fingerprints: list[Any] = [None if method is None else method() for method in methods]
        return None if None in fingerprints else fingerprints

    def encoded_size(self, index: int) -> int:
        """Bytes of the encoded image; 0: unknown."""
        source, i = self._locate(index)
        size = optional_method(source, "encoded_size")
        return 0 if size is None else size(i)

    def _picture_size(self, index: int) -> tuple[int, int]:
        source, i = self._locate(index)
        size = optional_method(source, "picture_size")
        return (0, 0) if size is None else size(i)  # zeros: unknown

    def _repr_detail(self) -> str:
        return describe_sources(self.sources)

    def __getattr__(self, name: str) -> Any:
        # Defined only if a source has it: a loader calls it for every image.
        if name == "picture_size" and any(optional_method(source, name) is not None for source in self.sources):
            return self._picture_size
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class SubsetSource(_CompositeSource):
    """Selected samples of a source.

    Raises:
        LoaderError: no index, or an index out of range.
    """

    def __init__(self, source: Source, indices: Sequence[int]) -> None:
        super().__init__([source])
        name, count = type(source).__name__, len(source)
        if not len(indices):
            raise ArgumentError(f"files is a Subset of {name} without indices: there is nothing to load")
        expected = f"indices of a Subset must be integers from 0 to {count - 1}, since its {name} has {count} samples"
        self.indices = np.asarray(indices)  # every process would end up with its own copy of Python integers
        if self.indices.dtype.kind not in "iu" or self.indices.ndim != 1:
            raise SourceError(f"{expected}, not {indices!r:.100}")
        wrong = np.flatnonzero((self.indices < 0) | (self.indices >= count))
        if len(wrong):
            raise SourceError(f"{expected}; indices[{wrong[0]}] is {self.indices[wrong[0]]}")

    def __len__(self) -> int:
        return len(self.indices)

    def _locate(self, index: int) -> tuple[Source, int]:
        return self.sources[0], int(self.indices[index])

    def locate(self, indices: NDArray[np.int64]) -> FilePaths | FileRanges | None:
        """As of the source."""
        return locate(self.sources[0], self.indices[indices])

    def _indices_of(self, number: int, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.indices[indices]

    @cached_method
    def fingerprint(self) -> str | None:
        fingerprints = self._fingerprints()
        return None if fingerprints is None else fingerprint("subset", fingerprints[0], self.indices)


class ConcatSource(_CompositeSource):
    """The samples of several sources, one source after the other."""

    def __init__(self, sources: Sequence[Source]) -> None:
        super().__init__(sources)
        self._ends = list(itertools.accumulate(map(len, self.sources)))
        shards = [_list_attribute(source, "shard_sizes") for source in self.sources]
        if None not in shards:
            self.shard_sizes = [size for sizes in shards for size in sizes or ()]

    def __len__(self) -> int:
        return self._ends[-1]

    def _locate(self, index: int) -> tuple[Source, int]:
        i = bisect.bisect_right(self._ends, index)
        source = self.sources[i]
        return source, index - self._ends[i] + len(source)

    def _indices_of(self, number: int, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        begin = self._ends[number] - len(self.sources[number])
        return indices[(indices >= begin) & (indices < self._ends[number])] - begin

    def locate(self, indices: NDArray[np.int64]) -> FilePaths | FileRanges | None:
        """As of the sources, if all give paths, or all give ranges."""
        numbers = np.searchsorted(np.array(self._ends), indices, side="right")
        parts: list[Any] = []  # positions in the batch, and where their samples lie
        for number in np.unique(numbers).tolist():
            positions = np.flatnonzero(numbers == number)
            parts.append((positions, locate(self.sources[number], self._indices_of(number, indices[positions]))))
        kinds = {type(found) for _, found in parts}
        if kinds == {FilePaths}:
            return join_paths(len(indices), parts)
        return join_ranges(len(indices), parts) if kinds == {FileRanges} else None

    @cached_method
    def fingerprint(self) -> str | None:
        fingerprints = self._fingerprints()
        return None if fingerprints is None else fingerprint("concatenated", fingerprints)
