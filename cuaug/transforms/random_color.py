"""Random color changes beside `ColorJitter`: one adjustment, channel shifts, illuminants, photometric distortion.

The sRGB colors of illuminants are those of "Planckian jitter" (Zini et al. 2023, arXiv:2202.07993). A gain is the
illuminant's chromaticity at lightness 50 of CIE 1976 L*a*b*, as an sRGB color relative to its green. The chromaticities
come from published fits instead of spectra. No gain differs from the authors' (which Kornia uses) by more than 0.01,
measured at every temperature.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.errors import TransformError
from cuaug.plan import Plan, operations
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import parameters
from cuaug.transforms.base import RandomTransform, Transform, Where
from cuaug.transforms.color import JITTERS, check_rgb, factor_bounds, jitter_operations

Array = NDArray[np.float64]

# IEC 61966-2-1: XYZ to linear sRGB, and its white, D65.
_XYZ_TO_RGB = np.array(
    [[3.2404542, -1.5371385, -0.4985314], [-0.9692660, 1.8760108, 0.0415560], [0.0556434, -0.2040259, 1.0572252]]
)
_WHITE = np.array([0.95047, 1.0, 1.08883])


def blackbody(kelvin: Array) -> tuple[Array, Array]:
    """CIE 1931 x and y of the Planckian locus, 2222 K to 25000 K: cubic splines (Kim et al., US patent 7024034)."""
    t = 1000.0 / kelvin
    warm = kelvin < 4000.0
    x = np.where(
        warm,
        np.polyval([-0.2661239, -0.2343589, 0.8776956, 0.179910], t),
        np.polyval([-3.0258469, 2.1070379, 0.2226347, 0.240390], t),
    )
    y = np.where(
        warm,
        np.polyval([-0.9549476, -1.37418593, 2.09137015, -0.16748867], x),
        np.polyval([3.0817580, -5.87338670, 3.75112997, -0.37001483], x),
    )
    return x, y


def daylight(kelvin: Array) -> tuple[Array, Array]:
    """CIE 1931 x and y of daylight, 4000 K to 25000 K: the polynomials of the CIE D illuminants (CIE 15)."""
    t = 1000.0 / kelvin
    x = np.where(
        kelvin <= 7000.0,
        np.polyval([-4.6070, 2.9678, 0.09911, 0.244063], t),
        np.polyval([-2.0064, 1.9018, 0.24748, 0.237040], t),
    )
    return x, -3.0 * x**2 + 2.870 * x - 0.275


#: The locus of each mode, and its temperatures in kelvin.
MODES = {
    "blackbody": (blackbody, np.arange(3000.0, 15001.0, 500.0)),
    "CIED": (daylight, np.arange(4000.0, 15001.0, 500.0)),
}


@functools.cache
def gains(mode: str) -> Array:
    """(K, 3): factors of R, G and B for the mode's K illuminants, warmest first; G's are 1."""
    locus, kelvin = MODES[mode]
    x, y = locus(kelvin)
    xyz = np.stack([x / y, np.ones_like(x), (1.0 - x - y) / y], axis=1)
    rgb = _encode_srgb(_at_lightness_50(xyz) @ _XYZ_TO_RGB.T)
    return rgb / rgb[:, 1:2]


def _at_lightness_50(xyz: Array) -> Array:
    """The XYZ with the a* and b* of `xyz`, whose Y is 1, and with L* = 50."""
    shifted = np.cbrt(xyz / _WHITE) - 1.0 + (50.0 + 16.0) / 116.0
    slope, knee = 3.0 * (6.0 / 29.0) ** 2, 6.0 / 29.0
    return np.where(shifted > knee, shifted**3, slope * (shifted - 4.0 / 29.0)) * _WHITE


def _encode_srgb(linear: Array) -> Array:
    """The sRGB transfer function."""
    return np.where(linear > 0.0031308, 1.055 * np.maximum(linear, 0.0) ** (1 / 2.4) - 0.055, 12.92 * linear)


Factor = float | Sequence[float]


class _Jitter(RandomTransform):
    """One of ColorJitter's four changes."""

    def _set(self, name: str, value: Factor, p: float) -> None:
        self._name, self._bounds = name, factor_bounds(name, value)
        self.p = parameters.probability("p", p)

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
        self.p = parameters.probability("p", p)
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
        self.p = parameters.probability("p", p)
        names = ("r_shift_limit", "g_shift_limit", "b_shift_limit")
        self._bounds = [parameters.symmetric_bounds(name, getattr(self, name)) for name in names]

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
        self.mode = parameters.one_of("mode", mode, MODES)
        self.select_from = select_from
        self.p = parameters.probability("p", p)
        last = len(gains(mode)) - 1
        self._choices = range(last + 1) if select_from is None else parameters.numbers(select_from, parameters.to_int)
        if not self._choices or min(self._choices) < 0 or max(self._choices) > last:
            raise TransformError(f"select_from must be illuminant numbers from 0 to {last}, not {select_from!r}")

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        chosen = np.array(self._choices)[rng.integers(0, len(self._choices) - 1)]
        return {"gain": gains(self.mode)[chosen]}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        check_rgb(self, plan)
        plan.append(operations.scale(len(plan), params["gain"], limit=plan.limit), where)
