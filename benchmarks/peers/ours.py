"""cuaug, from the files that all contenders read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from peers.task import VIEWS, Batch, Contender, Task

__all__ = ["Cuaug", "chain"]


def chain(task: Task) -> list[Any]:
    """The task's transforms."""
    from cuaug import transforms as T

    normalize = T.Normalize(task.mean, task.std)
    if task.chain == "detection":
        return [T.Resize((task.size, task.size)), T.RandomHorizontalFlip(), normalize]
    if task.chain == "views":
        views = [[T.Compose([T.RandomResizedCrop(v.size, v.area), T.RandomHorizontalFlip()])] * v.count for v in VIEWS]
        return [T.MultiView([view for same_size in views for view in same_size]), normalize]
    crop = [T.RandomResizedCrop(task.size), T.RandomHorizontalFlip()]
    if task.chain == "heavy":
        return [*crop, T.ColorJitter(0.4, 0.4, 0.4, 0.1), T.RandAugment(2, 9), normalize, T.RandomErasing(0.25)]
    return [*crop, normalize]


class Cuaug(Contender):
    name, package, module = "cuaug", "cuaug", "cuaug"
    device: ClassVar[str] = "cpu"

    def __init__(self, task: Task, **options: Any) -> None:
        super().__init__(task)
        import cuaug

        self.loader = cuaug.Loader(
            list(task.samples),
            transforms=chain(task),
            batch_size=task.batch_size,
            shuffle=True,
            seed=task.seed,
            last_batch="drop",
            device=self.device,
            threads=task.threads,
            **options,
        )

    def epoch(self) -> Iterator[Batch]:
        return iter(self.loader)

    def close(self) -> None:
        self.loader.close()
