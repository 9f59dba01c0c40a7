"""COCO annotation files: detection, instance segmentation and keypoints.

Each field is checked: a ValueError names it, and what it must be.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Container
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cuaug._runtime.limits import DEFAULT_MAX_BYTES, DEFAULT_MAX_PIXELS, check_bytes, check_pixels
from cuaug.errors import DecodeError, SourceError
from cuaug.remote import ObjectStore
from cuaug.remote.urls import check as check_urls
from cuaug.remote.urls import is_url
from cuaug.sources.coco_masks import draw
from cuaug.sources.file_bytes import read_metadata
from cuaug.sources.source import ReprMixin, cache_key, cached_method, fingerprint
from cuaug.sources.text import PathResolver

Record = dict[str, Any]
_ONE = {"images": "an image", "annotations": "an annotation", "categories": "a category"}


def records(data: Record, part: str) -> list[Record]:
    """The objects of a part: "images", "annotations" or "categories"."""
    found = data[part]
    if not isinstance(found, list) or not all(isinstance(record, dict) for record in found):
        raise ValueError(f"{part!r} must be a list of objects, not {found!r:.100}")
    return found


def values(found: list[Record], part: str, field: str) -> list[Any]:
    """A field that every object must have."""
    for record in found:
        if field not in record:
            raise ValueError(f"{_ONE[part]} has no {field!r}: {record!r:.200}")
    return [record[field] for record in found]


def read_ids(found: list[Record], part: str) -> list[Any]:
    """Different ids, all integers or all text."""
    ids = values(found, part, "id")
    if set(map(type, ids)) != {str}:
        ids = integers(ids, f"the {part}' id", "integers, or all text")
    if len(set(ids)) < len(ids):
        seen: set[Any] = set()
        double = next(i for i in ids if i in seen or seen.add(i))  # type: ignore[func-returns-value]
        raise ValueError(f"two {part} have the id {double!r}")
    return ids


def integers(found: list[Any], name: str, expected: str = "integers", remedy: str = "") -> list[int]:
    """64-bit integers; also whole floats, which tables write for a column with missing values."""
    result = [int(value) if isinstance(value, float) and value.is_integer() else value for value in found]
    for value in result:
        if type(value) is not int or not -(2**63) <= value < 2**63:
            raise ValueError(f"{name} must be {expected}, not {value!r:.100}{remedy}")
    return result


def numbers(found: list[Any], field: str, dtype: DTypeLike) -> NDArray[Any]:
    """A field of all annotations as one array."""
    try:
        return np.array(found, dtype=dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"the annotations' {field} must be numbers: {error}") from error


def keypoints(annotations: list[Record]) -> NDArray[np.float32] | None:
    """(K, P, 3) float32: x, y, v; zeros where an annotation has none. None: no annotation has any."""
    found = [a.get("keypoints") or [] for a in annotations]
    for points in found:
        if not isinstance(points, list) or len(points) % 3:
            raise ValueError(f"the annotations' keypoints must be x, y, v, 3 numbers each, not {points!r:.100}")
    counts = sorted({len(points) // 3 for points in found} - {0})
    if len(counts) > 1:
        raise ValueError(
            f"the annotations' keypoints must be equally many, not {counts!r:.100}: make a file for each number"
        )
    none = [0] * (3 * counts[0]) if counts else []
    filled = [points or none for points in found]
    return numbers(filled, "keypoints", np.float32).reshape(-1, counts[0], 3) if counts else None


def check_references(annotation: Record, image_ids: Container[Any], category_ids: Container[Any]) -> None:
    """An annotation's image and category must be in the file."""
    for field, known in (("image_id", image_ids), ("category_id", category_ids)):
        value = annotation[field]
        if isinstance(value, (list, dict)) or value not in known:
            raise ValueError(
                f"annotation {annotation['id']} refers to a missing image or category: {field} {value!r:.100} is no id "
                f"there, which must have the same type, too: {annotation!r:.200}"
            )


