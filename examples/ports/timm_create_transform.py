"""timm's `create_transform` for training and validation, its Mixup and its random erasing.

`train_chain` replaces `create_transform(224, is_training=True, auto_augment="rand-m9-mstd0.5-inc1", re_prob=0.25)`
and the `Mixup` of timm's loader; `eval_chain` replaces `create_transform(224, crop_pct=0.875)`.

    python examples/ports/timm_create_transform.py
"""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

from pictures import class_folders

import cuaug
from cuaug import transforms as T

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
MODES = (T.InterpolationMode.BILINEAR, T.InterpolationMode.BICUBIC)


def train_chain(
    size: int = 224, scale: tuple[float, float] = (0.08, 1.0), re_prob: float = 0.25, num_classes: int = 1000
) -> T.Compose:
    crops = [T.RandomResizedCrop(size, scale, interpolation=mode) for mode in MODES]  # interpolation="random"
    fill = tuple(round(255 * value) for value in MEAN)
    mixes = [T.MixUp(0.8, num_classes), T.CutMix(1.0, num_classes)]
    return T.Compose(
        [
            T.RandomChoice(crops),
            T.RandomHorizontalFlip(0.5),
            T.TimmRandAugment("rand-m9-mstd0.5-inc1", fill=fill),
            T.Normalize(MEAN, STD),
            T.RandomErasing(re_prob, (0.02, 1 / 3), (0.3, 1 / 0.3), value="random"),  # re_mode="pixel"
            T.RandomChoice(mixes, p=[0.5, 0.5]),  # mixup_switch_prob=0.5
        ]
    )


def eval_chain(size: int = 224, crop_pct: float = 0.875) -> T.Compose:
    resize = T.Resize(math.floor(size / crop_pct), T.InterpolationMode.BICUBIC)
    return T.Compose([resize, T.CenterCrop(size), T.Normalize(MEAN, STD)])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = class_folders(Path(folder) / "train")
        loader = cuaug.Loader(data, train_chain(num_classes=4), batch_size=8, shuffle=True, last_batch="drop", seed=0)
        for images, labels in loader:
            print("train", tuple(images.shape), images.dtype, labels.sum(1).tolist())
            assert images.shape == (8, 3, 224, 224) and labels.shape == (8, 4)
        images, labels = next(iter(cuaug.Loader(data, eval_chain(), batch_size=16, last_batch="pad", seed=0)))
        print("eval", tuple(images.shape), labels.tolist())


if __name__ == "__main__":
    main()
