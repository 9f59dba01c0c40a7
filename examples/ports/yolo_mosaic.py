"""A YOLO training chain: mosaic, random perspective, HSV, flips, MixUp and letterbox, with boxes of YOLO's label files.

`train_chain` replaces the Mosaic, RandomPerspective, RandomHSV, RandomFlip and MixUp of a YOLO data set. `letterbox`
replaces its LetterBox with the gray of 114. Boxes are centers and sizes in pixels; the label files hold shares of the
image's sides.

    python examples/ports/yolo_mosaic.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from pictures import picture
from PIL import Image

import cuaug
from cuaug import transforms as T

GRAY = 114


class YoloFolder:
    """Images, and beside each a text file with a line "class x y width height" for each box."""

    def __init__(self, root: Path) -> None:
        self.paths = sorted(root.glob("*.jpg"))

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, i: int) -> tuple[Path, dict[str, np.ndarray]]:
        rows = np.loadtxt(self.paths[i].with_suffix(".txt"), ndmin=2)
        with Image.open(self.paths[i]) as image:
            boxes = rows[:, 1:] * (image.size * 2)
        return self.paths[i], {"boxes": boxes.astype(np.float32), "labels": rows[:, 0].astype(np.int64)}


def letterbox(size: int) -> list[T.Transform]:
    return [T.Resize(None, max_size=size), T.CenterCrop(size, fill=GRAY)]


def train_chain(size: int = 128) -> T.Compose:
    return T.Compose(
        [
            *letterbox(size),
            T.Mosaic(2 * size, (0.25, 0.75), fill=GRAY),
            T.RandomAffine(0, (0.1, 0.1), (0.5, 1.5), interpolation="bilinear", fill=GRAY),
            T.CenterCrop(size),
            T.ColorJitter(brightness=0.4, saturation=0.7, hue=0.015),
            T.RandomHorizontalFlip(0.5),
            T.SanitizeBoundingBoxes(min_size=2, min_visibility=0.1),
            T.MixUp(32.0, p=0.15),
        ],
        box_format="cxcywh",
    )


def write(root: Path, count: int = 8) -> None:
    for index in range(count):
        image, boxes = picture(index)
        Image.fromarray(image).save(root / f"{index}.jpg")
        centers, sizes = (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]
        shares = np.concatenate([centers, sizes], axis=1) / (image.shape[1::-1] * 2)
        lines = [f"{index % 3} " + " ".join(f"{value:.6f}" for value in row) for row in shares]
        (root / f"{index}.txt").write_text("\n".join(lines))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        loader = cuaug.Loader(YoloFolder(Path(folder)), train_chain(), batch_size=4, shuffle=True, seed=0)
        for images, targets in loader:
            print(tuple(images.shape), images.dtype, [len(target["boxes"]) for target in targets])
            assert images.shape == (4, 3, 128, 128)
            assert all(len(target["boxes"]) == len(target["labels"]) for target in targets)
        validation = T.Compose(letterbox(128), box_format="cxcywh")
        images, targets = next(iter(cuaug.Loader(YoloFolder(Path(folder)), validation, batch_size=8, seed=0)))
        print("validation", tuple(images.shape), targets[0]["boxes"][0].tolist())


if __name__ == "__main__":
    main()
