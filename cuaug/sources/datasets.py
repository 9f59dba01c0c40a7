"""torch Datasets, any object with `len(dataset)` and `dataset[i]`, and iterable Datasets without items by index."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import ConcatDataset, Subset

from cuaug._runtime.arguments import integer
from cuaug._runtime.fork import PerProcess, fork_safe_lock, renew_after_fork
from cuaug.errors import ArgumentError, SourceError
from cuaug.sampling.rng import SampleRNG
from cuaug.sources.items import ItemConverter
from cuaug.sources.labels import Classes, encode_text, parse_label_fields, warn_of_other_numbers
from cuaug.sources.source import ReprMixin, cache_key, cached_method, fingerprint, relative_paths
from cuaug.sources.subset_concat import leaf_datasets


class FromDataset(ReprMixin):
    """The items of a map-style Dataset.

    | item | label |
    |---|---|
    | image | the index |
    | (image, label) | label |
    | (image, label, more, ...) | the tuple (label, more, ...) |
    | dict | `item[label]` |

    An image is a path, encoded bytes, a uint8 array of shape (H, W, 3), (H, W, 1) or (H, W), a uint8 tensor (3, H, W),
    (1, H, W) or (H, W), or a PIL image. Arrays and tensors of one dimension are encoded bytes.

    A Dataset should return paths or bytes if it can: its own decoding is slower and decodes whole images. Hugging
    Face's returns bytes after `dataset.cast_column("image", datasets.Image(decode=False))`. A PIL image is used as
    NumPy sees it: to apply its EXIF orientation, as for files, the Dataset calls `PIL.ImageOps.exif_transpose`.

    Class names come from the Dataset's `classes`, from a `ClassLabel` of Hugging Face's `features`, or from text that
    repeats, as in `Files`, where all labels are known: in `targets`, in `samples`, or in a column of text. Labels that
    are class names become class numbers.

    Several loader threads call `dataset[i]` at once. Use `lock=True` for a Dataset that keeps an open file, as many
    written for worker processes do.

    Args:
        dataset: the Dataset. It must pickle if this is to pickle.
        image: key of the image in items that are dicts.
        label: key of the label in items that are dicts; a list of keys for a dict label; None: a sample's label is its
            index.
        lock: let only one thread at a time call the Dataset.
        classes: class names in label order; "auto": as above; None: labels that are text stay text.
        mode: how PIL images, arrays and tensors become images; the same as the loader's `DecodeOptions(mode=)`.

    Attributes:
        classes: the class names, or None.

    An OSError from the Dataset damages one sample, and so do a PIL image with 32-bit channels and a tensor that is not
    dense (meta, sparse, nested). Any other exception ends the iteration.

    Raises:
        LoaderError: the dataset has no length or no items; from `read`: an item is none of these.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        image: str = "image",
        label: str | Sequence[str] | None = "label",
        lock: bool = False,
        classes: Classes = "auto",
        mode: Literal["RGB", "L", "RGBA", "unchanged"] = "RGB",
    ) -> None:
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            raise ArgumentError(
                f"dataset must have len() and items by index, unlike {type(dataset).__name__}: for an iterable one use "
                "cuaug.sources.FromIterable(dataset, length)"
            )
        if isinstance(dataset, torch.utils.data.IterableDataset):
            raise ArgumentError(
                f"dataset must have items by index; {type(dataset).__name__} is only iterable: use "
                "cuaug.sources.FromIterable(dataset, length)"
            )
        for leaf in leaf_datasets(dataset):
            if not hasattr(leaf, "__getitem__"):
                raise ArgumentError(
                    f"dataset: {type(dataset).__name__} holds a {type(leaf).__name__}, which has no items by index; "
                    "give a Subset or ConcatDataset of sources to a Loader directly"
                )
        if not len(dataset):
            raise ArgumentError(f"dataset is empty: {type(dataset).__name__} has nothing to load")
        self.dataset = dataset
        self._name = type(dataset).__name__
        self._lock: PerProcess[Any] = PerProcess(threading.Lock if lock else contextlib.nullcontext)
        self.classes = choose_class_names(dataset, label, classes)
        self._converter = ItemConverter(self._name, image, label, self.classes, mode)
        self.mode = self._converter.mode

    def __len__(self) -> int:
        return len(self.dataset)

    def read(self, index: int) -> tuple[Any, Any]:
        """Returns (path, bytes or uint8 array (H, W[, C]), label)."""
        with self._lock.get():
            item = self.dataset[index]
            return self._converter(item, index)  # PIL reads the file here, under the lock

    def path(self, index: int) -> str:
        """TypeOfDataset[index]"""
        return f"{self._name}[{index}]"

    @cached_method
    def fingerprint(self) -> str | None:
        """The Dataset's `fingerprint()`, or a digest of its type, length and `samples` or `targets`.

        `samples` are (path, label) pairs, as in torchvision. A Subset's digest covers its Dataset and indices, a
        ConcatDataset's its members. None: the Dataset, or one inside it, has none of these.
        """
        return _fingerprint(self.dataset)

    def cache_key(self) -> str | None:
        """The common folder of the Dataset's `samples`, and a digest of modification times of up to 1,000 files.

        None: the Dataset has neither `samples` nor `fingerprint()`. `targets` do not identify images.
        """
        samples = [_samples(member) for member in _members(self.dataset)]
        if None in samples:
            return None
        paths = [path for pairs in samples for path, _ in pairs or ()]
        image = self._converter.image
        return cache_key(paths, image) if paths else fingerprint("cache_key", image)


