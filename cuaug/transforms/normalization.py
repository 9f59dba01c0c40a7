"""The `Normalize` that ends a chain, for drawing its results."""

from __future__ import annotations

from collections.abc import Sequence

from cuaug.transforms.base import Transform
from cuaug.transforms.compose import Compose
from cuaug.transforms.dtype import Normalize

__all__ = ["normalization_of"]


def normalization_of(chain: Transform) -> tuple[Sequence[float], Sequence[float]] | None:
    """(mean, std) of the last `Normalize` that all samples pass; None: there is none."""
    if isinstance(chain, Compose):
        return next(filter(None, map(normalization_of, reversed(chain.transforms))), None)
    return (chain.mean, chain.std) if isinstance(chain, Normalize) else None
