"""Hypothesis strategies: sizes, images, and chains of `Plan` calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from cuaug.plan import Border, Filter, Plan, operations
from cuaug.plan.layout import ANTIALIASED_FILTERS, WARP_FILTERS

#: Filters that warps take.
FILTERS = st.sampled_from(WARP_FILTERS)
#: Keyword arguments of `Plan.resize`.
RESIZES = st.sampled_from(
    [{"filter": filter, "antialias": True} for filter in Filter]
    + [{"filter": filter, "antialias": False} for filter in Filter if filter not in ANTIALIASED_FILTERS]
)
SMOOTH = st.sampled_from([Filter.BILINEAR, Filter.BICUBIC])
BORDERS = st.sampled_from(list(Border))

sides = st.one_of(st.integers(1, 9), st.integers(1, 70), st.sampled_from([127, 128, 129, 511, 512, 513, 514]))
small_sides = st.integers(1, 40)


@st.composite
def sizes(draw, largest: int = 60_000) -> tuple[int, int]:
    """(height, width), at least 1 x 1 and at most `largest` pixels."""
    h, w = draw(sides), draw(sides)
    if h * w > largest:
        h = max(1, largest // w)
    return h, w


@st.composite
def images(draw, size: Any = None, dtype: type = np.uint8) -> np.ndarray:
    """(H, W, 3) noise, black and white, a gradient, or one color; float32 images are in [0, 1]."""
    h, w = draw(sizes()) if size is None else draw(size) if isinstance(size, st.SearchStrategy) else size
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = draw(st.sampled_from(["noise", "extremes", "gradient", "flat"]))
    if kind == "noise":
        image = rng.integers(0, 256, (h, w, 3))
    elif kind == "extremes":
        image = rng.integers(0, 2, (h, w, 3)) * 255
    elif kind == "gradient":
        y, x, c = np.ogrid[:h, :w, :3]
        image = (3 * y + 5 * x + 70 * c) % 256
    else:
        image = np.broadcast_to(rng.integers(0, 256, 3), (h, w, 3))
    image = np.ascontiguousarray(image, dtype=np.uint8)
    return image if dtype == np.uint8 else image.astype(np.float32) / np.float32(255)


@st.composite
def boxes(draw, h: int, w: int) -> tuple[int, int, int, int]:
    """(top, left, height, width) of a box inside h x w."""
    top, left = draw(st.integers(0, h - 1)), draw(st.integers(0, w - 1))
    return top, left, draw(st.integers(1, h - top)), draw(st.integers(1, w - left))


GEOMETRY = ("crop", "flip", "pad", "resize")
#: Discontinuous operations: they turn a difference in the last bit into a large one.
JUMPING = ("lut", "posterize", "solarize", "autocontrast", "equalize", "shot_noise", "clahe")
POINTWISE = ("brightness", "contrast", "saturation", "hue", "grayscale", "matrix", "gamma", *JUMPING[:-2])
POSITIONAL = ("erase", "noise", "mask", "grid", "add_noise", "shot_noise", "clahe")

NEIGHBORHOODS = ("convolve", "stencil", "median", "jpeg")
#: Geometry whose folded result may differ in the last bit from step-by-step results.
TURNS = ("transpose", "rot90", "warp")

_NAMES = {"noise": operations.erase_with_noise, "add_noise": operations.noise}


@dataclass(frozen=True)
class Step:
    """One call of a `Plan` method."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)

    def write(self, plan: Plan, where: Any = None) -> None:
        n, limit, a = len(plan), plan.limit, dict(self.arguments)
        if self.name in GEOMETRY + NEIGHBORHOODS + TURNS:
            getattr(plan, self.name)(**a, where=where)
        elif self.name == "lut":
            plan.lut(np.random.default_rng(a["seed"]).integers(0, 256, (3, 256)), where=where)
        elif self.name == "grayscale":
            plan.append(operations.grayscale(n), where)
        elif self.name in POINTWISE:
            plan.append(getattr(operations, self.name)(n, limit, **a), where)
        else:
            make = _NAMES.get(self.name) or getattr(operations, self.name)
            if "keys" in a:
                a["keys"] = np.array([a["keys"]], dtype=np.uint32)
            if self.name in ("add_noise", "shot_noise", "clahe"):
                a["limit"] = limit
            plan.append(make(n, **a), where)


def write(plan: Plan, chain: list[Step], where: Any = None) -> Plan:
    for step in chain:
        step.write(plan, where)
    return plan


_words = st.integers(0, 2**32 - 1)
_levels = st.integers(0, 16).map(lambda n: n / 16)


