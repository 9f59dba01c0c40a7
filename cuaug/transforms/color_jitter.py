"""Random changes of colour besides `ColorJitter`: one kind at a time, by channel, by illuminant, or several at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cuaug.errors import TransformError
from cuaug.plan import Plan, operations
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import arguments, illuminants
from cuaug.transforms.base import RandomTransform, Transform, Where
from cuaug.transforms.color import JITTERS, factor_span, jittered

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
    """One of ColorJitter's four changes, with probability p."""

    def _set(self, name: str, value: Factor, p: float) -> None:
        self._name, self._bounds = name, factor_span(name, value)
        self.p = arguments.probability("p", p)

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        return {"factor": rng.uniform(None, *self._bounds)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.append(jittered(plan, self._name, params["factor"]), where)


class RandomBrightness(_Jitter):
    """`ColorJitter`'s change of brightness, with probability p; `brightness` is a number or (lower, upper) as there."""

    def __init__(self, brightness: Factor = (1.0, 1.0), p: float = 1.0) -> None:
        self.brightness = brightness
        self._set("brightness", brightness, p)


class RandomContrast(_Jitter):
    """`ColorJitter`'s change of contrast, with probability p; `contrast` is a number or (lower, upper) as there."""

    def __init__(self, contrast: Factor = (1.0, 1.0), p: float = 1.0) -> None:
        self.contrast = contrast
        self._set("contrast", contrast, p)


class RandomSaturation(_Jitter):
    """`ColorJitter`'s change of saturation, with probability p; `saturation` is a number or (lower, upper) as there."""

    def __init__(self, saturation: Factor = (1.0, 1.0), p: float = 1.0) -> None:
        self.saturation = saturation
        self._set("saturation", saturation, p)


class RandomHue(_Jitter):
    """`ColorJitter`'s turn of the hue, with probability p; `hue` is a number or (lower, upper) as there."""

    def __init__(self, hue: Factor = (0.0, 0.0), p: float = 1.0) -> None:
        self.hue = hue
        self._set("hue", hue, p)


class RandomChannelPermutation(Transform):
    """Exchanges the channels, in an order drawn for each sample. Images of one channel stay as they are."""

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        return {"permutation": rng.permutation(3)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        if plan.channels == 3:
            plan.append(operations.permutation(len(plan), params["permutation"]), where)


class RandomPhotometricDistort(Transform):
    """Distorts as SSD's training does (Liu et al. 2016), each step with probability p, decided for each sample.

    In this order: brightness, contrast (or else after the hue, either with probability 1/2), saturation, hue, and an
    exchange of channels.

    Args:
        brightness, contrast, saturation, hue: (lower, upper) bounds of `ColorJitter`'s factors.
        p: probability of each step.
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
        self._spans = {name: factor_span(name, getattr(self, name)) for name in JITTERS}

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        params: dict[str, Any] = {name: rng.uniform(None, *bounds) for name, bounds in self._spans.items()}
        acts = rng.uniform(5) < self.p  # one of JITTERS each, and the exchange
        return {**params, "permutation": rng.permutation(3), "acts": acts, "contrast_before": rng.bernoulli(0.5)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        before = params["contrast_before"]
        acts = params["acts"] if where is None else params["acts"] & where[:, None]
        brightness, contrast, saturation, hue, exchange = acts.T

        def step(name: str, chosen: Any) -> None:
            plan.append(jittered(plan, name, params[name]), chosen)

        step("brightness", brightness)
        step("contrast", contrast & before)
        step("saturation", saturation)
        step("hue", hue)
        step("contrast", contrast & ~before)
        if plan.channels == 3:
            plan.append(operations.permutation(len(plan), params["permutation"]), exchange)


class RGBShift(RandomTransform):
    """Adds a random amount to each channel, saturated (Albumentations' names).

    Args:
        r_shift_limit, g_shift_limit, b_shift_limit: (lower, upper) bounds of the amount in uint8 levels (1 / 255 on
            floats), or a number v for (-v, v).
        p: probability, for each sample.
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
        self._bounds = [arguments.either_way(name, getattr(self, name)) for name in names]

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        return {"shift": rng.uniform(3, *np.transpose(self._bounds))}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        if plan.channels != 3:
            raise TransformError(f"RGBShift needs 3 channels; the image has {plan.channels} here")
        shift = params["shift"] * (plan.limit / 255.0)
        plan.append(operations.scale(len(plan), 1.0, shift, limit=plan.limit), where)


class PlanckianJitter(RandomTransform):
    """Shows the image under another illuminant (Zini et al. 2023): red and blue, times what they have beside green.

    Args:
        mode: "blackbody", 25 of 3000 K to 15000 K, or "CIED" (daylight), 23 of 4000 K to 15000 K; 500 K apart. Red and
            blue are multiplied by those of the illuminant's colour whose green is 1.
        select_from: numbers of those to draw from, or one; None: all. 0 is the warmest.
        p: probability, for each sample.
    """

    def __init__(self, mode: str = "blackbody", select_from: int | Sequence[int] | None = None, p: float = 0.5) -> None:
        self.mode = arguments.one_of("mode", mode, illuminants.MODES)
        self.select_from = select_from
        self.p = arguments.probability("p", p)
        last = len(illuminants.gains(mode)) - 1
        self._numbers = range(last + 1) if select_from is None else arguments.values(select_from, arguments.index)
        if not self._numbers or min(self._numbers) < 0 or max(self._numbers) > last:
            raise TransformError(f"select_from is one or several of the illuminants 0 to {last}, not {select_from!r}")

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        chosen = np.array(self._numbers)[rng.integers(0, len(self._numbers) - 1)]
        return {"gain": illuminants.gains(self.mode)[chosen]}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        if plan.channels != 3:
            raise TransformError(f"PlanckianJitter needs 3 channels; the image has {plan.channels} here")
        plan.append(operations.scale(len(plan), params["gain"], limit=plan.limit), where)
