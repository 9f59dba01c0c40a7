"""Pascal VOC: one XML file of boxes for each image."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.arguments import flag
from cuaug.errors import ArgumentError, DecodeError, SourceError
from cuaug.sources.file_bytes import read_bytes
from cuaug.sources.files import EXTENSIONS, images_below, log_without_labels
from cuaug.sources.labels import warn_of_other_numbers
from cuaug.sources.source import ReprMixin, cache_key, cached_method, file_contents, fingerprint
from cuaug.sources.text import open_text, parse_number

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_MAX_SIDE = 1 << 31  # pixels
_MAX_TAGS = 1_000_000  # with attributes; each takes up to 250 bytes of memory
_SIDES = ("xmin", "ymin", "xmax", "ymax")


class PascalVoc(ReprMixin):
    """Images and their boxes from Pascal VOC's folders, or from two folders of images and XML files.

    A label is a dict of arrays for K objects:

    | key | shape | dtype | content |
    |---|---|---|---|
    | "boxes" | (K, 4) | float32 | x0, y0, x1, y1 in pixels |
    | "labels" | (K,) | int64 | indices into `classes` |
    | "difficult" | (K,) | int64 | 0 or 1 |

    Labels begin at 0, which torchvision's detectors take for the background: add 1 for these, and build them with
    `num_classes=len(classes) + 1`.

    Pascal VOC counts pixels from 1, and a box includes its last pixel. So 1 is subtracted from xmin and ymin, as in
    detectron2. Annotations are read with their image, so a malformed file costs that image alone. An image of another
    size than its file states is a DecodeError. An image without an XML file has no objects; the log counts these.

    Args:
        root: folder such as VOCdevkit/VOC2012.
        split: reads ImageSets/Main/<split>.txt, with the name of an image per line. None: all images.
        images: folder of the images below `root`.
        annotations: folder of the XML files below `root`, with the names of the images.
        classes: names of the labels 0, 1, ...; None: all names in the annotations folder, sorted. Every split then has
            the same numbers.
        one_based: whether pixels count from 1. False: coordinates are taken as they are, for tools that count from 0.
        keep_difficult: keep objects that are marked as difficult.

    Attributes:
        max_bytes: limit on one XML file.

    Raises:
        LoaderError: a folder or the split cannot be read, there are no images, an image is missing, or all XML files.
    """

    max_bytes = 64 << 20

    def __init__(
        self,
        root: str | os.PathLike[str],
        split: str | None = "train",
        *,
        images: str | os.PathLike[str] = "JPEGImages",
        annotations: str | os.PathLike[str] = "Annotations",
        classes: Iterable[str] | None = None,
        one_based: bool = True,
        keep_difficult: bool = True,
    ) -> None:
        root = os.fspath(root)
        self.one_based, self.keep_difficult = flag("one_based", one_based), flag("keep_difficult", keep_difficult)
        images, annotations = (os.path.join(root, os.fspath(folder)) for folder in (images, annotations))
        image_of, file_of = _by_name(images, EXTENSIONS, (".xml",)), _by_name(annotations, (".xml",), EXTENSIONS)
        self._names = sorted({*image_of, *file_of}) if split is None else _read_split(root, split)
        if missing := [name for name in self._names if name not in image_of]:
            remedy = "remove these XML files, or name the other images in a split"
            if split is not None:
                is_of_class = re.sub(r"\s+(-1|0|1)$", "", missing[0]) in image_of
                remedy = "remove these lines of the split"
                if is_of_class:
                    remedy = f"{split!r} says which images show one class; give a split that only names images"
            raise SourceError(
                f"{images!r} has no image of {len(missing)} names, the first {missing[0]!r:.200}: {remedy}"
            )
        if not self._names:
            raise SourceError(f"{images!r} has no images" if split is None else f"split {split!r} names no images")
        self._images = [image_of[name] for name in self._names]
        self._files = [file_of.get(name) for name in self._names]
        if not any(self._files):
            raise SourceError(
                f"{annotations!r} has no XML file of the {len(self)} images, such as {self._names[0]}.xml"
            )
        unlabeled = [image for image, file in zip(self._images, self._files, strict=True) if file is None]
        log_without_labels(repr(root), unlabeled, len(self), "XML file")
        #: (height, width) that the XML files state; -1: not read yet.
        self._sizes = np.full((len(self), 2), -1, dtype=np.int64)
        self.classes = self._find_classes(file_of.values()) if classes is None else _checked_classes(classes)
        self._numbers = {name: number for number, name in enumerate(self.classes)}

    def __len__(self) -> int:
        return len(self._names)

    def read(self, index: int) -> tuple[str, dict[str, NDArray[Any]]]:
        """Returns (path, label).

        Raises:
            DecodeError: the XML file is malformed, or names a class that is not in `classes`. The error names it.
            OSError: the XML file cannot be read.
        """
        return self.path(index), self.label(index)

    def path(self, index: int) -> str:
        """The image's path."""
        return self._images[index]

    def label(self, index: int) -> dict[str, NDArray[Any]]:
        """The label alone, as `read` returns it."""
        file = self._files[index]
        objects, self._sizes[index] = self._parse(file)
        unknown = [each.name for each in objects if each.name not in self._numbers]
        if unknown:
            raise DecodeError(f"{file!r}: the class {unknown[0][:100]!r} is not in classes")
        kept = [each for each in objects if self.keep_difficult or not each.difficult]
        boxes = np.array([each.box for each in kept], dtype=np.float32).reshape(-1, 4)
        boxes[:, :2] -= self.one_based
        return {
            "boxes": boxes,
            "labels": np.array([self._numbers[each.name] for each in kept], dtype=np.int64),
            "difficult": np.array([each.difficult for each in kept], dtype=np.int64),
        }

    def picture_size(self, index: int) -> tuple[int, int]:
        """(height, width) of the annotated image in pixels; 0: unknown."""
        if self._sizes[index][0] < 0:
            self._sizes[index] = self._parse(self._files[index]).size
        height, width = self._sizes[index].tolist()
        return height, width

    @cached_method
    def fingerprint(self) -> str:
        """Digest of the image names, the class names and the XML files."""
        labels = file_contents((file or "" for file in self._files), self.max_bytes)
        return fingerprint("voc", self._names, self.classes, [self.one_based, self.keep_difficult], labels)

    def cache_key(self) -> str:
        """The images' folder, and a digest of the modification times of up to 1,000 images."""
        return cache_key(self._images)

    def _find_classes(self, files: Iterable[str]) -> list[str]:
        names: set[str] = set()
        for file in files:
            try:
                names.update(each.name for each in self._parse(file).objects)
            except (DecodeError, OSError):  # raised when its image is read, if the split has it
                continue
        warn_of_other_numbers(classes := sorted(names))
        return classes

    def _parse(self, file: str | None) -> _Annotation:
        if file is None:
            return _Annotation([], (0, 0))
        root = _parse_xml(file, self.max_bytes)
        try:
            if root.tag != "annotation":
                raise ValueError(f"its element is {root.tag[:100]!r}, not 'annotation'")
            objects = [self._object(element) for element in root.findall("object")]
            height, width = (_number(root, f"size/{side}", "0") for side in ("height", "width"))
            if min(height, width) < 0 or height != int(height) or width != int(width):
                raise ValueError(f"its size is {height} x {width} pixels: size/height and size/width must be whole")
        except ValueError as error:
            raise DecodeError(f"{file!r} is no Pascal VOC annotation: {error}") from error
        return _Annotation(objects, (int(height), int(width)))

    def _object(self, element: Element) -> _Object:
        name = (element.findtext("name") or "").strip()
        if not name:
            raise ValueError("an object has no name")
        of = f"{name[:100]!r}: "
        box = [_number(element, f"bndbox/{side}", of=of) for side in _SIDES]
        x0, y0, x1, y1 = box
        if self.one_based and min(x0, y0) < 1:
            raise ValueError(
                f"{of}it begins at {x0:g}, {y0:g}, and Pascal VOC counts pixels from 1: use one_based=False"
            )
        if x1 < x0 or y1 < y0:
            raise ValueError(f"{of}its box {box} ends before it begins")
        difficult = _number(element, "difficult", "0", of)
        if difficult not in (0, 1):
            raise ValueError(f"{of}difficult must be 0 or 1, not {difficult}")
        return _Object(name, box, int(difficult))


