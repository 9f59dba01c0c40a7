"""Images behind URLs: http, https, s3 and gs, or any fsspec protocol that the user allows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from cuaug.errors import ArgumentError, SourceError
from cuaug.remote import urls as _urls
from cuaug.sources.files import EXTENSIONS, Files, split_pairs
from cuaug.sources.labels import Classes

__all__ = ["Remote"]

# A server can list folders without end.
_MAX_DEPTH = 50


class Remote(Files):
    """Remote images with one label each. Needs `pip install "cuaug[remote]"` and the protocol's own library.

    One image is one request, made by the thread that reads it; nothing connects before the first read. fsspec's file
    system handles timeouts and retries: pass them as `storage_options`. A failed request damages one sample: it is an
    OSError that names the URL.

        Remote(urls, protocols=("memory",))
        Remote.from_folder("zip://train::photos.zip", protocols=("zip", "file"))

    Args:
        urls: URLs of images, or (URL, label) pairs.
        labels: one per URL, unless `urls` holds pairs; None: each URL's index.
        classes: as for `Files`.
        storage_options: for fsspec's file system, such as {"anon": True} for s3. They must pickle if this is to pickle.
        protocols: protocols that the URLs, and each link of a chain (::), may have. Allow only those that the author
            of the URLs may use. None: http, https, s3 and gs, and no chains. fsspec's "reference" is never allowed: it
            can run code.

    Raises:
        LoaderError: no URL; another number of labels than URLs; a protocol that is not allowed or not installed; or a
            URL with credentials.
    """

    def __init__(
        self,
        urls: Iterable[Any],
        labels: Iterable[Any] | None = None,
        classes: Classes = "auto",
        *,
        storage_options: Mapping[str, Any] | None = None,
        protocols: Sequence[str] | None = None,
    ) -> None:
        self._options = dict(storage_options or {})
        if isinstance(protocols, str):
            raise ArgumentError(f"protocols must be a list of names, such as ({protocols!r},), not {protocols!r}")
        self._protocols = protocols
        entries = [urls] if isinstance(urls, str) else list(urls)
        if labels is None:
            entries, labels = split_pairs(entries)
        for i, url in enumerate(entries):
            if not isinstance(url, str) or not _urls.is_url(url):
                raise ArgumentError(f"urls: entry {i} is {url!r}, not a URL such as 'https://host/image.jpg'")
        super().__init__(entries, labels, classes)

    @classmethod
    def from_folder(
        cls,
        url: str,
        *,
        storage_options: Mapping[str, Any] | None = None,
        protocols: Sequence[str] | None = None,
    ) -> Remote:
        """Finds every image below url/<class>/, at any depth, in sorted order.

        An http server must list its folders. "zip://::photos.zip" is a whole zip file and "zip://train::photos.zip" a
        folder in it, with protocols=("zip", "file").

        Raises:
            LoaderError: the folder cannot be listed or holds no folder of images, or its protocol is not allowed.
        """
        options = dict(storage_options or {})
        _urls.check([url], protocols)
        system, root = _urls.file_system(url, options)
        try:
            files = list(_files_below(system, root))
        except Exception as error:  # each file system raises errors of its own
            raise SourceError(f"cannot list {url!r}: {type(error).__name__}: {error}") from error
        root = f"{root.rstrip('/')}/" if root else ""
        names = [path.removeprefix(root).lstrip("/") for path in files if path.startswith(root)]
        names = [name for name in names if "/" in name and name.lower().endswith(EXTENSIONS)]
        if not names:
            raise SourceError(
                f"{url!r} holds no folder with a {', '.join(EXTENSIONS)} file ({len(files)} files found): "
                "it should hold one folder of images per class"
            )
        names.sort(key=lambda name: (name.partition("/")[0], name))
        folders = [name.partition("/")[0] for name in names]
        class_number = {folder: i for i, folder in enumerate(dict.fromkeys(folders))}
        classes = [unquote(folder) if url.startswith("http") else folder for folder in class_number]
        labels = [class_number[folder] for folder in folders]
        urls = [_urls.below(url, name) for name in names]
        return cls(urls, labels, classes, storage_options=options, protocols=protocols)

    def _check_urls(self) -> None:
        _urls.check(self.paths, self._protocols)

    def _fetch(self, url: str) -> bytes:
        return _urls.fetch(url, self.max_bytes, self._options)


def _files_below(system: Any, folder: str, depth: int = 0) -> Iterator[str]:
    """Lists files recursively. `system.find` would skip folders that it fails to list; this raises."""
    if depth > _MAX_DEPTH:
        raise OSError(f"{folder!r:.200} lies more than {_MAX_DEPTH} folders deep")
    for entry in system.ls(folder, detail=True):
        if entry["type"] != "directory":
            yield entry["name"]
        elif len(entry["name"].rstrip("/")) > len(folder.rstrip("/")):  # some systems list a folder in itself
            yield from _files_below(system, entry["name"], depth + 1)
