"""Automatic augmentation: a few operations drawn for each sample. Names, arguments and meaning are torchvision v2's.

Every sample runs a program of its own, in as many launches as the longest one of the batch needs: each step of all
programs is written at once. A shift, shear or rotation takes a pass, and so does an operation that must know the whole
image (Contrast, AutoContrast, Equalize) or its neighbours (Sharpness); the others fold into the pass before.

What differs from torchvision: values are not rounded from one operation to the next; Posterize, Solarize and Equalize
see the nearest level. Magnitudes are computed in double, not float32, which moves two things beside a whole number: a
Solarize threshold that is a whole level includes that level (torchvision's may lie 1e-5 above it, as 170.000005 does in
the ImageNet policy), and TrivialAugmentWide's shift number 15 of 31 is 16 pixels, not 15.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.errors import TransformError
from cuaug.plan import Plan, operations
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import arguments, matrices
from cuaug.transforms.base import Transform, Where
from cuaug.transforms.blur import sharpness_taps
from cuaug.transforms.policies import GREATEST, SIGNED, WIDEST, AutoAugmentPolicy, magnitudes, sub_policies

__all__ = ["Augment", "AutoAugment", "AutoAugmentPolicy", "RandAugment", "TrivialAugmentWide"]

Sizes = NDArray[np.int64]
Array = NDArray[np.float64]

_NAMES = np.array(list(GREATEST))
_ACROSS, _DOWN = (list(GREATEST).index(name) for name in ("TranslateX", "TranslateY"))
_SORTED = np.argsort(_NAMES)
_IN_ORDER = _NAMES[_SORTED]
_SIGNED = np.isin(_NAMES, SIGNED)
#: Where in its matrix the magnitude of a move stands, and its sign: from the new image's places to those of the old.
_ENTRIES = {"ShearX": (0, 1, 1.0), "ShearY": (1, 0, 1.0), "TranslateX": (0, 2, -1.0), "TranslateY": (1, 2, -1.0)}
#: By number: whether it moves pixels.
_MOVES = np.isin(_NAMES, [*_ENTRIES, "Rotate"])
#: Operations on the values of pixels, from how many there are, the value of white, and their magnitudes.
_POINTS: dict[str, Callable[[int, float, Array], NDArray[Any]]] = {
    "Brightness": lambda n, limit, magnitude: operations.brightness(n, limit, 1.0 + magnitude),
    "Color": lambda n, limit, magnitude: operations.saturation(n, limit, 1.0 + magnitude),
    "Contrast": lambda n, limit, magnitude: operations.contrast(n, limit, 1.0 + magnitude),
    "Posterize": operations.posterize,
    # Rounded, so that what is meant to be a whole level is one.
    "Solarize": lambda n, limit, magnitude: operations.solarize(n, limit, np.round(limit * magnitude, 9)),
    "AutoContrast": lambda n, limit, magnitude: operations.autocontrast(n, limit),
    "Equalize": lambda n, limit, magnitude: operations.equalize(n, limit),
    "Invert": lambda n, limit, magnitude: operations.invert(n, limit),
}


class Augment(Transform):
    """Steps of one operation each. What is drawn is, for each sample and step, its name and its magnitude."""

    #: Whether magnitudes are TrivialAugmentWide's.
    _wide = False

    def __init__(self, interpolation: arguments.Interpolation, fill: float | Sequence[float] | None) -> None:
        self.interpolation = interpolation
        self.fill = fill
        self.how: dict[str, Any] = {
            "filter": arguments.interpolation(interpolation),
            "fill": arguments.color("fill", fill),
        }

    def _params(
        self, rng: SampleRNG, number: Sizes, level: Any, bins: int, heights: Sizes, widths: Sizes
    ) -> dict[str, Any]:
        """The operations of these numbers, (N, steps), at these levels out of `bins`, either way where they have two.

        Magnitudes are as in `policies`, except that shifts are in whole pixels, towards 0.
        """
        name, magnitude = _NAMES[number], self._magnitudes(bins)[number, level]
        for shift, side in ((_ACROSS, widths), (_DOWN, heights)):
            whole = np.floor(magnitude * (1 if self._wide else side[:, None]) + 1e-6)
            magnitude = np.where(number == shift, whole, magnitude)
        back = _SIGNED[number] & (rng.uniform(number.shape[1]) < 0.5)
        return {"operation": name, "magnitude": np.where(back, 0.0 - magnitude, magnitude)}

    def _magnitudes(self, bins: int) -> Array:
        return magnitudes(self._wide, bins)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        number, magnitude = _numbers_of(params["operation"]), params["magnitude"]
        if where is not None:
            number = np.where(where[:, None], number, 0)
        steps = number.shape[1]
        # What all steps need is made at once, step after step; the programs are written one step at a time.
        made = _Made(plan, number.T.reshape(-1), magnitude.T.reshape(-1))
        for k in range(steps):
            step = slice(k * len(plan), (k + 1) * len(plan))
            if made.acts[step].any():
                plan.append(made.points[step], made.acts[step])
            if made.sharper[step].any():
                plan.stencil(made.taps[step], frame=1, saturate=True, where=made.sharper[step])
            if made.moved[step].any():
                plan.warp(made.matrices[step], *plan.sizes, **self.how, where=made.moved[step])


class _Made:
    """What operations do, by number and magnitude, (steps * N,) each: the plan's N samples as often as there are steps.

    Attributes:
        points, acts: (steps * N,) `OP` rows, and where there is one.
        taps, sharper: (steps * N, 9, 3) of Sharpness, and where it acts; no rows at all where nothing is sharpened.
        matrices, moved: (steps * N, 3, 3), the identity where nothing moves, and where something does; likewise.
    """

    def __init__(self, plan: Plan, number: NDArray[np.int64], magnitude: Array) -> None:
        count = len(number)
        # Few bits, for which NumPy's stable sort is by digits.
        order = number.astype(np.int8).argsort(kind="stable")
        ends = np.bincount(number, minlength=len(_NAMES)).cumsum().tolist()
        groups = zip(GREATEST, [0, *ends], ends, strict=False)
        rows = {name: order[begin:end] for name, begin, end in groups if end > begin}

        if plan.channels == 1:
            rows.pop("Color", None)  # one channel has no saturation
        points = [(i, _POINTS[name](len(i), plan.limit, magnitude[i])) for name, i in rows.items() if name in _POINTS]
        self.points, self.acts = operations.scattered(count, points)
        self.sharper, self.moved = np.zeros(count, dtype=bool), _MOVES[number] & (magnitude != 0.0)
        self.taps, self.matrices = np.zeros((0, 9, 3)), np.zeros((0, 3, 3))
        if (i := rows.get("Sharpness")) is not None:
            self.taps = np.zeros((count, 9, 3))
            self.taps[i], self.sharper[i] = sharpness_taps(1.0 + magnitude[i]), True
        if self.moved.any():
            self.matrices = np.zeros((count, 3, 3))
            self.matrices[:, [0, 1, 2], [0, 1, 2]] = 1.0
            # A shear leaves the upper left corner where it is, a rotation the middle.
            for kind, (row, column, sign) in _ENTRIES.items():
                if (i := rows.get(kind)) is not None:
                    self.matrices[i, row, column] = sign * magnitude[i]
            if (i := rows.get("Rotate")) is not None:
                heights, widths = plan.sizes
                middle = np.stack([widths, heights], axis=1)[i % len(plan)] / 2.0
                self.matrices[i] = matrices.about(matrices.rotation(magnitude[i]), middle, middle)


def _numbers_of(name: NDArray[np.str_]) -> NDArray[np.int64]:
    """The places of names in GREATEST; what is no name there is left alone, as Identity is."""
    place = np.minimum(np.searchsorted(_IN_ORDER, name), len(_NAMES) - 1)
    numbers = _SORTED[place]
    return np.where(_NAMES[numbers] == name, numbers, 0)


def _bins(num_magnitude_bins: int) -> int:
    return arguments.whole("num_magnitude_bins", num_magnitude_bins, 2)


class AutoAugment(Augment):
    """One of the policy's 25 pairs of operations for each sample, each with its probability and magnitude.

    Args:
        policy: an `AutoAugmentPolicy`, or its value.
        interpolation: of what moves pixels: "nearest", "bilinear" or "bicubic".
        fill: what they leave empty: a number or one per channel, in image units; None is 0.
    """

    def __init__(
        self,
        policy: AutoAugmentPolicy = AutoAugmentPolicy.IMAGENET,
        interpolation: arguments.Interpolation = "nearest",
        fill: float | Sequence[float] | None = None,
    ) -> None:
        super().__init__(interpolation, fill)
        known = [one.value for one in AutoAugmentPolicy]
        self.policy = AutoAugmentPolicy(arguments.one_of("policy", getattr(policy, "value", policy), known))

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        policy = sub_policies(self.policy)
        number, probability, level = policy[rng.integers(0, len(policy) - 1)].transpose(2, 0, 1)
        # What does not act has the number of Identity.
        number = np.where(rng.uniform(2) < probability, number, 0).astype(np.int64)
        return self._params(rng, number, level.astype(np.int64), 10, heights, widths)


class RandAugment(Augment):
    """`num_ops` operations for each sample, each drawn from 14, all of one magnitude (Cubuk et al. 2020).

    Args:
        num_ops: how many, one after the other; 0 or more.
        magnitude: its number, from 0, out of `num_magnitude_bins`.
        num_magnitude_bins: into how many steps the range of each operation's magnitude is cut.
        interpolation, fill: as for `AutoAugment`.
    """

    def __init__(
        self,
        num_ops: int = 2,
        magnitude: int = 9,
        num_magnitude_bins: int = 31,
        interpolation: arguments.Interpolation = "nearest",
        fill: float | Sequence[float] | None = None,
    ) -> None:
        super().__init__(interpolation, fill)
        self.num_ops = arguments.whole("num_ops", num_ops, 0)
        self.num_magnitude_bins = _bins(num_magnitude_bins)
        self.magnitude = arguments.whole("magnitude", magnitude, 0)
        if self.magnitude >= self.num_magnitude_bins:
            raise TransformError(
                f"magnitude is one of {self.num_magnitude_bins} (num_magnitude_bins), from 0, not {magnitude!r}"
            )

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        number = rng.uniform(self.num_ops, 0, len(WIDEST)).astype(np.int64)
        return self._params(rng, number, self.magnitude, self.num_magnitude_bins, heights, widths)


class TrivialAugmentWide(Augment):
    """One operation for each sample, drawn from 14, of a magnitude drawn from a wide range (Mueller and Hutter 2021).

    Args:
        num_magnitude_bins, interpolation, fill: as for `RandAugment`.
    """

    _wide = True

    def __init__(
        self,
        num_magnitude_bins: int = 31,
        interpolation: arguments.Interpolation = "nearest",
        fill: float | Sequence[float] | None = None,
    ) -> None:
        super().__init__(interpolation, fill)
        self.num_magnitude_bins = _bins(num_magnitude_bins)

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        number = rng.uniform(1, 0, len(WIDEST)).astype(np.int64)
        level = rng.uniform(1, 0, self.num_magnitude_bins).astype(np.int64)
        return self._params(rng, number, level, self.num_magnitude_bins, heights, widths)
