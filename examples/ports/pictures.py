"""Tiny data sets for the ports: bright rectangles on noise, which every program can draw for itself."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

SIZES = ((120, 160), (160, 110), (133, 141), (96, 180))


def picture(index: int) -> tuple[np.ndarray, np.ndarray]:
    """An image (H, W, 3) uint8, and its boxes (K, 4), corners in pixels: up to three rectangles of one color each."""
    rng = np.random.default_rng(index)
    height, width = SIZES[index % len(SIZES)]
    image = rng.integers(60, 100, (height, width, 3), dtype=np.uint8)
    boxes = []
    for _ in range(1 + index % 3):
        x, y = (int(rng.integers(0, side - 50)) for side in (width, height))
        w, h = rng.integers(20, 50, 2)
        image[y : y + h, x : x + w] = rng.integers(0, 256, 3)
        boxes.append([x, y, x + w, y + h])
    return image, np.array(boxes, dtype=np.float32)


def class_folders(root: Path, count: int = 16, classes: int = 4) -> Path:
    """JPEGs in folders of classes, as ImageFolder reads them."""
    for index in range(count):
        path = root / f"class{index % classes}" / f"{index:03d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture(index)[0]).save(path)
    return root


def coco(root: Path, count: int = 8) -> tuple[Path, Path]:
    """A folder of JPEGs, and a COCO file with a box and an outline for each rectangle."""
    images, annotations = [], []
    folder = root / "images"
    folder.mkdir(parents=True)
    for index in range(count):
        image, boxes = picture(index)
        Image.fromarray(image).save(folder / f"{index}.jpg")
        images.append({"id": index, "file_name": f"{index}.jpg", "height": image.shape[0], "width": image.shape[1]})
        for x0, y0, x1, y1 in boxes.tolist():
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": index,
                    "category_id": 1 + index % 2,
                    "bbox": [x0, y0, x1 - x0, y1 - y0],
                    "area": (x1 - x0) * (y1 - y0),
                    "iscrowd": 0,
                    "segmentation": [[x0, y0, x1, y0, x1, y1, x0, y1]],
                }
            )
    categories = [{"id": 1, "name": "odd"}, {"id": 2, "name": "even"}]
    file = root / "instances.json"
    file.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    return folder, file


def image_and_mask_folders(root: Path, count: int = 8) -> tuple[Path, Path]:
    """A folder of JPEGs and a folder of PNGs with class numbers: 0, and 1 inside rectangles."""
    folders = root / "images", root / "masks"
    for folder in folders:
        folder.mkdir(parents=True)
    for index in range(count):
        image, boxes = picture(index)
        mask = np.zeros(image.shape[:2], dtype=np.uint8)
        for x0, y0, x1, y1 in boxes.astype(int):
            mask[y0:y1, x0:x1] = 1
        Image.fromarray(image).save(folders[0] / f"{index}.jpg")
        Image.fromarray(mask).save(folders[1] / f"{index}.png")
    return folders
