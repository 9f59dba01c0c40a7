"""A table with a column of paths and columns of labels."""

from __future__ import annotations

import csv
import itertools
import os
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cuaug.errors import LoaderError
from cuaug.sources._columns import Columns
from cuaug.sources._text import Resolver, array_of, number, open_text
from cuaug.sources._urls import is_url
from cuaug.sources.files import EXTENSIONS, Files

__all__ = ["Csv"]

Column = str | int


class Csv(Files):
    """The files named in a table, with labels from its other columns.

    A column of numbers gives int64, or float64 where one of them has a fraction. A single label column of strings
    gives class numbers; `classes` has the strings, sorted. Several columns give dict labels {column name: value},
    whose strings stay strings.

    Args:
        path: of the table.
        image: the column with the paths, by its name in the header or its number from 0.
        label: the label's column; a list of columns for dict labels; None: a file's label is its index.
        root: the folder in which the paths lie and relative ones begin; None: that of the table. It may be a url, and
            so may the paths.
        header: whether the first line has the columns' names.
        delimiter: what separates columns; None: a tab in a file named .tsv, else a comma.
        types: {column: what makes a value of a string}, where the kinds above do not fit: {"id": str}.
        class_column: one of a list of label columns; its strings become class numbers, as those of a single one do.
        allow_outside: accept paths that lead out of `root`: absolute paths and "..".

    Raises:
        LoaderError: the table cannot be read, names no file, has no such column, a path leads out of `root`, or a line
            is not as it should be; it says which. Also where the first line, that of the header, names a picture; and
            where the first path leads nowhere, and another column's entry is a file.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        image: Column = 0,
        label: Column | Sequence[Column] | None = 1,
        *,
        root: str | os.PathLike[str] | None = None,
        header: bool = True,
        delimiter: str | None = None,
        types: Mapping[Column, Callable[[str], Any]] | None = None,
        class_column: Column | None = None,
        allow_outside: bool = False,
    ) -> None:
        path = os.fspath(path)
        if delimiter is None:
            delimiter = "\t" if path.lower().endswith(".tsv") else ","
        single = isinstance(label, (str, int))
        wanted = [] if label is None else [label] if isinstance(label, (str, int)) else list(label)
        types = dict(types or {})
        if class_column is not None and class_column not in wanted:
            raise LoaderError(f"class_column is one of the label columns {wanted!r}, not {class_column!r}")
        if unknown := [column for column in types if column not in wanted]:
            raise LoaderError(f"types are for the label columns {wanted!r}, not {unknown[0]!r}")
        table = _Table(path, delimiter, header, image, wanted)
        resolve = Resolver(path, root, allow_outside=allow_outside)
        table.check_image(image, resolve)

        classes: list[str] | None = None
        columns: dict[str, Any] = {}
        for column in wanted:
            values = table.cells(column) if column == class_column else table.typed(column, types.get(column))
            if column == class_column or (single and column not in types and isinstance(values, list)):
                classes = sorted(set(values))
                place = {name: i for i, name in enumerate(classes)}
                values = np.fromiter((place[value] for value in values), dtype=np.int64, count=len(values))
            columns[table.name(column)] = values
        labels = None if not columns else next(iter(columns.values())) if single else Columns(columns)
        super().__init__(list(map(resolve, table.paths(image))), labels, classes)


class _Table:
    """Some columns of a table, as strings.

    Attributes:
        names: the header, if there is one.
        width: how many columns there are.
        first: the first sample's row, all of it.
    """

    def __init__(self, path: str, delimiter: str, header: bool, image: Column, wanted: Sequence[Column]) -> None:
        self.path = path
        self.first: list[str] = []
        self._lines = array("q")  # on which line of the file each row ends
        with open_text(path) as file:
            reader = csv.reader(file, delimiter=delimiter, skipinitialspace=delimiter != "\t", strict=True)
            try:
                first = next((row for row in reader if row), [])
                self.names = first if header else None
                self.width = len(first)
                if header and isinstance(image, int) and first:
                    self._check_header(first[self._position(image)].strip(), reader.line_num)
                self._cells: dict[int, list[str]] = {self._position(column): [] for column in [image, *wanted] if first}
                for row in itertools.chain([] if header else [first], reader):
                    if row:
                        self._add(row, reader.line_num)
            except csv.Error as error:
                raise LoaderError(f"{path!r} line {reader.line_num}: {error}") from error
        if not self._lines:
            raise LoaderError(f"{path!r} names no file")

    def _check_header(self, cell: str, line: int) -> None:
        """Refuses a header that names a picture: it is the first sample, which would be lost unnoticed."""
        if cell.lower().endswith(EXTENSIONS):
            raise LoaderError(
                f"{self.path!r} line {line}: {cell!r} looks like a file, not like the name of a column; of a table "
                "with no header: Csv(..., header=False)"
            )

    def _add(self, row: list[str], line: int) -> None:
        if len(row) != self.width:
            raise LoaderError(
                f"{self.path!r} line {line}: there are {len(row)} columns here, {self.width} above; "
                "a path or label with the delimiter in it stands in quotes"
            )
        self.first = self.first or row
        for position, cells in self._cells.items():
            cells.append(row[position].strip())
        self._lines.append(line)

    def _position(self, column: Column) -> int:
        """A column's number."""
        if isinstance(column, int) and not isinstance(column, bool) and 0 <= column < self.width:
            return column
        if isinstance(column, str) and self.names is not None and self.names.count(column) == 1:
            return self.names.index(column)
        has = f"{self.width} columns, numbered from 0"
        if self.names is not None:
            has = f"the columns {', '.join(map(repr, self.names))}, also numbered from 0"
        raise LoaderError(f"{self.path!r} has no column {column!r}, or several of that name; it has {has}")

    def check_image(self, image: Column, resolve: Resolver) -> None:
        """Refuses an image column that was a wrong guess: in the first row it is no file, and another column is.

        A cell that is named like a picture counts as one that is missing, whatever else there is.
        """
        if not isinstance(image, int):  # by name: that was no guess
            return
        cells = [cell.strip() for cell in self.first]
        position = self._position(image)
        given = resolve.join(cells[position])
        if is_url(given) or cells[position].lower().endswith(EXTENSIONS) or os.path.exists(given):
            return
        for i, cell in enumerate(cells):
            if os.path.isfile(resolve.join(cell)):
                this, that = (repr(k if self.names is None else self.names[k]) for k in (position, i))
                raise LoaderError(
                    f"{self.path!r} line {self._lines[0]}: there is no file {cells[position]!r}, of column {this}, but "
                    f"there is {cell!r}, of column {that}: say which are the columns, Csv(..., image={that}, "
                    "label=...)"
                )

    def name(self, column: Column) -> str:
        """As the header has it; without one, the column's number."""
        return str(column) if self.names is None else self.names[self._position(column)]

    def cells(self, column: Column) -> list[str]:
        return self._cells[self._position(column)]

    def paths(self, column: Column) -> list[str]:
        """The cells of a column, none of them empty."""
        cells = self.cells(column)
        if "" in cells:
            raise LoaderError(f"{self.path!r} line {self._lines[cells.index('')]}: the path is empty")
        return cells

    def typed(self, column: Column, make: Callable[[str], Any] | None) -> Any:
        """Numbers as an array, strings as a list; or a list of what `make` makes of the strings."""
        cells = self.cells(column)
        if make is None and not any(map(_is_number, cells)):
            return cells
        values = []
        for line, cell in zip(self._lines, cells, strict=True):
            try:
                values.append((make or number)(cell))
            except ValueError as error:
                where = f"{self.path!r} line {line}, column {self.name(column)!r}"
                if make is not None:
                    raise LoaderError(f"{where}: {cell!r:.100} is not as `types` says: {error}") from error
                raise LoaderError(
                    f"{where}: {cell!r:.100} is not a number, but other cells of the column are; if it holds text, say "
                    f"types={{{column!r}: str}}"
                ) from None
        return values if make is not None else array_of(values)


def _is_number(cell: str) -> bool:
    try:
        number(cell)
    except ValueError:
        return False
    return True
