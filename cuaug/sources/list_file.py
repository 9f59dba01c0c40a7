"""A text file with a path and its label on each line."""

from __future__ import annotations

import os

from cuaug.arguments import integer
from cuaug.errors import SourceError
from cuaug.sources._labels import to_column
from cuaug.sources._text import PathResolver, open_text, parse_number
from cuaug.sources.files import Files

__all__ = ["ListFile"]


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
