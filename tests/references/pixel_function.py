"""Pixel functions in NumPy: the user's own statements, run on whole images in float32.

A number is an array (H, W, 1), a pixel (H, W, 3). The syntax tree is changed only where Python's meaning for arrays
differs: constants become float32, `a if c else b` becomes `where`, and, or, not become bitwise.
"""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.references.philox import pixel_words

f32 = np.float32


def evaluate(source: str, pixel: np.ndarray, values: Mapping[str, Any], key: Any = (0, 0)) -> np.ndarray:
    """(H, W, 3) float32 results, before they saturate.

    Args:
        source: of the function.
        pixel: (H, W, 3) float32, white is 1.
        values: the function's own parameters: numbers or triples.
        key: of the noise.
    """
    (tree,) = ast.parse(source).body
    assert isinstance(tree, ast.FunctionDef)
    tree.decorator_list = []
    module = ast.fix_missing_locations(ast.Module([_OnArrays().visit(tree)], []))
    names = {**vars(_Functions(pixel.shape[:2], key)), "math": math}
    exec(compile(module, "<reference>", "exec"), names)
    height, width = pixel.shape[:2]
    row, column = (index[..., None].astype(f32) for index in np.mgrid[:height, :width])
    given = {"row": row, "column": column, "height": f32(height), "width": f32(width)}
    for name, index, size in (("y", row, height), ("x", column, width)):
        given[name] = ((index + index) + f32(1 - size)) * f32(1 / size)
    first, *rest = (argument.arg for argument in tree.args.args)
    arguments = {name: given[name] if name in given else as_float32(values[name]) for name in rest}
    with np.errstate(all="ignore"):
        result = names[tree.name](**{first: pixel}, **arguments)
        return np.broadcast_to(result, pixel.shape).astype(f32)


def saturate(values: np.ndarray, white: float) -> np.ndarray:
    """As results are stored: a NaN becomes 0."""
    return minimum(maximum(values, f32(0)), f32(1)) * f32(white)


def as_float32(value: Any) -> np.ndarray:
    return np.asarray(value, dtype=f32).reshape(1, 1, -1)


def minimum(a: Any, b: Any) -> np.ndarray:
    return np.where(a < b, a, b).astype(f32)


def maximum(a: Any, b: Any) -> np.ndarray:
    return np.where(a > b, a, b).astype(f32)


def exp2(x: np.ndarray) -> np.ndarray:
    x = maximum(minimum(x, f32(126)), f32(-126))
    shifted = x + f32(12582912)
    u = x - (shifted - f32(12582912))
    t = u * u
    tail = (f32(0.24022242) + u * f32(0.055507336)) + t * (f32(0.009671513) + u * f32(0.0013264727))
    power = (f32(1) + u * f32(0.693147)) + t * tail
    return (power.view(np.uint32) + (shifted.view(np.uint32) << np.uint32(23))).view(f32)


def log2(x: np.ndarray) -> np.ndarray:
    bits = x.view(np.uint32) + np.uint32(0x3F800000 - 0x3F3504F4)
    exponent = (bits >> np.uint32(23)).astype(f32) - f32(127)
    m = ((bits & np.uint32(0x7FFFFF)) + np.uint32(0x3F3504F4)).view(f32)
    s = (m - f32(1)) / (m + f32(1))
    t = s * s
    series = (f32(2.88539008) + t * f32(0.96179825)) + t * t * (f32(0.57675445) + t * f32(0.43094656))
    return exponent + s * series


def cos_turns(turns: np.ndarray) -> np.ndarray:
    h = maximum(turns - f32(0.5), f32(0.5) - turns) - f32(0.25)
    t = h * h
    tail = (f32(81.60847) - t * f32(76.72363)) + t * t * f32(40.84108)
    return h * ((f32(6.28318531) - t * f32(41.341766)) + t * t * tail)


def exp(x: Any) -> np.ndarray:
    return exp2(as_array(x) * f32(1.44269504))


def log(x: Any) -> np.ndarray:
    return log2(maximum(as_array(x), f32(1.17549435e-38))) * f32(0.69314718)


def cos(x: Any) -> np.ndarray:
    turns = as_array(x) * f32(0.15915494)
    return cos_turns(turns - np.floor(turns))


def sin(x: Any) -> np.ndarray:
    turns = as_array(x) * f32(0.15915494) - f32(0.25)
    return cos_turns(turns - np.floor(turns))


def as_array(x: Any) -> np.ndarray:
    return np.asarray(x, dtype=f32)


