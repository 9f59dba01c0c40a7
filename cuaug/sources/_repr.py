"""`repr` of sources: class, number of samples, location."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["ReprMixin", "describe_sources"]

_SOURCES_SHOWN = 3


class ReprMixin:
    """Prints a source as its class, its number of samples, and the path of its first sample."""

    def __repr__(self: Any) -> str:
        count, classes = len(self), getattr(self, "classes", None)
        samples = f"{count} sample{'' if count == 1 else 's'}{f' in {len(classes)} classes' if classes else ''}"
        return f"{type(self).__name__}({samples}, {self._repr_detail()})"

    def _repr_detail(self: Any) -> str:
        return f"the first {self.path(0)!r}"


def describe_sources(sources: Sequence[Any]) -> str:
    """Lists the first few sources inside a composite source."""
    more = len(sources) - _SOURCES_SHOWN
    return f"of {', '.join(map(repr, sources[:_SOURCES_SHOWN]))}{f' and {more} more' if more > 0 else ''}"
