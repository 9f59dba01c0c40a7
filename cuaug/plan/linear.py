"""Products and adjugates of small matrices, term by term.

BLAS and LAPACK add up in the order, and with the fused steps, that suit the processor: the last bits would depend on
it, and with them what a sample looks like.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

__all__ = ["adjugate", "product"]

Floats = NDArray[np.float64]

# The rows, or columns, that follow each of three, and those that follow these.
_NEXT, _LAST = [1, 2, 0], [2, 0, 1]


def product(left: Floats, right: Floats) -> Floats:
    """(..., R, P): left @ right, of (..., R, Q) and (..., Q, P)."""
    terms = [left[..., :, k, None] * right[..., k, None, :] for k in range(left.shape[-1])]
    return functools.reduce(np.add, terms)


def adjugate(matrices: Floats) -> Floats:
    """(..., 3, 3): the inverse times the determinant; a perspective's inverse as it is, for its scale is free."""
    one, other = matrices[..., _NEXT, :], matrices[..., _LAST, :]
    minors = one[..., _NEXT] * other[..., _LAST] - one[..., _LAST] * other[..., _NEXT]
    return minors.swapaxes(-1, -2)
