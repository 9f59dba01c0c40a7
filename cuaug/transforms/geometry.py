"""Crops, flips, 90-degree rotations and padding, with torchvision's arguments, defaults and meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.errors import TransformError
from cuaug.plan import Plan
from cuaug.plan.regions import first_window
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import parameters
from cuaug.transforms.base import RandomTransform, Transform, Where

Sizes = NDArray[np.int64]


class CenterCrop(Transform):
    """Crop the image at its center.

    Images smaller than `size` are padded first.

    Args:
        size: (height, width) in pixels, or one number for both.
        fill: value of the padding: a number or one per channel, in image units. An addition to torchvision.
    """

    def __init__(self, size: int | Sequence[int], fill: parameters.Fill = 0) -> None:
        self.size = parameters.size("size", size)
        self.fill = fill
        self._fill = parameters.fill("fill", fill)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        height, width = self.size
        h, w = plan.sizes
        down, across = np.maximum(height - h, 0), np.maximum(width - w, 0)
        if down.any() or across.any():
            sides = across // 2, down // 2, (across + 1) // 2, (down + 1) // 2
            plan.pad(*sides, fill=self._fill, where=where)
            h, w = np.maximum(h, height), np.maximum(w, width)
        # Halves round to the even side, as Python's round() does in torchvision.
        top, left = np.rint((h - height) / 2.0), np.rint((w - width) / 2.0)
        plan.crop(top, left, height, width, where=where)


class RandomCrop(Transform):
    """Crop the image at a random location.

    Args:
        size: (height, width) in pixels, or one number for both.
        padding: pixels to add first, as for `Pad`.
        pad_if_needed: pad both sides of an image that is smaller than `size`, each by the missing pixels.
        fill: value of the padding: a number or one per channel, in image units.
        padding_mode: as for `Pad`.

    Raises:
        TransformError: an image is smaller than `size`, without `pad_if_needed`.
    """

    def __init__(
        self,
        size: int | Sequence[int],
        padding: int | Sequence[int] | None = None,
        pad_if_needed: bool = False,
        fill: parameters.Fill = 0,
        padding_mode: str = "constant",
    ) -> None:
        self.size = parameters.size("size", size)
        self.padding = padding
        self.pad_if_needed = pad_if_needed
        self.fill = fill
        self.padding_mode = padding_mode
        self._sides = None if padding is None else parameters.padding(padding)
        self._fill = parameters.fill("fill", fill)
        self._border = parameters.border(padding_mode)

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        left, top, right, bottom = self._sides or (0, 0, 0, 0)
        height, width = self.size
        padded_h, padded_w = heights + top + bottom, widths + left + right
        down = np.maximum(height - padded_h, 0) if self.pad_if_needed else np.zeros_like(heights)
        across = np.maximum(width - padded_w, 0) if self.pad_if_needed else np.zeros_like(widths)
        sides = np.stack([left + across, top + down, right + across, bottom + down], axis=1)
        room_y, room_x = padded_h + 2 * down - height, padded_w + 2 * across - width
        # An image that is too small gets position 0, and Plan.crop raises the error.
        return {
            "sides": sides,
            "top": rng.integers(0, np.maximum(room_y, 0)),
            "left": rng.integers(0, np.maximum(room_x, 0)),
        }

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        if self._sides or self.pad_if_needed:
            plan.pad(*params["sides"].T, border=self._border, fill=self._fill, where=where)
        plan.crop(params["top"], params["left"], *self.size, where=where)


class RandomRelativeCrop(Transform):
    """Crop a share of the image's height and width at a random location.

    Args:
        scale_height, scale_width: the crop's share of each side, above 0 and at most 1; or (lower, upper) to draw from.
            None: `scale_height`, with a draw of its own.
    """

    def __init__(
        self, scale_height: float | Sequence[float], scale_width: float | Sequence[float] | None = None
    ) -> None:
        self.scale_height, self.scale_width = scale_height, scale_width
        widths = scale_height if scale_width is None else scale_width
        self._shares = [
            parameters.number_or_bounds(name, value, low=1e-6, high=1.0)
            for name, value in (("scale_height", scale_height), ("scale_width", widths))
        ]

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        height, width = (
            np.maximum(np.rint(side * rng.uniform(None, *share)), 1).astype(np.int64)
            for side, share in zip((heights, widths), self._shares, strict=True)
        )
        top, left = rng.integers(0, heights - height), rng.integers(0, widths - width)
        return {"top": top, "left": left, "height": height, "width": width}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.crop(**params, where=where)


class FixedSizeCrop(Transform):
    """Crop a random window, and pad below and to the right where the image is smaller.

    As in torchvision's detection references, which use it after `ScaleJitter` (Ghiasi et al. 2021). Boxes outside the
    crop remain, empty, until `SanitizeBoundingBoxes`.

    Args:
        size: (height, width) of the result in pixels, or one number for both.
        fill, padding_mode: as for `Pad`.
    """

    def __init__(self, size: int | Sequence[int], fill: parameters.Fill = 0, padding_mode: str = "constant") -> None:
        self.size = parameters.size("size", size)
        self.fill = fill
        self.padding_mode = padding_mode
        self._fill = parameters.fill("fill", fill)
        self._border = parameters.border(padding_mode)

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        position = rng.uniform()  # one draw for both axes, as there
        top, left = (
            np.floor(np.maximum(side - own, 0) * position).astype(np.int64)
            for side, own in zip((heights, widths), self.size, strict=True)
        )
        return {"top": top, "left": left}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        heights, widths = plan.sizes
        height, width = np.minimum(heights, self.size[0]), np.minimum(widths, self.size[1])
        plan.crop(params["top"], params["left"], height, width, where)
        below, after = self.size[0] - height, self.size[1] - width
        plan.pad(0, 0, after, below, border=self._border, fill=self._fill, where=where)


class RandomResizedCrop(Transform):
    """Crop a random region of the image and resize it (Szegedy et al. 2015).

    Args:
        size: (height, width) of the result in pixels, or one number for both.
        scale: (lower, upper) bounds of the region's share of the image's area.
        ratio: (lower, upper) bounds of the region's width / height, drawn uniformly on a logarithmic scale.
        interpolation, antialias: as for `Resize`.
    """

    _TRIES = 10  # as torchvision; then the largest centered region with a ratio within bounds

    def __init__(
        self,
        size: int | Sequence[int],
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: parameters.Interpolation = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        self.size = parameters.size("size", size)
        self.scale = parameters.bounds("scale", scale)
        self.ratio = parameters.bounds("ratio", ratio, low=1e-6)
        self._log_ratio = np.log(self.ratio).tolist()
        self.interpolation = interpolation
        self._filter, self.antialias = parameters.resize_filter(interpolation, antialias)

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        area = rng.uniform(self._TRIES, *self.scale)
        log_ratio = rng.uniform(self._TRIES, *self._log_ratio)
        window, found = first_window(area, log_ratio, rng.uniform(2), heights, widths)
        top, left, height, width = window
        if not found.all():
            failed, old_h, old_w = ~found, heights[~found], widths[~found]
            ratio = old_w / old_h
            center_h = np.where(ratio < self.ratio[0], np.rint(old_w / self.ratio[0]), old_h)
            center_w = np.where(ratio > self.ratio[1], np.rint(old_h * self.ratio[1]), old_w)
            height[failed], width[failed] = np.clip(center_h, 1, old_h), np.clip(center_w, 1, old_w)
            top[failed], left[failed] = (old_h - height[failed]) // 2, (old_w - width[failed]) // 2
        return {"top": top, "left": left, "height": height, "width": width}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.crop(**params, where=where)
        plan.resize(*self.size, filter=self._filter, antialias=self.antialias, where=where)


class RandomHorizontalFlip(RandomTransform):
    """Flip the image left to right with probability `p`."""

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.flip(where=where)


class RandomVerticalFlip(RandomTransform):
    """Flip the image upside down with probability `p`."""

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.flip(vertical=True, where=where)


class Rot90(Transform):
    """Rotate the image by multiples of 90 degrees, without interpolation.

    Args:
        k: number of counter-clockwise rotations by 90 degrees, as for `numpy.rot90`.
    """

    def __init__(self, k: int = 1) -> None:
        self.k = parameters.integer("k", k)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.rot90(self.k % 4, where)


class RandomRot90(RandomTransform):
    """Rotate by a random multiple of 90 degrees with probability `p`.

    The defaults are Albumentations' `RandomRotate90`; `times` is the argument of Kornia's `RandomRotation90`. The
    height and width of an image that is not square depend on the draw.

    Args:
        times: (fewest, most) counter-clockwise rotations by 90 degrees, both inclusive.
        p: probability, per sample.
    """

    def __init__(self, times: Sequence[int] = (0, 3), p: float = 1.0) -> None:
        self.times = parameters.numbers(times, parameters.to_int)
        if len(self.times) != 2 or self.times[0] > self.times[1]:
            raise TransformError(f"times must be (fewest, most) quarter turns, integers in that order, not {times!r}")
        self.p = parameters.probability("p", p)

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        return {"k": rng.integers(*self.times)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.rot90(params["k"], where)


class D4(RandomTransform):
    """Apply a random symmetry of the square with probability `p` (Albumentations).

    The eight symmetries are equally likely: k rotations by 90 degrees, then a transposition or none.

    Args:
        p: probability, per sample.
    """

    def __init__(self, p: float = 1.0) -> None:
        self.p = parameters.probability("p", p)

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        return {"k": rng.integers(0, 3), "transpose": rng.bernoulli(0.5)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        transpose = params["transpose"]
        plan.rot90(params["k"], where)
        plan.transpose(transpose if where is None else transpose & where)


class Pad(Transform):
    """Pad the image on all sides.

    Args:
        padding: pixels to add: one number, (left/right, top/bottom), or (left, top, right, bottom). Negative numbers
            cut pixels off, before others are added.
        fill: value of the padding: a number or one per channel, in image units.
        padding_mode: "constant", "edge", "reflect" (without repeating the edge pixel), "symmetric" (repeating it) or
            "wrap".
    """

    def __init__(self, padding: int | Sequence[int], fill: parameters.Fill = 0, padding_mode: str = "constant") -> None:
        self.padding = padding
        self.fill = fill
        self.padding_mode = padding_mode
        self._sides = parameters.padding(padding)
        self._fill = parameters.fill("fill", fill)
        self._border = parameters.border(padding_mode)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.pad(*self._sides, border=self._border, fill=self._fill, where=where)


class RandomZoomOut(RandomTransform):
    """Place the image at a random position on a larger canvas (Liu et al. 2016).

    Args:
        fill: value of the canvas: a number or one per channel, in image units.
        side_range: (lower, upper) bounds, 1 or more, of the canvas's sides as multiples of the image's.
        p: probability, per sample.
    """

    def __init__(self, fill: parameters.Fill = 0, side_range: Sequence[float] = (1.0, 4.0), p: float = 0.5) -> None:
        self.fill = fill
        self.side_range = parameters.bounds("side_range", side_range, low=1.0)
        self.p = parameters.probability("p", p)
        self._fill = parameters.fill("fill", fill)

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        ratio, position = rng.uniform(None, *self.side_range), rng.uniform(2)
        room_x, room_y = (np.floor(size * ratio) - size for size in (widths, heights))
        left, top = np.floor(room_x * position[:, 0]), np.floor(room_y * position[:, 1])
        return {"sides": np.stack([left, top, room_x - left, room_y - top], axis=1)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.pad(*params["sides"].T, fill=self._fill, where=where)