def file_name(image: Record) -> str:
    """The image's `file_name`, or as in LVIS the last folder and the name of its `coco_url`."""
    name, url = image.get("file_name"), image.get("coco_url")
    if name is None and isinstance(url, str):
        name = "/".join(urlsplit(url).path.strip("/").split("/")[-2:])
    if not isinstance(name, str) or not name:
        raise ValueError(
            f"the image {image['id']!r} has no 'file_name', nor 'coco_url', with text: give the name of its file, "
            f"relative to the images' folder: {image!r:.200}"
        )
    return name


log = logging.getLogger("cuaug")

Arrays = dict[str, NDArray[Any]]


class Coco(ReprMixin):
    """Images and their instances from a COCO annotation file, in file order.

    A label is a dict of arrays for K instances:

    | key | shape | dtype | content |
    |---|---|---|---|
    | "boxes" | (K, 4) | float32 | x0, y0, x1, y1 in pixels |
    | "labels" | (K,) | int64 | indices into `classes`; with `contiguous=False` category ids |
    | "area" | (K,) | float32 | square pixels |
    | "iscrowd" | (K,) | int64 | 0 or 1 |
    | "annotation_id" | (K,) | int64 | |
    | "image_id" | a number | int | text, if the file's image ids are |
    | "keypoints" | (K, P, 3) | float32 | x, y, COCO's v; only if the file has keypoints |
    | "masks" | (K, H, W) | uint8 | only with `masks=True` |

    Labels begin at 0, which torchvision's detectors take for the background: add 1 for these, and build them with
    `num_classes=len(classes) + 1`. Their weights trained on COCO know category ids: `contiguous=False`. COCO's own
    evaluation takes category ids, too: `category_ids[label]`.

    COCO's keypoints count pixels; here a pixel's center is at half, so 0.5 is added to x and y, as in detectron2.
    Unlabeled keypoints are 0, 0, 0.

    The file is read once, into arrays that processes share and that pickle fast. An image of another size than the file
    states is a DecodeError. If this affects exactly the images with an EXIF rotation, the annotations ignore EXIF: use
    `Loader(..., decode=cuaug.DecodeOptions(apply_exif=False))`.

    LVIS's images have no `file_name`, but a `coco_url` that ends in "train2017/000000000009.jpg": `images` is then the
    folder of train2017.

    Args:
        images: directory that contains all images, or a URL as in `Files`. None: where the first image is found, of
            the file's folder, "images" in it, "../train2017" for a file whose name ends in "_train2017.json", and the
            folder of a folder "annotations".
        annotations: the JSON file.
        masks: decode segmentations (polygons and both kinds of RLE), as pycocotools does.
        contiguous: labels are 0, 1, ... in the order of the category ids; False: they are these ids, if integers.
        keep_crowds: keep crowd instances (iscrowd), whose one box or mask covers many objects.
        keep_empty: keep images without instances.
        allow_outside: accept file names that lead out of `images`: absolute paths and "..".

    Attributes:
        categories: {id: name}.
        category_ids: the file's category ids, in order: those of labels 0, 1, ....
        classes: the names of labels 0, 1, ...; None with `contiguous=False`.
        max_pixels: limit on the image size that the file claims, if masks are made.
        max_bytes: limit on all masks of one image together, one byte per pixel and instance; also on one URL.

    Raises:
        LoaderError: the file cannot be read or is no COCO file (the error names the field), or refers to missing
            images or categories; or a file name leads out of `images`.
    """

    max_pixels = DEFAULT_MAX_PIXELS
    max_bytes = DEFAULT_MAX_BYTES

    def __init__(
        self,
        images: str | os.PathLike[str] | None,
        annotations: str | os.PathLike[str],
        *,
        masks: bool = False,
        contiguous: bool = True,
        keep_crowds: bool = True,
        keep_empty: bool = True,
        allow_outside: bool = False,
    ) -> None:
        self.masks, self.contiguous = masks, contiguous
        path = os.fspath(annotations)
        data = _read_json(path)
        try:
            self.categories = self._categories(records(data, "categories"))
            self.category_ids = list(self.categories)
            self.classes = list(self.categories.values()) if contiguous else None
            self._store(records(data, "images"), records(data, "annotations"), keep_crowds, keep_empty, path)
        except ValueError as error:
            raise SourceError(f"{path!r} is no COCO instances file: {error}") from error
        if len(self) == 0:
            raise SourceError(f"{path!r} has no images" + ("" if keep_empty else " with instances"))
        self.images = _find_images(path, self._names[0]) if images is None else os.fspath(images)
        _check_folder(self.images, self._names[0])
        resolve = PathResolver(path, self.images, allow_outside=allow_outside, argument="images")
        urls = [path for path in map(resolve, self._names) if is_url(path)]
        check_urls(urls)
        self._remote = ObjectStore() if urls else None

    @classmethod
    def from_file(cls, annotations: str | os.PathLike[str]) -> Coco:
        """The file alone, with the images where COCO's layout has them."""
        return cls(None, annotations)

    def _categories(self, categories: list[Record]) -> dict[Any, Any]:
        names = values(categories, "categories", "name")
        found = dict(sorted(zip(read_ids(categories, "categories"), names, strict=True), key=lambda pair: pair[0]))
        text = next((i for i in found if isinstance(i, str)), None)
        if text is not None and not self.contiguous:
            raise ValueError(
                f"category_id is text, such as {text!r:.100}: contiguous=True, the default, makes labels 0, 1, ..."
            )
        return found

    def _store(
        self, images: list[Record], annotations: list[Record], keep_crowds: bool, keep_empty: bool, path: str
    ) -> None:
        image_ids = read_ids(images, "images")
        image_index = {image_id: i for i, image_id in enumerate(image_ids)}
        annotations = [a for a in annotations if keep_crowds or not a.get("iscrowd", 0)]
        for field in ("id", "image_id", "category_id"):
            values(annotations, "annotations", field)
        for a in annotations:
            check_references(a, image_index, self.categories)
            if not isinstance(a.get("bbox"), list) or len(a["bbox"]) != 4:
                raise ValueError(f"annotation {a['id']} has no bbox of 4 numbers: {a.get('bbox')!r:.100}")
        owner = np.array([image_index[a["image_id"]] for a in annotations], dtype=np.int64)
        count = np.bincount(owner, minlength=len(images))
        kept = np.flatnonzero(count > 0) if not keep_empty else np.arange(len(images))
        order = np.argsort(owner, kind="stable")
        annotations = [annotations[i] for i in order.tolist()]
        # Image i owns annotations _begin[i] to _begin[i + 1]. Images left out have none.
        self._begin = np.append(0, np.cumsum(count[kept]))
        self._store_images([images[i] for i in kept.tolist()], [image_ids[i] for i in kept.tolist()])
        with np.errstate(over="ignore"):  # overflow becomes infinite, which is refused below
            self._columns = _columns(annotations, self.category_ids if self.contiguous else None)
        self._invalid = self._find_invalid(path, annotations)
        # As bytes: every forked process would end up with its own copy of a million lists.
        segments = [a.get("segmentation") or [] for a in annotations] if self.masks else []
        packed = [json.dumps(segment, separators=(",", ":")).encode() for segment in segments]
        self._segment_ends = np.cumsum([0, *map(len, packed)])
        self._segment_bytes = np.frombuffer(b"".join(packed), dtype=np.uint8)

    def _store_images(self, images: list[Record], ids: list[Any]) -> None:
        self._names = [file_name(image) for image in images]
        # Missing or null: unknown.
        sides = [integers([image.get(s) or 0 for image in images], f"the images' {s}") for s in ("height", "width")]
        self._sizes = np.array(sides, dtype=np.int64).T
        for name, size in zip(self._names, self._sizes.tolist(), strict=True):
            if min(size) < 0:
                raise ValueError(f"the image {name!r} is {size[0]} x {size[1]}: a size must be 0 or more")
        if self.masks and (self._sizes == 0).any():
            sizeless = self._names[int(np.argmin(self._sizes.min(axis=1)))]
            raise ValueError(f"masks need the size of {sizeless!r}, but its height or width is 0 or null")
        is_text = bool(ids) and isinstance(ids[0], str)
        self._ids: list[str] | NDArray[np.int64] = ids if is_text else np.array(ids, dtype=np.int64)

    def _find_invalid(self, path: str, annotations: list[Any]) -> dict[int, str]:
        """What is invalid, by image. It costs that image alone, when it is read; the log tells now."""
        x0, y0, x1, y1 = self._columns["boxes"].T
        valid = {"bbox": np.isfinite(self._columns["boxes"]).all(axis=1) & (x0 <= x1) & (y0 <= y1)}
        if "keypoints" in self._columns:
            valid["keypoints"] = np.isfinite(self._columns["keypoints"]).all(axis=(1, 2))
        valid["area"] = np.isfinite(self._columns["area"])
        invalid: dict[int, str] = {}
        for field, is_valid in valid.items():
            for k in np.flatnonzero(~is_valid).tolist():
                invalid.setdefault(
                    self._image_of(k),
                    f"annotation {annotations[k]['id']} has the {field} {annotations[k].get(field)!r:.100}: numbers "
                    "must be finite, and box sizes 0 or more",
                )
        if invalid:
            first = next(iter(invalid))
            log.warning(
                "%r: %d of %d images have invalid annotations, and raise a DecodeError when they are read; the first "
                "is %r: %s",
                path, len(invalid), len(self), self._names[first], invalid[first],
            )  # fmt: skip
        return invalid

    def __len__(self) -> int:
        return len(self._names)

    def read(self, index: int) -> tuple[str | bytes, dict[str, Any]]:
        """Returns (path, label); for a URL, (bytes, label).

        Raises:
            DecodeError: a box has a negative size, a number is not finite, a segmentation makes no mask, or masks or a
                URL exceed their limits.
            OSError: the URL cannot be fetched.
        """
        path, label = self.path(index), self.label(index)
        return path if self._remote is None or not is_url(path) else self._remote.fetch(path, self.max_bytes), label

    def path(self, index: int) -> str:
        """The image's path or URL."""
        name = self._names[index]
        return name if is_url(name) else os.path.join(self.images, name)

    def picture_size(self, index: int) -> tuple[int, int]:
        """(height, width) of the annotated image in pixels; 0: unknown."""
        height, width = self._sizes[index].tolist()
        return height, width

    def label(self, index: int) -> dict[str, Any]:
        """The label alone, as `read` returns it."""
        if index in self._invalid:
            raise DecodeError(self._invalid[index])
        rows = slice(self._begin[index], self._begin[index + 1])
        label: dict[str, Any] = {name: values[rows].copy() for name, values in self._columns.items()}
        image_id = self._ids[index]
        label["image_id"] = image_id if isinstance(image_id, str) else int(image_id)
        if self.masks:
            label["masks"] = self._masks(rows, *self._sizes[index].tolist())
        return label

    @cached_method
    def fingerprint(self) -> str:
        """Digest of the image names and all label data."""
        columns = [self._columns[name] for name in sorted(self._columns)]
        return fingerprint("coco", self._names, self.categories, self._begin, self._ids, *columns, self._segment_bytes)

    def cache_key(self) -> str:
        """The images' folder, and a digest of the modification times of up to 1,000 images."""
        return cache_key([self.path(i) for i in range(len(self))])

    def _masks(self, rows: slice, height: int, width: int) -> NDArray[np.uint8]:
        count = rows.stop - rows.start
        check_pixels(height, width, self.max_pixels, "the annotations claim")
        check_bytes(count * height * width, self.max_bytes, f"the masks of {count} instances take")
        ends = self._segment_ends
        masks = np.zeros((count, height, width), dtype=np.uint8)
        for mask, k in zip(masks, range(rows.start, rows.stop), strict=True):
            segment = json.loads(self._segment_bytes[ends[k] : ends[k + 1]].tobytes())
            if isinstance(segment, dict) and segment.get("size") != [height, width]:
                size = segment.get("size")
                raise DecodeError(f"the annotations claim {height} x {width} pixels, but a mask has {size!r:.60}")
            try:
                draw(segment, mask)
            except (ValueError, TypeError, LookupError, OverflowError) as error:
                annotation = self._columns["annotation_id"][k]
                raise DecodeError(
                    f"the segmentation of annotation {annotation} makes no mask: {type(error).__name__}: {error}"
                ) from error
        return masks

    def _image_of(self, annotation: int) -> int:
        return int(np.searchsorted(self._begin, annotation, side="right")) - 1


