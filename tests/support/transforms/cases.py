"""Cases of every transform: arguments, and the reference of its result (tests/references/transforms.py)."""

from __future__ import annotations

import numpy as np
import torch

from cuaug import transforms as T
from tests.references import color, filters, statistics
from tests.references.transforms import (
    TABLE,
    Reference,
    affine,
    at_white_255,
    automatic,
    by_pillow,
    center_crop,
    clahe,
    coarse,
    cut,
    distort,
    downscale,
    elastic,
    erasing,
    fixed_size,
    gaussian,
    gaussian_blur,
    grid,
    grid_distortion,
    jitter,
    mask,
    mirrored,
    motion_blur,
    normalize,
    pad,
    perspective,
    quarter_turns,
    random_crop,
    resize,
    resized_crop,
    rotation,
    salt_and_pepper,
    shot,
    single,
    timm_policy,
    yuv,
    zoom_out,
)

#: Public names that have no reference here.
WITHOUT_CASES = {
    # No transforms, and transforms that only hold others.
    *("AutoAugmentPolicy", "BatchTransform", "InterpolationMode", "RandomTransform", "Transform"),
    *("Compose", "MultiView", "RandomApply", "RandomChoice", "RandomOrder", "SomeOf"),
    # Of whole batches or with several output images. Their tests: test_segments.py, test_mixes.py, test_auto.py,
    # test_clips.py, test_packing.py, and tests/targets/test_merge.py.
    *("AugMix", "CopyPaste", "CutMix", "FiveCrop", "Lambda", "MixUp", "Mosaic", "PadToLargest", "Patches", "PerFrame"),
    *("TenCrop", "Tiles", "UniformTemporalSubsample"),
    # Of targets, and of types. Their tests: tests/targets/test_boxes.py, test_conversions.py.
    *("ClampBoundingBoxes", "ClampKeyPoints", "ConvertBoundingBoxFormat", "Identity", "PILToTensor", "RandomIoUCrop"),
    *("RGB", "SanitizeBoundingBoxes", "SanitizeKeyPoints", "ToImage", "ToPureTensor"),
}

