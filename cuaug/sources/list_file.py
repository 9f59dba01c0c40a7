"""A text file with a path and its label on each line."""

from __future__ import annotations

import os

from cuaug.arguments import integer
from cuaug.errors import LoaderError
from cuaug.sources._text import Resolver, array_of, number, open_text
from cuaug.sources.files import Files

__all__ = ["ListFile"]


class ListFile(Files):
    """The files named in a list, "path label" a line, as DALI's `file_list` and Caffe have it.

    The label is the last field, so that paths may hold spaces. Empty lines, and lines that begin with #, are left out.
    Labels are int64 where the whole list has integers only, else float64.

    Args:
        path: of the list.
        root: the folder in which the paths lie and relative ones begin; None: that of the list. It may be a url, and
            so may the paths.
        allow_outside: accept paths that lead out of `root`: absolute paths and ".."
        labels: how many fields at the end of a line are labels. With more than one a label is an array of shape
            (labels,); with 0 the line is a path, whose label is its index.

    Raises:
        LoaderError: the list cannot be read, names no file, a path leads out of `root`, or a line is not as it should
            be; it says which.
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
        resolve = Resolver(path, root, allow_outside=allow_outside)
        paths, numbers = [], []
        with open_text(path) as lines:
            for line_number, line in enumerate(lines, 1):
                line = line.strip()
                if not line or line.startswith("#"):
                    continue
                name, *fields = line.rsplit(None, labels) if labels else [line]
                try:
                    if len(fields) != labels:
                        raise ValueError
                    numbers.append([number(field) for field in fields])
                except ValueError:
                    wanted = "one number" if labels == 1 else f"{labels} numbers"
                    is_path = os.path.isfile(resolve.join(line))
                    hint = "; of paths without labels: ListFile(..., labels=0)" if is_path else ""
                    raise LoaderError(
                        f"{path!r} line {line_number}: a path and {wanted} should stand here, not {line!r:.200}{hint}"
                    ) from None
                paths.append(resolve(name))
        if not paths:
            raise LoaderError(f"{path!r} names no file")
        values = [n[0] for n in numbers] if labels == 1 else numbers
        super().__init__(paths, array_of(values) if labels else None)
