"""Color transforms and point operations, with torchvision v2's names and meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cuaug.errors import TransformError
from cuaug.images.interop import UINT16_MAX
from cuaug.plan import Plan, operations, regions
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import parameters
from cuaug.transforms.base import RandomTransform, Transform, Where

#: The adjustments of `ColorJitter`, by argument name.
JITTERS = {
    "brightness": operations.brightness,
    "contrast": operations.contrast,
    "saturation": operations.saturation,
    "hue": operations.hue,
}


def factor_bounds(name: str, value: float | Sequence[float]) -> tuple[float, float]:
    """(lower, upper) of a jitter factor, from these two or from its largest distance from "no change"."""
    neutral, low, high = (0.0, -0.5, 0.5) if name == "hue" else (1.0, 0.0, float("inf"))
    values = parameters.numbers(value, float)
    if len(values) == 1:
        (distance,) = values
        if not 0 <= distance <= high or distance == float("inf"):
            allowed = "from 0 to 0.5" if name == "hue" else "0 or more"
            raise TransformError(f"{name} must be {allowed}, or (lower, upper), not {value!r}")
        value = (neutral - distance if name == "hue" else max(low, neutral - distance), neutral + distance)
    return parameters.bounds(name, value, low=low, high=high)


def jitter_operations(plan: Plan, name: str, factor: ArrayLike) -> NDArray[Any]:
    """(N,) `OP` rows of one of JITTERS. Saturation skips gray images: the luma weights do not quite add up to 1."""
    if name == "saturation" and plan.channels == 1:
        return operations.scale(len(plan), 1.0)
    return JITTERS[name](len(plan), plan.limit, factor)


class ColorJitter(Transform):
    """Randomly change the brightness, contrast, saturation and hue of the image.

    The order of the changes is drawn for each sample.

    Args:
        brightness, contrast, saturation: a number v draws the factor from [max(0, 1 - v), 1 + v]; (lower, upper)
            draws it from that. None or 0: no change.
        hue: a number v up to 0.5 draws the shift from [-v, v], as a share of the color circle; or (lower, upper).
    """

    def __init__(
        self,
        brightness: float | Sequence[float] | None = None,
        contrast: float | Sequence[float] | None = None,
        saturation: float | Sequence[float] | None = None,
        hue: float | Sequence[float] | None = None,
    ) -> None:
        self.brightness, self.contrast, self.saturation, self.hue = brightness, contrast, saturation, hue
        values = {name: getattr(self, name) for name in JITTERS}
        bounds = {name: factor_bounds(name, value) for name, value in values.items() if value is not None}
        self._bounds = {name: pair for name, pair in bounds.items() if pair != factor_bounds(name, 0.0)}
        self._low_high = [[pair[end] for pair in self._bounds.values()] for end in (0, 1)]

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        factors = rng.uniform(len(self._bounds), *self._low_high)
        return {"order": rng.permutation(len(self._bounds)), **dict(zip(self._bounds, factors.T, strict=True))}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        if not self._bounds:
            return
        changes = [jitter_operations(plan, name, params[name]) for name in self._bounds]
        for ops in operations.shuffled(changes, params["order"]):
            plan.append(ops, where)


class Grayscale(Transform):
    """Convert the image to grayscale, by ITU-R BT.601 luma.

    Args:
        num_output_channels: 1, or 3 for three equal channels.
    """

    def __init__(self, num_output_channels: int = 1) -> None:
        self.num_output_channels = parameters.integer("num_output_channels", num_output_channels)
        if self.num_output_channels not in (1, 3):
            raise TransformError(f"num_output_channels must be 1 or 3, not {num_output_channels!r}")

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        if self.num_output_channels != plan.channels and where is not None:
            raise TransformError(
                "num_output_channels=1 changes the channels of the whole batch: inside RandomApply use "
                "Grayscale(num_output_channels=3)"
            )
        _make_gray(plan, where)
        plan.channels = self.num_output_channels


class RandomGrayscale(RandomTransform):
    """Convert the image to grayscale with probability `p`.

    The number of channels stays the same.
    """

    def __init__(self, p: float = 0.1) -> None:
        self.p = parameters.probability("p", p)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        _make_gray(plan, where)


def _make_gray(plan: Plan, where: Where) -> None:
    if plan.channels != 1:
        plan.append(operations.grayscale(len(plan)), where)


class LUT(Transform):
    """Map each level of the image through a look-up table.

    Values between levels, such as a resize makes, take the nearest level's entry.

    Args:
        table: (256,) for all channels, or (C, 256). Entries are uint8 levels, and may be fractions.
    """

    def __init__(self, table: ArrayLike) -> None:
        self.table = parameters.look_up_table(table)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.lut(self.table, where)

    def __repr__(self) -> str:
        return f"LUT(table=<{' x '.join(map(str, self.table.shape))}>)"


# Full-range ITU-R BT.601 as OpenCV's COLOR_RGB2YUV has it: U = 0.492 (B - Y), V = 0.877 (R - Y), around mid-gray.
_Y = np.array([0.299, 0.587, 0.114])
_RGB_TO_YUV = np.stack([_Y, 0.492 * (np.array([0, 0, 1]) - _Y), 0.877 * (np.array([1, 0, 0]) - _Y)])
_YUV_TO_RGB = regions.adjugate(_RGB_TO_YUV) / (0.492 * 0.877 * _Y[1])


class ConvertColor(Transform):
    """Convert the image between RGB and YUV.

    Full-range ITU-R BT.601, as OpenCV. U and V lie around mid-gray: 128, or 0.5 for floats.

    Args:
        source, target: "RGB" and "YUV", or "YUV" and "RGB".
    """

    def __init__(self, source: str = "RGB", target: str = "YUV") -> None:
        if not isinstance(source, str) or not isinstance(target, str) or {source, target} != {"RGB", "YUV"}:
            raise TransformError(
                f"source and target must be 'RGB' and 'YUV', in either order, not {source!r} and {target!r}"
            )
        self.source = source
        self.target = target

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        check_rgb(self, plan)
        gray = np.array([0.0, 1.0, 1.0]) * (0.5 if plan.is_float else 128.0)
        if self.target == "YUV":
            values = np.column_stack([_RGB_TO_YUV, gray])
        else:
            values = np.column_stack([_YUV_TO_RGB, -regions.product(_YUV_TO_RGB, gray[:, None])])
        plan.append(operations.matrix(len(plan), plan.limit, values), where)


def check_rgb(transform: Transform, plan: Plan) -> None:
    if plan.channels != 3:
        raise TransformError(f"{type(transform).__name__} needs 3 channels; the image has {plan.channels} here")


class RandomGamma(RandomTransform):
    """Apply gamma correction with probability `p`.

    Formula: gain * v ** gamma, where black is 0 and white is 1, saturated.

    Args:
        gamma, gain: (lower, upper) bounds, 0 or more. A gamma below 1 brightens.
        p: probability, per sample.
    """

    def __init__(self, gamma: Sequence[float] = (1.0, 1.0), gain: Sequence[float] = (1.0, 1.0), p: float = 1.0) -> None:
        self.gamma = parameters.bounds("gamma", gamma)
        self.gain = parameters.bounds("gain", gain)
        self.p = parameters.probability("p", p)

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        return {"gamma": rng.uniform(None, *self.gamma), "gain": rng.uniform(None, *self.gain)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.append(operations.gamma(len(plan), plan.limit, **params), where)


class RandomPosterize(RandomTransform):
    """Reduce the bits of each channel with probability `p`.

    Floats are rounded down to one of 2**bits equal steps, as in torchvision: white becomes less than 1.

    Args:
        bits: bits to keep, from 0 to 8.
        p: probability, per sample.
    """

    def __init__(self, bits: int, p: float = 0.5) -> None:
        self.bits = parameters.integer("bits", bits, 0, 8)
        self.p = parameters.probability("p", p)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.append(operations.posterize(len(plan), plan.limit, self.bits), where)


class RandomSolarize(RandomTransform):
    """Invert all values at or above a threshold with probability `p`.

    Args:
        threshold: in the image's units at this point of the chain. For uint16 images a level up to 65,535; numbers up
            to 1 are fractions of white.
        p: probability, per sample.
    """

    def __init__(self, threshold: float, p: float = 0.5) -> None:
        self.threshold = parameters.number("threshold", threshold)
        self.p = parameters.probability("p", p)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        threshold, white = self.threshold, UINT16_MAX if plan.is_uint16 and plan.target_type is None else plan.limit
        if threshold > white:
            raise TransformError(
                f"threshold must be at most the image's white, {white:g}, not {threshold:g}: it would invert nothing"
            )
        if threshold > plan.limit:  # a uint16 level: between two, so that no rounding moves one across
            threshold = (np.ceil(threshold) - 0.5) / white
        plan.append(operations.solarize(len(plan), plan.limit, threshold), where)


class RandomInvert(RandomTransform):
    """Invert the colors of the image with probability `p`."""

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.append(operations.invert(len(plan), plan.limit), where)


class RandomAutocontrast(RandomTransform):
    """Maximize the contrast of each channel with probability `p`.

    The channel's smallest value becomes black, its largest white. A constant channel is unchanged.
    """

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.append(operations.autocontrast(len(plan), plan.limit), where)


class RandomEqualize(RandomTransform):
    """Equalize the histogram of each channel with probability `p`.

    Pillow's formula, on the nearest uint8 levels. A channel is unchanged if fewer than 255 pixels are darker than its
    brightest level.
    """

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.append(operations.equalize(len(plan), plan.limit), where)


class CLAHE(RandomTransform):
    """Apply contrast-limited adaptive histogram equalization with probability `p`.

    OpenCV's algorithm, on the nearest uint8 levels of each channel. On uint8 images the bytes are OpenCV's; before
    other operations, and for floats, values are not rounded. Kornia's `equalize_clahe` treats channels separately too;
    Albumentations equalizes the L of CIELAB.

    Args:
        clip_limit: (lower, upper) bounds, 1 or more, or a number v for (1, v). It limits the count of a level in a
            tile, as a multiple of the mean count.
        tile_grid_size: (across, down) number of tiles, as in OpenCV.
        p: probability, per sample.
    """

    def __init__(
        self, clip_limit: float | Sequence[float] = 4.0, tile_grid_size: Sequence[int] = (8, 8), p: float = 0.5
    ) -> None:
        limits = parameters.numbers(clip_limit, float)
        self.clip_limit = parameters.bounds("clip_limit", (1.0, *limits) if len(limits) == 1 else clip_limit, low=1.0)
        tiles = parameters.numbers(tile_grid_size, parameters.to_int)
        if len(tiles) != 2 or not all(1 <= count <= 64 for count in tiles):
            raise TransformError(
                f"tile_grid_size must be (across, down), two integers from 1 to 64, not {tile_grid_size!r}"
            )
        self.tile_grid_size = tiles[0], tiles[1]
        self.p = parameters.probability("p", p)

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        return {"clip_limit": rng.uniform(None, *self.clip_limit)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.append(operations.clahe(len(plan), plan.limit, **params, grid=self.tile_grid_size[::-1]), where)