#: Each transform and its reference. Images have sides of 20 to 30 pixels.
CASES: dict[str, list[tuple[T.Transform, Reference]]] = {
    "Resize": [
        (T.Resize((9, 31)), resize()),
        (T.Resize(12), resize()),
        (T.Resize([14], max_size=16), resize()),
        (T.Resize((40, 17), "bicubic"), resize("bicubic")),
        (T.Resize((11, 13), T.InterpolationMode.BICUBIC, antialias=False), resize("bicubic", False)),
        (T.Resize((11, 13), antialias=False), resize("bilinear", False)),
        (T.Resize((11, 43), interpolation=0), resize("nearest")),
        (T.Resize((11, 43), T.InterpolationMode.NEAREST_EXACT), resize("nearest_exact")),
        (T.Resize((11, 43), "lanczos"), resize("lanczos")),
        (T.Resize((17, 9), 5), resize("hamming")),
        (T.Resize((40, 9), T.InterpolationMode.BOX), resize("box")),
    ],
    "CenterCrop": [
        (T.CenterCrop(10), center_crop(10, 10)),
        (T.CenterCrop((11, 50)), center_crop(11, 50)),
        (T.CenterCrop([61]), center_crop(61, 61)),
        (T.CenterCrop((9, 64), fill=114), center_crop(9, 64, 114)),
        (T.CenterCrop(40, (1, 2, 3)), center_crop(40, 40, (1, 2, 3))),
    ],
    "Pad": [
        (T.Pad(3), pad(3, 3, 3, 3)),
        (T.Pad((2, 5), fill=40), pad(2, 5, 2, 5, fill=40)),
        (T.Pad([1, 0, 4, 7], fill=(1, 2, 3)), pad(1, 0, 4, 7, fill=(1, 2, 3))),
        (T.Pad((1, 2, 3, 4), padding_mode="edge"), pad(1, 2, 3, 4, "edge")),
        (T.Pad(6, 0, "reflect"), pad(6, 6, 6, 6, "reflect")),
        (T.Pad(6, padding_mode="symmetric"), pad(6, 6, 6, 6, "symmetric")),
        (T.Pad(-2), lambda image: image[2:-2, 2:-2]),
        (T.Pad((-3, 1, 4, -5), fill=9), lambda image: pad(0, 1, 4, 0, fill=9)(image[:-5, 3:])),
    ],
    "RandomCrop": [
        (T.RandomCrop(12), random_crop(12, 12)),
        (T.RandomCrop((13, 9), 4, fill=9), random_crop(13, 9, fill=9)),
        (T.RandomCrop(18, (5, 1), padding_mode="reflect"), random_crop(18, 18, "reflect")),
        (
            T.RandomCrop(16, (-2, 3), fill=9),
            lambda image, sides, top, left: random_crop(16, 16, fill=9)(image[:, 2:-2], [0, 3, 0, 3], top, left),
        ),
        (T.RandomCrop((50, 7), pad_if_needed=True, fill=(5, 6, 7)), random_crop(50, 7, fill=(5, 6, 7))),
    ],
    "RandomRelativeCrop": [(T.RandomRelativeCrop(0.5), cut), (T.RandomRelativeCrop((0.2, 1.0), (0.7, 0.8)), cut)],
    "ResizeToMultiple": [
        (T.ResizeToMultiple(8), resize("bicubic")),
        (T.ResizeToMultiple(4, 1200, 2000, "bilinear"), resize()),
        (T.ResizeToMultiple(7, max_size=21), resize("bicubic")),
        (T.ResizeToMultiple(3, max_patches=99, antialias=False), resize("bicubic", False)),
    ],
    "FixedSizeCrop": [
        (T.FixedSizeCrop(16), fixed_size(16, 16)),
        (T.FixedSizeCrop((40, 12), (1, 2, 3)), fixed_size(40, 12, fill=(1, 2, 3))),
        (T.FixedSizeCrop((9, 50), padding_mode="reflect"), fixed_size(9, 50, "reflect")),
    ],
    "RandomResizedCrop": [
        (T.RandomResizedCrop(16), resized_crop(16, 16)),
        (T.RandomResizedCrop((9, 21), (0.3, 0.5), (1, 1), "bicubic"), resized_crop(9, 21, "bicubic")),
        (T.RandomResizedCrop(11, ratio=(4, 9), antialias=False), resized_crop(11, 11, antialias=False)),
        (T.RandomResizedCrop((9, 21), interpolation=1), resized_crop(9, 21, "lanczos")),
    ],
    "RandomHorizontalFlip": [(T.RandomHorizontalFlip(), mirrored(False)), (T.RandomHorizontalFlip(1), mirrored(False))],
    "RandomVerticalFlip": [(T.RandomVerticalFlip(), mirrored(True)), (T.RandomVerticalFlip(p=0), mirrored(True))],
    "Rot90": [(T.Rot90(), lambda image: np.rot90(image)), (T.Rot90(-2), lambda image: image[::-1, ::-1])],
    "RandomRot90": [(T.RandomRot90(), quarter_turns), (T.RandomRot90((1, 1), p=0.5), quarter_turns)],
    "D4": [(T.D4(), quarter_turns), (T.D4(p=0.5), quarter_turns)],
    "RandomZoomOut": [
        (T.RandomZoomOut(), zoom_out()),
        (T.RandomZoomOut((9, 99, 200), (2.5, 3), p=1), zoom_out((9, 99, 200))),
    ],
    "RandomResize": [(T.RandomResize(9, 14), resize()), (T.RandomResize(30, 33, "bicubic"), resize("bicubic"))],
    "RandomShortestSize": [
        (T.RandomShortestSize(17), resize()),
        (T.RandomShortestSize([9, 14, 40], max_size=45, antialias=False), resize(antialias=False)),
    ],
    "ResizeToCover": [(T.ResizeToCover((30, 20)), resize()), (T.ResizeToCover(25, "bicubic"), resize("bicubic"))],
    "ScaleJitter": [(T.ScaleJitter((30, 20)), resize()), (T.ScaleJitter(25, (0.5, 1.5), "nearest"), resize("nearest"))],
    "RandomRotation": [
        (T.RandomRotation(180), rotation()),
        (
            T.RandomRotation((-30, 60), "bilinear", center=(3, 20.5), fill=(9, 99, 200)),
            rotation("bilinear", center=(3, 20.5), fill=(9, 99, 200)),
        ),
        (
            T.RandomRotation(45, T.InterpolationMode.BILINEAR, expand=True, center=(0, 0), fill=30),
            rotation("bilinear", True, fill=30),
        ),
        (T.RandomRotation((90, 90), "bicubic", expand=True), rotation("bicubic", True)),
        (T.RandomRotation(90, "bicubic", padding_mode="wrap"), rotation("bicubic", border="wrap")),
    ],
    "RandomAffine": [
        (T.RandomAffine(0), affine()),
        (T.RandomAffine(30, (0.2, 0.5), (0.5, 2), 20, "bilinear", 40), affine("bilinear", fill=40)),
        (
            T.RandomAffine(
                (0, 90), shear=(-20, 20, 5, 30), interpolation="bicubic", center=(2, 5), padding_mode="reflect"
            ),
            affine("bicubic", (2, 5), border="reflect"),
        ),
        (T.RandomAffine(0, translate=(0, 1)), affine()),
    ],
    "RandomPerspective": [
        (T.RandomPerspective(), perspective()),
        (T.RandomPerspective(0.2, 1, "bicubic", (9, 99, 200)), perspective("bicubic", fill=(9, 99, 200))),
        (T.RandomPerspective(p=0.9, padding_mode="symmetric"), perspective(border="symmetric")),
    ],
    "ElasticTransform": [
        (T.ElasticTransform(), elastic()),
        (T.ElasticTransform((200, 90), (3, 7), "nearest", 9, "edge"), elastic("nearest", border="edge", fill=9)),
    ],
    "GridDistortion": [
        (T.GridDistortion(), grid_distortion()),
        (T.GridDistortion(3, 0.9, "nearest", p=1), grid_distortion("nearest")),
        (T.GridDistortion(4, (0, 1), normalized=False, fill=99, p=1), grid_distortion(fill=99)),
    ],
    "ColorJitter": [
        (T.ColorJitter(0.4, 0.4, 0.4, 0.1), jitter("brightness", "contrast", "saturation", "hue")),
        (T.ColorJitter(contrast=(0.2, 3.0), hue=0.5), jitter("contrast", "hue")),
        (T.ColorJitter(brightness=2), jitter("brightness")),
        (T.ColorJitter(), jitter()),
    ],
    "Grayscale": [(T.Grayscale(3), color.grayscale), (T.Grayscale(), lambda image: color.grayscale(image)[..., :1])],
    "RandomGrayscale": [(T.RandomGrayscale(0.5), color.grayscale), (T.RandomGrayscale(), color.grayscale)],
    "LUT": [
        (T.LUT(TABLE), lambda image: color.lut(image, TABLE, 255.0)),
        (T.LUT(range(255, -1, -1)), lambda image: 255.0 - image),
    ],
    "ConvertColor": [(T.ConvertColor(), yuv()), (T.ConvertColor("YUV", "RGB"), yuv(inverse=True))],
    "RandomBrightness": [(T.RandomBrightness(0.5), single("brightness")), (T.RandomBrightness(), single("brightness"))],
    "RandomContrast": [(T.RandomContrast((0.2, 2.0), p=0.5), single("contrast"))],
    "RandomSaturation": [(T.RandomSaturation(1.0), single("saturation"))],
    "RandomHue": [(T.RandomHue((-0.1, 0.5), 0.7), single("hue"))],
    "RandomPhotometricDistort": [
        (T.RandomPhotometricDistort(), distort),
        (T.RandomPhotometricDistort((0.5, 2.0), (1.0, 1.0), (0.0, 3.0), (-0.5, 0.5), p=0.9), distort),
    ],
    "RandomChannelPermutation": [(T.RandomChannelPermutation(), lambda image, permutation: image[..., permutation])],
    "RGBShift": [
        (T.RGBShift(), lambda image, shift: image + shift),
        (T.RGBShift(100, (-3, 5), (40, 40), 1.0), lambda image, shift: image + shift),
    ],
    "PlanckianJitter": [
        (T.PlanckianJitter(), lambda image, gain: image * gain),
        (T.PlanckianJitter("CIED", [0, 3, 22], p=1), lambda image, gain: image * gain),
        (T.PlanckianJitter(select_from=0), lambda image, gain: image * gain),
    ],
    "RandomGamma": [
        (T.RandomGamma((0.3, 3.0)), at_white_255(color.gamma)),
        (T.RandomGamma((1, 1), (0.5, 2), p=0.5), at_white_255(color.gamma)),
    ],
    "RandomPosterize": [(T.RandomPosterize(k, 0.7), at_white_255(color.posterize, k)) for k in (0, 3, 8)],
    "RandomSolarize": [
        (T.RandomSolarize(128), at_white_255(color.solarize, 128)),
        (T.RandomSolarize(255, 1), at_white_255(color.solarize, 255)),
    ],
    "RandomInvert": [(T.RandomInvert(), at_white_255(color.invert))],
    "RandomAutocontrast": [(T.RandomAutocontrast(), at_white_255(statistics.autocontrast))],
    "RandomEqualize": [
        (T.RandomEqualize(), at_white_255(statistics.equalize)),
        (T.RandomEqualize(1), at_white_255(statistics.equalize)),
    ],
    "CLAHE": [(T.CLAHE(p=1), clahe((8, 8))), (T.CLAHE((1.5, 40), (3, 2)), clahe((2, 3)))],
    "GaussianNoise": [
        (T.GaussianNoise(), gaussian(0.0)),
        (T.GaussianNoise(0.1, (0.0, 0.3), clip=False), gaussian(0.1)),
    ],
    "SaltAndPepper": [(T.SaltAndPepper(), salt_and_pepper), (T.SaltAndPepper((0.5, 1), (0, 1), 1), salt_and_pepper)],
    "ShotNoise": [(T.ShotNoise(), shot), (T.ShotNoise((0.01, 0.02), p=1), shot)],
    "CoarseDropout": [
        (T.CoarseDropout(), coarse()),
        (T.CoarseDropout((1, 6), (2, 9), (0.05, 1.0), (1, 2, 3), 1), coarse((1, 2, 3))),
    ],
    "GridMask": [(T.GridMask(), grid()), (T.GridMask((4, 9), (0.2, 0.8), 45, fill=(9, 8, 7), p=1), grid((9, 8, 7)))],
    "RandomErasing": [
        (T.RandomErasing(), erasing(0)),
        (T.RandomErasing(1, (0.1, 0.2), (1, 1), (9, 99, 200)), erasing((9, 99, 200))),
        (T.RandomErasing(p=0.7, value="random"), erasing("random")),
    ],
    "RandomMask": [(T.RandomMask(), mask(0.5)), (T.RandomMask(0.2, fill=(1, 2, 3), p=0.5), mask(0.2, (1, 2, 3)))],
    "GaussianBlur": [
        (T.GaussianBlur(5), gaussian_blur(5, 5)),
        (T.GaussianBlur((3, 9), 1.5), gaussian_blur(3, 9)),
        (T.GaussianBlur([23, 1], (0.5, 6.0)), gaussian_blur(23, 1)),
    ],
    "RandomAdjustSharpness": [
        (T.RandomAdjustSharpness(2), lambda image: filters.adjust_sharpness(image, 2.0, 255.0)),
        (T.RandomAdjustSharpness(0.3, p=0.8), lambda image: filters.adjust_sharpness(image, 0.3, 255.0)),
    ],
    "MotionBlur": [
        (T.MotionBlur(5, 35, 0.5), motion_blur()),
        (T.MotionBlur((3, 11), (-90, 20.0), (0, 1), "reflect", p=1.0), motion_blur("reflect")),
        (T.MotionBlur(7, 180, (-1, -0.5), "edge", "bilinear"), motion_blur("edge", "bilinear")),
    ],
    "MedianBlur": [(T.MedianBlur(), filters.median), (T.MedianBlur((3, 7), 0.8), filters.median)],
    "Downscale": [
        (T.Downscale(), downscale("nearest", "nearest")),
        (
            T.Downscale((0.1, 1), {"downscale": "bilinear", "upscale": "bicubic"}, p=0.9),
            downscale("bilinear", "bicubic"),
        ),
    ],
    "JPEG": [(T.JPEG(50), by_pillow), (T.JPEG((5, 100)), by_pillow)],
    "AutoAugment": [
        (T.AutoAugment(), automatic()),
        (T.AutoAugment(T.AutoAugmentPolicy.CIFAR10, "bilinear", 40), automatic("bilinear", 40)),
        (T.AutoAugment("svhn", fill=(9, 99, 200)), automatic(fill=(9, 99, 200))),
    ],
    "RandAugment": [
        (T.RandAugment(), automatic()),
        (T.RandAugment(1, 30, interpolation="bicubic", fill=[9, 99, 200]), automatic("bicubic", (9, 99, 200))),
        (T.RandAugment(0), automatic()),
    ],
    "TimmRandAugment": [
        (T.TimmRandAugment(), timm_policy()),
        (T.TimmRandAugment("rand-m7-n3-p1", "nearest", (9, 99, 200)), timm_policy("nearest", (9, 99, 200))),
        (T.TimmRandAugment("rand-n1-p0.9-mstd101-inc1"), timm_policy()),
    ],
    "TrivialAugmentWide": [
        (T.TrivialAugmentWide(), automatic()),
        (T.TrivialAugmentWide(5, T.InterpolationMode.BILINEAR, 30), automatic("bilinear", 30)),
    ],
    "Normalize": [
        (
            T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
            normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ),
        (T.Normalize(0.5, 0.5), normalize(0.5, 0.5)),
    ],
    "ToDtype": [
        (T.ToDtype(torch.float32, scale=True), lambda image: image / 255.0),
        (T.ToDtype(torch.float32), lambda image: image),
        (T.ToDtype(torch.float16, True), lambda image: (image / 255.0).astype(np.float16)),
        (T.ToDtype(torch.uint8), lambda image: image),
    ],
}
