"""Names, arguments and attributes of other libraries, and what cuaug has in their place."""

from __future__ import annotations

import difflib
import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])
Class = TypeVar("Class", bound=type)

_THREADS = "threads= sets their number; they are threads, not processes"
_EPOCHS = "not needed: each `for` loop is the next epoch"
_LAST = 'last_batch="drop", "partial" (the default) or "pad"'
_ON_DEVICE = "not needed: images and labels are on the Loader's device"
_RANK = "not needed under torchrun; else rank= and world_size="
LOADER_ARGUMENTS = {
    # cuaug.DecodeOptions
    "apply_exif": "decode=cuaug.DecodeOptions(apply_exif=False)",
    "decoder": 'decode=cuaug.DecodeOptions(decoder="nvimgcodec")',
    "fancy_upsampling": "decode=cuaug.DecodeOptions(fancy_upsampling=False)",
    "index_bytes": "decode=cuaug.DecodeOptions(index_bytes=0)",
    "lossy": "decode=cuaug.DecodeOptions(lossy=True)",
    "max_bytes": "decode=cuaug.DecodeOptions(max_bytes=100_000_000)",
    "max_pixels": "decode=cuaug.DecodeOptions(max_pixels=50_000_000)",
    "mode": 'decode=cuaug.DecodeOptions(mode="unchanged")',
    "video_decoder": 'decode=cuaug.DecodeOptions(video_decoder="nvdec")',
    # torch.utils.data.DataLoader
    "dataset": "files, the first argument, accepts a Dataset too",
    "drop_last": 'last_batch="drop" leaves out an incomplete last batch; "partial" (the default) keeps it',
    "generator": "seed= seeds all random numbers",
    "in_order": "not needed: batches come in order",
    "multiprocessing_context": _THREADS,
    "num_workers": _THREADS,
    "persistent_workers": "not needed: threads live as long as the Loader",
    "pin_memory": _ON_DEVICE,
    "pin_memory_device": _ON_DEVICE,
    "prefetch_factor": "prefetch=, in batches",
    "timeout": "timeout_seconds=",
    "worker_init_fn": "not needed: random numbers depend on seed= and the sample, not on threads",
    # torchvision's data sets
    "root": "files, the first argument, is the folder",
    "transform": "transforms=",
    "target_transform": "collate_fn=, or labels from your own source",
    # DALI's pipelines, readers and iterators
    "auto_reset": _EPOCHS,
    "device_id": 'device="cuda:0", "cuda:1", ...',
    "file_list": "files, the first argument, accepts the name of a list file",
    "file_root": "files, the first argument, is the folder",
    "hw_decoder_load": "not needed: nvImageCodec's engine decodes all that it can",
    "initial_fill": "not needed: shuffle=True shuffles the whole epoch",
    "last_batch_policy": _LAST,
    "num_shards": _RANK,
    "num_threads": "threads=",
    "pad_last_batch": 'last_batch="pad"',
    "prefetch_queue_depth": "prefetch=, in batches",
    "random_shuffle": "shuffle=True",
    "shard_id": _RANK,
    # FFCV's Loader
    "distributed": _RANK,
    "order": "shuffle=True, or sampler=",
    "os_cache": 'the system keeps files that were read in free memory; cache="decoded" keeps pixels',
    "pipelines": "transforms=, for the images",
}

#: Attributes of DataLoader and of tensors that a Loader lacks.
LOADER_ATTRIBUTES = {
    **dict.fromkeys(("to", "cuda", "cpu"), "batches are made on Loader(device=...); batch.to(device) moves a batch"),
    "collate_fn": "Loader(collate_fn=...) merges labels",
    "generator": "see loader.seed",
    "imgs": "see loader.source.paths and loader.source.labels",
    "persistent_workers": "threads live as long as the Loader",
    "prefetch_factor": "see loader.prefetch, in batches",
    "samples": "see loader.source.paths and loader.source.labels",
    "targets": "loader.source.label(i) gives each label, where the source stores labels",
    "timeout": "see loader.timeout_seconds",
    "worker_init_fn": "there are no worker processes",
}


#: Names that people look for in `cuaug` itself.
PACKAGE = {
    "DataLoader": "cuaug.Loader reads, decodes, transforms and collates",
    "Dataset": "cuaug.Loader takes torch's Datasets; cuaug.sources has cuaug's own",
    "Pipeline": "cuaug.Loader(files, transforms) is the whole pipeline",
    "datasets": "cuaug.sources",
    "pipeline_def": "cuaug.Loader(files, transforms) is the whole pipeline",
}


