"""Images behind urls of any protocol that fsspec knows: http, s3, gs, memory and more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from cuaug.errors import LoaderError
from cuaug.sources import _urls
from cuaug.sources.files import EXTENSIONS, Files, split_pairs

__all__ = ["Remote"]


class Remote(Files):
    """Remote images with a label each. Needs `pip install "cuaug[remote]"`, and what the protocol needs besides.

    One image is one request, made by the thread that reads. Timeouts and retries are the file system's matter:
    `storage_options` go to it. What cannot be fetched is that sample's fault, an OSError that names the url.

    Args:
        urls: of images, or (url, label) pairs.
        labels: one per url, where the urls are no pairs; None: each one's index.
        classes: names of the labels 0, 1, ..., where there are any.
        storage_options: for fsspec's file system, such as {"anon": True} for s3. They must pickle if this is to.

    Raises:
        LoaderError: no url, not as many labels as urls, or no file system for one of them.
    """

    def __init__(
        self,
        urls: Iterable[Any],
        labels: Iterable[Any] | None = None,
        classes: Sequence[str] | None = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._options = dict(storage_options or {})
        entries = [urls] if isinstance(urls, str) else list(urls)
        if labels is None:
            entries, labels = split_pairs(entries)
        for i, url in enumerate(entries):
            if not isinstance(url, str) or not _urls.is_url(url):
                raise LoaderError(f"entry {i} of urls is {url!r}, not a url such as 'https://host/image.jpg'")
        super().__init__(entries, labels, classes)

    @classmethod
    def from_folder(cls, url: str, *, storage_options: Mapping[str, Any] | None = None) -> Remote:
        """Every image below url/<class>/, at any depth; classes and files in the order of their names.

        Of http servers this asks that they list their folders. "zip://::photos.zip" is all of a zip file, and
        "zip://train::photos.zip" a folder in it.

        Raises:
            LoaderError: it cannot be listed, or holds no folder of images.
        """
        options = dict(storage_options or {})
        system, root = _urls.file_system(url, options)
        try:
            found = list(_files_below(system, root))
        except Exception as error:  # each kind of file system has errors of its own
            raise LoaderError(f"cannot list {url!r}: {type(error).__name__}: {error}") from error
        root = f"{root.rstrip('/')}/" if root else ""
        names = [path.removeprefix(root).lstrip("/") for path in found if path.startswith(root)]
        names = [name for name in names if "/" in name and name.lower().endswith(EXTENSIONS)]
        if not names:
            raise LoaderError(
                f"{url!r} holds no folder with a {', '.join(EXTENSIONS)} file ({len(found)} files were found): "
                "it should hold one folder of images per class"
            )
        names.sort(key=lambda name: (name.partition("/")[0], name))
        folders = [name.partition("/")[0] for name in names]
        number = {folder: i for i, folder in enumerate(dict.fromkeys(folders))}
        classes = [unquote(folder) if url.startswith("http") else folder for folder in number]
        labels = [number[folder] for folder in folders]
        return cls([_urls.below(url, name) for name in names], labels, classes, storage_options=options)

    def _check_urls(self) -> None:
        _urls.check(self.paths, self._options)

    def _fetch(self, url: str) -> bytes:
        return _urls.fetch(url, self._options)


def _files_below(system: Any, folder: str) -> Iterator[str]:
    """What `system.find(folder)` finds; that leaves out folders that it fails to list, where this raises."""
    for entry in system.ls(folder, detail=True):
        if entry["type"] != "directory":
            yield entry["name"]
        elif len(entry["name"].rstrip("/")) > len(folder.rstrip("/")):  # some list a folder in itself
            yield from _files_below(system, entry["name"])
