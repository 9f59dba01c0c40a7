"""Reads pixel functions: a subset of Python, from its syntax tree to `Expressions`.

A value of the subset is a number, a truth (the result of a comparison), or three of these, one per channel. Python's
own operators and functions get numbers; a number beside three counts for each channel.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import math
import numbers
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, NoReturn

import numpy as np

from cuaug.errors import TransformError
from cuaug.ops.expressions import Expressions, distance_key
from cuaug.plan.pixel_function import MAX_PARAMETERS

__all__ = ["POSITION_NAMES", "Definition", "Translation", "clamp", "noise", "read_definition", "translate"]

#: Parameters with these names are the pixel's position and the image's size.
POSITION_NAMES = ("x", "y", "row", "column", "height", "width")

_MAX_EXPONENT = 16


def clamp(value: Any, low: Any, high: Any) -> Any:
    """In a function of `cuaug.op`: max(low, min(value, high)), for a number or each channel."""
    raise TransformError("clamp is for functions of cuaug.op: it has no meaning outside")


def noise() -> Any:
    """In a function of `cuaug.op`: three standard normal draws, one per channel, for each pixel and call."""
    raise TransformError("noise is for functions of cuaug.op: it has no meaning outside")


#: Functions of the subset by name, with how many arguments they take, and the objects that mean them.
_ARGUMENTS: dict[str, tuple[int, int]] = {
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
_UNARY = {"abs": "ABSOLUTE", "floor": "FLOOR", "sqrt": "SQRT", "exp": "EXP", "log": "LOG", "sin": "SIN", "cos": "COS"}
_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "ADD",
    ast.Sub: "SUBTRACT",
    ast.Mult: "MULTIPLY",
    ast.Div: "DIVIDE",
}
#: For each comparison the instruction, whether its operands are exchanged, and whether its result is inverted.
_COMPARISONS: dict[type[ast.cmpop], tuple[str, bool, bool]] = {
    ast.Lt: ("LESS", False, False),
    ast.LtE: ("AT_MOST", False, False),
    ast.Gt: ("LESS", True, False),
    ast.GtE: ("AT_MOST", True, False),
    ast.Eq: ("EQUAL", False, False),
    ast.NotEq: ("EQUAL", False, True),
}
_REMEDIES: dict[type[ast.AST], str] = {
    ast.If: "write `value = a if condition else b`",
    ast.For: "write each step out",
    ast.While: "write each step out",
    ast.ListComp: "write each channel out, as (r, g, b)",
    ast.GeneratorExp: "write each channel out, as (r, g, b)",
    ast.Lambda: "write its expression in place",
    ast.FunctionDef: "write its expression in place",
    ast.Import: "import outside of the function",
    ast.ImportFrom: "import outside of the function",
    ast.Assert: "leave it out",
    ast.NamedExpr: "assign in a statement of its own",
    ast.Expr: "assign its value to a name, or leave it out",
    ast.JoinedStr: "use numbers alone",
    ast.List: "write three channels as a tuple, (r, g, b)",
    ast.Starred: "write each channel out, as (r, g, b)",
}


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


class Translation(NamedTuple):
    """What a pixel function computes.

    Attributes:
        results: the nodes of the three channels.
        parameters: names in the order of the numbers that the kernels take: of the user, of three channels each where
            they have three, then of `POSITION_NAMES`.
    """

    expressions: Expressions
    results: tuple[int, ...]
    parameters: tuple[str, ...]

    @property
    def draws_noise(self) -> bool:
        nodes = self.expressions.nodes
        return any(nodes[number].name == "NORMALS" for number in self.expressions.reached(self.results))


# --- reading ----------------------------------------------------------------------------------------------------------


def read_definition(function: Callable[..., Any], radius: int = 0) -> Definition:
    """Reads a function's source and the outer values that it names.

    Raises:
        TransformError: it is no function with a source, or has parameters or names that the subset lacks.
    """
    if not isinstance(function, types.FunctionType) or function.__name__ == "<lambda>":
        raise TransformError(f"function must be one that `def` makes, not {function!r:.100}")
    name = function.__name__
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError) as error:
        raise TransformError(
            f"{name}: its source is not to be found ({error}): define it in a file or in a cell of a notebook"
        ) from None
    source = "".join(lines)
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
    for dotted in filter(None, map(_dotted, nodes)):
        if dotted[0] in inner:
            continue
        name, meaning = ".".join(dotted), _meaning(dotted, outer)
        if isinstance(meaning, tuple):
            constants[name] = meaning
        elif meaning in _ARGUMENTS:
            functions[name] = meaning
        else:
            unusable[name] = meaning
    return definition._replace(constants=constants, functions=functions, unusable=unusable)


def _meaning(dotted: list[str], outer: Mapping[str, Any]) -> tuple[float, ...] | str:
    """A constant, the name of a function of the subset, or why an outer name means neither."""
    name = ".".join(dotted)
    if dotted[0] not in outer:
        return name if name in _ARGUMENTS else f"{name} is not defined"
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
        f"the functions {', '.join(_ARGUMENTS)}"
    )


def _walk(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """All nodes but those of annotations."""
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        yield node
        annotation = getattr(node, "annotation", None)
        waiting += [child for child in ast.iter_child_nodes(node) if child is not annotation]


def _dotted(node: ast.AST) -> list[str] | None:
    """The parts of a name that is read, such as ["math", "pi"]."""
    if isinstance(node, ast.Name):
        return [node.id] if isinstance(node.ctx, ast.Load) else None
    if isinstance(node, ast.Attribute) and (before := _dotted(node.value)) is not None:
        return [*before, node.attr]
    return None


def _constant(value: Any) -> tuple[float, ...] | None:
    """A finite number or a triple of them; else None."""
    items = tuple(value) if isinstance(value, (tuple, list)) or getattr(value, "shape", None) == (3,) else (value,)
    if len(items) not in (1, 3):
        return None
    for item in items:
        if isinstance(item, (bool, np.bool_)) or not isinstance(item, numbers.Real) or not _is_float32(float(item)):
            return None
    return tuple(float(item) for item in items)


def _is_float32(value: float) -> bool:
    return math.isfinite(value) and abs(value) < 3.4028235e38


# --- translating ------------------------------------------------------------------------------------------------------


class _Value(NamedTuple):
    """A number or a truth, or three, by their nodes."""

    is_truth: bool
    nodes: tuple[int, ...]


def translate(definition: Definition, counts: Mapping[str, int]) -> Translation:
    """Translates a function.

    Args:
        counts: for each parameter but those of `POSITION_NAMES` how many numbers it has, 1 or 3.

    Raises:
        TransformError: the function leaves the subset, or takes too many numbers.
    """
    return _Translator(definition, counts).run()


class _Translator:
    """Translates the statements of a function in order; names stand for nodes."""

    def __init__(self, definition: Definition, counts: Mapping[str, int]) -> None:
        self._definition = definition
        self._counts = counts
        self._graph = Expressions()
        self._parameters: list[str] = []
        self._names: dict[str, _Value] = {}
        self._calls = 0  # of noise
        self._image = ""  # the name whose subscripts are pixels, in a function with a radius

    def run(self) -> Translation:
        tree = self._definition.tree()
        arguments = (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs)
        if self._definition.radius:
            self._image = arguments[0].arg
        else:
            self._names[arguments[0].arg] = self._pixel(0, 0)
        for name in self._definition.parameters:
            if name not in POSITION_NAMES:
                self._names[name] = _Value(False, tuple(self._parameter(name) for _ in range(self._counts[name])))
        for name in self._definition.parameters:
            if name in POSITION_NAMES:
                self._names[name] = _Value(False, (self._position(name),))
        if len(self._parameters) > MAX_PARAMETERS:
            self._definition.refuse(
                tree,
                f"it takes {len(self._parameters)} numbers per sample, of at most {MAX_PARAMETERS}: x and y take two "
                "each, height and width one; split it into two operations",
            )
        result = self._statements(tree)
        if result.is_truth:
            self._definition.refuse(tree.body[-1], "it returns a comparison: write `1.0 if condition else 0.0`")
        return Translation(self._graph, _broadcast(result), tuple(self._parameters))

    def _parameter(self, name: str) -> int:
        self._parameters.append(name)
        return self._graph.add("PARAMETER", value=len(self._parameters) - 1)

    def _position(self, name: str) -> int:
        add = self._graph.add
        if name in ("height", "width"):
            return self._parameter(name)
        index = add("ROW" if name in ("y", "row") else "COLUMN")
        if name in ("row", "column"):
            return index
        # (2 i + 1 - n) / n: the centers of the first and last pixel are half a pixel within -1 and 1.
        return add("MULTIPLY", add("ADD", add("ADD", index, index), self._parameter(name)), self._parameter(name))

    def _pixel(self, dy: int, dx: int) -> _Value:
        """The pixel `dy` rows below and `dx` columns to the right."""
        if dy == dx == 0:
            return _Value(False, tuple(self._graph.add("INPUT", value=c) for c in range(3)))
        key = distance_key(dy, dx)
        return _Value(False, tuple(self._graph.add("TAP", value=(key, c)) for c in range(3)))

    # --- statements ---------------------------------------------------------------------------------------------------

    def _statements(self, tree: ast.FunctionDef) -> _Value:
        *body, last = tree.body
        for statement in body:
            self._statement(statement)
        if not isinstance(last, ast.Return) or last.value is None:
            self._definition.refuse(last, "its last statement must return the new pixel")
        return self._value(last.value)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Expr(value=ast.Constant(value=str())) | ast.Pass() | ast.AnnAssign(value=None):
                pass
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._assign(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(target, value)
            case ast.AugAssign(target=ast.Name() as target, op=operator, value=value):
                read = ast.copy_location(ast.Name(target.id, ast.Load()), target)
                self._assign(target, ast.copy_location(ast.BinOp(read, operator, value), node))
            case ast.Return():
                self._definition.refuse(node, "it returns before its last statement: write `a if condition else b`")
            case _:
                self._refuse_kind(node)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple):
            if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts):
                values = [self._value(item) for item in value.elts]
            else:
                whole = self._value(value)
                if len(whole.nodes) != len(target.elts):
                    self._definition.refuse(
                        target, f"{len(target.elts)} names cannot take the value, which has {_count(whole)}"
                    )
                values = [_Value(whole.is_truth, (node,)) for node in whole.nodes]
        else:
            target, values = ast.Tuple([target], ast.Store()), [self._value(value)]
        for name, item in zip(target.elts, values, strict=True):
            if not isinstance(name, ast.Name):
                self._definition.refuse(name, "only names can be assigned: pixels are values, return a new one")
            self._names[name.id] = item

    # --- expressions --------------------------------------------------------------------------------------------------

    def _value(self, node: ast.expr) -> _Value:
        match node:
            case ast.Constant(value=value):
                return self._constant(node, value)
            case ast.Name(id=name) if name in self._names:
                return self._names[name]
            case ast.Name() | ast.Attribute():
                return self._outer(node)
            case ast.Tuple(elts=items):
                return self._tuple(node, items)
            case ast.BinOp(left=left, op=operator, right=right):
                return self._operator(node, operator, left, right)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._each(node, "NEGATE", self._value(operand))
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self._number(node, self._value(operand))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self._each(node, "NOT", self._value(operand), truths=True)
            case ast.BoolOp(op=operator, values=values):
                name = "AND" if isinstance(operator, ast.And) else "OR"
                return self._fold(node, name, [self._value(value) for value in values], truths=True)
            case ast.Compare(left=left, ops=operators, comparators=others):
                return self._compare(node, left, operators, others)
            case ast.IfExp(test=test, body=body, orelse=other):
                return self._select(node, self._value(test), self._value(body), self._value(other))
            case ast.Call():
                return self._call(node)
            case ast.Subscript(value=ast.Name(id=name), slice=index) if self._is_image(name):
                return self._neighbor(node, index)
            case ast.Subscript(value=value, slice=index):
                return self._channel(node, self._value(value), index)
        self._refuse_kind(node)

    def _constant(self, node: ast.AST, value: Any) -> _Value:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self._definition.refuse(node, f"{value!r:.60} is no number: functions compute with numbers alone")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not _is_float32(number):
            self._definition.refuse(node, "the number is too large for float32")
        return _Value(False, (self._graph.constant(number),))

    def _outer(self, node: ast.expr) -> _Value:
        dotted = _dotted(node)
        if dotted is None:
            self._definition.refuse(node, "attributes have no meaning here: channels are pixel[0], pixel[1], pixel[2]")
        name = ".".join(dotted)
        if self._is_image(dotted[0]):
            self._definition.refuse(node, f"{name} is an image: its pixels are {name}[dy, dx], this one {name}[0, 0]")
        if dotted[0] in self._names:
            self._definition.refuse(node, f"{name}: numbers have no attributes; channels are pixel[0], ...")
        if name in self._definition.constants:
            return _Value(False, tuple(map(self._graph.constant, self._definition.constants[name])))
        if name in self._definition.functions:
            self._definition.refuse(node, f"{name} is a function: call it")
        self._definition.refuse(node, self._definition.unusable.get(name, f"{name} is read before it is assigned"))

    def _tuple(self, node: ast.AST, items: list[ast.expr]) -> _Value:
        if len(items) != 3:
            self._definition.refuse(node, f"a tuple has three channels, not {len(items)} values")
        values = [self._value(item) for item in items]
        for item, value in zip(items, values, strict=True):
            if value.is_truth or len(value.nodes) > 1:
                self._definition.refuse(item, f"a channel of a tuple is one number, not {_count(value)}")
        return _Value(False, tuple(value.nodes[0] for value in values))

    def _operator(self, node: ast.AST, operator: ast.operator, left: ast.expr, right: ast.expr) -> _Value:
        if isinstance(operator, ast.Pow):
            return self._power(node, self._value(left), right)
        first, second = self._value(left), self._value(right)
        if type(operator) in _OPERATORS:
            return self._each(node, _OPERATORS[type(operator)], first, second)
        if isinstance(operator, (ast.FloorDiv, ast.Mod)):
            floors = self._each(node, "FLOOR", self._each(node, "DIVIDE", first, second))
            if isinstance(operator, ast.FloorDiv):
                return floors
            return self._each(node, "SUBTRACT", first, self._each(node, "MULTIPLY", floors, second))
        self._definition.refuse(
            node, f"the operator {type(operator).__name__} is not for numbers: use + - * / // % ** and comparisons"
        )

    def _power(self, node: ast.AST, base: _Value, exponent: ast.expr) -> _Value:
        times = exponent.value if isinstance(exponent, ast.Constant) else None
        if isinstance(times, bool) or not isinstance(times, (int, float)) or times not in range(1, _MAX_EXPONENT + 1):
            if times == 0.5:
                return self._each(node, "SQRT", base)
            self._definition.refuse(
                node,
                f"an exponent is a whole number from 1 to {_MAX_EXPONENT}, or 0.5: write exp(b * log(a)) for a ** b "
                "of positive a",
            )
        return self._fold(node, "MULTIPLY", [base] * int(times))

    def _compare(self, node: ast.AST, left: ast.expr, operators: list[ast.cmpop], others: list[ast.expr]) -> _Value:
        values, truths = [self._value(left), *map(self._value, others)], []
        for operator, first, second in zip(operators, values, values[1:], strict=False):
            if type(operator) not in _COMPARISONS:
                self._definition.refuse(
                    node, f"the comparison {type(operator).__name__} is not for numbers: use < <= > >= == !="
                )
            name, exchanges, inverts = _COMPARISONS[type(operator)]
            truth = self._each(node, name, *((second, first) if exchanges else (first, second)))
            truths.append(self._each(node, "NOT", truth, truths=True) if inverts else truth)
        return self._fold(node, "AND", truths, truths=True)

    def _select(self, node: ast.AST, test: _Value, first: _Value, second: _Value) -> _Value:
        if not test.is_truth:
            self._definition.refuse(node, "the condition is a number: compare it, such as `value > 0`")
        values = [test, self._number(node, first), self._number(node, second)]
        columns = zip(*(_broadcast(value, _longest(values)) for value in values), strict=True)
        return _Value(False, tuple(self._graph.add("SELECT", *column) for column in columns))

    def _call(self, node: ast.Call) -> _Value:
        dotted = _dotted(node.func)
        name = ".".join(dotted) if dotted else "this"
        meaning = self._definition.functions.get(name)
        if meaning is None or (dotted and dotted[0] in self._names):
            self._definition.refuse(
                node,
                self._definition.unusable.get(
                    name, f"{name} cannot be called: the functions are {', '.join(_ARGUMENTS)}"
                ),
            )
        if node.keywords or any(isinstance(argument, ast.Starred) for argument in node.args):
            self._definition.refuse(node, f"{name} takes its arguments in order, without names or stars")
        fewest, most = _ARGUMENTS[meaning]
        if not fewest <= len(node.args) <= most:
            wanted = "no arguments" if most == 0 else f"{fewest} argument{'s' * (fewest > 1)}"
            self._definition.refuse(node, f"{name} takes {wanted}{' or more' * (most > fewest)}, not {len(node.args)}")
        return self._function(node, meaning, [self._value(argument) for argument in node.args])

    def _function(self, node: ast.Call, meaning: str, values: list[_Value]) -> _Value:
        if meaning == "noise":
            self._calls += 1
            return _Value(False, tuple(self._graph.add("NORMALS", value=(self._calls - 1, c)) for c in range(3)))
        if meaning == "clamp":
            return self._each(node, "MINIMUM", self._each(node, "MAXIMUM", values[0], values[1]), values[2])
        if meaning in _UNARY:
            return self._each(node, _UNARY[meaning], values[0])
        # Of one triple the channels are the arguments.
        if len(values) == 1:
            if len(values[0].nodes) == 1:
                self._definition.refuse(node, f"{meaning} of one number: give it a pixel, or several numbers")
            values = [_Value(values[0].is_truth, (item,)) for item in values[0].nodes]
        return self._fold(node, {"min": "MINIMUM", "max": "MAXIMUM", "sum": "ADD"}[meaning], values)

    def _is_image(self, name: str) -> bool:
        return name == self._image and name not in self._names

    def _neighbor(self, node: ast.AST, index: ast.expr) -> _Value:
        """image[dy, dx]."""
        radius = self._definition.radius
        try:
            place = ast.literal_eval(index)
        except ValueError:
            place = None
        is_pair = isinstance(place, tuple) and len(place) == 2 and all(type(number) is int for number in place)
        if not is_pair or max(map(abs, place)) > radius:
            self._definition.refuse(
                node, f"a pixel is {self._image}[dy, dx] of two whole numbers from {-radius} to {radius}, the radius"
            )
        return self._pixel(*place)

    def _channel(self, node: ast.AST, value: _Value, index: ast.expr) -> _Value:
        try:
            number = ast.literal_eval(index)
        except ValueError:
            number = None
        if isinstance(number, bool) or not isinstance(number, int) or not -3 <= number < 3 or len(value.nodes) == 1:
            self._definition.refuse(node, "an index is a channel of a pixel: 0, 1 or 2")
        return _Value(value.is_truth, (value.nodes[number],))

    # --- channel by channel -------------------------------------------------------------------------------------------

    def _each(self, node: ast.AST, name: str, *values: _Value, truths: bool = False) -> _Value:
        """An instruction for each channel."""
        for value in values:
            if truths and not value.is_truth:
                self._definition.refuse(node, "the operand is a number: compare it, such as `value > 0`")
            if not truths:
                self._number(node, value)
        columns = zip(*(_broadcast(value, _longest(values)) for value in values), strict=True)
        result = tuple(self._graph.add(name, *column) for column in columns)
        return _Value(truths or name in ("LESS", "AT_MOST", "EQUAL"), result)

    def _fold(self, node: ast.AST, name: str, values: list[_Value], *, truths: bool = False) -> _Value:
        """values[0] op values[1] op ..., from the left."""
        result, *others = values
        for value in others:
            result = self._each(node, name, result, value, truths=truths)
        return result

    def _number(self, node: ast.AST, value: _Value) -> _Value:
        if value.is_truth:
            self._definition.refuse(node, "the operand is a comparison: write `1.0 if condition else 0.0`")
        return value

    def _refuse_kind(self, node: ast.AST) -> NoReturn:
        remedy = next((text for kind, text in _REMEDIES.items() if isinstance(node, kind)), None)
        remedy = remedy or "use assignments, arithmetic, comparisons, `a if condition else b` and `return`"
        self._definition.refuse(node, f"{type(node).__name__} is not in the subset: {remedy}")


def _longest(values: tuple[_Value, ...] | list[_Value]) -> int:
    return max(len(value.nodes) for value in values)


def _broadcast(value: _Value, count: int = 3) -> tuple[int, ...]:
    return value.nodes if len(value.nodes) == count else value.nodes * count


def _count(value: _Value) -> str:
    what = "comparison" if value.is_truth else "number"
    return f"one {what}" if len(value.nodes) == 1 else f"three {what}s"
