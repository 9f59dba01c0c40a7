"""cuaug, from the files that all contenders read, and from the same files after `cuaug prepare`."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from peers.task import VIEWS, Batch, Contender, Task

__all__ = ["Cuaug", "CuaugPrepared", "chain"]


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


class CuaugPrepared(Cuaug):
    name = "cuaug-prepared"
    chains = ("classification", "heavy")  # the others need whole images, or nearly so

    def __init__(self, task: Task) -> None:
        super().__init__(dataclasses.replace(task, samples=tuple(_prepare(task.samples))))

    @classmethod
    def missing(cls) -> str | None:
        return super().missing() or (None if shutil.which("jpegtran") else "no jpegtran (libjpeg-turbo-progs)")


def _prepare(samples: tuple[tuple[str, int], ...]) -> Iterator[tuple[str, int]]:
    """Yield the same samples from a prepared folder beside theirs, written if missing; warm its pages."""
    from cuaug.commands.prepare import prepare_files

    source = Path(samples[0][0]).parent
    target = source.with_name(source.name + "-prepared")
    unchanged = [
        name for done in prepare_files(source, target, threads=os.cpu_count() or 1) for name, _ in done.unchanged
    ]
    if unchanged:
        raise AssertionError(f"cuaug prepare left {len(unchanged)} images unchanged, such as {unchanged[0]}")
    for path, label in samples:
        prepared = target / Path(path).relative_to(source)
        prepared.read_bytes()
        yield str(prepared), label
