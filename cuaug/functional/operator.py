"""Registers the functions as one operator of `torch.library`, which `torch.compile` and `torch.export` can trace.

`torch.ops.cuaug.functional(image, name, arguments, tensors)` calls the function `name` and returns a list of images.
`arguments` holds the other arguments as JSON, and `tensors` those that are tensors. Outside a graph, a call runs the
function directly.
"""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar, cast

import numpy as np
import torch

from cuaug.errors import TransformError

__all__ = ["as_operator"]

Function = TypeVar("Function", bound=Callable[..., Any])
Shape = tuple[int, ...]

_FUNCTIONS: dict[str, Callable[..., Any]] = {}
_SCHEMA = "(Tensor image, str name, str arguments, Tensor[] tensors) -> Tensor[]"
#: Prefix of the JSON string that stands for a tensor; the number after it is the tensor's index in `tensors`.
_TENSOR = "\0tensor "
#: Image sizes (H, W) to run a function at, to learn its output size for an input whose size is symbolic.
_PROBES = ((37, 53), (45, 41))


def as_operator(function: Function) -> Function:
    """Makes a function of an image traceable: in a graph, a call with a tensor becomes one operator."""
    name = function.__name__
    _FUNCTIONS[name] = function

    @functools.wraps(function)
    def call(image: Any, *args: Any, **kwargs: Any) -> Any:
        if not (torch.compiler.is_compiling() and isinstance(image, torch.Tensor)):
            return function(image, *args, **kwargs)
        if image.requires_grad and torch.is_grad_enabled():
            raise TransformError("image: no gradient flows through transforms: pass image.detach()")
        tensors: list[torch.Tensor] = []
        values = _without_tensors(list(args), tensors), _without_tensors(list(kwargs.values()), tensors)
        encoded = _encode(name, values[0], tuple(kwargs), values[1])
        results = torch.ops.cuaug.functional(image, name, encoded, tensors)
        return tuple(results) if len(results) > 1 else results[0]

    return cast(Function, call)


def _without_tensors(values: list[Any], tensors: list[torch.Tensor]) -> list[Any]:
    """The values, with each tensor or array moved to `tensors`. The compiler traces this function."""
    plain = []
    for value in values:
        if isinstance(value, np.ndarray):
            value = torch.from_numpy(value)
        if isinstance(value, torch.Tensor):
            plain.append(f"{_TENSOR}{len(tensors)}")
            tensors.append(value)
        else:
            plain.append(value)
    return plain


def _encode(name: str, args: Sequence[Any], keywords: Sequence[str], values: Sequence[Any]) -> str:
    def encode(value: Any) -> Any:
        if isinstance(value, Enum):
            return value.value
        if isinstance(value, torch.dtype):
            return {"dtype": str(value).removeprefix("torch.")}
        if isinstance(value, (np.generic, torch.SymInt)):
            return value.item() if isinstance(value, np.generic) else int(value)
        if isinstance(value, range):
            return list(value)
        raise TransformError(
            f"{name}: in a compiled graph arguments are numbers, strings, lists of these or tensors, not {value!r:.100}"
        )

    return json.dumps([list(args), dict(zip(keywords, values, strict=True))], default=encode)


