"""Checks of transform arguments.

Each returns the argument's normal form, or raises a `TransformError`. `fill` and `dtype` may be dicts by type, as in
torchvision, such as {Image: 127, Mask: 0, "others": None}. Their keys are torch.Tensor, PIL.Image.Image, the classes of
`torchvision.tv_tensors`, and "others".
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Literal, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from cuaug.errors import TransformError
from cuaug.plan import MAX_CHANNELS, MAX_SIDE, Border, Filter
from cuaug.plan.layout import ANTIALIASED_FILTERS

#: Each type, as (package, class name), and its kind of target.
_KINDS = {
    ("torch", "Tensor"): "image",
    ("PIL", "Image"): "image",
    ("torchvision", "Image"): "image",
    ("torchvision", "Video"): "image",
    ("torchvision", "Mask"): "mask",
    ("torchvision", "BoundingBoxes"): "boxes",
    ("torchvision", "KeyPoints"): "keypoints",
}


def by_kind(name: str, values: Mapping[Any, Any]) -> dict[str, Any]:
    """Converts {type: value} to {"image": ..., "mask": ..., "boxes": ..., "keypoints": ...}.

    "image" is always present: images without a key take the value of "others", or None. "mask" is present if the dict
    names masks, or names both images and "others". "boxes" and "keypoints" are present only if the dict names them.

    Args:
        name: the argument, for errors.
        values: the user's dict.

    Raises:
        TransformError: a key is no such type, or two types of one kind have different values.
    """
    kinds: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(key, str) and key == "others":
            continue
        kind = _KINDS.get((key.__module__.partition(".")[0], key.__name__)) if isinstance(key, type) else None
        if kind is None:
            raise TransformError(
                f'{name} must have types as keys, torch.Tensor or those of torchvision.tv_tensors, or "others", not '
                f"{key!r}"
            )
        if kind in kinds and kinds[kind] != value:
            raise TransformError(f"{name} must have one value for all types of {kind}, not {kinds[kind]!r}, {value!r}")
        kinds[kind] = value
    if "image" in kinds and "others" in values:
        kinds.setdefault("mask", values["others"])
    kinds.setdefault("image", values.get("others"))
    return kinds


class NamedEnum(Enum):
    """An enum whose `repr` is valid code."""

    def __repr__(self) -> str:
        return str(self)


class InterpolationMode(NamedEnum):
    """Interpolation modes of geometric transforms, with torchvision's names and values."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


#: Argument type of `interpolation`: torchvision's `InterpolationMode` is another Enum, Pillow uses numbers.
Interpolation = (
    InterpolationMode
    | Literal["nearest", "nearest-exact", "bilinear", "bicubic", "box", "hamming", "lanczos"]
    | int
    | Enum
)

#: Argument type of `fill`: a number, one per channel, or a dict of these by type.
Fill = float | Sequence[float] | Mapping[Any, Any] | None

_FILTERS = {mode.value: Filter[mode.name] for mode in InterpolationMode}
_PIL_FILTERS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}
#: The filters of warps, which do not antialias. Their nearest is the pixel that holds the point.
_WARP_FILTERS = {
    "nearest": Filter.NEAREST,
    "nearest-exact": Filter.NEAREST,
    "bilinear": Filter.BILINEAR,
    "bicubic": Filter.BICUBIC,
}
_BORDERS = {
    "constant": Border.CONSTANT,
    "edge": Border.EDGE,
    "reflect": Border.REFLECT,
    "symmetric": Border.SYMMETRIC,
    "wrap": Border.WRAP,
}


def resize_filter(interpolation: Interpolation, antialias: bool | None = True) -> tuple[Filter, bool]:
    """The filter and the antialias flag of a resize; None, which older torchvision code passes, is True."""
    antialias = True if antialias is None else flag("antialias", antialias)
    filter = _FILTERS[_interpolation_name(interpolation, _FILTERS)]
    if not antialias and filter in ANTIALIASED_FILTERS:
        raise TransformError(f"antialias must be True with interpolation {filter.name.lower()!r}")
    return filter, antialias


def warp_filter(interpolation: Interpolation) -> Filter:
    """The filter of a warp, which knows no antialiasing."""
    return _WARP_FILTERS[_interpolation_name(interpolation, _WARP_FILTERS)]


def _interpolation_name(value: Interpolation, allowed: Iterable[str]) -> str:
    """The name of a name, an `InterpolationMode` (torchvision's too) or a Pillow number."""
    name = getattr(value, "value", value)
    name = _PIL_FILTERS.get(name) if isinstance(name, int) and not isinstance(name, bool) else name
    return one_of("interpolation", name if isinstance(name, str) else value, allowed)


def border(padding_mode: str) -> Border:
    return _BORDERS[one_of("padding_mode", padding_mode, _BORDERS)]


