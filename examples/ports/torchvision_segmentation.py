"""The presets of torchvision's references/segmentation.

`train_chain` replaces `SegmentationPresetTrain`, `eval_chain` replaces `SegmentationPresetEval`. `sources.Pairs`
replaces the Dataset that opens an image and its mask, and `mask_fill` the dict {tv_tensors.Mask: 255, "others": 0} of
the padding crop, which works, too.

    python examples/ports/torchvision_segmentation.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from pictures import image_and_mask_folders

import cuaug
from cuaug import transforms as T

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IGNORED = 255


def train_chain(base_size: int = 130, crop_size: int = 120, hflip_prob: float = 0.5) -> T.Compose:
    return T.Compose(
        [
            T.RandomResize(int(0.5 * base_size), int(2.0 * base_size)),
            T.RandomHorizontalFlip(hflip_prob),
            T.RandomCrop(crop_size, pad_if_needed=True),
            T.Normalize(MEAN, STD),
        ],
        mask_fill=IGNORED,
    )


def eval_chain(base_size: int = 120) -> T.Compose:
    return T.Compose([T.Resize((base_size, base_size)), T.Normalize(MEAN, STD)])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        pairs = cuaug.sources.Pairs(*image_and_mask_folders(Path(folder)))
        for images, labels in cuaug.Loader(pairs, train_chain(), batch_size=4, shuffle=True, seed=0):
            classes = labels["mask"].long()  # (N, H, W)
            print("train", tuple(images.shape), tuple(classes.shape), classes.unique().tolist())
            scores = torch.randn(len(images), 2, *classes.shape[1:])
            loss = torch.nn.functional.cross_entropy(scores, classes, ignore_index=IGNORED)
            assert images.shape == (4, 3, 120, 120) and loss.isfinite()
        images, labels = next(iter(cuaug.Loader(pairs, eval_chain(), batch_size=4, seed=0)))
        print("eval", tuple(images.shape), labels["mask"].unique().tolist())


if __name__ == "__main__":
    main()
