"""Crops, flips, quarter turns, padding. Arguments, defaults and meaning are torchvision's, drawn for each sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.errors import TransformError
from cuaug.plan import Plan
from cuaug.plan.geometry import first_window
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import arguments
from cuaug.transforms.base import RandomTransform, Transform, Where

__all__ = [
    "D4",
    "CenterCrop",
    "Pad",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomRot90",
    "RandomVerticalFlip",
    "RandomZoomOut",
    "Rot90",
]

Sizes = NDArray[np.int64]
Floats = NDArray[np.float64]


class CenterCrop(Transform):
    """The `size` pixels in the middle; smaller images are padded with 0 first.

    Args:
        size: (height, width), or one number for both.
    """

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = arguments.pair("size", size)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        height, width = self.size
        h, w = plan.sizes
        down, across = np.maximum(height - h, 0), np.maximum(width - w, 0)
        if down.any() or across.any():
            plan.pad(across // 2, down // 2, (across + 1) // 2, (down + 1) // 2, where=where)
            h, w = np.maximum(h, height), np.maximum(w, width)
        # Halves go to the even side, as Python's round() does in torchvision.
        top, left = np.rint((h - height) / 2.0), np.rint((w - width) / 2.0)
        plan.crop(top, left, height, width, where=where)


class RandomCrop(Transform):
    """A window of `size` at a random place.

    Args:
        size: (height, width), or one number for both.
        padding: pixels added first: one number, (left/right, top/bottom), or (left, top, right, bottom).
        pad_if_needed: also pad both sides of an image that is smaller than `size` by what it lacks.
        fill: the padding's value, a number or one per channel, in image units.
        padding_mode: as for `Pad`.

    Raises:
        TransformError: when run on an image smaller than `size`, without `pad_if_needed`.
    """

    def __init__(
        self,
        size: int | Sequence[int],
        padding: int | Sequence[int] | None = None,
        pad_if_needed: bool = False,
        fill: float | Sequence[float] = 0,
        padding_mode: str = "constant",
    ) -> None:
        self.size = arguments.pair("size", size)
        self.padding = padding
        self.pad_if_needed = pad_if_needed
        self.fill = fill
        self.padding_mode = padding_mode
        self._sides = None if padding is None else arguments.sides(padding)
        self._fill = arguments.color("fill", fill)
        self._border = arguments.border(padding_mode)

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        left, top, right, bottom = self._sides or (0, 0, 0, 0)
        height, width = self.size
        padded_h, padded_w = heights + top + bottom, widths + left + right
        down = np.maximum(height - padded_h, 0) if self.pad_if_needed else np.zeros_like(heights)
        across = np.maximum(width - padded_w, 0) if self.pad_if_needed else np.zeros_like(widths)
        sides = np.stack([left + across, top + down, right + across, bottom + down], axis=1)
        room_y, room_x = padded_h + 2 * down - height, padded_w + 2 * across - width
        # An image too small gets place 0, and Plan.crop names it.
        place_y = rng.integers(0, np.maximum(room_y, 0))
        place_x = rng.integers(0, np.maximum(room_x, 0))
        return {"sides": sides, "top": place_y, "left": place_x}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        if self._sides or self.pad_if_needed:
            plan.pad(*params["sides"].T, border=self._border, fill=self._fill, where=where)
        plan.crop(params["top"], params["left"], *self.size, where=where)


class RandomResizedCrop(Transform):
    """A window of random area and aspect ratio at a random place, resized to `size` (Szegedy et al. 2015).

    Args:
        size: (height, width), or one number for both.
        scale: bounds of the window's share of the image's area.
        ratio: bounds of the window's width / height; drawn uniformly on a logarithmic scale.
        interpolation, antialias: as for `Resize`.
    """

    _TRIES = 10  # as torchvision; then the largest window in the middle with a ratio within bounds

    def __init__(
        self,
        size: int | Sequence[int],
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: arguments.Interpolation = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        self.size = arguments.pair("size", size)
        self.scale = arguments.span("scale", scale)
        self.ratio = arguments.span("ratio", ratio, low=1e-6)
        self._log_ratio = np.log(self.ratio).tolist()
        self.interpolation = interpolation
        self.antialias = arguments.antialias(antialias)
        self._filter = arguments.interpolation(interpolation)

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        share = rng.uniform(self._TRIES, *self.scale)
        log_ratio = rng.uniform(self._TRIES, *self._log_ratio)
        window, found = first_window(share, log_ratio, rng.uniform(2), heights, widths)
        top, left, height, width = window
        if not found.all():
            lost, old_h, old_w = ~found, heights[~found], widths[~found]
            ratio = old_w / old_h
            middle_h = np.where(ratio < self.ratio[0], np.rint(old_w / self.ratio[0]), old_h)
            middle_w = np.where(ratio > self.ratio[1], np.rint(old_h * self.ratio[1]), old_w)
            height[lost], width[lost] = np.clip(middle_h, 1, old_h), np.clip(middle_w, 1, old_w)
            top[lost], left[lost] = (old_h - height[lost]) // 2, (old_w - width[lost]) // 2
        return {"top": top, "left": left, "height": height, "width": width}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.crop(**params, where=where)
        plan.resize(*self.size, filter=self._filter, antialias=self.antialias, where=where)


class RandomHorizontalFlip(RandomTransform):
    """Mirrors left and right with probability p."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = arguments.probability("p", p)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.flip(where=where)


