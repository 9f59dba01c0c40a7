"""Images behind urls: http, https, s3 and gs, or any protocol of fsspec that is allowed by name."""

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

    One image is one request, made by the thread that reads; nothing connects before the first read. Timeouts and
    retries are the file system's matter: `storage_options` go to it. A url that cannot be fetched is that sample's
    fault, an OSError that names the url.

        Remote(urls, protocols=("memory",))
        Remote.from_folder("zip://train::photos.zip", protocols=("zip", "file"))

    Args:
        urls: of images, or (url, label) pairs.
        labels: one per url, where the urls are no pairs; None: each one's index.
        classes: names of the labels 0, 1, ..., where there are any.
        storage_options: for fsspec's file system, such as {"anon": True} for s3. They must pickle if this is to.
        protocols: those that the urls may have, in chains (::) each link; name only what whoever wrote the urls may
            reach. None: http, https, s3 and gs, and no chains. fsspec's "reference" is never allowed: it can run code.

    Raises:
        LoaderError: no url, not as many labels as urls, a protocol that is not allowed or not installed, or a url that
            holds credentials.
    """

    def __init__(
        self,
        urls: Iterable[Any],
        labels: Iterable[Any] | None = None,
        classes: Sequence[str] | None = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
        protocols: Sequence[str] | None = None,
    ) -> None:
        self._options = dict(storage_options or {})
        if isinstance(protocols, str):
            raise LoaderError(f"protocols is a list of names, such as ({protocols!r},), not {protocols!r}")
        self._protocols = protocols
        entries = [urls] if isinstance(urls, str) else list(urls)
        if labels is None:
            entries, labels = split_pairs(entries)
        for i, url in enumerate(entries):
            if not isinstance(url, str) or not _urls.is_url(url):
                raise LoaderError(f"entry {i} of urls is {url!r}, not a url such as 'https://host/image.jpg'")
        super().__init__(entries, labels, classes)

    @classmethod
    def from_folder(
        cls,
        url: str,
        *,
        storage_options: Mapping[str, Any] | None = None,
        protocols: Sequence[str] | None = None,
    ) -> Remote:
        """Every image below url/<class>/, at any depth; classes and files in the order of their names.

        Of http servers this asks that they list their folders. "zip://::photos.zip" is all of a zip file, and
        "zip://train::photos.zip" a folder in it, with protocols=("zip", "file").

        Raises:
            LoaderError: it cannot be listed, holds no folder of images, or its protocol is not allowed.
        """
        options = dict(storage_options or {})
        _urls.check([url], protocols)
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
        urls = [_urls.below(url, name) for name in names]
        return cls(urls, labels, classes, storage_options=options, protocols=protocols)

    def _check_urls(self) -> None:
        _urls.check(self.paths, self._protocols)

    def _fetch(self, url: str) -> bytes:
        return _urls.fetch(url, self.max_bytes, self._options)


def _files_below(system: Any, folder: str) -> Iterator[str]:
    """What `system.find(folder)` finds; that leaves out folders that it fails to list, where this raises."""
    for entry in system.ls(folder, detail=True):
        if entry["type"] != "directory":
            yield entry["name"]
        elif len(entry["name"].rstrip("/")) > len(folder.rstrip("/")):  # some list a folder in itself
            yield from _files_below(system, entry["name"])