def _number(element: Element, field: str, default: str = "", of: str = "") -> int | float:
    text = (element.findtext(field) or "").strip() or default
    try:
        value = parse_number(text)
    except ValueError:
        value = math.nan
    if not abs(value) < _MAX_SIDE:
        raise ValueError(f"{of}{field} must be a number below 2^31, not {text[:100]!r}")
    return value


class _Object(NamedTuple):
    name: str
    box: list[float]  # xyxy, as in the file
    difficult: int


class _Annotation(NamedTuple):
    objects: list[_Object]
    size: tuple[int, int]  # (height, width); 0: unknown


def _parse_xml(file: str, max_bytes: int) -> Element:
    """The root element of an XML file. A document type is refused, so there are no entities to expand."""
    # Few programs read XML: `import cuaug` does not import its modules.
    from xml.etree.ElementTree import TreeBuilder
    from xml.parsers import expat

    data, builder, parser = read_bytes(file, max_bytes), TreeBuilder(), expat.ParserCreate()

    def refuse(*declaration: Any) -> None:
        raise ValueError("it declares a document type, which may expand without end: remove <!DOCTYPE ...>")

    if data.count(b"<") + data.count(b"=") > _MAX_TAGS:
        raise DecodeError(f"{file!r} has more than {_MAX_TAGS:,} XML tags and attributes")
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = builder.start, builder.end
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = builder.data, refuse
    try:
        parser.Parse(data, True)
        root: Element = builder.close()
    except (expat.ExpatError, ValueError, LookupError) as error:
        raise DecodeError(f"{file!r} is no XML that is read here: {error}") from error
    return root


def _by_name(folder: str, extensions: tuple[str, ...], beside: tuple[str, ...]) -> dict[str, str]:
    """The files below a folder by their path without extension."""
    files: dict[str, str] = {}
    for path in images_below(folder, extensions, beside):
        name, _ = os.path.splitext(os.path.relpath(path, folder))
        if name in files:
            raise SourceError(f"{files[name]!r} and {path!r} have the same name: which one belongs to the annotations?")
        files[name] = path
    return files


def _read_split(root: str, split: str) -> list[str]:
    file = os.path.join(root, "ImageSets", "Main", f"{split}.txt")
    if not os.path.isfile(file):
        raise SourceError(f"split: there is no {file!r}: give another split, or split=None for all images")
    with open_text(file) as lines:
        return [line.strip() for line in lines if line.strip()]


def _checked_classes(classes: Any) -> list[str]:
    names = [] if isinstance(classes, str) or not isinstance(classes, Iterable) else list(classes)
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise ArgumentError(f"classes must be different class names, not {classes!r:.200}")
    return names
