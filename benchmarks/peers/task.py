"""What every contender is asked to do, and the way it is run."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import ClassVar, NamedTuple

from baseline import IMAGENET_MEAN, IMAGENET_STD
from torch import Tensor

__all__ = ["CHAINS", "VIEWS", "Batch", "Contender", "Task", "View"]

#: Images and labels; of several views a tensor for each, or for each size.
Batch = tuple[Tensor | Sequence[Tensor], Tensor]

#: classification: RandomResizedCrop(size), flip, Normalize.
#: heavy: ColorJitter(0.4, 0.4, 0.4, 0.1) and RandAugment(2, 9) in between, RandomErasing(0.25) after Normalize.
#: detection: Resize((size, size)) of the whole picture, flip, Normalize.
#: views: several RandomResizedCrops of each picture, each with a flip of its own, Normalize.
CHAINS = ("classification", "heavy", "detection", "views")


class View(NamedTuple):
    """So many crops of each picture, of these parts of its area."""

    count: int
    size: int
    area: tuple[float, float]


#: As in DINO (Caron et al. 2021), with six small ones.
VIEWS = (View(2, 224, (0.4, 1.0)), View(6, 96, (0.05, 0.4)))


@dataclass(frozen=True)
class Task:
    """Files to float32 [N, 3, size, size] on the CPU. `samples` must fill whole batches: nothing is dropped.

    The chain of views has their sizes instead.
    """

    samples: tuple[tuple[str, int], ...]
    batch_size: int = 128
    size: int = 224
    threads: int = 2
    seed: int = 0
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    chain: str = "classification"

    def __post_init__(self) -> None:
        if not self.samples or len(self.samples) % self.batch_size:
            raise ValueError(f"{len(self.samples)} samples do not fill whole batches of {self.batch_size}")
        if self.chain not in CHAINS:
            raise ValueError(f"chain {self.chain!r} is not one of {', '.join(CHAINS)}")


class Contender(ABC):
    """A loader under test. It is built once, started by its first epoch, and may be iterated any number of times."""

    name: ClassVar[str]
    package: ClassVar[str]  # the distribution whose version is reported
    module: ClassVar[str]  # what has to be imported for it to work
    chains: ClassVar[tuple[str, ...]] = CHAINS
    ahead: ClassVar[int] = 3  # batches that it may hold ready when its turn begins, at most

    def __init__(self, task: Task) -> None:
        if task.chain not in self.chains:
            raise ValueError(f"{self.name} has no {task.chain} chain")
        self.task = task

    @abstractmethod
    def epoch(self) -> Iterator[Batch]:
        """One shuffled pass over the files: (float32 [N, 3, size, size], integer [N]) per batch.

        Of views (tensors [N, ...], integer [N]).
        """

    @abstractmethod
    def close(self) -> None:
        """Stop threads and worker processes."""

    @classmethod
    def version(cls) -> str | None:
        """The installed version, or None."""
        try:
            return version(cls.package)
        except PackageNotFoundError:
            return None

    @classmethod
    def missing(cls) -> str | None:
        """Why it cannot run here, or None if it can."""
        try:
            importlib.import_module(cls.module)
        except ImportError as error:
            return str(error)
        return None
