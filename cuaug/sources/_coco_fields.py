"""Fields of COCO files, checked: a ValueError names the field, and what it must be."""

from __future__ import annotations

from collections.abc import Container
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = [
    "Record",
    "check_references",
    "file_name",
    "integers",
    "keypoints",
    "numbers",
    "read_ids",
    "records",
    "values",
]

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
