"""YOLO folders: images/ beside labels/, and the data.yaml that names them."""

from __future__ import annotations

import io
import os
import sys
from array import array
from collections.abc import Iterator
from reprlib import repr as short_repr
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.extras import require_module
from cuaug._runtime.limits import DEFAULT_MAX_BYTES
from cuaug.errors import DecodeError, SourceError
from cuaug.sources.file_bytes import read_bytes, read_metadata
from cuaug.sources.files import images_below, log, log_without_labels
from cuaug.sources.source import ReprMixin, cache_key, cached_method, file_contents, fingerprint, relative_paths
from cuaug.sources.text import PathResolver, open_text, parse_number

_MAX_YAML_BYTES = 1 << 20  # PyYAML takes up to 30 s for them, and 300 bytes of memory for each
_MAX_YAML_DEPTH = 20
_NULLS = ("", "~", "null", "Null", "NULL")
_MAX_LABEL_BYTES = 16 << 20
_MAX_CLASSES = 1 << 31  # of a folder without data.yaml
#: Rounded coordinates may lie this far outside the image.
_SLACK = 0.01


class Yolo(ReprMixin):
    """Images and their boxes from a folder in YOLO's layout, as ultralytics reads it.

    The labels of images/train/a.jpg are in labels/train/a.txt: "class cx cy w h" per line, relative to the image as it
    is displayed, with its EXIF orientation. An image without that file has no objects; the log counts these, and label
    files whose names match no image. Where no folder of the path is called images, the labels lie beside the image. A
    label is a dict of arrays for K objects:

    | key | shape | dtype | content |
    |---|---|---|---|
    | "boxes" | (K, 4) | float32 | x0, y0, x1, y1 in pixels, clipped to the image |
    | "labels" | (K,) | int64 | indices into `classes` |

    Labels begin at 0, which torchvision's detectors take for the background: add 1 for these, and build them with
    `num_classes=len(classes) + 1`.

    Label files are read with their image, so a malformed line costs that image alone; `cuaug check` lists them all.
    Polygons and rotated boxes, which have more than five values, are malformed.

    Args:
        data: data.yaml, read with PyYAML (`pip install ".[yolo]"`); or the folder that holds it. Also a folder
            without data.yaml, with the images in images/<split>, <split>/images or <split>.
        split: the key in data.yaml, or the name of the folder. None: all images of a folder without data.yaml.
        root: folder or files to which the paths in data.yaml refer; None: its `path`, beside the file. Lists of images
            refer to their own folder.
        allow_outside: accept paths in data.yaml and in lists that lead out of that folder: absolute paths and "..".

    Attributes:
        classes: names of the labels; None without data.yaml.
        max_bytes: limit on an image whose size is read, and on one label file, which may have 16 MiB at most.

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
            self._images = images_below(_folder_of_split(path, split), beside=(".txt",))
            described = repr(path)
        else:
            config = _read_yaml(file)
            self.classes = _class_names(file, config)
            self._images = list(_listed_images(file, config, split, root, allow_outside))
            described = f"{file!r} split {split!r}"
        if not self._images:
            raise SourceError(f"{described} has no images")
        self._check_names(described)
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
        labels = file_contents(map(_label_file, self._images), self._max_label_bytes)
        return fingerprint("yolo", relative_paths(self._images), self.classes, labels)

    def cache_key(self) -> str:
        """The images' folder, and a digest of the modification times of up to 1,000 images."""
        return cache_key(self._images)

    def _check_names(self, described: str) -> None:
        """Counts images without a label file and label files without an image; refuses images that have none."""
        labels: dict[str, frozenset[str]] = {}  # names in the folders of label files
        unlabeled, unused = [], []
        for image in self._images:
            folder, name = os.path.split(_label_file(image))
            if folder not in labels:
                labels[folder] = _names_in(folder)
                stems = {os.path.splitext(other)[0] for other in _names_in(os.path.dirname(image))} | {"classes"}
                texts = (other for other in labels[folder] if other.lower().endswith(".txt"))
                unused += [os.path.join(folder, other) for other in texts if other.removesuffix(".txt") not in stems]
            if name not in labels[folder]:
                unlabeled.append(image)
        if len(unlabeled) == len(self):
            raise SourceError(
                f"{described}: none of the {len(self)} images has a label file, such as {_label_file(self.path(0))!r} "
                f"for {self.path(0)!r}: labels/ must be beside images/. cuaug.sources.Files reads images alone"
            )
        log_without_labels(described, unlabeled, len(self), "label file")
        if unused:
            log.warning("%s: %d label file(s) match no image, the first %r", described, len(unused), min(unused))

    @property
    def _max_label_bytes(self) -> int:
        return min(self.max_bytes, _MAX_LABEL_BYTES)

    def _label_bytes(self, file: str) -> bytes:
        try:
            return read_bytes(file, self._max_label_bytes)
        except FileNotFoundError:
            if os.path.lexists(file):  # a broken link
                raise
            return b""

    def _parse(self, file: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """(K,) classes and (K, 4) relative cxcywh of a label file."""
        rows = array("d")
        data = io.BytesIO(self._label_bytes(file))
        for number, line in enumerate(io.TextIOWrapper(data, "utf-8-sig", "surrogateescape", newline="\n"), 1):
            if fields := line.split(None, 5):
                try:
                    rows.extend(self._row(fields))
                except ValueError as expected:
                    shown = line.strip()[:200]
                    raise DecodeError(f"{file!r} line {number}: expected {expected}, got {shown!r:.200}") from None
        table = np.array(rows).reshape(-1, 5)
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


def _names_in(folder: str) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder or "."))
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()
    except OSError as error:
        raise SourceError(f"cannot list {folder!r}: {error}") from error


