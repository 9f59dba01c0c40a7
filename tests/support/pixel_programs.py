"""Random programs of the subset of Python that `cuaug.op` takes."""

from __future__ import annotations

import linecache
import math
import random
from collections.abc import Callable
from typing import Any

from cuaug import ops
from cuaug.ops import clamp, noise

HEAD = "def program(pixel, x, y, row, column, height, width, number, triple):"
_FUNCTIONS = ("abs", "floor", "sqrt", "exp", "log", "sin", "cos")
_CONSTANTS = ("0", "1", "2", "0.5", "0.1", "-3.7", "1e-20", "1e20", "255", "1e-42", "math.pi", "16777216")


def make_function(source: str, name: str = "program", **outer: Any) -> Callable[..., Any]:
    """The function of a source, which `inspect` finds."""
    file = f"<{abs(hash(source)):x}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    names = {"math": math, "clamp": clamp, "noise": noise, **{f: getattr(math, f, abs) for f in _FUNCTIONS}, **outer}
    exec(compile(source, file, "exec"), names)
    return names[name]


def make_operation(source: str, name: str = "program", *, radius: int = 0, **values: Any) -> Any:
    return ops.op(radius=radius)(make_function(source, name))(**values)


def random_program(choices: random.Random, radius: int = 0) -> str:
    """A function of HEAD: some assignments, and a result. With a radius, `pixel` is an image."""
    writer = _Writer(choices, radius)
    lines = [HEAD]
    for number in range(choices.randint(0, 3)):
        count = choices.choice((1, 3))
        kind = choices.randint(0, 3)
        if kind == 0:
            lines.append(f"    r{number}, g{number}, b{number} = {writer.number(3, 3)}")
            writer.names += [(f"{c}{number}", 1) for c in "rgb"]
        elif kind == 1:
            lines.append(f"    u{number}, v{number} = {writer.number(2, 1)}, {writer.number(2, count)}")
            writer.names += [(f"u{number}", 1), (f"v{number}", count)]
        else:
            lines.append(f"    t{number} = {writer.number(3, count)}")
            if kind == 3:
                lines.append(f"    t{number} {choices.choice('+-*/')}= {writer.number(1, 1)}")
            writer.names.append((f"t{number}", count))
    lines.append(f"    return {writer.number(4, 3)}")
    return "\n".join(lines) + "\n"


class _Writer:
    """Writes expressions of `count` numbers, 1 or 3."""

    def __init__(self, choices: random.Random, radius: int) -> None:
        self._choices = choices
        self.names = [("triple", 3), ("number", 1), ("x", 1), ("y", 1)]
        distances = [(choices.randint(-radius, radius), choices.randint(-radius, radius)) for _ in range(4)]
        self.names += [(f"pixel[{dy}, {dx}]", 3) for dy, dx in distances] if radius else [("pixel", 3)]
        self.names += [("row", 1), ("column", 1), ("height", 1), ("width", 1)]

    def number(self, depth: int, count: int) -> str:
        kind = self._choices.randint(0, 11) if depth > 0 else self._choices.randint(10, 11)
        below = depth - 1
        # One operand of an operator has `count` numbers, the other may have one.
        other = self._choices.choice((1, count))
        if kind <= 2:
            return f"({self.number(below, count)} {self._choices.choice('+-*/')} {self.number(below, other)})"
        if kind == 3:
            name = self._choices.choice(_FUNCTIONS)
            return f"{name}({self.number(below, count)})"
        if kind == 4:
            name = self._choices.choice(("min", "max"))
            return f"{name}({self.number(below, count)}, {self.number(below, other)})"
        if kind == 5:
            if count == 1 and self._choices.random() < 0.5:
                return f"{self._choices.choice(('min', 'max', 'sum'))}({self.number(below, 3)})"
            return f"clamp({self.number(below, count)}, {self.number(below, other)}, {self.number(0, 1)})"
        if kind == 6:
            return f"({self.number(below, count)} if {self.truth(below, other)} else {self.number(below, other)})"
        if kind == 7:
            operator = self._choices.choice(("//", "%", "**2", "**3", "**0.5"))
            if operator.startswith("**"):
                return f"({self.number(below, count)}){operator}"
            return f"({self.number(below, count)} {operator} {self.number(below, other)})"
        if kind == 8:
            return f"-{self.number(below, count)}"
        if kind == 9 and count == 3:
            if self._choices.random() < 0.2:
                return "noise()"
            return f"({self.number(below, 1)}, {self.number(below, 1)}, {self.number(below, 1)})"
        if kind == 9:
            return f"({self.number(below, 3)})[{self._choices.randint(0, 2)}]"
        names = [name for name, size in self.names if size == count]
        if kind == 10 or count == 3:
            return self._choices.choice(names)
        return self._choices.choice(_CONSTANTS)

    def truth(self, depth: int, count: int) -> str:
        kind = self._choices.randint(0, 4) if depth > 0 else 0
        below = max(depth - 1, 0)
        if kind <= 1:
            operator = self._choices.choice(("<", "<=", ">", ">=", "==", "!="))
            return f"({self.number(below, count)} {operator} {self.number(below, 1)})"
        if kind == 2:
            return f"({self.number(0, 1)} < {self.number(below, count)} <= {self.number(0, 1)})"
        if kind == 3:
            return f"(not {self.truth(below, count)})"
        return f"({self.truth(below, count)} {self._choices.choice(('and', 'or'))} {self.truth(below, 1)})"
