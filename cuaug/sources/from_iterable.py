"""An iterable Dataset without items by index, such as Hugging Face's streaming ones."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.fork import fork_safe_lock, renew_after_fork
from cuaug.arguments import integer
from cuaug.errors import ArgumentError, SourceError
from cuaug.sampling.rng import SampleRNG
from cuaug.sources._fingerprint import fingerprint
from cuaug.sources._items import ItemConverter
from cuaug.sources._labels import Classes
from cuaug.sources._repr import ReprMixin
from cuaug.sources.from_dataset import choose_class_names

__all__ = ["FromIterable"]

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
        tensor_layout: layout of tensors, "CHW" or "HWC".
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
        tensor_layout: str = "CHW",
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
        self._converter = ItemConverter(self._name, image, label, tensor_layout, self.classes, mode)
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