def _read_yaml(file: str) -> dict[Any, Any]:
    data = read_metadata(file, _MAX_YAML_BYTES)
    yaml = require_module("yaml", "yolo", "data.yaml")
    try:
        config = _parse_yaml(yaml, data)
    except Exception as error:  # PyYAML's scanner raises errors of several types
        raise SourceError(f"{file!r} is not YAML that is read here: {error}") from error
    if not isinstance(config, dict):
        raise SourceError(f"{file!r} must hold train:, val: and names:, not {short_repr(config)}")
    return config


def _parse_yaml(yaml: Any, data: bytes) -> Any:
    """Dicts, lists, text and None. YAML's other types would change names: no, 1.10, 2024-01-01.

    Aliases could make a small file endless, and PyYAML takes quadratic time for deep nesting.

    Raises:
        Exception: the data are malformed, or have aliases, tags or a key twice.
    """
    outer: list[list[Any]] = []
    items: list[Any] = []  # of the innermost list or dict, or the document
    for event in yaml.parse(data, Loader=yaml.BaseLoader):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "tag", None) is not None:
            raise ValueError(f"line {event.start_mark.line + 1} has an alias (*) or a tag (!): write the value itself")
        if isinstance(event, yaml.ScalarEvent):
            items.append(None if event.implicit[0] and event.value in _NULLS else event.value)
        elif isinstance(event, yaml.CollectionStartEvent):
            outer.append(items)
            items = []
            if len(outer) > _MAX_YAML_DEPTH:
                raise ValueError(f"it is nested deeper than {_MAX_YAML_DEPTH} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            value = _to_dict(items) if isinstance(event, yaml.MappingEndEvent) else items
            items = outer.pop()
            items.append(value)
    if len(items) > 1:
        raise ValueError("it holds several documents")
    return items[0] if items else None


def _to_dict(items: list[Any]) -> dict[Any, Any]:
    """Makes a dict of keys and values in turn; PyYAML lets the last of equal keys win."""
    result: dict[Any, Any] = {}
    for key, value in zip(items[::2], items[1::2], strict=True):
        if key in result:
            raise ValueError(f"the key {key!r:.100} occurs twice")
        result[key] = value
    return result


def _class_names(file: str, config: dict[Any, Any]) -> list[str]:
    """The names of labels 0, 1, ..., of a list or a dict from numbers."""
    names = config.get("names")
    if isinstance(names, dict) and names.keys() == set(map(str, range(len(names)))):
        names = [names[str(number)] for number in range(len(names))]
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
        raise SourceError(
            f"{file!r}: names must be a list of class names, or a dict from 0, 1, ... to them, not {short_repr(names)}"
        )
    if (count := config.get("nc")) not in (None, str(len(names))):
        raise SourceError(f"{file!r}: nc is {short_repr(count)}, but names has {len(names)} entries")
    return names


def _listed_images(
    file: str, config: dict[Any, Any], split: str | None, root: str | os.PathLike[str] | None, allow_outside: bool
) -> Iterator[str]:
    """The images of a split's folders and lists, in order."""
    entries = config.get(split)
    entries = entries if isinstance(entries, list) else [entries]
    if not all(isinstance(entry, str) and entry for entry in entries):
        found = [key for key in ("train", "val", "test") if config.get(key)]
        raise SourceError(f"{file!r}: split must be one of its {found}, with a folder or a list, not {split!r}")
    if root is None and (path := config.get("path")):
        if not isinstance(path, str):
            raise SourceError(f"{file!r}: path must be a folder, not {short_repr(path)}")
        root = PathResolver(file, None, allow_outside=allow_outside)(path)
        if not os.path.isdir(root):
            raise SourceError(f"{file!r}: its path {root!r} is no folder: give root=, the folder of its images")
    resolve = PathResolver(file, root, allow_outside=allow_outside)
    for entry in entries:
        if entry.startswith("../") and not os.path.exists(resolve.join(entry)):  # Roboflow's exports mean "./"
            entry = entry[3:]
        path = resolve(entry)
        if os.path.isdir(path):
            yield from images_below(path, beside=(".txt",))
        elif path.lower().endswith(".txt"):
            resolve_line = PathResolver(path, None, allow_outside=allow_outside)
            with open_text(path) as lines:
                yield from (resolve_line(line.strip().removeprefix("./")) for line in lines if line.strip())
        else:
            raise SourceError(
                f"{file!r}: {split}: {path!r} is neither a folder of images nor a .txt list of them: give root=, the "
                "folder to which its paths refer"
            )
