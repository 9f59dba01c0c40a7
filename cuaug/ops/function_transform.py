"""`op`: makes a transform of a function of one pixel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, overload

import numpy as np
from numpy.typing import NDArray

from cuaug.errors import TransformError
from cuaug.ops.definition import POSITION_NAMES, Definition, read_definition
from cuaug.ops.distributions import Choice, Normal, Uniform, draw, numbers
from cuaug.ops.generation import make_function
from cuaug.ops.translation import translate
from cuaug.plan import Plan, operations
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import parameters
from cuaug.transforms.base import RandomTransform, Where

# Names that the methods of a transform need. A step's parameter of noise has a space, so it is no parameter's name.
_RESERVED = frozenset({"p", "plan", "self", "where"})
_KEYS = "noise keys"
_MAX_RADIUS = 8


class FunctionTransform(RandomTransform):
    """Base class of the transforms that `op` makes, one class for each function.

    Args:
        p: probability, per sample.
        values: the function's parameters by name, as `op` says.
    """

    needs_unit_range = True
    definition: ClassVar[Definition]

    def __init__(self, *, p: float = 1.0, **values: Any) -> None:
        self.p = parameters.probability("p", p)
        self.values = _checked_values(self.definition, values)
        # One draw tells how many numbers each parameter has, and shows mistakes before the first batch.
        drawn = self._draw(SampleRNG(0, 0, [0]))
        self._counts = {name: value[0].size for name, value in drawn.items()}
        translation = translate(self.definition, self._counts)
        self._parameters = translation.parameters
        self._draws_noise = translation.draws_noise
        self._function = make_function(self.definition.name, translation.expressions, translation.results)

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        drawn = self._draw(rng)
        for name, value in drawn.items():
            if value.size != len(rng) * self._counts[name]:
                raise TransformError(
                    f"{name} must draw {self._counts[name]} numbers for each sample, as at first, not an array of "
                    f"shape {value.shape}"
                )
        params: dict[str, Any] = {name: value for name, value in drawn.items() if _is_drawn(self.values[name])}
        return params | ({_KEYS: rng.keys()} if self._draws_noise else {})

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        self._check_channels(plan)
        keys = plan.keys_per_frame(params.pop(_KEYS)) if self._draws_noise else None
        plan.run_function(self._function, self._numbers(plan, self.values | params), keys, where)
        if plan.channels == 1 and self._draws_noise:  # the kernels see three channels, which now differ
            plan.append(operations.first_channel(len(plan)), where)

    def _draw(self, rng: SampleRNG) -> dict[str, NDArray[np.float64]]:
        """(N,) or (N, 3) numbers of each parameter."""
        rows: dict[str, NDArray[np.float64]] = {}
        for name, value in self.values.items():
            if _is_drawn(value):
                rows[name] = draw(name, value, rng)
            else:
                rows[name] = np.tile(np.asarray(value, dtype=np.float64), (len(rng), *[1] * np.ndim(value)))
        return rows

    def _numbers(self, plan: Plan, values: Mapping[str, Any]) -> NDArray[np.float64]:
        """(N, K) the numbers that the kernels take."""
        heights, widths = plan.sizes
        sizes = {"x": widths, "column": widths, "width": widths}
        numbers = np.empty((len(plan), len(self._parameters)))
        for place, name in enumerate(self._parameters):
            number = self._parameters[:place].count(name)  # of this parameter
            if name in POSITION_NAMES:
                size = sizes.get(name, heights)
                column: Any = size if name in ("height", "width") else 1.0 - size if number == 0 else 1.0 / size
            else:
                column = np.asarray(values[name])[..., number] if self._counts[name] == 3 else values[name]
            numbers[:, place] = column
        return numbers

    def _check_channels(self, plan: Plan) -> None:
        is_apart = self._function.keeps_gray and not self._function.mixes_channels
        if plan.channels == 3 or (plan.channels == 1 and self._function.keeps_gray) or is_apart:
            return
        name = self.definition.name
        raise TransformError(
            f"image: it has {plan.channels} channel{'s' * (plan.channels > 1)}, but {name} mixes channels or treats "
            "them differently, so it needs RGB images: put RGB() before it"
        )

    def __reduce__(self) -> Any:
        # By the source: not every process can import the class, such as that of a notebook.
        return _rebuild, (self.definition, type(self).__module__, self.p, self.values)

    def __repr__(self) -> str:
        shown = [f"{name}={_shown(value)}" for name, value in self.values.items()]
        return f"{type(self).__name__}({', '.join(shown + [f'p={self.p}'] * (self.p != 1.0))})"


@overload
def op(function: Callable[..., Any]) -> Callable[..., RandomTransform]: ...
@overload
def op(*, radius: int = 0) -> Callable[[Callable[..., Any]], Callable[..., RandomTransform]]: ...
def op(
    function: Callable[..., Any] | None = None, *, radius: int = 0
) -> Callable[..., RandomTransform] | Callable[[Callable[..., Any]], Callable[..., RandomTransform]]:
    """Make a transform of a function of one pixel, which runs inside the kernel of its chain.

        @cuaug.op
        def vignette(pixel, x, y, strength):
            return pixel * (1 - strength * (x * x + y * y))

        chain = [T.RandomResizedCrop(224), vignette(strength=cuaug.uniform(0.0, 0.8), p=0.5), ...]

    The function is read, not called. It is translated from a subset of Python, which docs/your_own.md describes. It
    computes in float32, step by step, with the same bits on every device.

    Args:
        function: its first parameter is the pixel: three floats, black is 0 and white is 1. It returns the new pixel,
            or one number for all channels, which saturates to [0, 1]. After `Normalize`, values are as they are there
            and do not saturate. The parameters `x` and `y` are the pixel's place, from -1 to 1; `row`, `column`,
            `height` and `width` are in pixels. All others are the user's own, up to 12 numbers in all.
        radius: 0, or up to 8: the first parameter then is the image around the pixel. `image[dy, dx]` is the pixel dy
            rows below and dx columns to the right, each from -radius to radius. Beyond its edges the image is mirrored.
            The function reads the finished image so far, so it begins a new pass.

    Returns:
        a class of transforms. It takes the function's own parameters by name: numbers, triples of numbers (one per
        channel), `uniform`, `normal` and `choice`, or a function of (rng, n) that draws (n,) or (n, 3) numbers, where
        `rng` is as in `make_params`; and `p`, the probability per sample, 1 by default. Targets stay unmoved.

    Raises:
        TransformError: the function leaves the subset; the message names the line, the column and a remedy.
    """
    radius = parameters.integer("radius", radius, 0, _MAX_RADIUS)
    if function is None:
        return lambda function: _make_class(read_definition(function, radius), function.__module__, function.__doc__)
    return _make_class(read_definition(function, radius), function.__module__, function.__doc__)


def _make_class(definition: Definition, module: str, doc: str | None = None) -> type[FunctionTransform]:
    names = {"definition": definition, "__module__": module, "__doc__": doc or FunctionTransform.__doc__}
    for name in definition.parameters:
        if name in _RESERVED:
            definition.refuse(definition.tree(), f"{name} is a name of the transform's own: rename the parameter")
    return type(definition.name, (FunctionTransform,), names)


def _rebuild(definition: Definition, module: str, p: float, values: Mapping[str, Any]) -> FunctionTransform:
    return _make_class(definition, module)(p=p, **values)


def _checked_values(definition: Definition, values: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters' values in the function's order."""
    own = [name for name in definition.parameters if name not in POSITION_NAMES]
    for name in values:
        if name not in own:
            given = f"{name} is given by the image" if name in POSITION_NAMES else f"{name} is no parameter"
            raise TransformError(f"{given}: {definition.name} takes {', '.join([*own, 'p'])}")
    checked = {}
    for name in own:
        if name not in values and name not in definition.defaults:
            raise TransformError(f"{name} must be given: {definition.name} has no default for it")
        value = values.get(name, definition.defaults.get(name))
        if not _is_drawn(value):
            items = numbers(name, value)
            value = items if len(items) == 3 else items[0]
        checked[name] = value
    return checked


def _is_drawn(value: Any) -> bool:
    return isinstance(value, (Choice, Normal, Uniform)) or (callable(value) and not isinstance(value, type))


def _shown(value: Any) -> str:
    return getattr(value, "__qualname__", None) or repr(value)
