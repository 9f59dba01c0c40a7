"""What a source looks like when it is printed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["ReprMixin", "some"]

_SHOWN = 3


class ReprMixin:
    """The base of sources that print as their kind, how many samples they have, and where the first one lies."""

    def __repr__(self: Any) -> str:
        count, classes = len(self), getattr(self, "classes", None)
        samples = f"{count} sample{'' if count == 1 else 's'}{f' in {len(classes)} classes' if classes else ''}"
        return f"{type(self).__name__}({samples}, {self._which()})"

    def _which(self: Any) -> str:
        return f"the first {self.path(0)!r}"


def some(sources: Sequence[Any]) -> str:
    """The first few of the sources that one is made of."""
    more = len(sources) - _SHOWN
    return f"of {', '.join(map(repr, sources[:_SHOWN]))}{f' and {more} more' if more > 0 else ''}"
