"""Operations that users write as functions of one pixel, which run inside the kernels.

function_transform.py  `op`, which makes a class of transforms of a function
distributions.py       `uniform`, `normal` and `choice`: what the parameters are drawn from
definition.py          a function as it is written, and what it reads from outside
translation.py         the subset of Python, translated to expressions
expressions.py         the values that a function computes, as a graph
generation.py          expressions as instructions of the interpreter (kernels/core/pixel_function.h), and as C++
"""

from cuaug.ops.definition import clamp, noise
from cuaug.ops.distributions import choice, normal, uniform
from cuaug.ops.function_transform import FunctionTransform, op

__all__ = ["FunctionTransform", "choice", "clamp", "noise", "normal", "op", "uniform"]
