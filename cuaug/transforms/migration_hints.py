"""Replacements for names and transforms of other libraries."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["FUNCTIONS", "TRANSFORMS", "foreign_transform", "missing_function", "missing_name"]

_IMAGE_TYPES = "not needed: {} take tensors, arrays and PIL images"
_LOADER_TENSORS = f"{_IMAGE_TYPES.format('chains')}, and a Loader yields tensors"
TRANSFORMS = {
    "ConvertImageDtype": "ToDtype(dtype, scale=True) is the same",
    "LargeScaleJitter": "ScaleJitter(target_size), then FixedSizeCrop(size)",
    "LinearTransformation": "Lambda(function) takes any function of a batch of images",
    "ToPILImage": "not needed: PIL images come back as PIL images",
    "ToTensor": "ToDtype(torch.float32, scale=True) makes floats in [0, 1]; PIL images become (C, H, W) tensors",
}

_TARGETS = "boxes, masks and keypoints move with their image: transforms.Compose([...])(image, target)"
_SHAPE = "the image's shape holds it: (..., C, H, W) of a tensor, (H, W, C) of an array, .size of a PIL image"
FUNCTIONS = {
    "clamp_bounding_boxes": "transforms.ClampBoundingBoxes(); boxes are clipped after each transform anyway",
    "clamp_keypoints": "transforms.ClampKeyPoints()",
    "convert_bounding_box_format": "transforms.ConvertBoundingBoxFormat(format)",
    "convert_image_dtype": "to_dtype(image, dtype, scale=True) is the same",
    "elastic_transform": "elastic is the same",
    "get_dimensions": _SHAPE,
    "get_image_num_channels": _SHAPE,
    "get_image_size": _SHAPE,
    "get_num_channels": _SHAPE,
    "get_num_frames": "the video's shape holds it: (T, C, H, W)",
    "get_size": _SHAPE,
    "hflip": "horizontal_flip is the same",
    "pil_to_tensor": f"{_IMAGE_TYPES.format('functions')}; transforms.PILToTensor() makes a tensor",
    "sanitize_bounding_boxes": "transforms.SanitizeBoundingBoxes()",
    "sanitize_keypoints": "points outside the image get visibility 0: filter them by that",
    "to_grayscale": "rgb_to_grayscale is the same",
    "to_image": f"{_IMAGE_TYPES.format('functions')}; transforms.ToImage() makes a tensor",
    "to_pil_image": "not needed: PIL images come back as PIL images; PIL.Image.fromarray makes one of an array",
    "to_tensor": "to_dtype(image, torch.float32, scale=True) makes floats in [0, 1]; PIL images become tensors",
    "uniform_temporal_subsample": "transforms.UniformTemporalSubsample(num_samples)",
    "vflip": "vertical_flip is the same",
}
#: torchvision's functions of one kind of input, such as resize_mask.
_KINDS = {
    "_image": "{} takes tensors, arrays and PIL images",
    "_video": "{} takes the frames as a batch, (T, C, H, W)",
    "_mask": _TARGETS,
    "_bounding_boxes": _TARGETS,
    "_keypoints": _TARGETS,
}


def missing_function(module: str, name: str, own: Sequence[str]) -> AttributeError:
    """`missing_name` for a function; `own` are the module's."""
    hints = dict(FUNCTIONS)
    for suffix, hint in _KINDS.items():
        if name not in hints and name.endswith(suffix) and (base := name.removesuffix(suffix)) in own:
            hints[name] = hint.format(base)
    return missing_name(module, name, hints)


def missing_name(module: str, name: str, hints: Mapping[str, str]) -> AttributeError:
    """The AttributeError for a name that a module lacks, with a hint if there is one."""
    hint = f": {hints[name]}" if name in hints else ""
    return AttributeError(f"module {module!r} has no attribute {name!r}{hint}", name=name, obj=sys.modules[module])


