"""Images behind URLs: http, https, s3, gs and az."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cuaug.errors import ArgumentError, SourceError
from cuaug.remote import ObjectStore
from cuaug.remote.urls import check, is_url
from cuaug.sources.files import EXTENSIONS, Files, log_ignored, split_pairs
from cuaug.sources.labels import Classes


class Remote(Files):
    """Remote images with one label each. Needs `pip install ".[remote]"`.

    One image is one request, made by the thread that reads it; nothing connects before the first read. A failed request
    damages one sample: it is an OSError that names the URL. Failed requests to s3, gs and az are repeated before.

        Remote(urls, storage_options={"skip_signature": True})
        Remote.from_folder("s3://bucket/train")

    Args:
        urls: URLs of images, or (URL, label) pairs.
        labels: one per URL, unless `urls` holds pairs; None: each URL's index.
        classes: as for `Files`.
        storage_options: as of `RemoteOptions`, for URLs of one protocol. They must pickle if this is to pickle.
        timeout_seconds: limit for reading one image, with its repetitions. A single request gets half of it.

    Raises:
        LoaderError: no URL; another number of labels than URLs; a protocol that is not read; a missing library; or a
            URL with credentials.
    """

    def __init__(
        self,
        urls: Iterable[Any],
        labels: Iterable[Any] | None = None,
        classes: Classes = "auto",
        *,
        storage_options: Mapping[str, Any] | None = None,
        timeout_seconds: float = 60.0,
    ) -> None:
        entries = [urls] if isinstance(urls, str) else list(urls)
        if labels is None:
            entries, labels = split_pairs(entries)
        for i, url in enumerate(entries):
            if not isinstance(url, str) or not is_url(url):
                raise ArgumentError(f"urls: entry {i} is {url!r}, not a URL such as 'https://host/image.jpg'")
        super().__init__(entries, labels, classes)
        self._store = ObjectStore(storage_options, timeout_seconds=timeout_seconds)

    @classmethod
    def from_folder(cls, url: str, *, storage_options: Mapping[str, Any] | None = None) -> Remote:
        """Finds every image below url/<class>/ at s3, gs or az, at any depth, in sorted order.

        Raises:
            LoaderError: the folder cannot be listed, as on HTTP servers, or holds no folder of images.
        """
        check([url])
        try:
            files = ObjectStore(storage_options).list_below(url)
        except OSError as error:
            raise SourceError(str(error)) from error
        root = f"{url.rstrip('/')}/"
        files = [file.removeprefix(root) for file in files]
        names = [name for name in files if "/" in name and name.lower().endswith(EXTENSIONS)]
        if not names:
            raise SourceError(
                f"{url!r} holds no folder with a {', '.join(EXTENSIONS)} file ({len(files)} files found): "
                "it should hold one folder of images per class"
            )
        log_ignored(url, "beside the images of its folders", set(files).difference(names))
        names.sort(key=lambda name: (name.partition("/")[0], name))
        folders = [name.partition("/")[0] for name in names]
        class_number = {folder: i for i, folder in enumerate(dict.fromkeys(folders))}
        labels = [class_number[folder] for folder in folders]
        return cls([root + name for name in names], labels, list(class_number), storage_options=storage_options)