def choose_class_names(dataset: Any, label: str | Sequence[str] | None, classes: Classes) -> list[str] | None:
    """The names of the labels 0, 1, ...: the given ones, or with "auto" the Dataset's own for its one label."""
    if classes != "auto":
        return None if classes is None else list(classes)
    fields, is_dict = parse_label_fields(label)
    return _class_names(dataset, fields[0] if len(fields) == 1 and not is_dict else None)


def _class_names(dataset: Any, field: str | None) -> list[str] | None:
    """The class names that all innermost Datasets have in common.

    Args:
        field: the label's key in items that are dicts.
    """
    leaves = list(leaf_datasets(dataset))
    found = [_own_class_names(leaf, field) for leaf in leaves]
    return found[0] if found.count(found[0]) == len(found) else None


def _own_class_names(dataset: Any, field: str | None) -> list[str] | None:
    classes = getattr(dataset, "classes", None)
    if isinstance(classes, (list, tuple)):
        return list(classes)
    features = getattr(dataset, "features", None)
    if field is not None and isinstance(features, Mapping) and field in features:
        if isinstance(names := getattr(features[field], "names", None), (list, tuple)):
            return list(names)
        if getattr(features[field], "dtype", None) in ("string", "large_string") and hasattr(dataset, "unique"):
            names = dataset.unique(field)
            if not all(names) or 3 * len(names) > 2 * len(dataset):
                return None
            warn_of_other_numbers(names := sorted(names))
            return names
    samples, targets = _samples(dataset), getattr(dataset, "targets", None)
    labels = targets if samples is None else [label for _, label in samples]
    if not isinstance(labels, (list, tuple)) or len(labels) != len(dataset):
        return None
    return encode_text(labels, "auto")[1]


def _fingerprint(dataset: Any) -> str | None:
    if _has_fingerprint(dataset):
        return str(dataset.fingerprint())
    if isinstance(dataset, Subset):
        whole = _fingerprint(dataset.dataset)
        return None if whole is None else fingerprint("subset", whole, dataset.indices)
    if isinstance(dataset, ConcatDataset):
        members = [_fingerprint(member) for member in dataset.datasets]
        return None if None in members else fingerprint("concatenated", members)
    classes = getattr(dataset, "classes", None)
    common = [type(dataset).__name__, len(dataset), list(classes) if isinstance(classes, (list, tuple)) else None]
    samples, targets = _samples(dataset), getattr(dataset, "targets", None)
    if samples is not None:
        return fingerprint(
            "dataset", *common, relative_paths([path for path, _ in samples]), [label for _, label in samples]
        )
    return None if targets is None else fingerprint("dataset", *common, targets)


def _members(dataset: Any) -> Iterator[Any]:
    """The innermost Datasets of Subsets and ConcatDatasets, without any that have a `fingerprint()`."""
    if _has_fingerprint(dataset):
        return
    if isinstance(dataset, Subset):
        yield from _members(dataset.dataset)
    elif isinstance(dataset, ConcatDataset):
        for member in dataset.datasets:
            yield from _members(member)
    else:
        yield dataset