def one_of(name: str, value: Any, allowed: Iterable[str]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise TransformError(f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r}")
    return value


def flag(name: str, value: bool) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise TransformError(f"{name} must be True or False, not {value!r}")
    return bool(value)


def not_inplace(inplace: bool) -> None:
    """Refuses torchvision's `inplace=True`: a caller would read the input, which no function writes to."""
    if flag("inplace", inplace):
        raise TransformError("inplace must be False: functions never write to their input; use the returned image")


def to_int(value: Any) -> int:
    """A Python int from any integer type but bool."""
    if isinstance(value, bool):
        raise TypeError(f"{value} is a bool, not an integer")
    return operator.index(value)


def numbers(value: Any, convert: Callable[[Any], Any]) -> tuple[Any, ...]:
    """One number or several as a tuple, each converted; empty if a conversion fails."""
    if isinstance(value, (str, bytes)):
        return ()
    several = isinstance(value, Iterable) and getattr(value, "ndim", 1) > 0
    try:
        return tuple(convert(item) for item in (value if several else (value,)))
    except (TypeError, ValueError, OverflowError):
        return ()


def names(name: str, value: str | Iterable[str]) -> tuple[str, ...]:
    """Names of values in targets; one name may stand alone."""
    checked = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Iterable) else (value,)
    if not all(isinstance(item, str) and item for item in checked):
        raise TransformError(f"{name} must be names, such as ('depth',), not {value!r:.200}")
    return checked


def array(name: str, value: Any, *shapes: tuple[int, ...], shape_text: str = "") -> NDArray[np.float64]:
    """An array of finite numbers, of one of the shapes; of any shape if none is given, or one the caller checks."""
    shape_text = shape_text or " or ".join(map(str, shapes))
    expected = f"{name} must be finite numbers" + (f" of shape {shape_text}" if shape_text else "")
    try:
        result = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # RuntimeError: a tensor that requires a gradient
        raise TransformError(f"{expected}, not {value!r:.100}") from None
    if shapes and result.shape not in shapes:
        raise TransformError(f"{expected}, not {result.shape if result.ndim else repr(value)}")
    if not np.isfinite(result).all():
        place = tuple(np.argwhere(~np.isfinite(result))[0].tolist())
        raise TransformError(f"{expected}, not {result[place]}{f' at {place}' if place else ''}")
    return result


def look_up_table(value: Any) -> NDArray[np.float32]:
    """A table of 256 levels for all channels, (256,), or one per channel, (C, 256)."""
    text = "(256,) or (C, 256)"
    table = array("table", value, shape_text=text).astype(np.float32)
    if table.shape != (256,) and not (table.ndim == 2 and table.shape[1] == 256 and 1 <= len(table) <= MAX_CHANNELS):
        raise TransformError(f"table must be finite numbers of shape {text}, not {table.shape}")
    return table


class Bucket(Sequence[int]):
    """The class of `BUCKET`."""

    def __getitem__(self, number: Any) -> Any:
        raise TransformError(NO_BUCKET)

    def __iter__(self) -> NoReturn:
        raise TransformError(NO_BUCKET)

    def __len__(self) -> int:
        return 2

    def __repr__(self) -> str:
        return "cuaug.BUCKET"

    def __reduce__(self) -> str:
        return "BUCKET"


NO_BUCKET = (
    "cuaug.BUCKET is the size of a batch, which only a Loader with batch_sampler=cuaug.BucketSampler(...), or another "
    "sampler of cuaug.SizedBatch, knows; and only arguments such as the size of Resize and of crops take it"
)

#: (height, width) of the batch's bucket: for a transform's `size`, in a Loader with a `BucketSampler`.
BUCKET = Bucket()


def size(name: str, value: int | Sequence[int]) -> tuple[int, int]:
    """(height, width) in pixels from one number or two; `BUCKET` as it is."""
    if isinstance(value, Bucket):
        return cast(tuple[int, int], value)
    sides = numbers(value, to_int)
    if len(sides) not in (1, 2) or not 1 <= min(sides) <= max(sides) <= MAX_SIDE:
        raise TransformError(
            f"{name} must be an integer{_range_text(1, MAX_SIDE)} or (height, width) of two, not {value!r}"
        )
    return sides[0], sides[-1]


def pillow(value: int | None) -> Literal[12, 13] | None:
    """The version of Pillow whose pixels resizes give; True is the newest."""
    if value is None or value is True:
        return 13 if value else None
    if isinstance(value, int) and value in (12, 13):
        return 12 if value == 12 else 13
    raise TransformError(f"pillow must be 12, 13, True (13) or None, not {value!r}")