def _find_images(annotations: str, name: str) -> str:
    """The folder that holds an image, of those where annotation files usually have their images."""
    folder, file = os.path.split(annotations)
    if is_url(name):
        return folder
    split = os.path.splitext(file)[0].rpartition("_")[2]
    candidates = [folder, os.path.join(folder, "images"), os.path.join(folder, os.pardir, split)]
    if os.path.basename(os.path.abspath(folder)) == "annotations":  # beside train2017, which LVIS's names begin with
        candidates.append(os.path.join(folder, os.pardir))
    for candidate in candidates:
        if os.path.isfile(os.path.join(candidate, name)):
            return candidate
    shown = ", ".join(repr(candidate or "./") for candidate in candidates)
    raise SourceError(
        f"{annotations!r} names the image {name!r:.200}, which is in none of {shown}: name the folder, "
        f"cuaug.sources.Coco(images, {annotations!r})"
    )


def _check_folder(images: str, name: str) -> None:
    """Refuses coco/train2017 where the names begin with train2017/."""
    base = os.path.basename(name)
    file = os.path.abspath(os.path.join(images, base))
    if file.endswith(f"/{name}") and os.path.isfile(file) and not os.path.isfile(os.path.join(images, name)):
        root = file.removesuffix(f"/{name}")
        raise SourceError(f"images: {images!r} has no {name!r}, but {base!r}: give {root!r}")


