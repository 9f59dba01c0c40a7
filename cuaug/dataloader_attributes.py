"""Attributes that trainers look for on a torch DataLoader and its dataset, for `Loader`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cuaug.migration_hints import LOADER_ATTRIBUTES
from cuaug.sampling import Order, SamplerView
from cuaug.sources import FromDataset, Source

__all__ = ["DataLoaderAttributes"]


class DataLoaderAttributes:
    """Base class of `Loader`: DataLoader's names for what it has, and hints for names that it lacks."""

    source: Source
    batch_size: int
    last_batch: str
    threads: int
    _sampler: Order

    def __len__(self) -> int:
        raise NotImplementedError

    def set_epoch(self, epoch: int) -> None:
        raise NotImplementedError

    @property
    def classes(self) -> list[str] | None:
        """Names of the class folders in label order; None where the source has none."""
        return getattr(self.source, "classes", None)

    @property
    def class_to_idx(self) -> dict[str, int] | None:
        """The label of each class, as in torchvision's ImageFolder; None where the source has no classes."""
        return None if self.classes is None else {name: label for label, name in enumerate(self.classes)}

    @property
    def dataset(self) -> Any:
        """The Dataset that the Loader was given; for all other data its source. Its items have no transforms."""
        return self.source.dataset if isinstance(self.source, FromDataset) else self.source

    @property
    def num_workers(self) -> int:
        """The number of worker threads."""
        return self.threads

    @property
    def drop_last(self) -> bool:
        """Whether an incomplete last batch is left out."""
        return self.last_batch == "drop"

    @property
    def pin_memory(self) -> bool:
        """False: batches are on the loader's device, so no caller copies them there."""
        return False

    @property
    def sampler(self) -> SamplerView:
        """A DataLoader-like sampler: trainers set the epoch on it."""
        return SamplerView(len(self._sampler), 1, self.set_epoch)

    @property
    def batch_sampler(self) -> SamplerView:
        """A DataLoader-like batch sampler: trainers that find `sampler` expect both."""
        return SamplerView(len(self), self.batch_size, self.set_epoch)

    if not TYPE_CHECKING:  # type checkers shall refuse both

        def __getattr__(self, name: str) -> Any:
            hint = f": {LOADER_ATTRIBUTES[name]}" if name in LOADER_ATTRIBUTES else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")

        def __getitem__(self, index: Any) -> Any:
            raise TypeError(
                "a Loader makes batches and has no items: iterate over it, without a DataLoader around it; its samples "
                "are loader.source.read(i)"
            )
