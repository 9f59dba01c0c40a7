"""Automatic augmentation, with torchvision v2's names, arguments and meaning.

Every sample runs its own program. Each step of all programs is written at once, so a batch takes as many launches as
its longest program. A shift, shear or rotation takes a pass. So does an operation that needs the whole image (Contrast,
AutoContrast, Equalize) or a neighborhood (Sharpness). The others fold into the pass before.

Differences from torchvision:

- Values are not rounded between operations. Posterize, Solarize and Equalize use the nearest level.
- Magnitudes are computed in double, not float32. A Solarize threshold that is a whole level includes that level;
  torchvision's may lie 1e-5 above it (170.000005 in the ImageNet policy). TrivialAugmentWide's shift 15 of 31 is 16
  pixels, not 15.

timm's RandAugment differs from torchvision's in its operations, magnitudes and probabilities.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from cuaug.errors import TransformError
from cuaug.plan import Filter, Plan, operations
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import parameters, policies, warps
from cuaug.transforms.base import BatchTransform, Transform, Where
from cuaug.transforms.filters import sharpness_taps
from cuaug.transforms.mixes import blend
from cuaug.transforms.policies import (
    MAX_MAGNITUDES,
    SIGNED,
    WIDE_MAGNITUDES,
    AutoAugmentPolicy,
    magnitudes,
    sub_policies,
)

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

    def __init__(self, interpolation: parameters.Interpolation, fill: parameters.Fill) -> None:
        self.interpolation: Any = interpolation
        self.fill = fill
        self.warp_options: dict[str, Any] = {
            "filter": parameters.warp_filter(interpolation),
            "fill": parameters.fill("fill", fill),
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
                self.matrices[i] = warps.about(warps.rotation(magnitude[i]), center, center)


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
        interpolation: parameters.Interpolation = "nearest",
        fill: parameters.Fill = None,
    ) -> None:
        super().__init__(interpolation, fill)
        allowed = [member.value for member in AutoAugmentPolicy]
        self.policy = AutoAugmentPolicy(parameters.one_of("policy", getattr(policy, "value", policy), allowed))

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
        interpolation: parameters.Interpolation = "nearest",
        fill: parameters.Fill = None,
    ) -> None:
        super().__init__(interpolation, fill)
        self.num_ops = parameters.integer("num_ops", num_ops, 0)
        self.num_magnitude_bins = parameters.integer("num_magnitude_bins", num_magnitude_bins, 2)
        self.magnitude = parameters.integer("magnitude", magnitude, 0, self.num_magnitude_bins - 1)

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
        interpolation: parameters.Interpolation = "nearest",
        fill: parameters.Fill = None,
    ) -> None:
        super().__init__(interpolation, fill)
        self.num_magnitude_bins = parameters.integer("num_magnitude_bins", num_magnitude_bins, 2)

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        ids = rng.uniform(1, 0, len(WIDE_MAGNITUDES)).astype(np.int64)
        level = rng.uniform(1, 0, self.num_magnitude_bins).astype(np.int64)
        return self._params(rng, ids, level, self.num_magnitude_bins, heights, widths)


class _AugMixOperations(PolicyTransform):
    def _magnitudes(self, bins: int) -> NDArray[np.float64]:
        return policies.augmix_magnitudes()


class AugMix(BatchTransform):
    """Blend each image with several augmented versions of it (Hendrycks et al. 2020).

    Each version is a short chain of random operations. A Dirichlet distribution draws the weights of the versions, a
    Beta distribution the weight of the image itself. All chains of a batch are one plan. It takes as many launches as
    the longest chain, plus one launch per version to blend.

    Place it before `Normalize`. Labels stay as they are. uint8 images are rounded at the end of each chain and after
    the blend; torchvision rounds after each operation, and truncates the blend.

    Args:
        severity: magnitudes are drawn from the lowest `severity` of 10 levels.
        mixture_width: number of augmented versions.
        chain_depth: operations per version; 0 or less: 1, 2 or 3, drawn for each version.
        alpha: parameter of both distributions.
        all_ops: whether to include Brightness, Color, Contrast and Sharpness.
        interpolation, fill: as for `AutoAugment`.
    """

    keeps_range = True

    def __init__(
        self,
        severity: int = 3,
        mixture_width: int = 3,
        chain_depth: int = -1,
        alpha: float = 1.0,
        all_ops: bool = True,
        interpolation: parameters.Interpolation = "bilinear",
        fill: parameters.Fill = None,
    ) -> None:
        self.severity = parameters.integer("severity", severity, 1, policies.AUGMIX_LEVELS)
        self.mixture_width = parameters.integer("mixture_width", mixture_width, 1)
        self.chain_depth = parameters.integer("chain_depth", chain_depth)
        self.alpha = parameters.positive("alpha", alpha)
        self.all_ops = all_ops
        self.interpolation = interpolation
        self.fill = fill
        self._operations = _AugMixOperations(interpolation, fill)
        names = [*policies.AUGMIX_MAGNITUDES][: None if all_ops else policies.AUGMIX_COLORLESS]
        self._ids = np.array([list(policies.MAX_MAGNITUDES).index(name) for name in names])

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        width, depth = self.mixture_width, self.chain_depth if self.chain_depth > 0 else 3
        image_weight = rng.beta(self.alpha)
        weights = rng.dirichlet(self.alpha, width) * (1.0 - image_weight[:, None])
        length = rng.uniform(width, 1, 4).astype(np.int64) if self.chain_depth <= 0 else np.full(width, depth)
        ids = self._ids[rng.uniform(width * depth, 0, len(self._ids)).astype(np.int64)]
        level = rng.uniform(width * depth, 0, self.severity).astype(np.int64)
        # Steps after the end of a chain are Identity, 0.
        ids = np.where((np.arange(depth) < length[..., None]).reshape(-1, width * depth), ids, 0)
        params = self._operations._params(rng, ids, level, policies.AUGMIX_LEVELS, heights, widths)
        shaped = {name: values.reshape(-1, width, depth) for name, values in params.items()}
        return {"weights": np.concatenate([image_weight[:, None], weights], axis=1), **shaped}

    def run(self, images: Tensor, targets: list[Any] | None, **params: Any) -> tuple[Tensor, list[Any] | None]:
        from cuaug.transforms.execute import apply  # only running needs a device

        if images.ndim != 4:
            raise TransformError(
                f"images of AugMix must be (N, C, H, W), not {tuple(images.shape)}: it cannot follow several views"
            )
        operation, magnitude = (params[k].reshape(-1, params[k].shape[-1]) for k in ("operation", "magnitude"))

        def write(plan: Plan) -> None:
            self._operations.write(plan, None, operation=operation, magnitude=magnitude)

        augmented = apply(images, write, views=self.mixture_width)
        versions = augmented.unbind(1) if self.mixture_width > 1 else [augmented]
        return blend([images, *versions], [*params["weights"].T.copy()]), targets


_OPERATIONS = np.array(
    ["AutoContrast", "Equalize", "Invert", "Rotate", "Posterize", "Solarize", "SolarizeAdd", "Color", "Contrast"]
    + ["Brightness", "Sharpness", "ShearX", "ShearY", "TranslateX", "TranslateY"]
)
_SCALE = 10.0  # the magnitude of an operation at full strength
_LEVELS = np.arange(256)


class TimmRandAugment(PolicyTransform):
    """Apply random operations as timm's `rand_augment_transform` does.

    Each operation is drawn from 15, acts with probability p, and draws its own magnitude.

    Args:
        config: timm's text, such as "rand-m9-mstd0.5-inc1". m: magnitude (10); n: operations per sample (2); p:
            probability of each operation (0.5); mstd: standard deviation of the magnitude (0), above 100 a uniform
            draw up to m; mmax: greatest magnitude (10); inc: 1 for operations that all grow with the magnitude (0).
        interpolation: "nearest", "bilinear" or "bicubic", for geometric operations; "random", as there: one of the last
            two for each operation.
        fill: value beyond the image: a number or one per channel, in image units; None, as there: 128 levels.

    Raises:
        TransformError: the text is no "rand" policy, or has a section that is not listed here.
    """

    def __init__(
        self,
        config: str = "rand-m9-mstd0.5-inc1",
        interpolation: parameters.Interpolation | Literal["random"] = "random",
        fill: parameters.Fill = None,
    ) -> None:
        self._is_random = interpolation == "random"
        super().__init__("bilinear" if interpolation == "random" else interpolation, fill)
        self.interpolation = interpolation
        self.config = config
        options = _parse(config)
        self._magnitude, self._steps = options["m"], int(options["n"])
        if self._steps != options["n"]:
            raise TransformError(f"config must have a whole number n, not {options['n']:g}")
        self._p = parameters.probability("config: p", options["p"])
        self._deviation, self._most = options["mstd"], options["mmax"]
        self._is_increasing = bool(options["inc"])

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        steps = self._steps
        names = _OPERATIONS[rng.uniform(steps, 0, len(_OPERATIONS)).astype(np.int64)]
        acts = rng.uniform(steps) < self._p
        level = np.clip(self._levels(rng), 0.0, self._most) / _SCALE
        sign = np.where(rng.uniform(steps) < 0.5, -1.0, 1.0)
        magnitude = np.zeros(names.shape)
        for name, values in self._values(level, sign, heights[:, None], widths[:, None]).items():
            magnitude = np.where(names == name, values, magnitude)
        is_cubic = rng.uniform(steps) < (0.5 if self._is_random else 0.0)
        return {"operation": np.where(acts, names, "Identity"), "magnitude": magnitude, "is_cubic": is_cubic}

    def _levels(self, rng: SampleRNG) -> Array:
        """(N, steps) magnitudes before they are clipped; they draw alike whatever their distribution."""
        if math.isinf(self._deviation):
            uniform, _ = rng.uniform(self._steps), rng.uniform(self._steps)
            return self._magnitude * uniform
        return self._magnitude + self._deviation * rng.normal(self._steps)

    def _values(self, level: Array, sign: Array, heights: Sizes, widths: Sizes) -> dict[str, Array]:
        """The magnitudes of all operations as `PolicyTransform` takes them; `level` is 1 at full strength."""
        bits, threshold = np.floor(4.0 * level), np.minimum(np.floor(256.0 * level), 256.0)
        change = 1.8 * level - 0.9  # a factor of 0.1 to 1.9
        if self._is_increasing:
            bits, threshold, change = 4.0 - bits, 256.0 - threshold, np.maximum(sign * 0.9 * level, -0.9)
        return {
            "Rotate": sign * 30.0 * level,
            "Posterize": np.clip(bits, 0.0, 8.0),
            "Solarize": threshold / 255.0,
            "SolarizeAdd": np.minimum(np.floor(110.0 * level), 128.0),
            **dict.fromkeys(("Color", "Contrast", "Brightness", "Sharpness"), change),
            **dict.fromkeys(("ShearX", "ShearY"), sign * 0.3 * level),
            "TranslateX": sign * 0.45 * level * widths,
            "TranslateY": sign * 0.45 * level * heights,
        }

    def _write_own(self, plan: Plan, acts: Where, number: int, params: dict[str, Any]) -> None:
        adds = params["operation"][:, number] == "SolarizeAdd"
        adds = adds if acts is None else adds & acts
        if adds.any():
            added = np.minimum(_LEVELS + params["magnitude"][:, number, None], 255.0)
            tables = np.where(_LEVELS < 128, added, _LEVELS)[:, None, :]
            plan.lut(np.broadcast_to(tables, (len(plan), 3, 256)), adds)

    def _warps(
        self, plan: Plan, moves: NDArray[np.bool_], number: int, params: dict[str, Any]
    ) -> Iterator[tuple[dict[str, Any], NDArray[np.bool_]]]:
        fill = 128.0 * plan.limit / 255.0 if self.fill is None else self.warp_options["fill"]
        is_cubic = params["is_cubic"][:, number]
        for filter, acts in ((self.warp_options["filter"], moves & ~is_cubic), (Filter.BICUBIC, moves & is_cubic)):
            if acts.any():
                yield {"filter": filter, "fill": fill}, acts


def _parse(config: str) -> dict[str, float]:
    """The options of a text such as "rand-m9-mstd0.5-inc1"."""
    options = {"m": 10.0, "n": 2.0, "p": 0.5, "mstd": 0.0, "mmax": _SCALE, "inc": 0.0}
    first, *sections = config.split("-") if isinstance(config, str) else ("",)
    if first != "rand":
        raise TransformError(
            f"config must begin with 'rand', as 'rand-m9-mstd0.5-inc1', not {config!r}: see AutoAugment and AugMix for "
            "other policies"
        )
    for section in sections:
        found = re.fullmatch(r"([a-z]+)(\d+(?:\.\d+)?|inf)", section)
        if found is None or found[1] not in options:
            raise TransformError(
                f"config must have sections {', '.join(options)}, each with a number, but {config!r} has {section!r}"
            )
        options[found[1]] = float(found[2])
    if options["mstd"] > 100.0:
        options["mstd"] = math.inf
    return options