def _read_json(path: str) -> dict[str, Any]:
    try:
        data = json.loads(read_metadata(path))
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path!r} is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise SourceError(f"{path!r} is no COCO instances file: it holds {data!r:.100}, not an object")
    missing = [name for name in ("images", "annotations", "categories") if name not in data]
    if missing:
        raise SourceError(f"{path!r} is no COCO instances file: it has no {missing[0]!r}")
    return data


def _columns(annotations: list[Record], category_ids: list[Any] | None) -> Arrays:
    """Args: category_ids: labels are indices into these; None: the file's."""
    boxes = numbers([a["bbox"] for a in annotations], "bbox", np.float64).reshape(len(annotations), 4)
    boxes[:, 2:] += boxes[:, :2]
    labels = [a["category_id"] for a in annotations]
    if category_ids is not None:
        label_of = {category_id: label for label, category_id in enumerate(category_ids)}
        labels = [label_of[category_id] for category_id in labels]
    ids = integers([a["id"] for a in annotations], "the annotations' id", remedy=": number the annotations")
    columns: Arrays = {
        "boxes": boxes.astype(np.float32),
        "labels": np.array(labels, dtype=np.int64),
        "area": numbers([a.get("area") or 0.0 for a in annotations], "area", np.float32),
        "iscrowd": numbers([a.get("iscrowd") or 0 for a in annotations], "iscrowd", np.int64),
        "annotation_id": np.array(ids, dtype=np.int64),
    }
    points = keypoints(annotations)
    if points is not None:
        points[..., :2] += 0.5
        columns["keypoints"] = points * (points[..., 2:] > 0)
    return columns
