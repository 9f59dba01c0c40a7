"""Tables of paths and labels: text files with a path on each line, CSV files, and pandas DataFrames."""

from __future__ import annotations

import csv
import itertools
import os
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from cuaug._runtime.arguments import integer
from cuaug.errors import ArgumentError, SourceError
from cuaug.remote.urls import is_url
from cuaug.sources.files import EXTENSIONS, Files
from cuaug.sources.labels import Classes, LabelColumns, encode_text, to_column, warn_of_other_numbers
from cuaug.sources.text import PathResolver, open_text, parse_number


class ListFile(Files):
    """Files named in a list, "path label" per line, as in DALI's `file_list` and Caffe.

    The label is the last field, so paths may contain spaces. Empty lines and lines that begin with # are skipped.
    Labels are int64 if all are integers, else float64.

    Args:
        path: the list.
        root: folder or URL that contains the paths and to which relative paths refer; None: the list's folder. The
            paths may be URLs too.
        labels: number of label fields at the end of each line. With several, a label is an array of shape (labels,).
            With 0, the line is a path and its label is its index.
        allow_outside: accept paths that lead out of `root`: absolute paths and "..".

    Raises:
        LoaderError: the list cannot be read or names no file, a path leads out of `root`, or a line is malformed; the
            message has the line number.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        root: str | os.PathLike[str] | None = None,
        *,
        labels: int = 1,
        allow_outside: bool = False,
    ) -> None:
        labels = integer("labels", labels, 0)
        path = os.fspath(path)
        resolve = PathResolver(path, root, allow_outside=allow_outside)
        paths, numbers, line_numbers = [], [], []
        with open_text(path) as lines:
            for line_number, line in enumerate(lines, 1):
                line = line.strip()
                if not line or line.startswith("#"):
                    continue
                name, *fields = line.rsplit(None, labels) if labels else [line]
                try:
                    if len(fields) != labels:
                        raise ValueError
                    numbers += [parse_number(field) for field in fields]
                except ValueError:
                    expected = "one number" if labels == 1 else f"{labels} numbers"
                    is_path = os.path.isfile(resolve.join(line))
                    hint = "; for paths without labels: ListFile(..., labels=0)" if is_path else ""
                    if not is_path and len(fields) == labels == 1:
                        hint = f"; for class names: cuaug.sources.Csv({path!r}, header=False, delimiter=' ')"
                    raise SourceError(
                        f"{path!r} line {line_number}: expected a path and {expected}, got {line!r:.200}{hint}"
                    ) from None
                paths.append(resolve(name))
                line_numbers.append(line_number)
        if not paths:
            raise SourceError(f"{path!r} names no file")
        if not labels:
            super().__init__(paths)
            return
        values = to_column(numbers, lambda i: f"{path!r} line {line_numbers[i // labels]}")
        super().__init__(paths, values if labels == 1 else values.reshape(-1, labels))


Column = str | int


class Csv(Files):
    """Files named in a table, with labels from other columns.

    A column of integers gives int64; one with a fraction gives float64; a value that these cannot hold is an error. A
    single label column of strings that repeat gives class numbers, as in `Files`, and `classes` holds their names.
    Several label columns give dict labels {column name: value}, in which strings stay strings.

    Args:
        path: the table.
        image: column with the paths: its name in the header, or its number from 0.
        label: label column; a list of columns for dict labels; None: a file's label is its index.
        root: folder or URL that contains the paths and to which relative paths refer; None: the table's folder. The
            paths may be URLs too. A label column "mask", among several, holds paths of masks below it.
        header: whether the first line holds column names.
        delimiter: separator of columns; None: a tab for .tsv files, else a comma.
        types: {column: function that converts its strings}, to override the types above: {"id": str}.
        class_column: the column whose strings become class numbers, also in a list of label columns.
        classes: class names in label order, such as another table's `classes`; "auto": the sorted strings; None: text
            stays text.
        allow_outside: accept paths that lead out of `root`: absolute paths and "..".

    Raises:
        LoaderError: the table cannot be read, names no file or lacks a column; a path leads out of `root`; a line is
            malformed (the message has the line number); the header looks like an image file name; or the first path is
            missing while another column of that row names an existing file.
    """

    #: Keys of dict labels whose paths are resolved, and checked like those of images.
    label_path_names: frozenset[str] = frozenset({"mask"})

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
        classes: Classes = "auto",
        allow_outside: bool = False,
    ) -> None:
        path = os.fspath(path)
        if delimiter is None:
            delimiter = "\t" if path.lower().endswith(".tsv") else ","
        is_single = isinstance(label, (str, int))
        label_columns = [] if label is None else [label] if isinstance(label, (str, int)) else list(label)
        types = dict(types or {})
        if class_column is not None and class_column not in label_columns:
            raise ArgumentError(
                f"class_column must be one of the label columns {label_columns!r}, not {class_column!r}"
            )
        if unknown := [column for column in types if column not in label_columns]:
            raise ArgumentError(f"types must name label columns {label_columns!r}, not {unknown[0]!r}")
        table = _Table(path, delimiter, header, image, label_columns)
        resolve = PathResolver(path, root, allow_outside=allow_outside)
        table.check_image_column(image, resolve)

        names = None if classes == "auto" or classes is None else list(classes)
        columns: dict[str, Any] = {}
        for column in label_columns:
            values = table.cells(column) if column == class_column else table.convert(column, types.get(column))
            if column == class_column:
                if names is None:
                    warn_of_other_numbers(names := sorted(set(values)))
                values, names = encode_text(values, names, partial(table.where, column))
            elif is_single and column not in types and class_column is None:
                values, names = encode_text(values, classes, partial(table.where, column))
            if is_single:
                table.refuse_image_labels(values, resolve)
            elif table.name(column) == "mask":
                values = [resolve(value) if isinstance(value, str) and value else value for value in values]
            columns[table.name(column)] = values
        labels = None if not columns else next(iter(columns.values())) if is_single else LabelColumns(columns)
        super().__init__(list(map(resolve, table.paths(image))), labels, None)
        self.classes = names


class _Table:
    """Selected columns of a table, as strings.

    Attributes:
        names: the header, or None.
        width: number of columns.
        first_row: all cells of the first sample.
    """

    def __init__(self, path: str, delimiter: str, header: bool, image: Column, label_columns: Sequence[Column]) -> None:
        self.path = path
        self.first_row: list[str] = []
        self._line_numbers = array("q")  # the line on which each row ends
        with open_text(path) as file:
            reader = csv.reader(file, delimiter=delimiter, skipinitialspace=delimiter != "\t", strict=True)
            try:
                first = next((row for row in reader if row), [])
                self.names = first if header else None
                self.width = len(first)
                if header and isinstance(image, int) and first:
                    self._check_header(first[self._position(image)].strip(), reader.line_num)
                columns = [image, *label_columns] if first else []
                self._cells: dict[int, list[str]] = {self._position(column): [] for column in columns}
                for row in itertools.chain([] if header else [first], reader):
                    if row:
                        self._add(row, reader.line_num)
            except csv.Error as error:
                raise SourceError(f"{path!r} line {reader.line_num}: {error}") from error
        if not self._line_numbers:
            raise SourceError(f"{path!r} names no file")

    def _check_header(self, cell: str, line: int) -> None:
        """Refuses a header that names an image: the first sample would be lost silently."""
        if cell.lower().endswith(EXTENSIONS):
            raise SourceError(
                f"{self.path!r} line {line}: {cell!r} looks like a file, not like a column name; for a table without "
                "a header: Csv(..., header=False)"
            )

    def _add(self, row: list[str], line: int) -> None:
        if len(row) != self.width:
            raise SourceError(
                f"{self.path!r} line {line}: {len(row)} columns here, {self.width} above; put a path or label that "
                "contains the delimiter in quotes"
            )
        self.first_row = self.first_row or row
        for position, cells in self._cells.items():
            cells.append(row[position].strip())
        self._line_numbers.append(line)

    def _position(self, column: Column) -> int:
        """A column's number."""
        if isinstance(column, int) and not isinstance(column, bool) and 0 <= column < self.width:
            return column
        if isinstance(column, str) and self.names is not None and self.names.count(column) == 1:
            return self.names.index(column)
        columns = f"{self.width} columns, numbered from 0"
        if self.names is not None:
            columns = f"the columns {', '.join(map(repr, self.names))}, also numbered from 0"
        raise SourceError(f"{self.path!r} has no column {column!r}, or several of that name; it has {columns}")

    def check_image_column(self, image: Column, resolve: PathResolver) -> None:
        """Refuses a wrong image column: its first cell is no file, but another cell of that row is.

        A cell with an image extension counts as a missing file, whatever the other cells hold.
        """
        if not isinstance(image, int):  # the user named the column
            return
        cells = [cell.strip() for cell in self.first_row]
        position = self._position(image)
        path = resolve.join(cells[position])
        if is_url(path) or cells[position].lower().endswith(EXTENSIONS) or os.path.exists(path):
            return
        for i, cell in enumerate(cells):
            if os.path.isfile(resolve.join(cell)):
                this, other = (repr(k if self.names is None else self.names[k]) for k in (position, i))
                raise SourceError(
                    f"{self.path!r} line {self._line_numbers[0]}: column {this} names no file, {cells[position]!r}, "
                    f"but column {other} does, {cell!r}: name the columns, Csv(..., image={other}, label=...)"
                )

    def refuse_image_labels(self, values: Any, resolve: PathResolver) -> None:
        """Refuses a label column whose first cell is an image file: the path alone would be the label."""
        first = values[0]
        if isinstance(first, str) and first.lower().endswith(EXTENSIONS) and os.path.isfile(resolve.join(first)):
            raise SourceError(
                f"{self.path!r} line {self._line_numbers[0]}: the label {first!r} is an image file: for a mask, "
                'name the column "mask", and use Csv(..., label=["mask"])'
            )

    def name(self, column: Column) -> str:
        """A column's name in the header, or its number."""
        return str(column) if self.names is None else self.names[self._position(column)]

    def cells(self, column: Column) -> list[str]:
        return self._cells[self._position(column)]

    def paths(self, column: Column) -> list[str]:
        """The cells of a column; an empty one is an error."""
        cells = self.cells(column)
        if "" in cells:
            raise SourceError(f"{self.path!r} line {self._line_numbers[cells.index('')]}: the path is empty")
        return cells

    def convert(self, column: Column, to_value: Callable[[str], Any] | None) -> Any:
        """Numbers as an array, strings as a list; or a list of `to_value(cell)`."""
        cells = self.cells(column)
        if to_value is None:
            hint = f"; for a column of text: types={{{column!r}: str}}"
            return to_column(list(map(_parse_cell, cells)), partial(self.where, column), hint)
        values = []
        for i, cell in enumerate(cells):
            try:
                values.append(to_value(cell))
            except ValueError as error:
                raise SourceError(
                    f"{self.where(column, i)}: the converter in `types` refuses {cell!r:.100}: {error}"
                ) from error
        return values

    def where(self, column: Column, row: int) -> str:
        """Names a cell."""
        return f"{self.path!r} line {self._line_numbers[row]}, column {self.name(column)!r}"