class RandomVerticalFlip(RandomTransform):
    """Mirrors top and bottom with probability p."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = arguments.probability("p", p)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.flip(vertical=True, where=where)


class Rot90(Transform):
    """Turns by `k` quarters of the circle, counter-clockwise, as `numpy.rot90`; moves whole pixels and no more."""

    def __init__(self, k: int = 1) -> None:
        self.k = arguments.whole("k", k)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.rot90(self.k % 4, where)


class RandomRot90(RandomTransform):
    """Turns by a random number of quarters, counter-clockwise, with probability p.

    By default Albumentations' `RandomRotate90`; `times` is that of Kornia's `RandomRotation90`. Where the image is not
    square, what is drawn decides whether it comes out upright or lying.

    Args:
        times: (fewest, most) quarter turns, both included.
        p: probability, for each sample.
    """

    def __init__(self, times: Sequence[int] = (0, 3), p: float = 1.0) -> None:
        self.times = arguments.values(times, arguments.index)
        if len(self.times) != 2 or self.times[0] > self.times[1]:
            raise TransformError(f"times is (fewest, most) quarter turns, integers in that order, not {times!r}")
        self.p = arguments.probability("p", p)

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        return {"k": rng.integers(*self.times)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.rot90(params["k"], where)


class D4(RandomTransform):
    """One of the eight symmetries of the square, each as likely, with probability p; Albumentations' `D4`.

    Args:
        p: probability, for each sample.
    """

    def __init__(self, p: float = 1.0) -> None:
        self.p = arguments.probability("p", p)

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        """`k` quarter turns, counter-clockwise, and then a transposition where `transpose` is true."""
        return {"k": rng.integers(0, 3), "transpose": rng.bernoulli(0.5)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        transpose = params["transpose"]
        plan.rot90(params["k"], where)
        plan.transpose(transpose if where is None else transpose & where)


class Pad(Transform):
    """Adds pixels on the sides.

    Args:
        padding: one number, (left/right, top/bottom), or (left, top, right, bottom), in pixels.
        fill: a number or one per channel, in image units.
        padding_mode: "constant", "edge", "reflect" (without repeating the edge pixel), "symmetric" (with) or "wrap".
    """

    def __init__(
        self, padding: int | Sequence[int], fill: float | Sequence[float] = 0, padding_mode: str = "constant"
    ) -> None:
        self.padding = padding
        self.fill = fill
        self.padding_mode = padding_mode
        self._sides = arguments.sides(padding)
        self._fill = arguments.color("fill", fill)
        self._border = arguments.border(padding_mode)

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.pad(*self._sides, border=self._border, fill=self._fill, where=where)


class RandomZoomOut(RandomTransform):
    """Puts the image at a random place of a larger canvas, with probability p (Liu et al. 2016).

    Args:
        fill: of the canvas, a number or one per channel, in image units.
        side_range: bounds, 1 or more, of how many times as long as the image's the canvas's sides are.
        p: probability, for each sample.
    """

    def __init__(
        self, fill: float | Sequence[float] | None = 0, side_range: Sequence[float] = (1.0, 4.0), p: float = 0.5
    ) -> None:
        self.fill = fill
        self.side_range = arguments.span("side_range", side_range, low=1.0)
        self.p = arguments.probability("p", p)
        self._fill = arguments.color("fill", fill)

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        ratio, place = rng.uniform(None, *self.side_range), rng.uniform(2)
        more_x, more_y = (np.floor(size * ratio) - size for size in (widths, heights))
        left, top = np.floor(more_x * place[:, 0]), np.floor(more_y * place[:, 1])
        return {"sides": np.stack([left, top, more_x - left, more_y - top], axis=1)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.pad(*params["sides"].T, fill=self._fill, where=where)
