"""The example of Albumentations' README, and its form for detection and segmentation.

`chain(image)` replaces `transform(image=image)["image"]`, and `chain({"image": image, "mask": mask, "boxes": boxes})`
replaces `transform(image=image, mask=mask, bboxes=boxes)`, with `BboxParams(format="pascal_voc", min_visibility=0.3)`
given to the chain.

    python examples/ports/albumentations_readme.py
"""

from __future__ import annotations

import numpy as np
import torch
from pictures import picture

from cuaug import transforms as T


def main() -> None:
    torch.manual_seed(0)  # Albumentations draws from NumPy's and Python's generators
    transform = T.Compose(
        [
            T.RandomCrop((96, 96)),
            T.RandomHorizontalFlip(p=0.5),
            T.RandomApply([T.ColorJitter(brightness=0.2, contrast=0.2)], p=0.2),  # RandomBrightnessContrast(p=0.2)
        ]
    )
    image, boxes = picture(0)
    transformed = transform(image)
    assert transformed.shape == (96, 96, 3) and transformed.dtype == np.uint8
    print("README", transformed.shape, transformed.dtype)

    transform = T.Compose(
        [
            T.RandomApply([T.RandomAffine(15, (0.06, 0.06), (0.9, 1.1))], p=0.5),  # Affine
            T.RandomChoice([T.GaussianBlur(3), T.MotionBlur(5, 45.0, 0.5), T.MedianBlur(3)], p=[1, 1, 1]),  # OneOf
            T.Resize(None, max_size=128),  # LongestMaxSize
            T.CenterCrop(128, fill=114),  # PadIfNeeded
            T.SanitizeBoundingBoxes(min_visibility=0.3),
        ],
        box_format="xyxy",
    )
    mask = (image[..., 0] > 128).astype(np.uint8)
    result = transform({"image": image, "mask": mask, "boxes": boxes, "class_labels": ["cat"] * len(boxes)})
    assert result["image"].shape == (128, 128, 3) and result["mask"].shape == (128, 128)
    assert len(result["boxes"]) == len(result["class_labels"])
    print("detection", {name: np.shape(value) for name, value in result.items()})


if __name__ == "__main__":
    main()