def padding(value: int | Sequence[int]) -> tuple[int, int, int, int]:
    """(left, top, right, bottom) from one number, (left/right, top/bottom), or all four; negative ones cut off."""
    sides = numbers(value, to_int)
    if len(sides) not in (1, 2, 4) or not -MAX_SIDE <= min(sides) <= max(sides) <= MAX_SIDE:
        raise TransformError(
            "padding must be one integer, (left/right, top/bottom) or (left, top, right, bottom),"
            f"{_range_text(-MAX_SIDE, MAX_SIDE)} each, not {value!r}"
        )
    left, top, right, bottom = (sides * 4)[:4]
    return left, top, right, bottom


def channel_values(name: str, value: float | Sequence[float]) -> tuple[float, ...]:
    """One number for all channels, or one per channel."""
    values = numbers(value, float)
    if not 1 <= len(values) <= MAX_CHANNELS or not all(map(math.isfinite, values)):
        raise TransformError(f"{name} must be a number or a sequence of one per channel, not {value!r}")
    return values


def fill(name: str, value: Fill) -> float | tuple[float, ...]:
    """A number, or one per channel, in the image's units; None is 0. Of a dict by type, the image's value."""
    value = by_kind(name, value)["image"] if isinstance(value, Mapping) else value
    values = (0.0,) if value is None else channel_values(name, value)
    return values if len(values) > 1 else values[0]


def mask_fill(value: Any) -> float | None:
    """The value of class masks that a `fill` by type asks for; None: it asks for none."""
    kinds = by_kind("fill", value) if isinstance(value, Mapping) else {}
    return number("fill of masks", 0.0 if kinds["mask"] is None else kinds["mask"]) if "mask" in kinds else None


def probability(name: str, value: float) -> float:
    values = numbers(value, float)
    if len(values) != 1 or not 0.0 <= values[0] <= 1.0:
        raise TransformError(f"{name} must be a probability in [0, 1], not {value!r}")
    return values[0]


def bounds(
    name: str, value: float | Sequence[float], *, low: float = 0.0, high: float = float("inf")
) -> tuple[float, float]:
    """(lower, upper), finite, with low <= lower <= upper <= high."""
    values = numbers(value, float)
    if len(values) != 2 or not _is_sorted_within(values, low, high):
        raise TransformError(f"{name} must be (lower, upper){_range_text(low, high)}, in that order, not {value!r}")
    return values[0], values[1]


def symmetric_bounds(name: str, value: float | Sequence[float]) -> tuple[float, float]:
    """(lower, upper), or (-v, v) from one number v of 0 or more."""
    values = numbers(value, float)
    if len(values) == 1 and 0.0 <= values[0] < float("inf"):
        return -values[0], values[0]
    if len(values) != 2 or not -float("inf") < values[0] <= values[1] < float("inf"):
        raise TransformError(f"{name} must be a number of 0 or more, or (lower, upper) in that order, not {value!r}")
    return values[0], values[1]


def number_or_bounds(
    name: str, value: float | Sequence[float], *, low: float = 0.0, high: float = float("inf")
) -> tuple[float, float]:
    """(lower, upper) as `bounds`; one number is both."""
    values = numbers(value, float)
    if len(values) not in (1, 2) or not _is_sorted_within(values, low, high):
        raise TransformError(
            f"{name} must be a number or (lower, upper){_range_text(low, high)}, in that order, not {value!r}"
        )
    return values[0], values[-1]


def number(name: str, value: float, low: float = -float("inf"), high: float = float("inf")) -> float:
    """A finite number within [low, high]."""
    values = numbers(value, float)
    if len(values) != 1 or not _is_sorted_within(values, low, high):
        raise TransformError(f"{name} must be a number{_range_text(low, high)}, not {value!r}")
    return values[0]


def _is_sorted_within(values: tuple[Any, ...], low: float, high: float) -> bool:
    return low <= values[0] <= values[-1] <= high and all(map(math.isfinite, values))


def _range_text(low: float, high: float) -> str:
    """The range as an error message shows it."""
    if math.isinf(high):
        return "" if math.isinf(low) else f" of at least {low:.10g}"
    return f" up to {high:.10g}" if math.isinf(low) else f" from {low:.10g} to {high:.10g}"


def positive(name: str, value: float) -> float:
    values = numbers(value, float)
    if len(values) != 1 or not 0.0 < values[0] < float("inf"):
        raise TransformError(f"{name} must be a number above 0, not {value!r}")
    return values[0]


def xy(name: str, value: Sequence[float]) -> tuple[float, float]:
    """A point or vector, (x, y)."""
    values = numbers(value, float)
    if len(values) != 2 or not all(map(math.isfinite, values)):
        raise TransformError(f"{name} must be two numbers, (x, y), not {value!r}")
    return values[0], values[1]


def integer(name: str, value: Any, low: float = -float("inf"), high: float = float("inf")) -> int:
    """An integer within [low, high]."""
    values = numbers(value, to_int)
    if len(values) != 1 or not low <= values[0] <= high:
        raise TransformError(f"{name} must be an integer{_range_text(low, high)}, not {value!r}")
    return int(values[0])