# The compiler calls it instead of tracing it. As `torch.compiler.assume_constant_result`, which imports the compiler.
_encode._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _decode(arguments: str, tensors: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    def decode(value: Any) -> Any:
        if isinstance(value, str) and value.startswith(_TENSOR):
            return tensors[int(value.removeprefix(_TENSOR))]
        return getattr(torch, value["dtype"]) if isinstance(value, Mapping) else value

    args, kwargs = json.loads(arguments)
    return list(map(decode, args)), {name: decode(value) for name, value in kwargs.items()}


def _run(image: torch.Tensor, name: str, arguments: str, tensors: Sequence[Any]) -> list[torch.Tensor]:
    args, kwargs = _decode(arguments, tensors)
    result = _FUNCTIONS[name](image, *args, **kwargs)
    return list(result) if isinstance(result, tuple) else [result]


def _fake(image: torch.Tensor, name: str, arguments: str, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Results without values, whose shapes, dtypes and strides are the real ones."""
    batch, sides = image.shape[:-3], image.shape[-2:]
    channels = int(image.shape[-3])
    stand_ins = [_stand_in(tuple(map(int, tensor.shape))) for tensor in tensors]

    def run(count: int, height: int, width: int) -> list[torch.Tensor]:
        zeros = torch.zeros((count, channels, height, width), dtype=image.dtype)
        return _run(zeros, name, arguments, stand_ins)

    def probe(height: int, width: int) -> list[torch.Tensor]:
        try:
            return _outside_of_graphs(lambda: run(1, height, width))
        except TransformError:
            if not batch or not tensors:
                raise
        count = int(batch[0])  # a tensor may have an entry per image
        return _outside_of_graphs(lambda: run(count, height, width))

    sizes: list[Sequence[Any]]
    if all(isinstance(side, int) for side in sides) or not (known := _known_sizes(probe, sides)):
        results = probe(int(sides[0]), int(sides[1]))
        sizes = [result.shape[-2:] for result in results]
    else:
        results, sizes = known
    last = bool(batch) and not image.is_contiguous() and image.is_contiguous(memory_format=torch.channels_last)
    format = torch.channels_last if last else torch.contiguous_format
    return [
        torch.empty((*batch, result.shape[-3], *size), dtype=result.dtype, device=image.device, memory_format=format)
        for result, size in zip(results, sizes, strict=True)
    ]


def _known_sizes(
    probe: Callable[[int, int], list[torch.Tensor]], sides: Sequence[Any]
) -> tuple[list[torch.Tensor], list[Sequence[Any]]] | None:
    """Results for an image of unknown size and their sizes: constant, or the image's; None: they depend on its size."""
    try:
        one, other = (probe(*size) for size in _PROBES)
    except TransformError:
        return None
    pairs = [(tuple(a.shape[-2:]), tuple(b.shape[-2:])) for a, b in zip(one, other, strict=True)]
    if all(pair == _PROBES for pair in pairs):
        return one, [sides] * len(one)
    return (one, [a for a, _ in pairs]) if all(a == b for a, b in pairs) else None


def _stand_in(shape: Shape) -> np.ndarray:
    """An array of this shape with different values in (0, 1), which any argument accepts."""
    size = int(np.prod(shape))
    return (np.sqrt(np.arange(1, size + 1)) / (size + 1)).reshape(shape)


def _outside_of_graphs(function: Callable[[], Any]) -> Any:
    """Calls a function in a thread of its own, where tensors are real, and keeps torch's generator as it is."""
    results: list[Any] = []

    def run() -> None:
        state = torch.get_rng_state()
        try:
            results.append((function(), None))
        except Exception as error:
            results.append((None, error))
        finally:
            torch.set_rng_state(state)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    ((result, error),) = results
    if error is not None:
        raise error
    return result


if not hasattr(torch.ops.cuaug, "functional"):  # it stays where this module is imported anew, as by autoreload
    _LIBRARY = torch.library.Library("cuaug", "FRAGMENT")  # the operator lives as long as this object
    # Equal calls of a random function differ, so the compiler must not merge them. mode="reduce-overhead" must not
    # capture them in a CUDA graph; older versions of torch lack that tag.
    _TAGS = [torch.Tag.nondeterministic_seeded, *filter(None, [getattr(torch.Tag, "cudagraph_unsafe", None)])]
    _LIBRARY.define(f"functional{_SCHEMA}", tags=_TAGS)
    _LIBRARY.impl("functional", _run, "CompositeExplicitAutograd")
    _register_fake: Any = getattr(torch.library, "register_fake", None) or torch.library.impl_abstract  # torch 2.3
    _register_fake("cuaug::functional", _fake, lib=_LIBRARY)
