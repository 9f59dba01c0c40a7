"""Reads a pixel function: its source, its parameters, and the outer values that it names."""

from __future__ import annotations

import ast
import builtins
import contextlib
import inspect
import math
import numbers
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, NoReturn

import numpy as np

from cuaug.errors import TransformError

#: Parameters with these names are the pixel's position and the image's size.
POSITION_NAMES = ("x", "y", "row", "column", "height", "width")
_MAX_CHARACTERS = 1 << 18


def clamp(value: Any, low: Any, high: Any) -> Any:
    """In a function of `cuaug.op`: min(max(value, low), high), for a number or each channel; as `torch.clamp`."""
    raise TransformError("clamp is for functions of cuaug.op: it has no meaning outside")


def noise() -> Any:
    """In a function of `cuaug.op`: three standard normal draws, one per channel, for each pixel and call."""
    raise TransformError("noise is for functions of cuaug.op: it has no meaning outside")


#: Functions of the subset by name, with how many arguments they take, and the objects that mean them.
ARGUMENTS: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("abs", "floor", "sqrt", "exp", "log", "sin", "cos", "sum"), (1, 1)),
    **dict.fromkeys(("min", "max"), (1, 64)),
    "clamp": (3, 3),
    "noise": (0, 0),
}
_MEANINGS: list[tuple[Any, str]] = [
    *((getattr(math, name), name) for name in ("floor", "sqrt", "exp", "log", "sin", "cos")),
    *((getattr(np, name), name) for name in ("abs", "floor", "sqrt", "exp", "log", "sin", "cos")),
    *((getattr(builtins, name), name) for name in ("abs", "min", "max", "sum")),
    (math.fabs, "abs"),
    (np.minimum, "min"),
    (np.maximum, "max"),
    (np.clip, "clamp"),
    (clamp, "clamp"),
    (noise, "noise"),
]


class Definition(NamedTuple):
    """A pixel function as it is written, and what it reads from outside. Plain data, so it can be pickled.

    Attributes:
        text: the source, without its indentation.
        place: the file, the first line and the indentation, for errors.
        parameters: names, without that of the pixel, in order.
        defaults: of parameters, by name.
        constants: numbers and triples by the name that reads them, such as "math.pi".
        functions: functions of the subset by the name that calls them.
        unusable: other outer names, and what is wrong with them.
        radius: 0 for a function of one pixel; else the largest distance of the pixels that it reads.
    """

    name: str
    text: str
    place: tuple[str, int, int]
    parameters: tuple[str, ...]
    defaults: Mapping[str, Any]
    constants: Mapping[str, tuple[float, ...]]
    functions: Mapping[str, str]
    unusable: Mapping[str, str]
    radius: int

    def refuse(self, node: ast.AST, problem: str) -> NoReturn:
        """Raises the error for a part of the function."""
        file, first, indent = self.place
        line, column = first + getattr(node, "lineno", 1) - 1, getattr(node, "col_offset", 0) + indent + 1
        raise TransformError(f"{self.name}: {problem} (line {line}, column {column} of {file})")

    def tree(self) -> ast.FunctionDef:
        (tree,) = ast.parse(self.text).body
        assert isinstance(tree, ast.FunctionDef)
        return tree


def read_definition(function: Callable[..., Any], radius: int = 0) -> Definition:
    """Reads a function's source and the outer values that it names.

    Raises:
        TransformError: it is no function with a source, or has parameters or names that the subset lacks.
    """
    if not isinstance(function, types.FunctionType) or function.__name__ == "<lambda>":
        raise TransformError(f"function must be one that `def` makes, not {function!r:.100}")
    with limited_depth(function.__name__):
        return _read_definition(function, function.__name__, radius)


@contextlib.contextmanager
def limited_depth(name: str) -> Iterator[None]:
    """Refuses expressions with more levels than Python's stack has."""
    try:
        yield
    except RecursionError:
        raise TransformError(f"{name}: an expression has too many levels: assign parts of it to names") from None


