"""Colour: jitter, grayscale, look-up tables and colour spaces. Per-sample draws; torchvision v2's names and meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cuaug.errors import TransformError
from cuaug.plan import Plan, linear, operations
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import arguments
from cuaug.transforms.base import RandomTransform, Transform, Where

__all__ = ["LUT", "ColorJitter", "ConvertColor", "Grayscale", "RandomGrayscale", "factor_span", "jittered"]

#: Each of `ColorJitter`'s changes, by its argument's name.
JITTERS = {
    "brightness": operations.brightness,
    "contrast": operations.contrast,
    "saturation": operations.saturation,
    "hue": operations.hue,
}


def factor_span(name: str, value: float | Sequence[float]) -> tuple[float, float]:
    """(lower, upper) of the factor of one of JITTERS: from these two, or from how far it may lie from no change."""
    none, low, high = (0.0, -0.5, 0.5) if name == "hue" else (1.0, 0.0, float("inf"))
    numbers = arguments.values(value, float)
    if len(numbers) == 1:
        (amount,) = numbers
        if not 0 <= amount <= high or amount == float("inf"):
            allowed = "from 0 to 0.5" if name == "hue" else "0 or more"
            raise TransformError(f"{name} is {allowed}, or (lower, upper), not {value!r}")
        value = (none - amount if name == "hue" else max(low, none - amount), none + amount)
    return arguments.span(name, value, low=low, high=high)


def jittered(plan: Plan, name: str, factor: ArrayLike) -> NDArray[Any]:
    """The rows of one of JITTERS. One channel has no saturation: luma's weights do not quite add up to 1."""
    if name == "saturation" and plan.channels == 1:
        return operations.scale(len(plan), 1.0)
    return JITTERS[name](len(plan), plan.limit, factor)


class ColorJitter(Transform):
    """Changes brightness, contrast, saturation and hue by random amounts, in an order drawn for each sample.

    Args:
        brightness, contrast, saturation: a number v draws the factor from [max(0, 1 - v), 1 + v]; (lower, upper)
            draws from that. None or 0: left alone.
        hue: a number v up to 0.5 draws the turn from [-v, v], in parts of the full circle; or (lower, upper).
    """

    def __init__(
        self,
        brightness: float | Sequence[float] | None = None,
        contrast: float | Sequence[float] | None = None,
        saturation: float | Sequence[float] | None = None,
        hue: float | Sequence[float] | None = None,
    ) -> None:
        self.brightness, self.contrast, self.saturation, self.hue = brightness, contrast, saturation, hue
        given = {name: getattr(self, name) for name in JITTERS if getattr(self, name) is not None}
        spans = {name: factor_span(name, value) for name, value in given.items()}
        # What changes nothing is not drawn.
        self._spans = {name: bounds for name, bounds in spans.items() if bounds != factor_span(name, 0.0)}
        self._bounds = [[bounds[end] for bounds in self._spans.values()] for end in (0, 1)]

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        factors = rng.uniform(len(self._spans), *self._bounds)
        return {"order": rng.permutation(len(self._spans)), **dict(zip(self._spans, factors.T, strict=True))}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        if not self._spans:
            return
        steps = [jittered(plan, name, params[name]) for name in self._spans]
        for ops in operations.shuffled(steps, params["order"]):
            plan.append(ops, where)


class Grayscale(Transform):
    """Gray by ITU-R BT.601 luma; `num_output_channels` 1, or 3 equal ones."""

    def __init__(self, num_output_channels: int = 1) -> None:
        self.num_output_channels = arguments.whole("num_output_channels", num_output_channels)
        if self.num_output_channels not in (1, 3):
            raise TransformError(f"num_output_channels is 1 or 3, not {num_output_channels!r}")

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        if self.num_output_channels != plan.channels and where is not None:
            raise TransformError(
                "Grayscale(num_output_channels=1) changes the number of channels, which all images of a batch share: "
                "inside RandomApply use num_output_channels=3"
            )
        _make_gray(plan, where)
        plan.channels = self.num_output_channels


class RandomGrayscale(RandomTransform):
    """Gray, in as many channels as the image has, with probability p."""

    def __init__(self, p: float = 0.1) -> None:
        self.p = arguments.probability("p", p)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        _make_gray(plan, where)


def _make_gray(plan: Plan, where: Where) -> None:
    if plan.channels == 3:
        plan.append(operations.grayscale(len(plan)), where)


class LUT(Transform):
    """Replaces every level by its entry in `table`, (256,) for all channels or (3, 256), in uint8 levels.

    Values between levels, such as a resize makes, take the entry of the nearest. Entries may be fractions.
    """

    def __init__(self, table: ArrayLike) -> None:
        self.table = arguments.array("table", table, (256,), (3, 256)).astype(np.float32)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.lut(self.table, where)

    def __repr__(self) -> str:
        return f"LUT(table=<{' x '.join(map(str, self.table.shape))}>)"


# Full-range ITU-R BT.601 as OpenCV's COLOR_RGB2YUV has it: U = 0.492 (B - Y), V = 0.877 (R - Y), around mid-gray.
_Y = np.array([0.299, 0.587, 0.114])
_RGB_TO_YUV = np.stack([_Y, 0.492 * (np.array([0, 0, 1]) - _Y), 0.877 * (np.array([1, 0, 0]) - _Y)])
_YUV_TO_RGB = linear.adjugate(_RGB_TO_YUV) / (0.492 * 0.877 * _Y[1])


class ConvertColor(Transform):
    """Converts between "RGB" and "YUV" (full-range BT.601, U and V around mid-gray: 128, or 0.5 for floats)."""

    def __init__(self, source: str = "RGB", target: str = "YUV") -> None:
        if not isinstance(source, str) or not isinstance(target, str) or {source, target} != {"RGB", "YUV"}:
            raise TransformError(f"ConvertColor goes from 'RGB' to 'YUV' or back, not from {source!r} to {target!r}")
        self.source = source
        self.target = target

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        if plan.channels != 3:
            raise TransformError(f"ConvertColor needs 3 channels; the image has {plan.channels} here")
        gray = np.array([0.0, 1.0, 1.0]) * (0.5 if plan.is_float else 128.0)
        if self.target == "YUV":
            values = np.column_stack([_RGB_TO_YUV, gray])
        else:
            values = np.column_stack([_YUV_TO_RGB, -linear.product(_YUV_TO_RGB, gray[:, None])])
        plan.append(operations.matrix(len(plan), plan.limit, values), where)
