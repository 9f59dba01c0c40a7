"""timm's RandAugment, which differs from torchvision's in its operations, magnitudes and probabilities."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cuaug.errors import TransformError
from cuaug.plan import Filter, Plan
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import arguments
from cuaug.transforms.auto import PolicyTransform
from cuaug.transforms.base import Where

__all__ = ["TimmRandAugment"]

Sizes = NDArray[np.int64]
Array = NDArray[np.float64]

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
        interpolation: arguments.Interpolation | Literal["random"] = "random",
        fill: arguments.Fill = None,
    ) -> None:
        self._is_random = interpolation == "random"
        super().__init__("bilinear" if interpolation == "random" else interpolation, fill)
        self.interpolation = interpolation
        self.config = config
        options = _parse(config)
        self._magnitude, self._steps = options["m"], int(options["n"])
        if self._steps != options["n"]:
            raise TransformError(f"config must have a whole number n, not {options['n']:g}")
        self._p = arguments.probability("config: p", options["p"])
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
        first, second = rng.uniform(self._steps), rng.uniform(self._steps)
        if math.isinf(self._deviation):
            return self._magnitude * first
        normal = np.sqrt(-2.0 * np.log1p(-first)) * np.cos(2.0 * np.pi * second)
        return self._magnitude + self._deviation * normal

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
