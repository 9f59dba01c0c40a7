"""Translates pixel functions: a subset of Python, from its syntax tree to `Expressions`.

A value of the subset is a number, a truth (the result of a comparison), or three of these, one per channel. Python's
own operators and functions get numbers; a number beside three counts for each channel.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from cuaug.ops.definition import ARGUMENTS, POSITION_NAMES, Definition, dotted_name, is_float32, limited_depth
from cuaug.ops.expressions import Expressions, distance_key
from cuaug.plan.pixel_function import MAX_PARAMETERS

_MAX_EXPONENT = 16
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
    with limited_depth(definition.name):
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
                self._assign(targets, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign([target], value)
            case ast.AugAssign(target=ast.Name() as target, op=operator, value=value):
                read = ast.copy_location(ast.Name(target.id, ast.Load()), target)
                self._assign([target], ast.copy_location(ast.BinOp(read, operator, value), node))
            case ast.Return():
                self._definition.refuse(node, "it returns before its last statement: write `a if condition else b`")
            case _:
                self._refuse_kind(node)

    def _assign(self, targets: list[ast.expr], value: ast.expr) -> None:
        """target = ... = value, which is computed once: each call of noise draws anew."""
        if isinstance(value, ast.Tuple):
            items = [self._value(item) for item in value.elts]
        else:
            whole = self._value(value)
            items = [_Value(whole.is_truth, (node,)) for node in whole.nodes]
        for target in targets:
            if isinstance(target, ast.Tuple):
                names, values = target.elts, items
                if len(names) != len(values):
                    problem = f"{len(names)} names cannot take {len(values)} value{'s' * (len(values) != 1)}"
                    self._definition.refuse(target, problem)
            else:
                names, values = [target], [self._tuple(value, items) if isinstance(value, ast.Tuple) else whole]
            for name, item in zip(names, values, strict=True):
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
                return self._tuple(node, [self._value(item) for item in items])
            case ast.BinOp():
                return self._operators(node)
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
        if not is_float32(value):
            self._definition.refuse(node, "the number is too large for float32")
        return _Value(False, (self._graph.constant(float(value)),))

    def _outer(self, node: ast.expr) -> _Value:
        dotted = dotted_name(node)
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

    def _tuple(self, node: ast.Tuple, values: list[_Value]) -> _Value:
        if len(values) != 3:
            self._definition.refuse(node, f"a tuple has three channels, not {len(values)} values")
        for item, value in zip(node.elts, values, strict=True):
            if value.is_truth or len(value.nodes) > 1:
                self._definition.refuse(item, f"a channel of a tuple is one number, not {_count(value)}")
        return _Value(False, tuple(value.nodes[0] for value in values))

    def _operators(self, node: ast.expr) -> _Value:
        """a + b + ..., of hundreds of terms, too: from the left, without a level of Python's stack for each."""
        chain = []
        while isinstance(node, ast.BinOp):
            chain.append(node)
            node = node.left
        value = self._value(node)
        for step in reversed(chain):
            value = self._operator(step, step.op, value, step.right)
        return value

    def _operator(self, node: ast.AST, operator: ast.operator, first: _Value, right: ast.expr) -> _Value:
        if isinstance(operator, ast.Pow):
            return self._power(node, first, right)
        second = self._value(right)
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
        dotted = dotted_name(node.func)
        name = ".".join(dotted) if dotted else "this"
        meaning = self._definition.functions.get(name)
        if meaning is None or (dotted and dotted[0] in self._names):
            self._definition.refuse(
                node,
                self._definition.unusable.get(
                    name, f"{name} cannot be called: the functions are {', '.join(ARGUMENTS)}"
                ),
            )
        if node.keywords or any(isinstance(argument, ast.Starred) for argument in node.args):
            self._definition.refuse(node, f"{name} takes its arguments in order, without names or stars")
        fewest, most = ARGUMENTS[meaning]
        if not fewest <= len(node.args) <= most:
            wanted = f"{fewest} to {most}" if most > fewest else fewest or "no"
            self._definition.refuse(node, f"{name} takes {wanted} argument{'s' * (most != 1)}, not {len(node.args)}")
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
        radius, place = self._definition.radius, _literal(index)
        is_pair = isinstance(place, tuple) and len(place) == 2 and all(type(number) is int for number in place)
        if not is_pair or max(map(abs, place)) > radius:
            self._definition.refuse(
                node, f"a pixel is {self._image}[dy, dx] of two whole numbers from {-radius} to {radius}, the radius"
            )
        return self._pixel(*place)

    def _channel(self, node: ast.AST, value: _Value, index: ast.expr) -> _Value:
        number = _literal(index)
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


def _literal(node: ast.expr) -> Any:
    """The value of a literal; None for other expressions."""
    try:
        return ast.literal_eval(node)
    except (TypeError, ValueError):  # TypeError: {[]}
        return None


def _longest(values: tuple[_Value, ...] | list[_Value]) -> int:
    return max(len(value.nodes) for value in values)


def _broadcast(value: _Value, count: int = 3) -> tuple[int, ...]:
    return value.nodes if len(value.nodes) == count else value.nodes * count


def _count(value: _Value) -> str:
    what = "comparison" if value.is_truth else "number"
    return f"one {what}" if len(value.nodes) == 1 else f"three {what}s"
