"""`Compose.explain`: the kernel launches of a chain, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from cuaug.plan import BoxesKeypoints, Plan, Type
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms.base import BatchTransform, Transform, Where

__all__ = ["explain"]


class _RecordingPlan(Plan):
    """A plan that records which transform contributes to which launch."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.launches: list[dict[str, str]] = [{}]  # effect by transform name, for each launch

    def perform(self, transform: Any, where: Where, params: dict[str, Any]) -> None:
        table, name = self._table, type(transform).__name__
        written_before, passes_before = len(table.appended), self.passes
        super().perform(transform, where, params)
        self.launches += [{} for _ in range(passes_before, self.passes)]
        touched = [place // len(self) for place, _ in table.appended[written_before:]] or [table.pass_number]
        for number in np.unique(np.concatenate(touched)):
            effects = self.launches[number]
            if len(table.appended) > written_before:
                effects[name] = "pixel operations"
            elif any(effect.startswith("geometry") for effect in effects.values()):
                effects.setdefault(name, "geometry, folded into the same sampling step")
            else:
                effects.setdefault(name, "geometry" if number < passes_before else "reads the previous launch's output")

    def ends(self, number: int) -> list[str]:
        """Why launch `number` is not the last one, and for how many images."""
        names = [step.transform for step in self.trace.steps]
        reasons: Counter[tuple[str, str]] = Counter()
        for barrier in self._table.barriers:
            if number < len(barrier.samples) and barrier.samples[number]:
                reasons[names[barrier.step], barrier.reason] += int(barrier.samples[number])
        return [
            f"  ends at {name} for {count} images of {len(self)}: {reason}" for (name, reason), count in reasons.items()
        ]


def explain(
    segments: Sequence[Transform], height: int, width: int, *, batch_size: int, channels: int, is_float: bool
) -> str:
    """The text of `Compose.explain` for these segments."""
    total, lines = 0, []
    for number, segment in enumerate(segments):
        if isinstance(segment, BatchTransform):
            lines += [f"batch transform: {segment!r}", "    images are stored before it and read after it"]
            continue
        rows = batch_size * segment.views
        source = Type.FLOAT32 if is_float else Type.UINT8
        plan = _RecordingPlan(
            [height] * rows, [width] * rows, source_type=source, channels=channels, views=segment.views
        )
        plan.points = BoxesKeypoints(rows, (), (), (), ())  # some transforms need boxes
        segment.plan(plan, SampleRNG(0, number, np.repeat(np.arange(batch_size), segment.views)))
        is_float = plan.is_float
        height, width = (int(sizes[0]) for sizes in plan.sizes)
        for launch, effects in enumerate(plan.launches):
            total += 1
            lines.append(f"launch {total}")
            lines += [f"    {name:<24}{effect}" for name, effect in effects.items()] or ["    the images unchanged"]
            lines += plan.ends(launch)
    head = f"{batch_size} images: {total} launch{'es' if total > 1 else ''}"
    return "\n".join([head, *lines])
