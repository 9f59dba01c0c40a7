"""A torch `DataLoader` with as many worker processes as the task has threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from baseline import worker_loader
from torch.utils.data import Dataset

from peers.task import Batch, Contender, Task

__all__ = ["Workers"]


class Workers(Contender):
    """Base of the `DataLoader` peers. `dataset` makes the Dataset of a task."""

    dataset: Callable[[Task], Dataset]

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.loader = worker_loader(type(self).dataset(task), task.batch_size, task.threads, seed=task.seed)

    def epoch(self) -> Iterator[Batch]:
        return iter(self.loader)

    def close(self) -> None:
        del self.loader  # the last reference stops the workers
