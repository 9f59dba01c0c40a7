"""YOLO folders: images/ beside labels/, and the data.yaml that names them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.extras import require_module
from cuaug._runtime.limits import DEFAULT_MAX_BYTES
from cuaug.errors import DecodeError, SourceError
from cuaug.sources.file_bytes import read_bytes, read_metadata
from cuaug.sources.files import images_below
from cuaug.sources.source import ReprMixin, cache_key, cached_method, file_contents, fingerprint, relative_paths
from cuaug.sources.text import PathResolver, open_text, parse_number

__all__ = ["Yolo"]

_MAX_YAML_BYTES = 16 << 20
_MAX_CLASSES = 1 << 31  # of a folder without data.yaml
#: Rounded coordinates may lie this far outside the image.
_SLACK = 0.01


class Yolo(ReprMixin):
    """Images and their boxes from a folder in YOLO's layout, as ultralytics reads it.

    The labels of images/train/a.jpg are in labels/train/a.txt: "class cx cy w h" per line, relative to the image as it
    is displayed, with its EXIF orientation. An image without that file has no objects. Where no folder of the path is
    called images, the labels lie beside the image. A label is a dict of arrays for K objects:

    | key | shape | dtype | content |
    |---|---|---|---|
    | "boxes" | (K, 4) | float32 | x0, y0, x1, y1 in pixels, clipped to the image |
    | "labels" | (K,) | int64 | indices into `classes` |

    Label files are read with their image, so a malformed line costs that image alone; `cuaug check` lists them all.
    Polygons and rotated boxes, which have more than five values, are malformed.

    Args:
        data: data.yaml, read with PyYAML (`pip install "cuaug[yolo]"`); or the folder that holds it. Also a folder
            without data.yaml, with the images in images/<split>, <split>/images or <split>.
        split: the key in data.yaml, or the name of the folder. None: all images of a folder without data.yaml.
        root: folder or files to which the paths in data.yaml refer; None: its `path`, beside the file. Lists of images
            refer to their own folder.
        allow_outside: accept paths in data.yaml and in lists that lead out of that folder: absolute paths and "..".

    Attributes:
        classes: names of the labels; None without data.yaml.
        max_bytes: limit on one label file, and on the image whose size is read.

    Raises:
        LoaderError: data.yaml cannot be read, or lacks the split or the names; there are no images; or none of them
            has a label file.
    """

    max_bytes = DEFAULT_MAX_BYTES

    def __init__(
        self,
        data: str | os.PathLike[str],
        split: str | None = "train",
        *,
        root: str | os.PathLike[str] | None = None,
        allow_outside: bool = False,
    ) -> None:
        path = os.fspath(data)
        file = os.path.join(path, "data.yaml") if os.path.isdir(path) else path
        self.classes: list[str] | None = None
        if os.path.isdir(path) and not os.path.isfile(file):
            self._images = images_below(_folder_of_split(path, split))
            described = repr(path)
        else:
            config = _read_yaml(file)
            self.classes = _class_names(file, config)
            self._images = list(_listed_images(file, config, split, root, allow_outside))
            described = f"{file!r} split {split!r}"
        if not self._images:
            raise SourceError(f"{described} has no images")
        if not any(os.path.lexists(_label_file(image)) for image in self._images):
            raise SourceError(
                f"{described}: none of the {len(self)} images has a label file, such as {_label_file(self.path(0))!r} "
                f"for {self.path(0)!r}: labels/ must be beside images/. cuaug.sources.Files reads images alone"
            )
        #: (height, width) as displayed; 0: not read yet. Each is read once.
        self._sizes = np.zeros((len(self), 2), dtype=np.int64)

    def __len__(self) -> int:
        return len(self._images)

    def read(self, index: int) -> tuple[str, dict[str, NDArray[Any]]]:
        """Returns (path, label).

        Raises:
            DecodeError: a line of the label file is malformed (the error names both), or the image has no valid header.
            OSError: the label file or the image cannot be read.
        """
        return self.path(index), self.label(index)

    def path(self, index: int) -> str:
        """The image's path."""
        return self._images[index]

    def label(self, index: int) -> dict[str, NDArray[Any]]:
        """The label alone, as `read` returns it."""
        classes, boxes = self._parse(_label_file(self.path(index)))
        if len(boxes):
            height, width = self._read_size(index)
            half = boxes[:, 2:] / 2
            boxes = np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], axis=1).clip(0, 1)
            boxes *= [width, height, width, height]
        return {"boxes": boxes.astype(np.float32), "labels": classes}

    def picture_size(self, index: int) -> tuple[int, int]:
        """(height, width) by which the boxes were scaled, in pixels; (0, 0): none were."""
        height, width = self._sizes[index].tolist()
        return height, width

    @cached_method
    def fingerprint(self) -> str:
        """Digest of the image paths below their common folder, the class names and the label files."""
        labels = file_contents(map(_label_file, self._images), self.max_bytes)
        return fingerprint("yolo", relative_paths(self._images), self.classes, labels)

    def cache_key(self) -> str:
        """The images' folder, and a digest of the modification times of up to 1,000 images."""
        return cache_key(self._images)

    def _label_bytes(self, file: str) -> bytes:
        try:
            return read_bytes(file, self.max_bytes)
        except FileNotFoundError:
            if os.path.lexists(file):  # a broken link
                raise
            return b""

    def _parse(self, file: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """(K,) classes and (K, 4) relative cxcywh of a label file."""
        rows = []
        lines = self._label_bytes(file).decode("utf-8-sig", "surrogateescape").split("\n")
        for number, line in enumerate(lines, 1):
            if fields := line.split():
                try:
                    rows.append(self._row(fields))
                except ValueError as expected:
                    raise DecodeError(
                        f"{file!r} line {number}: expected {expected}, got {line.strip()!r:.200}"
                    ) from None
        table = np.array(rows, dtype=np.float64).reshape(-1, 5)
        return table[:, 0].astype(np.int64), table[:, 1:]

    def _row(self, fields: list[str]) -> list[int | float]:
        """class, cx, cy, w, h; a ValueError says what is expected."""
        expected = "five numbers, 'class cx cy w h'"
        if len(fields) > 5:
            raise ValueError(f"{expected}; polygons and rotated boxes are not read")
        try:
            label, *box = row = [parse_number(field) for field in fields]
        except ValueError:
            raise ValueError(expected) from None
        if len(box) != 4:
            raise ValueError(expected)
        count = _MAX_CLASSES if self.classes is None else len(self.classes)
        if not (0 <= label < count and label == int(label)):
            raise ValueError(f"a class from 0 to {count - 1}")
        if not (all(-_SLACK <= side <= 1 + _SLACK for side in box) and min(box[2:]) >= 0):
            raise ValueError("a box in numbers from 0 to 1, relative to the image")
        return row

    def _read_size(self, index: int) -> tuple[int, int]:
        """(height, width) of the image as displayed. Limits on pixels are the loader's."""
        if not self._sizes[index].all():
            from cuaug.codec import read_header  # imports PIL

            header = read_header(read_bytes(self.path(index), self.max_bytes), max_pixels=sys.maxsize, lossy=True)
            self._sizes[index] = header.height, header.width
        return self.picture_size(index)


def _label_file(image: str) -> str:
    """labels/a.txt for images/a.jpg, where the last folder called images counts."""
    before, images, after = f"/{image}".rpartition("/images/")
    stem, _ = os.path.splitext(f"{before}/labels/{after}" if images else f"/{image}")
    return f"{stem[1:]}.txt"


def _folder_of_split(folder: str, split: str | None) -> str:
    if split is None:
        return folder
    candidates = [os.path.join(folder, *names) for names in (("images", split), (split, "images"), (split,))]
    for candidate in candidates:
        if os.path.isdir(candidate):
            return candidate
    shown = ", ".join(map(repr, candidates))
    raise SourceError(
        f"{folder!r} has no data.yaml and none of the folders {shown}: give split=, or None for all images"
    )


def _read_yaml(file: str) -> dict[Any, Any]:
    data = read_metadata(file, _MAX_YAML_BYTES)
    yaml = require_module("yaml", "yolo", "data.yaml")
    try:
        config = yaml.safe_load(data)
    except (yaml.YAMLError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise SourceError(f"{file!r} is not YAML: {error}") from error
    if not isinstance(config, dict):
        raise SourceError(f"{file!r} must hold train:, val: and names:, not {config!r:.100}")
    return config


def _class_names(file: str, config: dict[Any, Any]) -> list[str]:
    """The names of labels 0, 1, ..., of a list or a dict from numbers."""
    names = config.get("names")
    if isinstance(names, dict) and set(names) == set(range(len(names))):
        names = [names[number] for number in range(len(names))]
    if not isinstance(names, list) or not names or not all(type(name) in (str, int) for name in names):
        raise SourceError(
            f"{file!r}: names must be a list of class names, or a dict from 0, 1, ... to them, not {names!r:.100}; "
            "YAML needs quotes around names such as 'no' and '1.0'"
        )
    count = config.get("nc", len(names))
    if count != len(names):
        raise SourceError(f"{file!r}: nc is {count!r:.100}, but names has {len(names)} entries")
    return [str(name) for name in names]


def _listed_images(
    file: str, config: dict[Any, Any], split: str | None, root: str | os.PathLike[str] | None, allow_outside: bool
) -> Iterator[str]:
    """The images of a split's folders and lists, in order."""
    entries = config.get(split)
    entries = entries if isinstance(entries, list) else [entries]
    if not all(isinstance(entry, str) and entry for entry in entries):
        found = [key for key in ("train", "val", "test") if config.get(key)]
        raise SourceError(f"{file!r}: split must be one of its {found}, with a folder or a list, not {split!r}")
    if root is None and config.get("path"):
        resolve = PathResolver(file, None, allow_outside=allow_outside)
        root = resolve(str(config["path"]))
        if not os.path.isdir(root):
            raise SourceError(f"{file!r}: its path {root!r} is no folder: give root=, the folder of its images")
    resolve = PathResolver(file, root, allow_outside=allow_outside)
    for entry in entries:
        if entry.startswith("../") and not os.path.exists(resolve.join(entry)):  # Roboflow's exports mean "./"
            entry = entry[3:]
        path = resolve(entry)
        if os.path.isdir(path):
            yield from images_below(path)
        elif path.lower().endswith(".txt"):
            resolve_line = PathResolver(path, None, allow_outside=allow_outside)
            with open_text(path) as lines:
                yield from (resolve_line(line.strip().removeprefix("./")) for line in lines if line.strip())
        else:
            raise SourceError(
                f"{file!r}: {split}: {path!r} is neither a folder of images nor a .txt list of them: give root=, the "
                "folder to which its paths refer"
            )
