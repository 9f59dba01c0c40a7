"""Automatic augmentation, with torchvision v2's names, arguments and meaning.

Every sample runs its own program. Each step of all programs is written at once, so a batch takes as many launches as
its longest program. A shift, shear or rotation takes a pass. So does an operation that needs the whole image (Contrast,
AutoContrast, Equalize) or a neighborhood (Sharpness). The others fold into the pass before.

Differences from torchvision:

- Values are not rounded between operations. Posterize, Solarize and Equalize use the nearest level.
- Magnitudes are computed in double, not float32. A Solarize threshold that is a whole level includes that level;
  torchvision's may lie 1e-5 above it (170.000005 in the ImageNet policy). TrivialAugmentWide's shift 15 of 31 is 16
  pixels, not 15.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.plan import Plan, operations
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import arguments, matrices
from cuaug.transforms.base import Transform, Where
from cuaug.transforms.blur import sharpness_taps
from cuaug.transforms.policies import (
    MAX_MAGNITUDES,
    SIGNED,
    WIDE_MAGNITUDES,
    AutoAugmentPolicy,
    magnitudes,
    sub_policies,
)

__all__ = ["AutoAugment", "AutoAugmentPolicy", "PolicyTransform", "RandAugment", "TrivialAugmentWide"]

Sizes = NDArray[np.int64]
Array = NDArray[np.float64]

# Operations are numbered in the order of MAX_MAGNITUDES; 0 is Identity.
_NAMES = np.array(list(MAX_MAGNITUDES))
_TRANSLATE_X, _TRANSLATE_Y = (list(MAX_MAGNITUDES).index(name) for name in ("TranslateX", "TranslateY"))
_SORT_ORDER = np.argsort(_NAMES)
_SORTED_NAMES = _NAMES[_SORT_ORDER]
_IS_SIGNED = np.isin(_NAMES, SIGNED)
#: (row, column, sign) of the magnitude in the matrix from the new image's points to the old one's.
_MATRIX_ENTRIES = {"ShearX": (0, 1, 1.0), "ShearY": (1, 0, 1.0), "TranslateX": (0, 2, -1.0), "TranslateY": (1, 2, -1.0)}
_IS_GEOMETRIC = np.isin(_NAMES, [*_MATRIX_ENTRIES, "Rotate"])
#: Point operations, from (number of rows, value of white, magnitudes).
_POINT_OPERATIONS: dict[str, Callable[[int, float, Array], NDArray[Any]]] = {
    "Brightness": lambda n, limit, magnitude: operations.brightness(n, limit, 1.0 + magnitude),
    "Color": lambda n, limit, magnitude: operations.saturation(n, limit, 1.0 + magnitude),
    "Contrast": lambda n, limit, magnitude: operations.contrast(n, limit, 1.0 + magnitude),
    "Posterize": operations.posterize,
    # Rounded: a threshold that should be a whole level is one.
    "Solarize": lambda n, limit, magnitude: operations.solarize(n, limit, np.round(limit * magnitude, 9)),
    "AutoContrast": lambda n, limit, magnitude: operations.autocontrast(n, limit),
    "Equalize": lambda n, limit, magnitude: operations.equalize(n, limit),
    "Invert": lambda n, limit, magnitude: operations.invert(n, limit),
}


class PolicyTransform(Transform):
    """Base class of policies: each sample draws operations and their magnitudes."""

    #: Whether magnitudes are TrivialAugmentWide's.
    _wide = False

    def __init__(self, interpolation: arguments.Interpolation, fill: arguments.Fill) -> None:
        self.interpolation: Any = interpolation
        self.fill = fill
        self.warp_options: dict[str, Any] = {
            "filter": arguments.warp_filter(interpolation),
            "fill": arguments.fill("fill", fill),
        }

    def _params(
        self, rng: SampleRNG, ids: Sizes, level: Any, bins: int, heights: Sizes, widths: Sizes
    ) -> dict[str, Any]:
        """The parameters of operations `ids`, (N, steps), at levels out of `bins`, with random signs.

        Magnitudes are those of `policies`, but shifts are whole pixels, rounded towards 0.
        """
        magnitude = self._magnitudes(bins)[ids, level]
        for shift, sides in ((_TRANSLATE_X, widths), (_TRANSLATE_Y, heights)):
            pixels = np.floor(magnitude * (1 if self._wide else sides[:, None]) + 1e-6)
            magnitude = np.where(ids == shift, pixels, magnitude)
        negative = _IS_SIGNED[ids] & (rng.uniform(ids.shape[1]) < 0.5)
        return {"operation": _NAMES[ids], "magnitude": np.where(negative, 0.0 - magnitude, magnitude)}

    def _magnitudes(self, bins: int) -> Array:
        return magnitudes(self._wide, bins)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        ids, magnitude = _ids_of(params["operation"]), params["magnitude"]
        if where is not None:
            ids = np.where(where[:, None], ids, 0)
        # The operations of all steps are made at once, step by step; the plan takes one step at a time.
        batch = _OperationBatch(plan, ids.T.reshape(-1), magnitude.T.reshape(-1))
        for k in range(ids.shape[1]):
            step = slice(k * len(plan), (k + 1) * len(plan))
            if batch.has_point[step].any():
                plan.append(batch.points[step], batch.has_point[step])
            if batch.sharpens[step].any():
                plan.stencil(batch.taps[step], frame=1, saturate=True, where=batch.sharpens[step])
            if batch.moves[step].any():
                for options, acts in self._warps(plan, batch.moves[step], k, params):
                    plan.warp(batch.matrices[step], *plan.sizes, **options, where=acts)
            self._write_own(plan, where, k, params)

    def _warps(
        self, plan: Plan, moves: NDArray[np.bool_], number: int, params: dict[str, Any]
    ) -> Iterable[tuple[dict[str, Any], NDArray[np.bool_]]]:
        """Keyword arguments of `Plan.warp` for step `number`, each with the samples that use them."""
        return [(self.warp_options, moves)]

    def _write_own(self, plan: Plan, where: Where, number: int, params: dict[str, Any]) -> None:
        """Write the operations of step `number` that only this policy knows."""


class _OperationBatch:
    """The effects of (steps * N,) operations on the plan's N samples.

    Attributes:
        points, has_point: (steps * N,) `OP` rows, and whether each is used.
        taps, sharpens: (steps * N, 9, 3) Sharpness taps, and whether each is used. Empty if none is used.
        matrices, moves: (steps * N, 3, 3) matrices, and whether each is used. Empty if none is used.
    """

    def __init__(self, plan: Plan, ids: NDArray[np.int64], magnitude: Array) -> None:
        count = len(ids)
        # int8: NumPy's stable sort is then a radix sort.
        order = ids.astype(np.int8).argsort(kind="stable")
        ends = np.bincount(ids, minlength=len(_NAMES)).cumsum().tolist()
        groups = zip(MAX_MAGNITUDES, [0, *ends], ends, strict=False)
        rows = {name: order[begin:end] for name, begin, end in groups if end > begin}

        if plan.channels == 1:
            rows.pop("Color", None)  # one channel has no saturation
        points = [
            (i, _POINT_OPERATIONS[name](len(i), plan.limit, magnitude[i]))
            for name, i in rows.items()
            if name in _POINT_OPERATIONS
        ]
        self.points, self.has_point = operations.scattered(count, points)
        self.sharpens, self.moves = np.zeros(count, dtype=bool), _IS_GEOMETRIC[ids] & (magnitude != 0.0)
        self.taps, self.matrices = np.zeros((0, 9, 3)), np.zeros((0, 3, 3))
        if (i := rows.get("Sharpness")) is not None:
            self.taps = np.zeros((count, 9, 3))
            self.taps[i], self.sharpens[i] = sharpness_taps(1.0 + magnitude[i]), True
        if self.moves.any():
            self.matrices = np.zeros((count, 3, 3))
            self.matrices[:, [0, 1, 2], [0, 1, 2]] = 1.0
            # A shear keeps the upper left corner in place, a rotation the center.
            for name, (row, column, sign) in _MATRIX_ENTRIES.items():
                if (i := rows.get(name)) is not None:
                    self.matrices[i, row, column] = sign * magnitude[i]
            if (i := rows.get("Rotate")) is not None:
                heights, widths = plan.sizes
                center = np.stack([widths, heights], axis=1)[i % len(plan)] / 2.0
                self.matrices[i] = matrices.about(matrices.rotation(magnitude[i]), center, center)


def _ids_of(names: NDArray[np.str_]) -> NDArray[np.int64]:
    """The numbers of operations; an unknown name is Identity, 0."""
    ids = _SORT_ORDER[np.minimum(np.searchsorted(_SORTED_NAMES, names), len(_NAMES) - 1)]
    return np.where(_NAMES[ids] == names, ids, 0)


class AutoAugment(PolicyTransform):
    """Apply a random sub-policy of a learned AutoAugment policy (Cubuk et al. 2019).

    A policy has 25 sub-policies: pairs of operations, each with its probability and magnitude.

    Args:
        policy: an `AutoAugmentPolicy`, or its value.
        interpolation: "nearest", "bilinear" or "bicubic", for geometric operations.
        fill: value beyond the image: a number or one per channel, in image units; None is 0.
    """

    def __init__(
        self,
        policy: AutoAugmentPolicy = AutoAugmentPolicy.IMAGENET,
        interpolation: arguments.Interpolation = "nearest",
        fill: arguments.Fill = None,
    ) -> None:
        super().__init__(interpolation, fill)
        allowed = [member.value for member in AutoAugmentPolicy]
        self.policy = AutoAugmentPolicy(arguments.one_of("policy", getattr(policy, "value", policy), allowed))

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        policy = sub_policies(self.policy)
        ids, probability, level = policy[rng.integers(0, len(policy) - 1)].transpose(2, 0, 1)
        ids = np.where(rng.uniform(2) < probability, ids, 0).astype(np.int64)
        return self._params(rng, ids, level.astype(np.int64), 10, heights, widths)


class RandAugment(PolicyTransform):
    """Apply random operations of one common magnitude (Cubuk et al. 2020).

    Each operation is drawn from 14.

    Args:
        num_ops: operations per sample, 0 or more.
        magnitude: magnitude level, from 0 to `num_magnitude_bins` - 1.
        num_magnitude_bins: number of magnitude levels.
        interpolation, fill: as for `AutoAugment`.
    """

    def __init__(
        self,
        num_ops: int = 2,
        magnitude: int = 9,
        num_magnitude_bins: int = 31,
        interpolation: arguments.Interpolation = "nearest",
        fill: arguments.Fill = None,
    ) -> None:
        super().__init__(interpolation, fill)
        self.num_ops = arguments.integer("num_ops", num_ops, 0)
        self.num_magnitude_bins = arguments.integer("num_magnitude_bins", num_magnitude_bins, 2)
        self.magnitude = arguments.integer("magnitude", magnitude, 0, self.num_magnitude_bins - 1)

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        ids = rng.uniform(self.num_ops, 0, len(WIDE_MAGNITUDES)).astype(np.int64)
        return self._params(rng, ids, self.magnitude, self.num_magnitude_bins, heights, widths)


class TrivialAugmentWide(PolicyTransform):
    """Apply one random operation of random magnitude (Mueller and Hutter 2021).

    The operation is drawn from 14, the magnitude from a wide range.

    Args:
        num_magnitude_bins, interpolation, fill: as for `RandAugment`.
    """

    _wide = True

    def __init__(
        self,
        num_magnitude_bins: int = 31,
        interpolation: arguments.Interpolation = "nearest",
        fill: arguments.Fill = None,
    ) -> None:
        super().__init__(interpolation, fill)
        self.num_magnitude_bins = arguments.integer("num_magnitude_bins", num_magnitude_bins, 2)

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        ids = rng.uniform(1, 0, len(WIDE_MAGNITUDES)).astype(np.int64)
        level = rng.uniform(1, 0, self.num_magnitude_bins).astype(np.int64)
        return self._params(rng, ids, level, self.num_magnitude_bins, heights, widths)
