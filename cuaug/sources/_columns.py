"""Labels of several fields, kept by column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["Columns"]


class Columns(Sequence[dict[str, Any]]):
    """Labels kept by column: entry i is {name: column[i], ...}."""

    def __init__(self, columns: Mapping[str, Sequence[Any]]) -> None:
        self.columns = dict(columns)
        self._length = len(next(iter(self.columns.values())))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        return {name: column[index] for name, column in self.columns.items()}
