"""The sources of the paths that commands take: images or videos, in files, folders, lists and containers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from cuaug._runtime.limits import DEFAULT_MAX_BYTES, check_bytes
from cuaug.sources import Source, Videos, open_source, optional_method
from cuaug.sources.file_bytes import read_bytes
from cuaug.sources.files import EXTENSIONS, images_below
from cuaug.sources.text import open_text
from cuaug.sources.videos import EXTENSIONS as VIDEO_EXTENSIONS

_LISTS = (".txt", ".lst")


def open_paths(paths: Sequence[str]) -> Source:
    """The source for a command's paths: image files, or one folder, list file, tar, ...; or videos, one sample each.

    Raises:
        LoaderError: a path does not exist or is not supported.
    """
    videos = _open_videos(paths)
    if videos is not None:
        return videos
    first = paths[0]
    is_image = first.lower().endswith(EXTENSIONS) and not os.path.isdir(first)
    return open_source(first if len(paths) == 1 and not is_image else list(paths))


def _open_videos(paths: Sequence[str]) -> Videos | None:
    """The videos at the paths; None if a path is something else.

    A folder counts as videos if it holds some, and no image.
    """
    if not all(map(_is_of_videos, paths)):
        return None
    if len(paths) == 1:
        return Videos(paths[0], frames=1, sampling="uniform")
    files: list[str] = []
    for path in paths:
        files += images_below(path, VIDEO_EXTENSIONS) if os.path.isdir(path) else [path]
    return Videos(files, frames=1, sampling="uniform")


def _is_of_videos(path: str) -> bool:
    if os.path.isdir(path):
        has_video = False
        for _, _, names in os.walk(path):
            if any(name.lower().endswith(EXTENSIONS) for name in names):
                return False
            has_video = has_video or any(name.lower().endswith(VIDEO_EXTENSIONS) for name in names)
        return has_video
    if path.lower().endswith(_LISTS) and os.path.isfile(path):
        return _lists_videos(path)
    return path.lower().endswith(VIDEO_EXTENSIONS)


def _lists_videos(path: str) -> bool:
    """Whether the first line of a list file, "path label" or "path label start end", names a video."""
    with open_text(path) as lines:
        for line in lines:
            if line.strip() and not line.startswith("#"):
                fields = line.split()
                return any(field.lower().endswith(VIDEO_EXTENSIONS) for field in fields)
    return False


def read_sample(source: Any, index: int) -> Any:
    """The data of a sample: encoded bytes, decoded pixels, or a `ClipRequest`.

    Raises:
        DecodeError: it has more than `DEFAULT_MAX_BYTES`.
        OSError: it cannot be read.
    """
    size = optional_method(source, "encoded_size")
    if size is not None:
        check_bytes(size(index), DEFAULT_MAX_BYTES)
    data, _ = source.read(index)
    return read_bytes(data, DEFAULT_MAX_BYTES) if isinstance(data, (str, os.PathLike)) else data
