"""Kornia's `AugmentationSequential` on a batch with masks, boxes and keypoints.

`chain(images, targets)` replaces `aug(images, masks, boxes, keypoints)` with `data_keys=["input", "mask", "bbox",
"keypoints"]`. As in Kornia each image of the batch has its own draws. `chain.trace` and `chain.replay` replace
`aug._params` and `aug(..., params=...)`. Targets of a batch are a list with a dict for each image.

    python examples/ports/kornia_augmentation_sequential.py
"""

from __future__ import annotations

import torch
from pictures import picture

from cuaug import transforms as T


def main() -> None:
    torch.manual_seed(0)
    chain = T.Compose(
        [
            T.ColorJitter(0.1, 0.1, 0.1, 0.1),
            T.RandomAffine(360, (0.1, 0.1), (0.7, 1.2), (-30, 30), "bilinear"),
            T.RandomPerspective(0.5, p=0.5),
            T.RandomHorizontalFlip(),
        ],
    )
    shots = [picture(4 * k) for k in range(3)]  # of one size
    images = torch.stack([torch.from_numpy(image) for image, _ in shots]).permute(0, 3, 1, 2).float() / 255
    targets = [
        {
            "boxes": torch.from_numpy(boxes),
            "mask": torch.from_numpy(image[..., 0] > 128).int(),
            "keypoints": torch.from_numpy(boxes[:, None, :2] + 0.5),
        }
        for image, boxes in shots
    ]
    (moved, changed), params = chain.trace(images, targets)
    for before, after in zip(targets, changed, strict=True):
        print(tuple(moved.shape), before["boxes"][0].tolist(), "->", [round(x, 1) for x in after["boxes"][0].tolist()])
    assert moved.shape == images.shape and changed[0]["mask"].shape == images.shape[2:]
    again, _ = chain.replay(params, images, targets)
    assert torch.equal(again, moved)
    print("replayed:", [step["transform"] for step in params[0]])


if __name__ == "__main__":
    main()
