"""What the subset of Python refuses, with the place and the remedy; and what functions may be."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

import cuaug
from cuaug import TransformError
from cuaug import transforms as T
from cuaug.ops import clamp, noise
from tests.support.pixel_programs import make_function, make_operation

# What the body of `def f(pixel, x, a):` is, and what the error says.
REFUSED = {
    "    if x > 0:\n        pixel = pixel * 2\n    return pixel": "If is not in the subset: write `value = a if",
    "    for i in pixel:\n        x = x * 2\n    return pixel": "For is not in the subset: write each step out",
    "    while x < 1:\n        x = x + 1\n    return pixel": "While is not in the subset",
    "    import math\n    return pixel": "Import is not in the subset: import outside",
    "    return [x, x, x]": "List is not in the subset: write three channels as a tuple",
    "    return lambda: x": "Lambda is not in the subset",
    "    return tuple(v for v in pixel)": "tuple cannot be called|tuple is type",
    "    return 'red'": "'red' is no number",
    "    return f'{x}'": "JoinedStr is not in the subset",
    "    return True": "True is no number",
    "    return pixel * 1e39": "too large for float32",
    f"    return pixel * 1{'0' * 400}": "too large for float32",
    "    return pixel ** x": "an exponent is a whole number from 1 to 16",
    "    return pixel ** 17": "an exponent is a whole number from 1 to 16",
    "    return pixel & 1": "the operator BitAnd is not for numbers",
    "    return pixel @ pixel": "the operator MatMult is not for numbers",
    "    return pixel < 1": "it returns a comparison",
    "    return pixel * (x < 1)": "the operand is a comparison: write `1.0 if",
    "    return pixel if x else a": "the condition is a number: compare it",
    "    return 1.0 if not x else a": "the operand is a number: compare it",
    "    return 1.0 if x in pixel else a": "the comparison In is not for numbers",
    "    return pixel[3]": "an index is a channel of a pixel: 0, 1 or 2",
    "    return pixel[x]": "an index is a channel of a pixel: 0, 1 or 2",
    "    return pixel[{[]}]": "an index is a channel of a pixel: 0, 1 or 2",
    "    return pixel[{[]: 1}]": "an index is a channel of a pixel: 0, 1 or 2",
    "    return x[0]": "an index is a channel of a pixel: 0, 1 or 2",
    "    return (x, a)": "a tuple has three channels, not 2 values",
    "    return (pixel, x, a)": "a channel of a tuple is one number, not three numbers",
    "    r, g = pixel\n    return r": "2 names cannot take 3 values",
    "    r, g = x\n    return r": "2 names cannot take 1 value ",
    "    r, g = x, a, x\n    return r": "2 names cannot take 3 values",
    "    r = x, a\n    return r": "a tuple has three channels, not 2 values",
    "    r = s, t = x, a\n    return r": "a tuple has three channels, not 2 values",
    "    pixel[0] = x\n    return pixel": "only names can be assigned",
    "    b = c\n    c = x\n    return b": "c is read before it is assigned",
    "    return missing": "missing is not defined",
    "    return repr(x)": "repr is builtin_function_or_method",
    "    return sqrt": "sqrt is a function: call it",
    "    return sqrt(x, a)": "sqrt takes 1 argument, not 2",
    "    return clamp(x)": "clamp takes 3 arguments, not 1",
    "    return max()": "max takes 1 to 64 arguments, not 0",
    f"    return max({', '.join(['x'] * 65)})": "max takes 1 to 64 arguments, not 65",
    "    return noise(x)": "noise takes no arguments, not 1",
    "    return max(x)": "max of one number: give it a pixel",
    "    return sqrt(x=a)": "sqrt takes its arguments in order",
    "    return max(*pixel)": "max takes its arguments in order",
    "    return x.real": "numbers have no attributes",
    "    return (x + a).real": "attributes have no meaning here",
    "    x + a\n    return pixel": "Expr is not in the subset: assign its value",
    "    return\n": "its last statement must return the new pixel",
    "    x = a": "its last statement must return the new pixel",
    "    return pixel\n    return x": "it returns before its last statement",
    "    yield pixel": "its last statement must return the new pixel",
}


@pytest.mark.parametrize("body", REFUSED)
def test_what_is_outside_is_refused(body):
    with pytest.raises(TransformError, match=REFUSED[body]) as error:
        make_operation(f"def f(pixel, x, a):\n{body}\n", "f", a=0.5)
    assert re.match(r"f: .* \(line \d+, column \d+ of <\w+>\)$", str(error.value)), error.value


def test_an_error_names_the_place():
    with pytest.raises(TransformError, match=r"\(line 3, column 16 of <\w+>\)"):
        make_operation("def f(pixel):\n    a = 1\n    return a + missing\n", "f")
    with pytest.raises(TransformError, match=r"indented: .*column \d+ of .*test_syntax.py") as error:

        @cuaug.op
        def indented(pixel):
            return pixel.real

        indented()
    line, column = map(int, re.findall(r"line (\d+), column (\d+)", str(error.value))[0])
    with open(__file__) as file:
        text = file.read().splitlines()[line - 1]
    assert text[column - 1 :] == "pixel.real"


class Config:
    strength = 0.5


config, table, words, huge = Config(), np.zeros(4), "text", 10**400


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("config.strength", "config.strength is an attribute of an object: assign it to a name outside"),
        ("table", "table is ndarray"),
        ("words", "words is str 'text'"),
        ("huge", "huge is int 1000"),
        ("helper(pixel)", "helper is function"),
        ("torch.pi()", "torch.pi is float|cannot be called"),
        ("np.tanh(pixel)", "np.tanh is ufunc"),
    ],
)
def test_outer_names_that_mean_nothing(expression, problem):
    names = {"config": config, "table": table, "words": words, "huge": huge, "torch": torch, "np": np}
    names["helper"] = lambda pixel: pixel
    with pytest.raises(TransformError, match=problem):
        cuaug.op(make_function(f"def f(pixel):\n    return {expression}\n", "f", **names))()


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda pixel: pixel, "function must be one that `def` makes"),
        (print, "function must be one that `def` makes"),
        (Config, "function must be one that `def` makes"),
        (0.5, "function must be one that `def` makes, not 0.5"),
    ],
)
def test_what_is_no_function(function, problem):
    with pytest.raises(TransformError, match=problem):
        cuaug.op(function)


@pytest.mark.parametrize(
    ("head", "problem"),
    [
        ("def f():", "its first parameter is the pixel"),
        ("def f(x):", "its first parameter is the pixel, so it is not called x"),
        ("def f(pixel, *values):", r"\*values has no length"),
        ("def f(pixel, **values):", r"\*values has no length"),
        ("def f(pixel, x=0):", "x is given by the image: leave out its default"),
        ("def f(pixel=0):", "pixel is given by the image"),
        ("def f(pixel, plan):", "plan is a name of the transform's own"),
        ("def f(pixel, p):", "p is a name of the transform's own"),
    ],
)
def test_parameters_that_are_refused(head, problem):
    with pytest.raises(TransformError, match=problem):
        make_operation(f"{head}\n    return 0.5\n", "f")


def test_a_function_without_source():
    names: dict[str, Any] = {}
    exec("def f(pixel):\n    return pixel\n", names)
    with pytest.raises(TransformError, match=r"f: its source is not to be found .*: define it in a file"):
        cuaug.op(names["f"])


def test_too_many_numbers_steps_and_values():
    many = ", ".join(f"a{i}" for i in range(9))
    with pytest.raises(TransformError, match="it takes 13 numbers per sample, of at most 12"):
        make_operation(f"def f(pixel, x, y, {many}):\n    return x + y\n", "f", **{f"a{i}": i for i in range(9)})
    steps = "\n".join(f"    pixel = pixel * {i}.5 + x" for i in range(1000))
    with pytest.raises(TransformError, match="steps, of at most 4096"):
        make_operation(f"def f(pixel, x):\n{steps}\n    return pixel\n", "f")
    values = "\n".join(f"    a{i} = pixel[0] * {i}.5" for i in range(60))
    total = " + ".join(f"sqrt(a{i})" for i in range(59, -1, -1))
    with pytest.raises(TransformError, match="more than 48 values at once: split it into two operations"):
        make_operation(f"def f(pixel):\n{values}\n    return {total}\n", "f")


@pytest.mark.parametrize(
    "expression",
    ["-" * 1200 + "x", "pixel" + "[0]" * 1200, "pixel" + ".a" * 1200, "x if x < 1 else " * 1200 + "x"],
    ids=lambda expression: expression[:9],
)
def test_expressions_with_too_many_levels(expression):
    with pytest.raises(TransformError, match=r"^f: an expression has too many levels: assign parts of it to names$"):
        make_operation(f"def f(pixel, x):\n    return {expression}\n", "f")


def test_a_source_that_is_too_long():
    """As of 50,000 lines whose values nothing needs."""
    with pytest.raises(TransformError, match=r"^f: its source has .* characters, of at most 262,144: split it into"):
        make_operation(f"def f(pixel):\n    '{'x' * (1 << 18)}'\n    return pixel\n", "f")


gain, tint = 0.25, (0.1, 0.2, 0.3)


def test_outer_numbers_are_taken_when_the_function_is_defined():
    inner = 2.0

    @cuaug.op
    def tinted(pixel):
        return tint if pixel[0] * gain * inner < 0.25 else 1.0

    inner = 9.0
    image = torch.tensor([0.4, 0.6]).expand(3, 1, 2)
    got = tinted()(image)
    assert torch.equal(got, torch.tensor([[0.1, 1.0], [0.2, 1.0], [0.3, 1.0]])[:, None])


def test_annotations_docstrings_and_unpacking():
    @cuaug.op
    def f(pixel: Any, a: float = 0.5) -> Any:
        """Doubles red."""
        r: float
        r, g, b = pixel
        r, g = g, r
        return (r, g * 2 * a, b)

    image = torch.tensor([0.1, 0.2, 0.3])[:, None, None]
    assert torch.equal(f()(image), image[[1, 0, 2]])


def test_the_markers_mean_nothing_outside():
    for call in (noise, lambda: clamp(1, 2, 3)):
        with pytest.raises(TransformError, match=r"for functions of cuaug\.op"):
            call()


def test_names_cannot_inject_source():
    """Names, constants and texts of a function reach no compiler: only numbers that are printed anew."""
    body = "    '''\"; } evil();'''\n    вредный = ünï * 1e-45\n    return pixel * вредный\n"
    source = f"def größe(pixel, ünï=0.5):\n{body}"
    operation = make_operation(source, "größe")
    text = operation._function.source
    words = set(re.findall(r"\b[^\W\d]\w*", text))
    known = "DEVICE void const Op op Sample sample Place at PixelBlock v for int p PIXELS VEC_LANES Number auto a"
    allowed = {*re.findall(r"\w+", known), "load_input", "splat", "run_MULTIPLY", "store_result"}
    numbered = re.compile(r"t\d+|pixel_function_[0-9a-f]{16}")
    assert words <= allowed | set(filter(numbered.fullmatch, words))
    assert text.isascii()


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("image", r"image is an image: its pixels are image\[dy, dx\], this one image\[0, 0\]"),
        ("image[0]", r"a pixel is image\[dy, dx\] of two whole numbers from -2 to 2, the radius"),
        ("image[0, 3]", "from -2 to 2, the radius"),
        ("image[-3, 0]", "from -2 to 2, the radius"),
        ("image[0, 1.5]", "from -2 to 2, the radius"),
        ("image[0, True]", "from -2 to 2, the radius"),
        ("image[0, x]", "from -2 to 2, the radius"),
        ("image[{[]}]", "from -2 to 2, the radius"),
        ("image[0:1, 0]", "from -2 to 2, the radius"),
        ("image[0, 0][3]", "an index is a channel of a pixel"),
    ],
)
def test_pixels_of_an_image_that_are_refused(expression, problem):
    with pytest.raises(TransformError, match=problem):
        make_operation(f"def f(image, x):\n    return {expression}\n", "f", radius=2)


@pytest.mark.parametrize("radius", [-1, 9, 1.5, None])
def test_a_radius_that_is_refused(radius):
    with pytest.raises(TransformError, match=r"^radius must be an integer"):
        cuaug.op(radius=radius)


@pytest.mark.parametrize("value", [np.inf, np.nan, "0", None, (1, 2), [[1, 2, 3]], 1e39, True])
def test_values_that_are_refused(value):
    with pytest.raises(TransformError, match=r"^a must"):
        make_operation("def f(pixel, a):\n    return pixel * a\n", "f", a=value)


def test_values_that_do_not_fit_the_function():
    source = "def f(pixel, x, a):\n    return pixel * a\n"
    for values, problem in (
        ({}, "a must be given: f has no default for it"),
        ({"a": 1, "b": 2}, "b is no parameter: f takes a, p"),
        ({"a": 1, "x": 2}, "x is given by the image: f takes a, p"),
        ({"a": 1, "p": 2}, "p must be a probability"),
    ):
        with pytest.raises(TransformError, match=problem):
            make_operation(source, "f", **values)
    assert T.Compose([make_operation(source, "f", a=1)])