def _has_fingerprint(dataset: Any) -> bool:
    return callable(getattr(dataset, "fingerprint", None))


def _samples(dataset: Any) -> list[tuple[str, Any]] | None:
    """The Dataset's (path, label) pairs, one per item, if it has them as in torchvision."""
    samples = getattr(dataset, "samples", None)
    if not isinstance(samples, list) or len(samples) != len(dataset):
        return None
    if not all(isinstance(s, (tuple, list)) and len(s) == 2 and isinstance(s[0], (str, os.PathLike)) for s in samples):
        return None
    return [(os.fspath(path), label) for path, label in samples]


log = logging.getLogger("cuaug")

_DRAWS_PER_CHUNK = 4096
_END = object()


class FromIterable(ReprMixin):
    """The items of an iterable Dataset, in its order or from a shuffle buffer.

        dataset = datasets.load_dataset(name, split="train", streaming=True)
        dataset = dataset.cast_column("image", datasets.Image(decode=False))
        source = cuaug.sources.FromIterable(dataset, 1_281_167, shuffle_buffer=10_000)

    Items and images are those of `FromDataset`. Each iteration of the loader begins at the stream's first item and
    calls the Dataset's `set_epoch` if it has one. One thread at a time takes an item.

    Kept: the same seed and the same stream give the same batches, for any number of threads and ranks; each of the
    first `length` items comes once.

    Not kept:

    - Resuming reads and discards the items before the position. It is exact only if the stream repeats its order.
    - Each rank reads the whole stream and keeps its share. For other splits, divide the Dataset yourself and make
      each Loader with rank=0, world_size=1.
    - Shuffling moves an item forward by fewer than `shuffle_buffer` positions; the buffer holds encoded items.
    - Random numbers follow an item's position in the epoch, not the item.
    - `shuffle=True`, a sampler, `last_batch="pad"`, `on_error="replace"`, a cache, mixes, `peek` and `replay` need
      samples by index and are refused.

    Args:
        dataset: an iterable that begins anew with each `iter(dataset)`. It must pickle if this is to pickle.
        length: samples of an epoch. A shorter stream is an error; the rest of a longer one is not read, with one
            warning.
        shuffle_buffer: items that the buffer holds; 0: the stream's order.
        image: key of the image in items that are dicts.
        label: key of the label in items that are dicts; a list of keys for a dict label; None: the position.
        mode: as for `FromDataset`.
        classes: class names in label order; "auto": of Hugging Face's `features`; None: text stays text.

    Raises:
        ArgumentError: the dataset is no iterable, or an iterator that ends with the first epoch.
    """

    def __init__(
        self,
        dataset: Iterable[Any],
        length: int,
        *,
        shuffle_buffer: int = 0,
        image: str = "image",
        label: str | Sequence[str] | None = "label",
        classes: Classes = "auto",
        mode: Literal["RGB", "L", "RGBA", "unchanged"] = "RGB",
    ) -> None:
        if not isinstance(dataset, Iterable) or isinstance(dataset, (str, bytes)):
            raise ArgumentError(f"dataset must be iterable, unlike {type(dataset).__name__}")
        if isinstance(dataset, Iterator):
            raise ArgumentError(
                f"dataset is an iterator, {type(dataset).__name__}, which ends with the first epoch: give an object "
                "whose __iter__ begins anew"
            )
        self.dataset = dataset
        self._length = integer("length", length, 1)
        self.shuffle_buffer = integer("shuffle_buffer", shuffle_buffer, 0)
        self._name = type(dataset).__name__
        self.classes = choose_class_names(dataset, label, classes)
        self._converter = ItemConverter(self._name, image, label, self.classes, mode)
        self.mode = self._converter.mode
        self._has_warned = False
        self._stream: _Stream | None = None
        renew_after_fork(self._end_stream)

    def __len__(self) -> int:
        return self._length

    def start_stream(self, seed: int, epoch: int, indices: NDArray[np.int64]) -> None:
        """Begins an epoch at the stream's first item.

        Args:
            seed, epoch: of the shuffle buffer.
            indices: (n,) ascending, the samples that will be read, each once. The others are discarded.
        """
        if len(indices) and indices[0] > 0:
            log.info("%r: reads and discards %d items before the first sample of this iteration", self, indices[0])
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(epoch)
        rest = items = iter(self.dataset)
        if self.shuffle_buffer:
            items = _shuffle(itertools.islice(rest, self._length), self.shuffle_buffer, seed, epoch)
        self._stream = _Stream(items, rest, indices, self._name)

    def read(self, index: int) -> tuple[Any, Any]:
        """Returns (path, bytes or uint8 array (H, W[, C]), label).

        Raises:
            SourceError: the stream is shorter than `length`, has raised an error before, or this sample does not come
                next.
        """
        stream = self._stream
        if stream is None:
            raise SourceError(f"{self!r} has no samples by index: iterate over cuaug.Loader(source)")
        item = stream.take(index)
        if index == self._length - 1 and not self._has_warned and stream.goes_on():
            self._has_warned = True
            log.warning("%s goes on after length=%d items: the rest is not read", self._name, self._length)
        return self._converter(item, index)

    def path(self, index: int) -> str:
        """TypeOfDataset item 12"""
        return f"{self._name} item {index}"

    def fingerprint(self) -> str:
        """Digest of the Dataset's type, the length and the shuffle buffer: the samples are not known before."""
        return fingerprint("iterable", self._name, self._length, self.shuffle_buffer)

    def cache_key(self) -> None:
        """None: nothing tells two streams apart."""

    def _end_stream(self) -> None:
        self._stream = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_stream": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        renew_after_fork(self._end_stream)


