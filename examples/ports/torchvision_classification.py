"""The presets of torchvision's references/classification, and its training and validation loaders.

`train_chain` replaces `ClassificationPresetTrain` and the MixUp and CutMix of the collate function, `eval_chain`
replaces `ClassificationPresetEval`. A `Loader` replaces `ImageFolder`, `DistributedSampler` or `RASampler`, and
`DataLoader`. ToImage and ToDtype are not needed: `Normalize` scales uint8 images to [0, 1] first.

    python examples/ports/torchvision_classification.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from pictures import class_folders

import cuaug
from cuaug import transforms as T

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
POLICIES = {
    "ra": lambda magnitude, mode: T.RandAugment(magnitude=magnitude, interpolation=mode),
    "ta_wide": lambda magnitude, mode: T.TrivialAugmentWide(interpolation=mode),
    "augmix": lambda magnitude, mode: T.AugMix(severity=3, interpolation=mode),
}


def train_chain(
    crop_size: int = 176,
    interpolation: T.InterpolationMode = T.InterpolationMode.BILINEAR,
    hflip_prob: float = 0.5,
    auto_augment_policy: str | None = "ta_wide",
    ra_magnitude: int = 9,
    random_erase_prob: float = 0.1,
    num_classes: int | None = None,
    mixup_alpha: float = 0.2,
    cutmix_alpha: float = 1.0,
) -> T.Compose:
    chain: list[T.Transform] = [T.RandomResizedCrop(crop_size, interpolation=interpolation, antialias=True)]
    chain.append(T.RandomHorizontalFlip(hflip_prob))
    if auto_augment_policy in POLICIES:
        chain.append(POLICIES[auto_augment_policy](ra_magnitude, interpolation))
    elif auto_augment_policy is not None:
        chain.append(T.AutoAugment(T.AutoAugmentPolicy(auto_augment_policy), interpolation=interpolation))
    chain += [T.Normalize(MEAN, STD), T.RandomErasing(random_erase_prob)]
    if num_classes is not None:  # each sample takes one of the two; the reference takes one for the whole batch
        mixes = [T.MixUp(mixup_alpha, num_classes), T.CutMix(cutmix_alpha, num_classes)]
        chain.append(T.RandomChoice(mixes))
    return T.Compose(chain)


def eval_chain(crop_size: int = 224, resize_size: int = 232) -> T.Compose:
    return T.Compose([T.Resize(resize_size), T.CenterCrop(crop_size), T.Normalize(MEAN, STD)])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = class_folders(Path(folder) / "train")
        for policy in ("ta_wide", "ra", "imagenet", "augmix", None):
            chain = train_chain(auto_augment_policy=policy, num_classes=4)
            loader = cuaug.Loader(data, chain, batch_size=8, shuffle=True, last_batch="drop", seed=0)
            images, labels = next(iter(loader))
            print("train", policy, tuple(images.shape), images.dtype, tuple(labels.shape))
            loss = torch.nn.functional.cross_entropy(images.flatten(1)[:, :4], labels.to(images.device))
            assert images.shape == (8, 3, 176, 176) and labels.shape == (8, 4) and loss.isfinite()
        for images, labels in cuaug.Loader(data, eval_chain(), batch_size=8, seed=0):
            print("eval", tuple(images.shape), labels.tolist())


if __name__ == "__main__":
    main()
