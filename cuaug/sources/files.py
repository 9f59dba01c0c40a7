"""Image files: a list of paths, (path, label) pairs, or a directory with one folder per class."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any

from cuaug.errors import LoaderError
from cuaug.limits import DEFAULT_MAX_BYTES
from cuaug.sources import _urls
from cuaug.sources._fingerprint import cache_key, fingerprint, once, relative
from cuaug.sources._labels import by_place
from cuaug.sources._repr import ReprMixin

__all__ = ["EXTENSIONS", "Files", "images_below", "split_pairs"]

#: File name endings that count as images in a directory.
EXTENSIONS = (
    *(".jpg", ".jpeg", ".jfif", ".png", ".webp", ".tif", ".tiff", ".bmp", ".jp2", ".j2k"),
    *(".gif", ".avif", ".ppm", ".pgm", ".pnm"),
)

_CHUNK = 65_536

# Errors of links that cannot lead to a folder: they go in a circle, through a file, or too far.
_LEADS_NOWHERE = (errno.ELOOP, errno.ENOTDIR, errno.ENAMETOOLONG)

# Folders, by device and inode.
Around = frozenset[tuple[int, int]]


class Files(ReprMixin):
    """Files with a label each.

    Args:
        paths: the files; http, https, s3 and gs urls are read through fsspec, with `pip install "cuaug[remote]"`.
            `Remote` reads others.
        labels: one per path, in their order; None: each file's index, as DALI's reader does.
        classes: names of the labels 0, 1, ..., where there are any.

    Attributes:
        max_bytes: limit for one url; set it where larger files are expected. `Loader(max_bytes=)` limits files.

    Raises:
        LoaderError: no paths, one path instead of a list, an entry that is no path, not as many labels as paths, or
            a url of another protocol, with credentials or in a chain (::).
    """

    max_bytes = DEFAULT_MAX_BYTES

    def __init__(
        self,
        paths: Iterable[str | os.PathLike[str]],
        labels: Iterable[Any] | None = None,
        classes: Sequence[str] | None = None,
    ) -> None:
        if isinstance(paths, (str, bytes, set, frozenset)) or not isinstance(paths, Iterable):
            raise LoaderError(f"paths are a list of files, not {paths!r:.200}; open_source takes a folder")
        given: list[Any] = list(paths)
        self.paths: list[str] = given if set(map(type, given)) <= {str} else _as_text(given)
        self.labels = range(len(self.paths)) if labels is None else by_place(labels)
        self.classes = None if classes is None else list(classes)
        if not self.paths:
            raise LoaderError("there is nothing to load: the list of files is empty")
        if len(self.labels) != len(self.paths):
            raise LoaderError(f"{len(self.paths)} paths but {len(self.labels)} labels")
        self._has_urls = _any_is_url(self.paths)
        if self._has_urls:
            self._check_urls()

    @classmethod
    def from_entries(cls, entries: Sequence[Any]) -> Files:
        """From paths, or (path, label) pairs."""
        return cls(*split_pairs(entries))

    @classmethod
    def from_directory(cls, root: str | os.PathLike[str]) -> Files:
        """Every image below root/<class>/, at any depth and behind links; classes and files in their names' order.

        Hidden folders are read like others, as torchvision's ImageFolder does. Its samples may have other numbers: it
        puts a folder's own files before those of the folders in it (c/a.jpg, c/b.jpg, c/a/x.jpg; here c/a.jpg,
        c/a/x.jpg, c/b.jpg), and knows fewer endings than `EXTENSIONS` has. Where numbers of its samples were kept,
        open its (path, label) pairs: `Loader(image_folder.samples)`.

        Raises:
            LoaderError: there are none, a folder cannot be listed, or a link leads to a folder that it lies in.
        """
        root = os.fspath(root)
        if not os.path.isdir(root):
            raise LoaderError(f"{root!r} is not a directory: give one with a folder per class, or a list of paths")
        folders, files, inside = _listed(root, frozenset())
        classes = sorted(map(os.path.basename, folders))
        if not classes:
            shards = {os.path.splitext(file)[1] for file in files} & {".tar", ".tfrecord"}
            others = [f"its shards as {os.path.join(root, '*' + ending)!r}" for ending in sorted(shards)]
            raise LoaderError(
                f"{root!r} has no folders: it should hold one folder of images per class; "
                + "; ".join(others or ["images without classes are given as a list of paths"])
            )
        paths: list[str] = []
        labels: list[int] = []
        for label, name in enumerate(classes):
            found = images_below(os.path.join(root, name), inside)
            if not found:
                raise LoaderError(f"class folder {os.path.join(root, name)!r} holds no {', '.join(EXTENSIONS)} file")
            paths += found
            labels += [label] * len(found)
        return cls(paths, labels, classes)

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, index: int) -> tuple[str | bytes, Any]:
        """(path, label); of a url the bytes behind it.

        Raises:
            OSError: the url cannot be fetched.
            DecodeError: the url gives more than `max_bytes`.
        """
        path = self.paths[index]
        return self._fetch(path) if self._has_urls and _urls.is_url(path) else path, self.labels[index]

    def label(self, index: int) -> Any:
        """The label alone, as `read` gives it."""
        return self.labels[index]

    def path(self, index: int) -> str:
        """The path, or the url."""
        return self.paths[index]

    @once
    def fingerprint(self) -> str:
        """A digest of the paths below their common folder, the labels and the names of the classes."""
        return fingerprint("files", relative(self.paths), self.labels, self.classes)

    def cache_key(self) -> str:
        """The paths' common folder, and a digest of when up to 1,000 of the files were written."""
        return cache_key(self.paths)

    def _check_urls(self) -> None:
        _urls.check(path for path in self.paths if _urls.is_url(path))

    def _fetch(self, url: str) -> bytes:
        return _urls.fetch(url, self.max_bytes)


