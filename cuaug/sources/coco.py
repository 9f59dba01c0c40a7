"""COCO's annotation files: detection, instance segmentation and keypoints."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.errors import DecodeError, LoaderError
from cuaug.sources._extras import need
from cuaug.sources._fingerprint import fingerprint, once, origin
from cuaug.sources._repr import OneLine

__all__ = ["Coco"]

Arrays = dict[str, NDArray[Any]]

# In pixels. pycocotools takes 40 bytes for each.
_LONGEST_OUTLINE = 1 << 22


class Coco(OneLine):
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
        images: the directory of the images.
        annotations: the JSON file.
        masks: decode segmentations, polygons and both kinds of RLE, by pycocotools: pip install "cuaug[coco]".
        contiguous: labels are 0, 1, ... instead of the categories' ids.
        keep_crowds: keep instances that are crowds (iscrowd), of which one box or mask covers many.
        keep_empty: keep images without instances.

    Attributes:
        categories: {id: name}.
        classes: with `contiguous`, the names of labels 0, 1, ...; else None.

    Raises:
        LoaderError: the file cannot be read or is not one of COCO's, names images or categories that it does not have,
            holds a box of negative width or height or a number that is not finite, or pycocotools is missing.
    """

    def __init__(
        self,
        images: str | os.PathLike[str],
        annotations: str | os.PathLike[str],
        *,
        masks: bool = False,
        contiguous: bool = False,
        keep_crowds: bool = True,
        keep_empty: bool = True,
    ) -> None:
        self.images, self.masks, self.contiguous = os.fspath(images), masks, contiguous
        if masks:
            need("pycocotools.mask", "coco")
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
        """Refuses boxes and keypoints that can be nowhere: they would end an epoch hours later."""
        x0, y0, x1, y1 = self._columns["boxes"].T
        good = {"bbox": np.isfinite(self._columns["boxes"]).all(axis=1) & (x0 <= x1) & (y0 <= y1)}
        if "keypoints" in self._columns:
            good["keypoints"] = np.isfinite(self._columns["keypoints"]).all(axis=(1, 2))
        for field, is_good in good.items():
            if not is_good.all():
                k = int(np.argmin(is_good))
                raise ValueError(
                    f"annotation {annotations[k]['id']}, of {self._names[self._image_of(k)]!r}, has the {field} "
                    f"{annotations[k][field]!r:.100}: numbers are finite, and a box's width and height 0 or more"
                )

    def __len__(self) -> int:
        return len(self._names)

    def read(self, index: int) -> tuple[str, dict[str, Any]]:
        """(path, label)

        Raises:
            DecodeError: a segmentation makes no mask.
        """
        return self.path(index), self.label(index)

    def path(self, index: int) -> str:
        """The image's path."""
        return os.path.join(self.images, self._names[index])

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

    def origin(self) -> str:
        """The images' folder, and a digest of when up to 1,000 of them were written."""
        return origin([self.path(i) for i in range(len(self))])

    def _masks(self, mine: slice, height: int, width: int) -> NDArray[np.uint8]:
        ends = self._segment_ends
        masks = np.zeros((mine.stop - mine.start, height, width), dtype=np.uint8)
        for mask, k in zip(masks, range(mine.start, mine.stop), strict=True):
            segment = json.loads(self._segment_bytes[ends[k] : ends[k + 1]].tobytes())
            if isinstance(segment, dict) and segment.get("size") != [height, width]:
                raise LoaderError(
                    f"{self._names[self._image_of(k)]!r} is {height} x {width}, but a mask of it {segment.get('size')}"
                )
            try:
                _draw(segment, mask)
            except Exception as error:  # pycocotools raises whatever odd numbers lead it to
                number = self._columns["annotation_id"][k]
                raise DecodeError(
                    f"the segmentation of annotation {number} makes no mask: {type(error).__name__}: {error}"
                ) from error
        return masks

    def _image_of(self, annotation: int) -> int:
        return int(np.searchsorted(self._begin, annotation, side="right")) - 1


def _draw(segment: Any, mask: NDArray[np.uint8]) -> None:
    """Draws polygons, or runs of either kind, into an empty mask (H, W)."""
    tools = need("pycocotools.mask", "coco")
    height, width = mask.shape
    if isinstance(segment, list):
        polygons = [polygon for polygon in segment if len(polygon) >= 6]
        if len(segment) > 2 and all(len(point) == 2 for point in segment):
            raise ValueError(f"polygons are lists of x, y, x, y, ... each, got a list of points: {segment!r:.100}")
        for polygon in polygons:
            _check_outline(polygon)
        if polygons:
            mask[...] = tools.decode(tools.merge(tools.frPyObjects(polygons, height, width)))
        return
    counts = segment["counts"]
    if isinstance(counts, str) and counts and (ord(counts[-1]) - ord("0")) & 0x20:
        raise ValueError("its runs are cut short")  # pycocotools would read on, behind the end of the string
    mask[...] = tools.decode(tools.frPyObjects(segment, height, width) if isinstance(counts, list) else segment)


def _check_outline(polygon: list[float]) -> None:
    """Refuses what pycocotools cannot walk around: a number that its integers do not hold ends the process."""
    points = np.array(polygon[: len(polygon) // 2 * 2], dtype=np.float64).reshape(-1, 2)
    steps = np.abs(np.diff(points, axis=0, append=points[:1])).max(axis=1)
    if not np.abs(points).max() + steps.sum() < _LONGEST_OUTLINE:  # so that NaN is refused, too
        raise ValueError(f"a polygon reaches too far, or is no polygon: {polygon!r:.100}")


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