#: Modules of other libraries' transforms, and their public names.
_LIBRARIES = {
    "torchvision.transforms.v2": "torchvision.transforms.v2",
    "torchvision.transforms": "torchvision.transforms",
    "albumentations": "albumentations",
    "kornia.augmentation": "kornia.augmentation",
    "timm.data": "timm.data",
}
#: Names of these transforms that differ in cuaug.
_RENAMED = {
    # torchvision.transforms
    "ImageClassification": "Resize, CenterCrop and Normalize",
    # albumentations
    "Affine": "RandomAffine",
    "Blur": "GaussianBlur",
    "ChannelShuffle": "RandomChannelPermutation",
    "Equalize": "RandomEqualize",
    "GaussNoise": "GaussianNoise",
    "HorizontalFlip": "RandomHorizontalFlip",
    "HueSaturationValue": "ColorJitter",
    "ImageCompression": "JPEG",
    "InvertImg": "RandomInvert",
    "LongestMaxSize": "Resize(None, max_size=...)",
    "OneOf": "RandomChoice",
    "PadIfNeeded": "CenterCrop, which pads",
    "Perspective": "RandomPerspective",
    "Posterize": "RandomPosterize",
    "RandomBrightnessContrast": "ColorJitter",
    "RandomRotate90": "RandomRot90",
    "ReplayCompose": "Compose, with trace and replay",
    "Rotate": "RandomRotation",
    "Sequential": "Compose, or RandomApply",
    "Sharpen": "RandomAdjustSharpness",
    "ShiftScaleRotate": "RandomAffine",
    "SmallestMaxSize": "Resize",
    "Solarize": "RandomSolarize",
    "ToGray": "RandomGrayscale",
    "ToTensorV2": "ToImage",
    "Transpose": "D4",
    "VerticalFlip": "RandomVerticalFlip",
    # kornia.augmentation
    "AugmentationSequential": "Compose",
    "ColorJiggle": "ColorJitter",
    "ImageSequential": "Compose",
    "RandomBoxBlur": "GaussianBlur",
    "RandomCLAHE": "CLAHE",
    "RandomCutMixV2": "CutMix",
    "RandomElasticTransform": "ElasticTransform",
    "RandomGaussianBlur": "GaussianBlur",
    "RandomGaussianNoise": "GaussianNoise",
    "RandomJPEG": "JPEG",
    "RandomMedianBlur": "MedianBlur",
    "RandomMixUpV2": "MixUp",
    "RandomMosaic": "Mosaic",
    "RandomMotionBlur": "MotionBlur",
    "RandomPlanckianJitter": "PlanckianJitter",
    "RandomRGBShift": "RGBShift",
    "RandomSharpness": "RandomAdjustSharpness",
    # timm.data
    "Mixup": "MixUp and CutMix",
    "RandomResizedCropAndInterpolation": "RandomResizedCrop",
    "ToNumpy": "no transform: a Loader makes tensors",
}


def foreign_transform(transform: Any) -> str | None:
    """The substitute for another library's transform; None: it belongs to none of these libraries.

    They draw once for the whole batch, or take images of other types.
    """
    for kind in type(transform).__mro__:
        library = next((name for module, name in _LIBRARIES.items() if _is_in(kind.__module__, module)), None)
        if library is None:
            continue
        if kind is type(transform):
            return f"{library}.{kind.__name__}: use {_replacement(kind.__name__)}"
        return (
            f"{type(transform).__name__} is a {library}.{kind.__name__}: derive it from cuaug.transforms.Transform, or "
            "wrap it in cuaug.transforms.Lambda to run it once for a whole batch (N, C, H, W)"
        )
    return None


def _is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _replacement(name: str) -> str:
    own = sys.modules["cuaug.transforms"].__all__
    if name in own:
        return f"cuaug.transforms.{name}"
    if name in _RENAMED:
        return f"cuaug.transforms: {_RENAMED[name]}"
    if name in TRANSFORMS:
        return f"cuaug.transforms: {TRANSFORMS[name]}"
    return "a transform of cuaug.transforms, or cuaug.transforms.Lambda to run it once for a whole batch (N, C, H, W)"