def _parse_cell(cell: str) -> int | float | str:
    try:
        return parse_number(cell)
    except ValueError:
        return cell


class DataFrame(Files):
    """Files named in a pandas DataFrame, with labels from other columns; row i is sample i.

    Integers give int64, floats float64, booleans bool, each exactly. A single label column of text that repeats gives
    class numbers, as in `Files`; a categorical column gives its codes, and `classes` its categories in their order.
    Several label columns give dict labels {column: value}, in which text stays text. Columns are copied.

    Args:
        frame: the table.
        image: column with the paths, which may be URLs.
        label: label column; a list of columns for dict labels; None: a file's label is its row's number.
        root: folder or URL to which relative paths refer, also those of a label column "mask"; None: the working
            directory.
        classes: class names in label order, such as another table's `classes`; "auto": as above; None: text stays text.

    Raises:
        ArgumentError: a column is missing, or a path or label is.
        SourceError: a label column mixes numbers and text, or holds integers beyond int64.
    """

    def __init__(
        self,
        frame: Any,
        image: str = "path",
        label: str | Sequence[str] | None = "label",
        *,
        root: str | os.PathLike[str] | None = None,
        classes: Classes = "auto",
    ) -> None:
        if not is_data_frame(frame):
            raise ArgumentError(f"frame must be a pandas DataFrame, not {frame!r:.100}")
        names = [] if label is None else [label] if isinstance(label, str) else list(label)
        for name in (image, *names):
            if list(frame.columns).count(name) != 1:
                raise ArgumentError(
                    f"frame has no column {name!r}, or several; it has {', '.join(map(repr, frame.columns))}: name the "
                    "columns, cuaug.sources.DataFrame(frame, image=..., label=...)"
                )
            if (missing := frame[name].isna().to_numpy()).any():
                row = int(missing.argmax())
                raise ArgumentError(f"frame: row {row} has no {name!r}: leave it out, frame.dropna(subset=[{name!r}])")
        paths = [os.fspath(path) if isinstance(path, os.PathLike) else path for path in frame[image].tolist()]
        if root is not None and all(isinstance(path, str) for path in paths):  # else Files names the odd one
            paths = [_below(root, path) for path in paths]
        columns = {name: to_column(frame[name].tolist(), f"frame[{name!r}], row {{}}".format) for name in names}
        if root is not None and isinstance(columns.get("mask"), list):
            columns["mask"] = [_below(root, path) if isinstance(path, str) else path for path in columns["mask"]]
        if label is None:
            super().__init__(paths)
        elif not isinstance(label, str):
            super().__init__(paths, LabelColumns(columns), None)
        elif classes == "auto" and hasattr(frame[label], "cat"):
            categories = [str(name) for name in frame[label].cat.categories]
            warn_of_other_numbers(categories)
            super().__init__(paths, frame[label].cat.codes.to_numpy().astype(np.int64), categories)
        else:
            super().__init__(paths, *encode_text(columns[label], classes))


def _below(root: str | os.PathLike[str], path: str) -> str:
    return path if os.path.isabs(path) or is_url(path) else os.path.join(os.fspath(root), "") + path


def is_data_frame(value: Any) -> bool:
    """Whether this is a pandas DataFrame; pandas has been imported then."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, pandas.DataFrame)
