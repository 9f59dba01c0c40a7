"""Products and adjugates of small matrices, equal bits on every processor.

BLAS and LAPACK choose the order of additions and the fused steps by processor, so their last bits differ. These bits
decide what a sample looks like.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

__all__ = ["adjugate", "product"]

Floats = NDArray[np.float64]

# For each of three rows, or columns: the two that follow it in cyclic order.
_NEXT, _LAST = [1, 2, 0], [2, 0, 1]


def product(left: Floats, right: Floats) -> Floats:
    """(..., R, P) left @ right, of (..., R, Q) and (..., Q, P)."""
    terms = [left[..., :, k, None] * right[..., k, None, :] for k in range(left.shape[-1])]
    return functools.reduce(np.add, terms)


def adjugate(matrices: Floats) -> Floats:
    """The inverse of (..., 3, 3) times the determinant; as a perspective map it is the inverse."""
    first, second = matrices[..., _NEXT, :], matrices[..., _LAST, :]
    minors = first[..., _NEXT] * second[..., _LAST] - first[..., _LAST] * second[..., _NEXT]
    return minors.swapaxes(-1, -2)
