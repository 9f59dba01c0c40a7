"""DINO's `DataAugmentationDINO`: two large and eight small crops of each image, from one decoding.

`chain` replaces `DataAugmentationDINO(global_crops_scale, local_crops_scale, local_crops_number)`; a `Loader` replaces
`ImageFolder` and `DataLoader`. A batch holds a tensor for each size instead of a list of ten.

    python examples/ports/dino_multi_crop.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from pictures import class_folders

import cuaug
from cuaug import transforms as T

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def view(size: int, scale: tuple[float, float], blur: float, solarize: float = 0.0) -> T.Compose:
    """A crop with DINO's flip and color jitter; `blur` and `solarize` are probabilities."""
    return T.Compose(
        [
            T.RandomResizedCrop(size, scale, interpolation=T.InterpolationMode.BICUBIC),
            T.RandomHorizontalFlip(0.5),
            T.RandomApply([T.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8),
            T.RandomGrayscale(0.2),
            T.RandomApply([T.GaussianBlur(9, (0.1, 2.0))], p=blur),  # DINO's Pillow blur takes the sigma as its radius
            T.RandomSolarize(128, solarize),
        ]
    )


def chain(
    global_scale: tuple[float, float] = (0.4, 1.0), local_scale: tuple[float, float] = (0.05, 0.4), locals: int = 8
) -> T.Compose:
    large = [view(224, global_scale, 1.0), view(224, global_scale, 0.1, 0.2)]
    small = [view(96, local_scale, 0.5)] * locals
    return T.Compose([T.MultiView(large + small), T.Normalize(MEAN, STD)])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = class_folders(Path(folder) / "train", count=8)
        for (large, small), _ in cuaug.Loader(data, chain(), batch_size=4, shuffle=True, last_batch="drop", seed=0):
            print(tuple(large.shape), tuple(small.shape))
            assert large.shape == (4, 2, 3, 224, 224) and small.shape == (4, 8, 3, 96, 96)
            crops = [*large.unbind(1), *small.unbind(1)]  # DINO's list of ten batches
            assert len(crops) == 10


if __name__ == "__main__":
    main()