class _Stream:
    """One pass over the items. Threads may ask for samples a little out of order: earlier ones wait here.

    Args:
        rest: the Dataset's items, which `items` takes some of.
    """

    def __init__(self, items: Iterator[Any], rest: Iterator[Any], indices: NDArray[np.int64], name: str) -> None:
        self._items, self._rest, self._name = items, rest, name
        self._error: Exception | None = None
        self._wanted = iter(indices.tolist())
        self._next_wanted = next(self._wanted, None)
        self._position = 0
        self._waiting: dict[int, Any] = {}
        self._lock = fork_safe_lock()

    def take(self, index: int) -> Any:
        with self._lock:
            while self._position <= index:
                item = self._next()
                if item is _END:
                    raise SourceError(f"{self._name} ended after {self._position} items, before sample {index}")
                if self._position == self._next_wanted:
                    self._waiting[self._position] = item
                    self._next_wanted = next(self._wanted, None)
                self._position += 1
            if index not in self._waiting:
                raise SourceError(
                    f"{self._name}: sample {index} was read already, or is not part of this iteration: give each "
                    "Loader a FromIterable of its own"
                )
            return self._waiting.pop(index)

    def _next(self) -> Any:
        """The next item, or `_END`. An iterator that goes on after its own error may have lost items."""
        if self._error is not None:
            raise SourceError(
                f"{self._name} raised {type(self._error).__name__}: {self._error} after {self._position} items: its "
                "later items have no known position"
            ) from self._error
        try:
            return next(self._items, _END)
        except Exception as error:
            self._error = error
            raise

    def goes_on(self) -> bool:
        """Whether there is another item, which is then lost."""
        with self._lock:
            return next(self._rest, _END) is not _END


def _shuffle(items: Iterator[Any], size: int, seed: int, epoch: int) -> Iterator[Any]:
    """Yields a random item of a buffer and puts the next one in its place."""
    draws = _uniform(seed, epoch)
    buffer = list(itertools.islice(items, size))
    for item in items:
        place = int(next(draws) * len(buffer))
        yield buffer[place]
        buffer[place] = item
    while buffer:
        place = int(next(draws) * len(buffer))
        buffer[place], buffer[-1] = buffer[-1], buffer[place]
        yield buffer.pop()


def _uniform(seed: int, epoch: int) -> Iterator[float]:
    """Random numbers in [0, 1), a function of (seed, epoch)."""
    for begin in itertools.count(0, _DRAWS_PER_CHUNK):
        yield from SampleRNG(seed, epoch, np.arange(begin, begin + _DRAWS_PER_CHUNK)).uniform().tolist()