def _read_definition(function: types.FunctionType, name: str, radius: int) -> Definition:
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError) as error:
        raise TransformError(
            f"{name}: its source is not to be found ({error}): define it in a file or in a cell of a notebook"
        ) from None
    source = "".join(lines)
    if len(source) > _MAX_CHARACTERS:
        raise TransformError(
            f"{name}: its source has {len(source):,} characters, of at most {_MAX_CHARACTERS:,}: split it into two "
            "operations"
        )
    text = textwrap.dedent(source)
    indent = len(lines[0]) - len(lines[0].lstrip()) if text != source else 0
    place = (inspect.getsourcefile(function) or "?", max(first, 1), indent)
    definition = Definition(name, text, place, (), {}, {}, {}, {}, radius)
    try:
        (tree,) = ast.parse(text).body
    except (SyntaxError, ValueError):
        tree = ast.Pass()
    if not isinstance(tree, ast.FunctionDef) or tree.name != name:
        raise TransformError(f"{name}: define it by a `def` statement of its own")
    if len(tree.decorator_list) > 1:
        definition.refuse(tree.decorator_list[0], "it has another decorator beside cuaug.op, which would not act")
    pixel, *parameters = _parameter_names(definition, tree)
    defaults = {
        parameter.name: parameter.default
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is not parameter.empty
    }
    for name in defaults.keys() & {pixel, *POSITION_NAMES}:
        definition.refuse(tree, f"{name} is given by the image: leave out its default")
    definition = definition._replace(parameters=tuple(parameters), defaults=defaults)
    return _with_outer_names(definition, tree, {pixel, *parameters}, function)


def _parameter_names(definition: Definition, tree: ast.FunctionDef) -> list[str]:
    arguments = tree.args
    if other := arguments.vararg or arguments.kwarg:
        definition.refuse(other, f"*{other.arg} has no length that the kernels know: name each parameter")
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    if not names:
        definition.refuse(tree, "its first parameter is the pixel: write `def ...(pixel, ...)`")
    if names[0] in POSITION_NAMES:
        definition.refuse(tree, f"its first parameter is the pixel, so it is not called {names[0]}")
    return names


def _with_outer_names(
    definition: Definition, tree: ast.FunctionDef, inner: set[str], function: types.FunctionType
) -> Definition:
    """Resolves each name that the body reads and does not define."""
    outer: dict[str, Any] = {**vars(builtins), **function.__globals__}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            outer[name] = cell.cell_contents
        except ValueError:  # assigned after the function
            outer.pop(name, None)
    nodes = list(_walk(tree.body))
    inner |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    constants: dict[str, tuple[float, ...]] = {}
    functions: dict[str, str] = {}
    unusable: dict[str, str] = {}
    for dotted in filter(None, map(dotted_name, nodes)):
        if dotted[0] in inner:
            continue
        name, meaning = ".".join(dotted), _meaning(dotted, outer)
        if isinstance(meaning, tuple):
            constants[name] = meaning
        elif meaning in ARGUMENTS:
            functions[name] = meaning
        else:
            unusable[name] = meaning
    return definition._replace(constants=constants, functions=functions, unusable=unusable)


def _meaning(dotted: list[str], outer: Mapping[str, Any]) -> tuple[float, ...] | str:
    """A constant, the name of a function of the subset, or why an outer name means neither."""
    name = ".".join(dotted)
    if dotted[0] not in outer:
        return name if name in ARGUMENTS else f"{name} is not defined"
    value = outer[dotted[0]]
    for attribute in dotted[1:]:
        if not isinstance(value, types.ModuleType):
            return f"{name} is an attribute of an object: assign it to a name outside of the function"
        value = getattr(value, attribute, None)
    for known, meaning in _MEANINGS:
        if known is value:
            return meaning
    constant = _constant(value)
    return constant or (
        f"{name} is {type(value).__name__} {value!r:.60}, but outer names mean numbers, triples of numbers, or one of "
        f"the functions {', '.join(ARGUMENTS)}"
    )


def _walk(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """All nodes but those of annotations."""
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        yield node
        annotation = getattr(node, "annotation", None)
        waiting += [child for child in ast.iter_child_nodes(node) if child is not annotation]


def dotted_name(node: ast.AST) -> list[str] | None:
    """The parts of a name that is read, such as ["math", "pi"]."""
    if isinstance(node, ast.Name):
        return [node.id] if isinstance(node.ctx, ast.Load) else None
    if isinstance(node, ast.Attribute) and (before := dotted_name(node.value)) is not None:
        return [*before, node.attr]
    return None


def _constant(value: Any) -> tuple[float, ...] | None:
    """A finite number or a triple of them; else None."""
    items = tuple(value) if isinstance(value, (tuple, list)) or getattr(value, "shape", None) == (3,) else (value,)
    if len(items) not in (1, 3):
        return None
    for item in items:
        if isinstance(item, (bool, np.bool_)) or not isinstance(item, numbers.Real) or not is_float32(item):
            return None
    return tuple(float(item) for item in items)


def is_float32(value: Any) -> bool:
    """Whether a number is finite as float32."""
    try:
        return abs(float(value)) < 3.4028235e38
    except OverflowError:  # an int of more than 308 digits
        return False