class _Functions:
    """The names that a function reads."""

    def __init__(self, shape: tuple[int, int], key: Any) -> None:
        self.calls = 0

        def noise() -> np.ndarray:
            words = [pixel_words(*shape, key, third=2 * self.calls + i) for i in range(2)]
            self.calls += 1
            pairs = [(words[0][..., 0], words[0][..., 1]), (words[0][..., 2], words[0][..., 3])]
            pairs.append((words[1][..., 0], words[1][..., 1]))
            return np.stack([_normal(*pair) for pair in pairs], axis=-1)

        def fold(function: Any, values: tuple[Any, ...]) -> Any:
            if len(values) == 1:
                values = tuple(values[0][..., c : c + 1] for c in range(3))
            result, *others = values
            for value in others:
                result = function(result, value)
            return result

        def power(base: Any, exponent: float) -> Any:
            return np.sqrt(base) if exponent == 0.5 else fold(np.multiply, (base,) * int(exponent))

        def split(value: Any) -> tuple[Any, ...]:
            return tuple(value[..., c : c + 1] for c in range(3))

        def channels(*values: Any) -> Any:
            return np.concatenate([np.broadcast_to(v, (*shape, 1)) for v in values], axis=-1)

        self.noise, self._power, self._split, self._channels = noise, power, split, channels
        self._number, self._where, self._channel = as_float32, np.where, lambda value, c: value[..., [c]]
        self._tap, self._compare = _tap, _compare
        self._floored = lambda a, b: np.floor(a / b)
        self._modulo = lambda a, b: a - np.floor(a / b) * b
        self.exp, self.log, self.sin, self.cos = exp, log, sin, cos
        self.sqrt, self.floor, self.abs = np.sqrt, np.floor, np.abs
        self.min, self.max = lambda *v: fold(minimum, v), lambda *v: fold(maximum, v)
        self.sum = lambda value: fold(np.add, (value,))
        self.clamp = lambda value, low, high: minimum(maximum(value, low), high)


def _compare(names: tuple[str, ...], *values: Any) -> Any:
    """A chain of comparisons, such as a < b <= c, whose values are computed once."""
    functions = {"Lt": np.less, "LtE": np.less_equal, "Gt": np.greater, "GtE": np.greater_equal}
    functions |= {"Eq": np.equal, "NotEq": np.not_equal}
    pairs = zip(names, values, values[1:], strict=False)
    return functools.reduce(np.logical_and, [functions[name](a, b) for name, a, b in pairs])


def _tap(image: np.ndarray, distance: tuple[int, int]) -> np.ndarray:
    """The image shifted, so that each pixel is the one dy rows below and dx columns to the right."""
    (dy, dx), (height, width) = distance, image.shape[:2]
    margin = max(abs(dy), abs(dx))
    padded = np.pad(image, ((margin, margin), (margin, margin), (0, 0)), mode="reflect")
    return padded[margin + dy : margin + dy + height, margin + dx : margin + dx + width]


def _normal(word0: np.ndarray, word1: np.ndarray) -> np.ndarray:
    first, second = ((word >> np.uint32(8)).astype(f32) * f32(1 / 16777216) for word in (word0, word1))
    square = f32(-1.38629436) * log2(first + f32(0.5 / 16777216))
    return np.sqrt(square) * cos_turns(second)


class _OnArrays(ast.NodeTransformer):
    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return _call("_number", node) if isinstance(node.value, (int, float)) else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return _call("_number", node)  # math.pi

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if isinstance(node.slice, ast.Tuple):
            return _call("_tap", node.value, node.slice)
        return _call("_channel", self.visit(node.value), node.slice)

    def visit_Tuple(self, node: ast.Tuple) -> ast.expr:
        return _call("_channels", *map(self.visit, node.elts))

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        if not isinstance(node.targets[0], ast.Tuple):
            node.value = self.visit(node.value)
        elif isinstance(node.value, ast.Tuple):
            node.value = ast.Tuple(list(map(self.visit, node.value.elts)), ast.Load())
        else:
            node.value = _call("_split", self.visit(node.value))
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        assert isinstance(node.target, ast.Name)  # NumPy would write to the array
        value = ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, self.visit(node.value))
        return ast.Assign([node.target], value)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        return _call("_where", *map(self.visit, (node.test, node.body, node.orelse)))

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        values = list(map(self.visit, node.values))
        result = values[0]
        for value in values[1:]:
            result = ast.BinOp(result, ast.BitAnd() if isinstance(node.op, ast.And) else ast.BitOr(), value)
        return result

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        node.operand = self.visit(node.operand)
        node.op = ast.Invert() if isinstance(node.op, ast.Not) else node.op
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        names = [ast.Constant(type(operator).__name__) for operator in node.ops]
        return _call("_compare", ast.Tuple(names, ast.Load()), *map(self.visit, (node.left, *node.comparators)))

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        if isinstance(node.op, ast.Pow):
            return _call("_power", self.visit(node.left), node.right)
        left, right = self.visit(node.left), self.visit(node.right)
        if isinstance(node.op, (ast.FloorDiv, ast.Mod)):
            return _call("_floored" if isinstance(node.op, ast.FloorDiv) else "_modulo", left, right)
        return ast.BinOp(left, node.op, right)


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])
