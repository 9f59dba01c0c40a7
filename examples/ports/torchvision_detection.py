"""The presets of torchvision's references/detection: hflip, lsj, multiscale, ssd and ssdlite.

`train_chain` replaces `DetectionPresetTrain`, `eval_chain` replaces `DetectionPresetEval`. `sources.Coco` replaces
`wrap_dataset_for_transforms_v2(CocoDetection(...))`, and `stack=False` the collate function that makes tuples: a model
takes a list of images of any size, and a list of dicts.

    python examples/ports/torchvision_detection.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from pictures import coco

import cuaug
from cuaug import transforms as T

MEAN_COLOR = (123, 117, 104)


def train_chain(data_augmentation: str, hflip_prob: float = 0.5) -> T.Compose:
    flip = T.RandomHorizontalFlip(hflip_prob)
    geometry: dict[str, list[T.Transform]] = {
        "hflip": [flip],
        "lsj": [T.ScaleJitter((256, 256)), T.FixedSizeCrop((256, 256), fill=MEAN_COLOR), flip],
        "multiscale": [T.RandomShortestSize(range(120, 201, 16), max_size=333), flip],
        "ssd": [T.RandomPhotometricDistort(), T.RandomZoomOut(fill=MEAN_COLOR), T.RandomIoUCrop(), flip],
        "ssdlite": [T.RandomIoUCrop(), flip],
    }
    return T.Compose([*geometry[data_augmentation], T.ToDtype(torch.float32, scale=True), T.SanitizeBoundingBoxes()])


def eval_chain() -> T.Compose:
    return T.Compose([T.ToDtype(torch.float32, scale=True)])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        images_in, file = coco(Path(folder))
        source = cuaug.sources.Coco(images_in, file, masks=True, contiguous=False)
        for preset in ("hflip", "lsj", "multiscale", "ssd", "ssdlite"):
            chain = train_chain(preset)
            for images, targets in cuaug.Loader(source, chain, batch_size=4, shuffle=True, stack=False, seed=0):
                shapes = [tuple(image.shape) for image in images]
                print(preset, shapes[:2], [len(target["boxes"]) for target in targets])
                for image, target in zip(images, targets, strict=True):
                    assert image.dtype == torch.float32 and image.min() >= 0 and image.max() <= 1
                    assert len(target["boxes"]) == len(target["labels"]) == len(target["masks"])
                    assert target["masks"].shape[-2:] == image.shape[-2:]
        images, targets = next(iter(cuaug.Loader(source, eval_chain(), batch_size=4, stack=False, seed=0)))
        print("eval", [tuple(image.shape) for image in images], sorted(targets[0]))


if __name__ == "__main__":
    main()
