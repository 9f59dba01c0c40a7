"""Random color changes beside `ColorJitter`: one adjustment, channel shifts, illuminants, photometric distortion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cuaug.errors import TransformError
from cuaug.plan import Plan, operations
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import arguments, illuminants
from cuaug.transforms.base import RandomTransform, Transform, Where
from cuaug.transforms.color import JITTERS, check_rgb, factor_bounds, jitter_operations

__all__ = [
    "PlanckianJitter",
    "RGBShift",
    "RandomBrightness",
    "RandomChannelPermutation",
    "RandomContrast",
    "RandomHue",
    "RandomPhotometricDistort",
    "RandomSaturation",
]

Factor = float | Sequence[float]


class _Jitter(RandomTransform):
    """One of ColorJitter's four changes."""

    def _set(self, name: str, value: Factor, p: float) -> None:
        self._name, self._bounds = name, factor_bounds(name, value)
        self.p = arguments.probability("p", p)

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        return {"factor": rng.uniform(None, *self._bounds)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.append(jitter_operations(plan, self._name, params["factor"]), where)


class RandomBrightness(_Jitter):
    """Randomly change the brightness of the image with probability `p`.

    Args:
        brightness: a number or (lower, upper), as for `ColorJitter`.
        p: probability, per sample.
    """

    def __init__(self, brightness: Factor = (1.0, 1.0), p: float = 1.0) -> None:
        self.brightness = brightness
        self._set("brightness", brightness, p)


class RandomContrast(_Jitter):
    """Randomly change the contrast of the image with probability `p`.

    Args:
        contrast: a number or (lower, upper), as for `ColorJitter`.
        p: probability, per sample.
    """

    def __init__(self, contrast: Factor = (1.0, 1.0), p: float = 1.0) -> None:
        self.contrast = contrast
        self._set("contrast", contrast, p)


class RandomSaturation(_Jitter):
    """Randomly change the saturation of the image with probability `p`.

    Args:
        saturation: a number or (lower, upper), as for `ColorJitter`.
        p: probability, per sample.
    """

    def __init__(self, saturation: Factor = (1.0, 1.0), p: float = 1.0) -> None:
        self.saturation = saturation
        self._set("saturation", saturation, p)


class RandomHue(_Jitter):
    """Randomly shift the hue of the image with probability `p`.

    Args:
        hue: a number or (lower, upper), as for `ColorJitter`.
        p: probability, per sample.
    """

    def __init__(self, hue: Factor = (0.0, 0.0), p: float = 1.0) -> None:
        self.hue = hue
        self._set("hue", hue, p)


class RandomChannelPermutation(Transform):
    """Randomly permute the channels of the image.

    Gray images are unchanged.
    """

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        return {"permutation": rng.permutation(3)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        if plan.channels != 1:
            plan.append(operations.permutation(len(plan), params["permutation"]), where)


class RandomPhotometricDistort(Transform):
    """Randomly distort the colors as SSD's training does (Liu et al. 2016).

    The steps: brightness, contrast, saturation, hue, contrast, channel permutation. One of the two contrast steps is
    left out, either with probability 1/2.

    Args:
        brightness, contrast, saturation, hue: (lower, upper) bounds of `ColorJitter`'s factors.
        p: probability of each step, per sample.
    """

    def __init__(
        self,
        brightness: Sequence[float] = (0.875, 1.125),
        contrast: Sequence[float] = (0.5, 1.5),
        saturation: Sequence[float] = (0.5, 1.5),
        hue: Sequence[float] = (-0.05, 0.05),
        p: float = 0.5,
    ) -> None:
        self.brightness, self.contrast, self.saturation, self.hue = brightness, contrast, saturation, hue
        self.p = arguments.probability("p", p)
        self._bounds = {name: factor_bounds(name, getattr(self, name)) for name in JITTERS}

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        params: dict[str, Any] = {name: rng.uniform(None, *bounds) for name, bounds in self._bounds.items()}
        acts = rng.uniform(5) < self.p  # one column for each of JITTERS, and one for the permutation
        return {**params, "permutation": rng.permutation(3), "acts": acts, "contrast_before": rng.bernoulli(0.5)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        contrast_first = params["contrast_before"]
        acts = params["acts"] if where is None else params["acts"] & where[:, None]
        brightness, contrast, saturation, hue, permute = acts.T
        for name, samples in (
            ("brightness", brightness),
            ("contrast", contrast & contrast_first),
            ("saturation", saturation),
            ("hue", hue),
            ("contrast", contrast & ~contrast_first),
        ):
            plan.append(jitter_operations(plan, name, params[name]), samples)
        if plan.channels != 1:
            plan.append(operations.permutation(len(plan), params["permutation"]), permute)


class RGBShift(RandomTransform):
    """Add a random amount to each channel with probability `p` (Albumentations).

    Args:
        r_shift_limit, g_shift_limit, b_shift_limit: (lower, upper) bounds of the amount in uint8 levels (1 / 255 for
            floats), or a number v for (-v, v). Results saturate.
        p: probability, per sample.
    """

    def __init__(
        self,
        r_shift_limit: Factor = (-20, 20),
        g_shift_limit: Factor = (-20, 20),
        b_shift_limit: Factor = (-20, 20),
        p: float = 0.5,
    ) -> None:
        self.r_shift_limit, self.g_shift_limit, self.b_shift_limit = r_shift_limit, g_shift_limit, b_shift_limit
        self.p = arguments.probability("p", p)
        names = ("r_shift_limit", "g_shift_limit", "b_shift_limit")
        self._bounds = [arguments.symmetric_bounds(name, getattr(self, name)) for name in names]

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        return {"shift": rng.uniform(3, *np.transpose(self._bounds))}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        check_rgb(self, plan)
        shift = params["shift"] * (plan.limit / 255.0)
        plan.append(operations.scale(len(plan), 1.0, shift, limit=plan.limit), where)


class PlanckianJitter(RandomTransform):
    """Change the illuminant of the image with probability `p` (Zini et al. 2023).

    Red and blue are multiplied by those of the illuminant's color, scaled to a green of 1.

    Args:
        mode: "blackbody", 25 illuminants from 3000 K to 15000 K, or "CIED" (daylight), 23 from 4000 K to 15000 K. They
            are 500 K apart.
        select_from: illuminant numbers to draw from, or one number; None: all. 0 is the warmest.
        p: probability, per sample.
    """

    def __init__(self, mode: str = "blackbody", select_from: int | Sequence[int] | None = None, p: float = 0.5) -> None:
        self.mode = arguments.one_of("mode", mode, illuminants.MODES)
        self.select_from = select_from
        self.p = arguments.probability("p", p)
        last = len(illuminants.gains(mode)) - 1
        self._choices = range(last + 1) if select_from is None else arguments.numbers(select_from, arguments.to_int)
        if not self._choices or min(self._choices) < 0 or max(self._choices) > last:
            raise TransformError(f"select_from must be illuminant numbers from 0 to {last}, not {select_from!r}")

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        chosen = np.array(self._choices)[rng.integers(0, len(self._choices) - 1)]
        return {"gain": illuminants.gains(self.mode)[chosen]}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        check_rgb(self, plan)
        plan.append(operations.scale(len(plan), params["gain"], limit=plan.limit), where)
