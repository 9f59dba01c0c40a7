"""How a chain will run, in words: its launches, what each of them does, and why it takes more than one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from cuaug.plan import BoxesKeypoints, Plan, Type
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms.base import BatchTransform, Transform, Where

__all__ = ["explain"]


class _Watched(Plan):
    """A plan that notes what each transform puts into which launch."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.does: list[dict[str, str]] = [{}]

    def perform(self, transform: Any, where: Where, params: dict[str, Any]) -> None:
        name, written, had = type(transform).__name__, len(self._table.appended), self.passes
        super().perform(transform, where, params)
        self.does += [{} for _ in range(had, self.passes)]
        touched = [place // len(self) for place, _ in self._table.appended[written:]] or [self._table.pass_number]
        for number in np.unique(np.concatenate(touched)):
            does = self.does[number]
            if len(self._table.appended) > written:
                does[name] = "pixel operations"
            elif any(what.startswith("geometry") for what in does.values()):
                does.setdefault(name, "geometry, folded into the same sampling step")
            else:
                does.setdefault(name, "geometry" if number < had else "reads what the launch before made")

    def ends(self, number: int) -> list[str]:
        """Why launch `number` is not the last, for how many images."""
        names = [step.transform for step in self.trace.steps]
        why: Counter[tuple[str, str]] = Counter()
        for barrier in self._table.barriers:
            if number < len(barrier.samples) and barrier.samples[number]:
                why[names[barrier.step], barrier.reason] += int(barrier.samples[number])
        return [
            f"  ends at {name} for {count} images of {len(self)}: {reason}" for (name, reason), count in why.items()
        ]


def explain(
    stages: Sequence[Transform], height: int, width: int, *, batch_size: int, channels: int, is_float: bool
) -> str:
    """What `Compose.explain` tells of the stages."""
    total, lines = 0, []
    for number, stage in enumerate(stages):
        if isinstance(stage, BatchTransform):
            lines += [f"function of the whole batch: {stage!r}", "    images are stored before it, and read after it"]
            continue
        rows = batch_size * stage.views
        source = Type.FLOAT32 if is_float else Type.UINT8
        plan = _Watched([height] * rows, [width] * rows, source_type=source, channels=channels, views=stage.views)
        plan.points = BoxesKeypoints(rows, (), (), (), ())  # some transforms ask for boxes
        stage.plan(plan, SampleRNG(0, number, np.repeat(np.arange(batch_size), stage.views)))
        is_float = plan.is_float
        height, width = (int(sizes[0]) for sizes in plan.sizes)
        for launch, does in enumerate(plan.does):
            total += 1
            lines.append(f"launch {total}")
            lines += [f"    {name:<24}{what}" for name, what in does.items()] or ["    the images as they are"]
            lines += plan.ends(launch)
    head = f"{batch_size} images: {total} launch{'es' if total > 1 else ''}"
    return "\n".join([head, *lines])
