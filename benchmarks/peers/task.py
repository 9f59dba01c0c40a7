"""The task of every contender, and the interface by which it runs."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from baseline import IMAGENET_MEAN, IMAGENET_STD
from torch import Tensor

__all__ = ["CHAINS", "VIEWS", "Batch", "Contender", "Task", "View"]

#: Images and labels; views are a tensor each, or one per size.
Batch = tuple[Tensor | Sequence[Tensor], Tensor]

#: classification: RandomResizedCrop(size), flip, Normalize.
#: heavy: ColorJitter(0.4, 0.4, 0.4, 0.1) and RandAugment(2, 9) before Normalize, RandomErasing(0.25) after it.
#: detection: Resize((size, size)), flip, Normalize.
#: views: several RandomResizedCrops of each image, each with its own flip; Normalize.
CHAINS = ("classification", "heavy", "detection", "views")


class View(NamedTuple):
    """`count` crops of each image to `size`, with `area` as the range of area fractions."""

    count: int
    size: int
    area: tuple[float, float]


#: DINO's crops (Caron et al. 2021), with six small ones.
VIEWS = (View(2, 224, (0.4, 1.0)), View(6, 96, (0.05, 0.4)))


@dataclass(frozen=True)
class Task:
    """Files to float32 [N, 3, size, size] on the CPU; chain "views" has `VIEWS`' sizes instead.

    Raises:
        ValueError: `samples` do not fill whole batches, or `chain` is unknown.
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
            raise ValueError(f"samples: {len(self.samples)} do not fill whole batches of {self.batch_size}")
        if self.chain not in CHAINS:
            raise ValueError(f"chain={self.chain!r}: expected one of {', '.join(CHAINS)}")


class Contender(ABC):
    """A loader under test. Its first epoch starts it; it may run any number of epochs."""

    name: ClassVar[str]
    package: ClassVar[str]  # distribution whose version is reported
    module: ClassVar[str]  # import that must succeed
    chains: ClassVar[tuple[str, ...]] = CHAINS
    ahead: ClassVar[int] = 3  # largest number of batches ready when its turn begins

    def __init__(self, task: Task) -> None:
        if task.chain not in self.chains:
            raise ValueError(f"task: {self.name} does not support chain {task.chain!r}")
        self.task = task

    @abstractmethod
    def epoch(self) -> Iterator[Batch]:
        """One shuffled pass over the files: (float32 [N, 3, size, size], integer [N]) per batch.

        Views give (tensors [N, ...], integer [N]).
        """

    @abstractmethod
    def close(self) -> None:
        """Stop threads and worker processes."""

    @classmethod
    def missing(cls) -> str | None:
        """Reason why it cannot run here, or None if it can."""
        try:
            importlib.import_module(cls.module)
        except ImportError as error:
            return str(error)
        return None