def split_pairs(entries: Sequence[Any]) -> tuple[list[Any], list[Any] | None]:
    """(paths, labels) of paths, whose labels are None, or of (path, label) pairs.

    Raises:
        LoaderError: an entry is neither, or not what the others are.
    """
    kinds = set(map(type, entries))  # the few types are looked at, not each of millions of entries
    pairs = {kind for kind in kinds if not issubclass(kind, (str, os.PathLike))}
    if not pairs:
        return list(entries), None
    if pairs != kinds:
        is_pair = [type(entry) in pairs for entry in entries]
        where = is_pair.index(not is_pair[0])
        raise LoaderError(f"files mixes paths and (path, label) pairs: entry {where} is {entries[where]!r:.200}")
    paths = list(map(itemgetter(0), entries)) if _have_two(pairs, entries) else []
    if not paths or any(not issubclass(kind, (str, os.PathLike)) for kind in set(map(type, paths))):
        i = next(i for i, entry in enumerate(entries) if not _is_pair(entry))
        raise LoaderError(f"entry {i} of files is neither a path nor a (path, label) pair: {entries[i]!r:.200}")
    return paths, list(map(itemgetter(1), entries))


def _have_two(kinds: set[type], entries: Sequence[Any]) -> bool:
    return all(issubclass(kind, Sequence) for kind in kinds) and set(map(len, entries)) == {2}


def _is_pair(entry: Any) -> bool:
    return isinstance(entry, Sequence) and len(entry) == 2 and isinstance(entry[0], (str, os.PathLike))


def _as_text(paths: Iterable[Any]) -> list[str]:
    texts = []
    for i, path in enumerate(paths):
        text = os.fspath(path) if isinstance(path, os.PathLike) else path
        if not isinstance(text, str):
            raise LoaderError(f"entry {i} of paths is {path!r:.200}, not a path")
        texts.append(text)
    return texts


def _any_is_url(paths: list[str]) -> bool:
    """Whether one of them is. Many are asked at once: a line break between two paths makes no url of them."""
    return any(_urls.is_url("\n".join(paths[i : i + _CHUNK])) for i in range(0, len(paths), _CHUNK))


def images_below(folder: str, above: Around = frozenset()) -> list[str]:
    """The images in a folder and in all folders below it, in their paths' order; `above` are those that it lies in.

    Raises:
        LoaderError: a folder cannot be listed, or a link leads to one that it lies in.
    """
    found: list[str] = []
    left = [(folder, above)]  # a list, since folders may be deeper than calls
    while left:
        folders, files, inside = _listed(*left.pop())
        found += [file for file in files if file.lower().endswith(EXTENSIONS)]
        left += [(each, inside) for each in folders]
    return sorted(found)


def _listed(folder: str, above: Around) -> tuple[list[str], list[str], Around]:
    """(folders, files) in a folder that lies in those `above`, and the folders that these lie in.

    Raises:
        LoaderError: it cannot be listed, or is itself one of those `above`.
    """
    try:
        status = os.stat(folder)
        with os.scandir(folder) as entries:
            kinds = [(entry.path, _is_folder(entry)) for entry in entries]
    except OSError as error:
        raise LoaderError(f"cannot list {folder!r}: {error}") from error
    own = status.st_dev, status.st_ino
    if own in above:
        raise LoaderError(f"{folder!r} is a link to a folder that it lies in: there is no end to the files below it")
    return [path for path, is_dir in kinds if is_dir], [path for path, is_dir in kinds if not is_dir], above | {own}


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno not in _LEADS_NOWHERE:
            raise
        return False
