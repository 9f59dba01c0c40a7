"""A pandas DataFrame with a column of paths."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from cuaug.errors import ArgumentError
from cuaug.remote.urls import is_url
from cuaug.sources._labels import Classes, LabelColumns, encode_text, to_column
from cuaug.sources.files import Files

__all__ = ["DataFrame", "is_data_frame"]


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
            super().__init__(paths, frame[label].cat.codes.to_numpy().astype(np.int64), categories)
        else:
            super().__init__(paths, *encode_text(columns[label], classes))


def _below(root: str | os.PathLike[str], path: str) -> str:
    return path if os.path.isabs(path) or is_url(path) else os.path.join(os.fspath(root), "") + path


def is_data_frame(value: Any) -> bool:
    """Whether this is a pandas DataFrame; pandas has been imported then."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, pandas.DataFrame)
