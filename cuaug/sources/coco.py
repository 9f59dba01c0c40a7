"""COCO's annotation files: detection, instance segmentation and keypoints."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.errors import DecodeError, LoaderError
from cuaug.limits import DEFAULT_MAX_BYTES, DEFAULT_MAX_PIXELS, check_bytes, check_pixels
from cuaug.sources import _urls
from cuaug.sources._coco_masks import draw
from cuaug.sources._fingerprint import cache_key, fingerprint, once
from cuaug.sources._repr import ReprMixin
from cuaug.sources._text import Resolver

__all__ = ["Coco"]

Arrays = dict[str, NDArray[Any]]


class Coco(ReprMixin):
    """Images and their instances from a COCO annotation file, in the order of the file.

    A label is a dict:

    - "boxes": (K, 4) float32, x0, y0, x1, y1; "area": (K,) float32; "iscrowd": (K,) int64
    - "labels": (K,) int64: the categories' own ids, or with `contiguous` their places in `classes`
    - "image_id": a number, and "annotation_id": (K,) int64
    - "keypoints": (K, P, 3) float32 with COCO's v, where the file has any. COCO counts pixels, and here a pixel's
      centre is at half: 0.5 is added to x and y, as detectron2 does. Those that are not labelled are 0, 0, 0.
    - "masks": (K, H, W) uint8, with `masks`

    The file is read once, into arrays that processes share and that pickle fast. A picture that is not as large as the
    file says is a DecodeError. Where that happens to all pictures that EXIF turns, the annotations were made on
    unturned ones: `Loader(..., apply_exif=False)`.

    Args:
        images: the directory of the images, in which all must lie; or a url, as `Files` takes it.
        annotations: the JSON file.
        masks: decode segmentations: polygons and both kinds of RLE, as pycocotools does.
        contiguous: labels are 0, 1, ... instead of the categories' ids.
        keep_crowds: keep instances that are crowds (iscrowd), of which one box or mask covers many.
        keep_empty: keep images without instances.
        allow_outside: accept file names that lead out of `images`: absolute paths and "..".

    Attributes:
        categories: {id: name}.
        classes: with `contiguous`, the names of labels 0, 1, ...; else None.
        max_pixels: limit for the size that the file claims of a picture whose masks are made.
        max_bytes: limit for the masks of one picture together, a byte a pixel and instance; and for one url.

    Raises:
        LoaderError: the file cannot be read or is not one of COCO's, names images or categories that it does not have,
            holds a box of negative width or height or a number that is not finite, or a file name leads out of
            `images`.
    """

    max_pixels = DEFAULT_MAX_PIXELS
    max_bytes = DEFAULT_MAX_BYTES

    def __init__(
        self,
        images: str | os.PathLike[str],
        annotations: str | os.PathLike[str],
        *,
        masks: bool = False,
        contiguous: bool = False,
        keep_crowds: bool = True,
        keep_empty: bool = True,
        allow_outside: bool = False,
    ) -> None:
        self.images, self.masks, self.contiguous = os.fspath(images), masks, contiguous
        path = os.fspath(annotations)
        found = _read(path)
        try:
            self.categories = {c["id"]: c["name"] for c in sorted(found["categories"], key=lambda c: c["id"])}
            self.classes = list(self.categories.values()) if contiguous else None
            self._take(found["images"], found["annotations"], keep_crowds, keep_empty)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise LoaderError(f"{path!r} is not a file of COCO's instances: {type(error).__name__}: {error}") from error
        if len(self) == 0:
            raise LoaderError(f"{path!r} has no images" + ("" if keep_empty else " with instances"))
        resolve = Resolver(path, self.images, allow_outside=allow_outside)
        urls = [path for path in map(resolve, self._names) if _urls.is_url(path)]
        self._has_urls = bool(urls)
        if urls:
            _urls.check(urls)

    def _take(self, images: list[Any], annotations: list[Any], keep_crowds: bool, keep_empty: bool) -> None:
        number = {image["id"]: i for i, image in enumerate(images)}
        if len(number) != len(images):
            raise ValueError("two images have the same id")
        annotations = [a for a in annotations if keep_crowds or not a.get("iscrowd", 0)]
        for a in annotations:
            if a["image_id"] not in number or a["category_id"] not in self.categories:
                raise ValueError(f"annotation {a['id']} is of an image or a category that is not in it: {a!r:.200}")
            if len(a.get("bbox") or ()) != 4:
                raise ValueError(f"annotation {a['id']} has no bbox of 4 numbers: {a.get('bbox')!r:.100}")
        of = np.array([number[a["image_id"]] for a in annotations], dtype=np.int64)
        count = np.bincount(of, minlength=len(images))
        kept = np.flatnonzero(count > 0) if not keep_empty else np.arange(len(images))
        order = np.argsort(of, kind="stable")
        annotations = [annotations[i] for i in order.tolist()]
        # Annotations of image i are those from _begin[i] to _begin[i + 1]; of images that are left out there are none.
        self._begin = np.append(0, np.cumsum(count[kept]))
        self._take_images([images[i] for i in kept.tolist()])
        with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused
            self._columns = _columns(annotations, np.array([*self.categories]) if self.contiguous else None)
        self._check_columns(annotations)
        # As bytes: a million lists would be copied into every forked process.
        segments = [a.get("segmentation") or [] for a in annotations] if self.masks else []
        packed = [json.dumps(segment, separators=(",", ":")).encode() for segment in segments]
        self._segment_ends = np.cumsum([0, *map(len, packed)])
        self._segment_bytes = np.frombuffer(b"".join(packed), dtype=np.uint8)

    def _take_images(self, images: list[Any]) -> None:
        self._names = [image["file_name"] for image in images]
        sizes = [(image["height"] or 0, image["width"] or 0) for image in images]  # or null: not known
        self._sizes = np.array(sizes, dtype=np.int64).reshape(-1, 2)
        for name, size in zip(self._names, self._sizes.tolist(), strict=True):
            if not isinstance(name, str) or min(size) < 0:
                raise ValueError(f"the image {name!r} is {size[0]} x {size[1]}: a name is text, and no size below 0")
        if self.masks and (self._sizes == 0).any():
            sizeless = self._names[int(np.argmin(self._sizes.min(axis=1)))]
            raise ValueError(f"masks need the size of {sizeless!r}, of which height or width is 0 or null")
        self._ids = np.array([image["id"] for image in images], dtype=np.int64)

    def _check_columns(self, annotations: list[Any]) -> None:
        """Refuses boxes, keypoints and areas that are no numbers: they would end an epoch hours later."""
        x0, y0, x1, y1 = self._columns["boxes"].T
        good = {"bbox": np.isfinite(self._columns["boxes"]).all(axis=1) & (x0 <= x1) & (y0 <= y1)}
        if "keypoints" in self._columns:
            good["keypoints"] = np.isfinite(self._columns["keypoints"]).all(axis=(1, 2))
        good["area"] = np.isfinite(self._columns["area"])
        for field, is_good in good.items():
            if not is_good.all():
                k = int(np.argmin(is_good))
                raise ValueError(
                    f"annotation {annotations[k]['id']}, of {self._names[self._image_of(k)]!r}, has the {field} "
                    f"{annotations[k].get(field)!r:.100}: numbers are finite, and a box's width and height 0 or more"
                )

    def __len__(self) -> int:
        return len(self._names)

    def read(self, index: int) -> tuple[str | bytes, dict[str, Any]]:
        """(path, label); of a url the bytes behind it.

        Raises:
            DecodeError: a segmentation makes no mask, or masks or a url exceed their limits.
            OSError: the url cannot be fetched.
        """
        path, label = self.path(index), self.label(index)
        return _urls.fetch(path, self.max_bytes) if self._has_urls and _urls.is_url(path) else path, label

    def path(self, index: int) -> str:
        """The image's path, or its url."""
        name = self._names[index]
        return name if _urls.is_url(name) else os.path.join(self.images, name)

    def picture_size(self, index: int) -> tuple[int, int]:
        """(height, width) of the picture that the annotations are of; 0 where the file does not tell."""
        height, width = self._sizes[index].tolist()
        return height, width

    def label(self, index: int) -> dict[str, Any]:
        """The label alone, as `read` gives it; its arrays are the caller's own."""
        mine = slice(self._begin[index], self._begin[index + 1])
        label: dict[str, Any] = {name: values[mine].copy() for name, values in self._columns.items()}
        label["image_id"] = int(self._ids[index])
        if self.masks:
            label["masks"] = self._masks(mine, *self._sizes[index].tolist())
        return label

    @once
    def fingerprint(self) -> str:
        """A digest of the images' names and all that the labels are made of."""
        parts = [self._columns[name] for name in sorted(self._columns)]
        return fingerprint("coco", self._names, self.categories, self._begin, self._ids, *parts, self._segment_bytes)

    def cache_key(self) -> str:
        """The images' folder, and a digest of when up to 1,000 of them were written."""
        return cache_key([self.path(i) for i in range(len(self))])

    def _masks(self, mine: slice, height: int, width: int) -> NDArray[np.uint8]:
        count = mine.stop - mine.start
        check_pixels(height, width, self.max_pixels, "the annotations claim")
        check_bytes(count * height * width, self.max_bytes, f"the masks of {count} instances take")
        ends = self._segment_ends
        masks = np.zeros((count, height, width), dtype=np.uint8)
        for mask, k in zip(masks, range(mine.start, mine.stop), strict=True):
            segment = json.loads(self._segment_bytes[ends[k] : ends[k + 1]].tobytes())
            if isinstance(segment, dict) and segment.get("size") != [height, width]:
                size = segment.get("size")
                raise DecodeError(f"the annotations claim {height} x {width} pixels, but a mask of it has {size!r:.60}")
            try:
                draw(segment, mask)
            except (ValueError, TypeError, KeyError, OverflowError) as error:
                number = self._columns["annotation_id"][k]
                raise DecodeError(
                    f"the segmentation of annotation {number} makes no mask: {type(error).__name__}: {error}"
                ) from error
        return masks

    def _image_of(self, annotation: int) -> int:
        return int(np.searchsorted(self._begin, annotation, side="right")) - 1


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except OSError as error:
        raise LoaderError(f"cannot read {path!r}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise LoaderError(f"{path!r} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise LoaderError(f"{path!r} is not a file of COCO's instances: it holds {found!r:.100}, not an object")
    missing = [name for name in ("images", "annotations", "categories") if name not in found]
    if missing:
        raise LoaderError(f"{path!r} is not a file of COCO's instances: it has no {missing[0]!r}")
    return found


def _columns(annotations: list[Any], categories: NDArray[np.int64] | None) -> Arrays:
    boxes = np.array([a["bbox"] for a in annotations], dtype=np.float64).reshape(len(annotations), 4)
    boxes[:, 2:] += boxes[:, :2]
    labels = np.array([a["category_id"] for a in annotations], dtype=np.int64)
    columns: Arrays = {
        "boxes": boxes.astype(np.float32),
        "labels": labels if categories is None else np.searchsorted(categories, labels),
        "area": np.array([a.get("area") or 0.0 for a in annotations], dtype=np.float32),
        "iscrowd": np.array([a.get("iscrowd") or 0 for a in annotations], dtype=np.int64),
        "annotation_id": np.array([a["id"] for a in annotations], dtype=np.int64),
    }
    count = max((len(a.get("keypoints") or ()) // 3 for a in annotations), default=0)
    if count:
        none = [0] * (3 * count)
        points = np.array([a.get("keypoints") or none for a in annotations], dtype=np.float32).reshape(-1, count, 3)
        points[..., :2] += 0.5
        columns["keypoints"] = points * (points[..., 2:] > 0)
    return columns