@st.composite
def steps(draw, name: str, h: int, w: int) -> tuple[Step, int, int]:
    """A step that fits an image of h x w in [0, 1], and the size after it."""
    if name == "crop":
        top, left, height, width = draw(boxes(h, w))
        return Step(name, {"top": top, "left": left, "height": height, "width": width}), height, width
    if name == "flip":
        return Step(name, {"vertical": draw(st.booleans())}), h, w
    if name == "pad":
        a = {side: draw(st.integers(0, 12)) for side in ("left", "top", "right", "bottom")}
        rest = {"border": draw(BORDERS), "fill": draw(st.sampled_from([0.0, 0.5, (0.25, 0.5, 1.0)]))}
        return Step(name, a | rest), h + a["top"] + a["bottom"], w + a["left"] + a["right"]
    if name == "transpose":
        return Step(name), w, h
    if name == "rot90":
        turns = draw(st.integers(0, 3))
        return Step(name, {"turns": turns}), *((w, h) if turns % 2 else (h, w))
    if name == "warp":
        rng, height, width = np.random.default_rng(draw(_words)), draw(small_sides), draw(small_sides)
        matrix = np.diag([w / width, h / height, 1.0]) @ (np.eye(3) + rng.normal(0, 0.2, (3, 3)))
        matrix[2] = [0, 0, 1]
        if draw(st.booleans()):  # a perspective, its horizon outside the image
            matrix[2, :2] = rng.uniform(-0.4, 0.4, 2) / (width, height)
        field = rng.normal(0, 2, (*rng.integers(2, 5, 2), 2)).astype(np.float32) if draw(st.booleans()) else None
        options = {"filter": draw(FILTERS), "border": draw(BORDERS), "fill": draw(_levels), "field": field}
        return Step(name, {"matrix": matrix, "height": height, "width": width, **options}), height, width
    if name == "resize":
        height, width = draw(small_sides), draw(small_sides)
        options = draw(RESIZES)
        return Step(name, {"height": height, "width": width, **options}), height, width
    if name in ("brightness", "contrast", "saturation"):
        return Step(name, {"factor": draw(st.floats(0, 2))}), h, w
    if name == "hue":
        return Step(name, {"turn": draw(st.floats(-0.5, 0.5))}), h, w
    if name == "convolve":
        rng, reach = np.random.default_rng(draw(_words)), st.integers(0, 4)
        weights = [rng.random(2 * draw(reach) + 1) for _ in range(2)]
        down, across = (values / values.sum() for values in weights)
        return Step(name, {"down": down, "across": across, "border": draw(BORDERS)}), h, w
    if name == "stencil":
        rng, count = np.random.default_rng(draw(_words)), draw(st.integers(1, 9))
        taps = np.concatenate([rng.integers(-4, 5, (count, 2)), rng.normal(0, 1 / count, (count, 1))], axis=1)
        options = {"frame": draw(st.integers(0, 2)), "saturate": draw(st.booleans()), "border": draw(BORDERS)}
        return Step(name, {"taps": taps, **options}), h, w
    if name == "median":
        return Step(name, {"size": draw(st.sampled_from([3, 5, 7]))}), h, w
    if name == "jpeg":
        return Step(name, {"quality": draw(st.integers(1, 100))}), h, w
    if name == "matrix":
        values = draw(st.lists(st.floats(-1, 1), min_size=12, max_size=12))
        return Step(name, {"values": values}), h, w
    if name == "lut":
        return Step(name, {"seed": draw(_words)}), h, w
    if name == "mask":
        return Step(name, {"ratio": draw(_levels), "keys": (draw(_words), draw(_words)), "fill": draw(_levels)}), h, w
    if name in ("erase", "noise"):
        top, left, height, width = draw(boxes(h, w))
        box = {"rectangle": (top, left, top + height, left + width)}
        if name == "erase":
            return Step(name, box | {"value": draw(_levels)}), h, w
        return Step(name, box | {"keys": (draw(_words), draw(_words)), "mean": 0.5, "std": 0.25}), h, w
    if name == "add_noise":
        return Step(name, {"keys": (draw(_words), draw(_words)), "mean": 0.0, "std": draw(_levels)}), h, w
    if name == "shot_noise":
        return Step(name, {"keys": (draw(_words), draw(_words)), "scale": draw(st.floats(0.01, 0.3))}), h, w
    if name == "grid":
        grid = {"tile": draw(st.floats(1, 40)), "ratio": draw(_levels), "angle": draw(st.floats(-4, 4))}
        return Step(name, grid | {"shift": (draw(_levels), draw(_levels)), "fill": draw(_levels)}), h, w
    if name == "clahe":
        grid = draw(st.tuples(st.integers(1, 9), st.integers(1, 9)))
        return Step(name, {"clip_limit": draw(st.floats(0, 40)), "grid": grid}), h, w
    if name == "posterize":
        return Step(name, {"bits": draw(st.integers(0, 8))}), h, w
    if name == "solarize":
        return Step(name, {"threshold": draw(_levels)}), h, w
    if name == "gamma":
        return Step(name, {"gamma": draw(st.floats(1, 2))}), h, w
    return Step(name), h, w


@dataclass
class Chain:
    """Steps, and whether folding them must give the bits of running them one by one."""

    steps: list[Step]
    exact: bool


@st.composite
def chains(draw, size: tuple[int, int], longest: int = 7, turns: bool = False) -> Chain:
    """Random steps, without a second resize that would fold into the first: one interpolation differs from two.

    With `turns`, steps of `TURNS` are included and no chain is exact. A flip before a smooth resize changes the last
    bits of the folded result; such chains have no discontinuous operation.
    """
    moves = list(GEOMETRY + TURNS) if turns else list(GEOMETRY)
    names = [*moves, *POINTWISE, *POSITIONAL, *NEIGHBORHOODS]
    if mirrored := draw(st.booleans()):
        names = [name for name in names if name not in (*JUMPING, "jpeg")]
    (h, w), chain, flipped, kind = size, [], False, None
    for _ in range(draw(st.integers(1, longest))):
        # Half of the steps are geometry: only that folds.
        name = draw(st.sampled_from(draw(st.sampled_from([moves, names]))))
        if flipped and not mirrored and name == "resize":
            continue
        step, new_h, new_w = draw(steps(name, h, w))
        if name == "resize":
            options = step.arguments["filter"], step.arguments["antialias"]
            if options == kind and (new_h, new_w) != (h, w):
                continue
            kind = options if (new_h, new_w) != (h, w) else kind
        elif name not in moves or name == "warp":
            kind = None
        flipped |= name == "flip"
        h, w = new_h, new_w
        chain.append(step)
    return Chain(chain, exact=not mirrored and not turns)