def suggest_arguments(replacements: Mapping[str, str]) -> Callable[[Function], Function]:
    """Decorates a function or `__init__`: its TypeError names what a foreign or misspelled argument is called here."""

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def checked(*args: Any, **options: Any) -> Any:
            try:
                return function(*args, **options)
            except TypeError:
                own = inspect.signature(function).parameters
                foreign = {name: _argument(name, list(own), replacements) for name in options if name not in own}
                hints = [f"{name!r}: {text}" for name, text in foreign.items() if text]
                if not hints or any(parameter.kind is parameter.VAR_KEYWORD for parameter in own.values()):
                    raise
            owner = type(args[0]).__name__ if function.__name__ == "__init__" else function.__name__
            raise TypeError(f"{owner} has no argument {'; nor '.join(hints)}")

        return cast(Function, checked)

    return decorate


def _argument(name: str, own: Sequence[str], replacements: Mapping[str, str]) -> str | None:
    """What to write instead of an argument that there is not; None if nothing is like it."""
    similar = difflib.get_close_matches(name, [name for name in own if name != "self"], n=1, cutoff=0.8)
    return replacements.get(name) or (f"do you mean {similar[0]}=?" if similar else None)


def suggests_arguments(cls: Class) -> Class:
    """Decorates a class: its `__init__` names the argument that a misspelled one is like."""
    cls.__init__ = suggest_arguments({})(cls.__init__)  # type: ignore[misc]
    return cls


class SuggestsArguments:
    """Base class that decorates all classes derived from it as `suggests_arguments` does."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in cls.__dict__:
            suggests_arguments(cls)


_IMAGE_TYPES = "not needed: functions take tensors, arrays and PIL images"
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
    "pil_to_tensor": f"{_IMAGE_TYPES}; transforms.PILToTensor() makes a tensor",
    "sanitize_bounding_boxes": "transforms.SanitizeBoundingBoxes()",
    "sanitize_keypoints": "points outside the image get visibility 0: filter them by that",
    "to_grayscale": "rgb_to_grayscale is the same",
    "to_image": f"{_IMAGE_TYPES}; transforms.ToImage() makes a tensor",
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


#: Modules of other libraries' transforms.
_LIBRARIES = (
    "torchvision.transforms.v2",
    "torchvision.transforms",
    "albumentations",
    "kornia.augmentation",
    "timm.data",
)
#: Names of these transforms that differ in cuaug.
_RENAMED = {
    # torchvision.transforms
    "ImageClassification": "Resize, CenterCrop and Normalize",
    # albumentations
    "Affine": "RandomAffine",
    "Blur": "GaussianBlur",
    "ChannelShuffle": "RandomChannelPermutation",
    "Cutout": "CoarseDropout or RandomErasing",
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
RENAMED_TRANSFORMS = {**{name: f"use {new}" for name, new in _RENAMED.items()}, **TRANSFORMS}


def foreign_transform(transform: Any) -> str | None:
    """The substitute for another library's transform; None: it belongs to none of these libraries.

    They draw once for the whole batch, or take images of other types.
    """
    for kind in type(transform).__mro__:
        library = next((module for module in _LIBRARIES if _is_in(kind.__module__, module)), None)
        if library is None:
            continue
        if kind is type(transform):
            return f"{library}.{kind.__name__}: use {_replacement(kind.__name__)}"
        return (
            f"{type(transform).__name__} is a {library}.{kind.__name__}: derive it from cuaug.transforms.Transform, or "
            "wrap it in cuaug.transforms.Lambda to run it once for a whole batch (N, C, H, W)"
        )
    return None


#: torchvision's transforms that draw, besides those named Random...
_DRAWING = frozenset(
    {"AugMix", "AutoAugment", "ColorJitter", "ElasticTransform", "GaussianBlur", "GaussianNoise", "JPEG", "RandAugment"}
    | {"ScaleJitter", "TrivialAugmentWide"}
)


def shared_draw(function: Any) -> str | None:
    """The warning for a `Lambda` of a torchvision transform that draws once for a whole batch; None: it is none."""
    import torch  # not above: names that `cuaug` lacks get a hint without it

    pending = [function]
    while pending:
        part = pending.pop()
        name, inner = type(part).__name__, getattr(part, "transforms", None)
        pending += inner if isinstance(inner, (list, tuple)) else []
        pending += part.children() if isinstance(part, torch.nn.Module) else []
        is_torchvisions = _is_in(type(part).__module__, "torchvision.transforms")
        if is_torchvisions and (name.startswith("Random") or name in _DRAWING):
            return (
                f"function: torchvision's {name} draws once for all images of the batch: use {_replacement(name)}, "
                "which draws for each image"
            )
    return None


def _is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def is_own_name(name: str) -> bool:
    """Whether cuaug has a transform of this name."""
    return name in sys.modules["cuaug.transforms"].__all__


def _replacement(name: str) -> str:
    if is_own_name(name):
        return f"cuaug.transforms.{name}"
    if name in _RENAMED:
        return f"cuaug.transforms: {_RENAMED[name]}"
    if name in TRANSFORMS:
        return f"cuaug.transforms: {TRANSFORMS[name]}"
    return "a transform of cuaug.transforms, or cuaug.transforms.Lambda to run it once for a whole batch (N, C, H, W)"
