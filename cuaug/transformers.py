"""Chains that equal the image processors of Hugging Face Transformers, which this module does not import.

chain = cuaug.transformers.processor("folder")  # or its preprocessor_config.json, a dict, an image processor
images = cuaug.decode(files, chain)
inputs = chain.inputs(images)  # {"pixel_values": ...}, and masks or grids where the model takes them
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cuaug.errors import ArgumentError, TransformError
from cuaug.plan import Plan
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import (
    RGB,
    CenterCrop,
    Compose,
    Normalize,
    Resize,
    ResizeToMultiple,
    ToDtype,
    ToImage,
    Transform,
    parameters,
)
from cuaug.transforms.base import Where

__all__ = ["Processor", "processor"]

Floats = NDArray[np.float64]
_Size = tuple[Floats, Floats]

_HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))


class _Type(NamedTuple):
    """Defaults of a class of image processors.

    Attributes:
        size: a number is the side of a square, or with `square` False the shorter side.
        does: its do_* settings that are True by default.
        lacks: do_* settings that it does not know; True is refused.
        keys: settings of this class alone.
    """

    resample: int
    mean_std: tuple[Sequence[float], Sequence[float]]
    size: Any
    does: str = "resize rescale normalize"
    lacks: str = ""
    crop: int | None = None
    square: bool = True
    keys: Mapping[str, Any] = {}


_CROPS, _PADS = "resize center_crop rescale normalize", "resize rescale normalize pad"
_RGB = "resize rescale normalize convert_rgb"
_CLIPS = _Type(3, _CLIP, 224, _CROPS + " convert_rgb", crop=224, square=False)
_MAPS = {"do_reduce_labels": False, "reduce_labels": False}
_DETECTOR = {"format": None, "do_convert_annotations": None, "max_size": 1333}
_QWEN = {"min_pixels": None, "max_pixels": None, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2}
_MATTE = {"size_divisor": 32, "size_divisibility": None}
_EDGES = {"shortest_edge": 800, "longest_edge": 1333}
_PIXELS = {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 1280}
_DETR = _Type(2, _IMAGENET, _EDGES, _PADS, "center_crop", square=False, keys=_DETECTOR)
#: Processor classes by their names without "ImageProcessor".
_TYPES = {
    "Beit": _Type(3, _HALF, 224, lacks="pad", crop=224, keys=_MAPS),
    "Bit": _CLIPS,
    "Blip": _Type(3, _CLIP, 384, _RGB),
    "CLIP": _CLIPS,
    "ChineseCLIP": _CLIPS,
    "ConditionalDetr": _DETR,
    "ConvNext": _Type(3, _HALF, 384, lacks="pad", square=False, keys={"crop_pct": 224 / 256}),
    "DeformableDetr": _DETR,
    "DeiT": _Type(3, _HALF, 256, _CROPS, crop=224),
    "Detr": _DETR,
    "GroundingDino": _DETR,
    "Levit": _Type(3, _IMAGENET, 224, _CROPS, crop=224, square=False),
    "MobileNetV1": _Type(2, _HALF, 256, _CROPS, crop=224, square=False),
    "MobileNetV2": _Type(2, _HALF, 256, _CROPS, "pad", crop=224, square=False, keys=_MAPS),
    "OwlViT": _Type(3, _CLIP, 768, _RGB, crop=768),
    "Pvt": _Type(3, _IMAGENET, 224),
    "Qwen2VL": _Type(3, _CLIP, _PIXELS, _RGB, "center_crop pad", keys=_QWEN),
    "RTDetr": _DETR._replace(size={"height": 640, "width": 640}, does="resize rescale"),
    "Segformer": _Type(2, _IMAGENET, 512, lacks="center_crop pad", keys=_MAPS),
    "Siglip": _Type(3, _HALF, {"height": 224, "width": 224}, _RGB, square=False),
    "Siglip2": _Type(2, _HALF, {}, lacks="center_crop pad", keys={"patch_size": 16, "max_num_patches": 256}),
    "ViT": _Type(2, _HALF, 224),
    "VitMatte": _Type(2, _HALF, {}, "rescale normalize pad", "resize center_crop", keys=_MATTE),
}
#: Settings without an effect on images of files.
_IDLE = frozenset(
    {"image_processor_type", "feature_extractor_type", "processor_class", "default_to_square", "input_data_format"}
    | {"return_tensors", "device", "disable_grouping", "image_seq_length", "_valid_processor_keys"}
)
_STEPS = ("resize", "center_crop", "rescale", "normalize", "pad", "convert_rgb")


def processor(config: Any, *, pillow: Literal[12, 13, True] = True) -> Processor:
    """Make the chain that equals an image processor of Transformers. Nothing is downloaded.

    Its float32 images have every bit of the `pixel_values` of the PIL backend: the slow processors of Transformers 4,
    `backend="pil"` of Transformers 5. `Processor.inputs` adds paddings, patches and masks.

    Args:
        config: a folder with a preprocessor_config.json or processor_config.json, the path of such a file, its content
            as a dict, or an image processor of Transformers or an object that holds one as `image_processor`.
        pillow: as for `Compose`. Transformers has the pixels of the installed version.

    Raises:
        ArgumentError: config is none of these, or its class or a setting with an effect is unknown.
    """
    settings = _read(config)
    name = settings.get("image_processor_type") or settings.get("feature_extractor_type")
    if not isinstance(name, str):
        raise ArgumentError(f"config must name an image_processor_type, but it has only {sorted(settings)}")
    stem = name.removesuffix("Fast").removesuffix("Pil").removesuffix("ImageProcessor").removesuffix("FeatureExtractor")
    if stem.startswith("DINOv3"):
        raise ArgumentError(f"config is of {name}, which has no PIL backend: it resizes floats with torchvision")
    if stem not in _TYPES:
        raise ArgumentError(f"config is of {name}, but known are only {', '.join(_TYPES)}, each + ImageProcessor")
    return Processor(stem, _resolve(name, _TYPES[stem], settings), pillow=pillow)


class Processor(Compose):
    """A chain that equals an image processor of Transformers; `processor` makes it.

    Attributes:
        name: the processor's class, without "ImageProcessor".
        settings: its settings, defaults included.
    """

    def __init__(self, name: str, settings: Mapping[str, Any], *, pillow: Literal[12, 13, True] = True) -> None:
        self.name, self.settings = name, dict(settings)
        super().__init__(_transforms(name, self.settings), pillow=pillow)

    def inputs(self, images: Tensor | Sequence[Tensor], targets: Any = None) -> dict[str, Any]:
        """Make a model's inputs of images that this chain has made, as Transformers with return_tensors="pt".

        Args:
            images: (C, H, W), (N, C, H, W), or N tensors (C, H, W).
            targets: N targets that the chain has moved: class maps (H, W); for detectors dicts with "boxes", (K, 4)
                xyxy in pixels, "labels", and "masks" if there are any; for ViTMatte its trimaps, (H, W) uint8.

        Returns:
            "pixel_values": padded, if the processor pads; a list if sizes differ. Besides, by the class:
            maps: "labels", int64, with do_reduce_labels applied;
            detectors that pad: "pixel_mask", (N, H, W) int64, 1 inside the image;
            detectors: "labels", dicts with "class_labels", "size", and "boxes" as fractions (cx, cy, w, h), unless
            do_convert_annotations is False;
            Qwen2VL: (patches, C temporal_patch_size patch_size^2), and "image_grid_thw", (N, 3) int64;
            Siglip2: (N, max_num_patches, patch_size^2 C), and "pixel_attention_mask" and "spatial_shapes".
        """
        settings, is_detector = self.settings, _TYPES[self.name].keys is _DETECTOR
        rows = list(images[None] if isinstance(images, Tensor) and images.ndim == 3 else images)
        if not rows or len(rows if targets is None else targets) != len(rows):
            raise TransformError(f"targets must be one for each of the {len(rows)} images, at least one")
        if self.name in ("Qwen2VL", "Siglip2"):
            if targets is not None:
                raise TransformError(f"targets must be None: {self.name}ImageProcessor takes images alone")
            return (_patches_in_blocks if self.name == "Qwen2VL" else _padded_patches)(rows, settings)
        if self.name == "VitMatte":
            if targets is None:
                raise TransformError("targets must be the trimaps, which VitMatteImageProcessor puts beside the colors")
            scale = settings["rescale_factor"] if settings["do_rescale"] else 1.0
            alphas = [(torch.as_tensor(trimap).double() * scale).to(rows[0]) for trimap in targets]
            rows, targets = [torch.cat([row, own[None]]) for row, own in zip(rows, alphas, strict=True)], None
        made: dict[str, Any] = {}
        if settings["do_pad"]:
            inside = [torch.ones_like(row[0], dtype=torch.int64) for row in rows]
            made = {"pixel_mask": torch.stack(_pad(inside, settings))} if is_detector else made
            rows = _pad(rows, settings)
        made["pixel_values"] = _stack(rows)
        if targets is not None and is_detector:
            made["labels"] = [_detector_labels(*pair, settings) for pair in zip(targets, rows, strict=True)]
        elif targets is not None:
            made["labels"] = _stack([_class_map(labels, settings) for labels in targets])
        return made


# --- configurations -----------------------------------------------------------------------------------------------
def _read(config: Any) -> dict[str, Any]:
    config = getattr(config, "image_processor", config)
    if isinstance(config, (str, os.PathLike)):
        path = Path(config)
        if path.is_dir():
            names = [path / "preprocessor_config.json", path / "processor_config.json"]
            path = next(filter(Path.is_file, names), names[0])
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ArgumentError(f"config must be a folder or JSON file of an image processor: {error}") from error
    config = config.to_dict() if callable(getattr(config, "to_dict", None)) else config
    if not isinstance(config, Mapping):
        raise ArgumentError(f"config must be a path, a dict or an image processor, not {config!r}")
    inner = config.get("image_processor")
    return dict(inner if isinstance(inner, Mapping) else config)


def _resolve(name: str, kind: _Type, config: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of a processor, checked. None stands for the default, as in Transformers."""
    given = {key: value for key, value in config.items() if value is not None and key not in _IDLE}
    if kind.keys is _DETECTOR and "pad_and_return_pixel_mask" in given:
        given.setdefault("do_pad", given.pop("pad_and_return_pixel_mask"))
    mean, std = kind.mean_std
    settings = {f"do_{step}": step in kind.does.split() for step in _STEPS} | {"crop_size": kind.crop, **kind.keys}
    settings |= {"size": kind.size, "resample": kind.resample, "image_mean": mean, "image_std": std}
    settings |= {"rescale_factor": 1 / 255, "pad_size": None, "data_format": "channels_first"}
    lacks = {f"do_{step}" for step in kind.lacks.split()}
    for key, value in given.items():
        if value is not False and (key in lacks or key not in settings):
            raise ArgumentError(f"config has {key}={value!r}, which is unknown of {name}")
    settings |= {key: value for key, value in given.items() if key in settings}
    square = config.get("default_to_square")
    settings["size"] = _size(settings["size"], kind.square if square is None else square, settings.get("max_size"))
    for key in ("crop_size", "pad_size"):
        settings[key] = None if settings[key] is None else _size(settings[key], True, None)
    if settings["resample"] not in range(6):
        raise ArgumentError(
            f"config must have Pillow's number of a filter, 0 to 5, as resample, not {settings['resample']}"
        )
    levels, factor = np.arange(256), settings["rescale_factor"]
    if (np.float32(levels) / np.float32(255) != np.float32(levels * np.float64(factor))).any():
        raise ArgumentError(f"config must have rescale_factor=1/255, not {factor!r}")
    if settings["data_format"] != "channels_first":
        raise ArgumentError(f"config must have data_format='channels_first', not {settings['data_format']!r}")
    if settings.get("reduce_labels", False) not in (False, settings.get("do_reduce_labels")):
        raise ArgumentError("config has reduce_labels=True, which Transformers 5 ignores: set do_reduce_labels, too")
    return settings


def _size(size: Any, square: bool, max_size: int | None) -> dict[str, int]:
    """A size as a dict, as `get_size_dict` of Transformers makes it."""
    if isinstance(size, int):
        longest = {} if max_size is None else {"longest_edge": max_size}
        return {"height": size, "width": size} if square else {"shortest_edge": size, **longest}
    if isinstance(size, (list, tuple)) and len(size) == 2:
        return {"height": size[0], "width": size[1]}
    if not isinstance(size, Mapping):
        raise ArgumentError(f"config must have sizes as a number, (height, width) or a dict, not {size!r}")
    return {key: value for key, value in size.items() if value is not None}


# --- transforms ---------------------------------------------------------------------------------------------------
def _transforms(name: str, settings: Mapping[str, Any]) -> list[Transform]:
    chain: list[Transform] = [RGB()] if settings["do_convert_rgb"] else []
    if settings["do_resize"]:
        chain += _resizes(name, settings)
    if settings["do_center_crop"]:
        chain.append(_CenterCrop(_sides("crop_size", settings["crop_size"])))
    rescale, normalize = settings["do_rescale"], settings["do_normalize"]
    if normalize and not rescale:
        chain.append(ToDtype(torch.float32))  # keeps levels
    if not normalize and not rescale:
        chain.append(ToImage())
    else:  # Normalize divides by 255 as the rescaling does; ToDtype multiplies by 1 / 255
        chain.append(Normalize(settings["image_mean"], settings["image_std"]) if normalize else Normalize(0.0, 1.0))
    return chain


def _resizes(name: str, settings: Mapping[str, Any]) -> list[Transform]:
    size, resample, keys = settings["size"], settings["resample"], set(settings["size"])
    edge = size.get("shortest_edge", 0)
    if name == "Qwen2VL":
        low, high = settings["min_pixels"] or edge, settings["max_pixels"] or size.get("longest_edge")
        if low and high:
            return [ResizeToMultiple(settings["patch_size"] * settings["merge_size"], low, high, resample)]
    elif name == "Siglip2":
        return [
            ResizeToMultiple(settings["patch_size"], interpolation=resample, max_patches=settings["max_num_patches"])
        ]
    elif name == "ConvNext":
        if edge >= 384:
            return [Resize((edge, edge), resample)]
        if edge:
            return [Resize(int(edge / settings["crop_pct"]), resample), _CenterCrop(edge)]
    elif keys == {"shortest_edge", "longest_edge"}:
        return [_ResizeBy("edges", (edge, size["longest_edge"]), resample)]
    elif keys == {"max_height", "max_width"}:
        return [_ResizeBy("box", (size["max_height"], size["max_width"]), resample)]
    elif keys == {"height", "width"}:
        return [Resize((size["height"], size["width"]), resample)]
    elif keys == {"shortest_edge"} and _TYPES[name].keys is not _DETECTOR:
        return [Resize(int((256 / 224) * edge) if name == "Levit" else edge, resample)]
    raise ArgumentError(f"config has size={size}, which {name}ImageProcessor does not know")


def _sides(key: str, size: Mapping[str, int] | None) -> tuple[int, int]:
    if size is None or set(size) != {"height", "width"}:
        raise ArgumentError(f"config must have {key} with height and width, not {size}")
    return size["height"], size["width"]


class _ResizeBy(Transform):
    """Resize by one of the size rules of Transformers."""

    def __init__(self, rule: str, numbers: Sequence[int], resample: int) -> None:
        self.rule, self.numbers, self.resample = rule, tuple(numbers), resample
        self._filter, _ = parameters.resize_filter(resample)

    def make_params(self, rng: SampleRNG, heights: NDArray[np.int64], widths: NDArray[np.int64]) -> dict[str, Any]:
        height, width = _RULES[self.rule](heights.astype(np.float64), widths.astype(np.float64), *self.numbers)
        return {"height": height.astype(np.int64), "width": width.astype(np.int64)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.resize(**params, filter=self._filter, where=where)


def _edges_rule(h: Floats, w: Floats, shortest: int, longest: int) -> _Size:
    """`get_size_with_aspect_ratio`: the shorter side is `shortest`, or less, so that the longer is `longest`."""
    low, high = np.minimum(h, w), np.maximum(h, w)
    over, limited = high / low * shortest > longest, longest * low / high
    short, ratio = np.where(over, np.rint(limited), shortest), np.where(over, limited, shortest)
    height, width = np.where(w < h, np.floor(ratio * h / w), short), np.where(w < h, short, np.floor(ratio * w / h))
    return np.where(low == short, h, height), np.where(low == short, w, width)


def _box_rule(h: Floats, w: Floats, height: int, width: int) -> _Size:
    """`get_image_size_for_max_height_width`: fits into a box."""
    scale = np.minimum(height / h, width / w)
    return np.floor(h * scale), np.floor(w * scale)


_RULES: dict[str, Callable[..., _Size]]
_RULES = {"edges": _edges_rule, "box": _box_rule}


class _CenterCrop(CenterCrop):
    """Crop at the center, rounded down, and black beyond the image, as `center_crop` of Transformers."""

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        top, left = ((own - side) // 2 for own, side in zip(plan.sizes, self.size, strict=True))
        plan.window(top, left, *self.size, where=where)


# --- inputs of models ---------------------------------------------------------------------------------------------
def _stack(rows: Sequence[Tensor]) -> Any:
    """One tensor if all have one size; else the list."""
    return torch.stack(list(rows)) if len({row.shape for row in rows}) == 1 else list(rows)


def _pad(rows: Sequence[Tensor], settings: Mapping[str, Any]) -> list[Tensor]:
    """Images (..., H, W), zero-padded below and to the right: to pad_size, multiples of size_divisor or one size."""
    heights, widths = zip(*(row.shape[-2:] for row in rows), strict=True)
    below, after = ([max(sides) - side for side in sides] for sides in (heights, widths))
    if settings["pad_size"] is not None:
        height, width = _sides("pad_size", settings["pad_size"])
        below, after = [height - side for side in heights], [width - side for side in widths]
    elif divisor := settings.get("size_divisibility") or settings.get("size_divisor"):
        below, after = [-side % divisor for side in heights], [-side % divisor for side in widths]
    if min(*below, *after) < 0:
        raise TransformError(f"images must not be larger than pad_size, {settings['pad_size']}")
    return [torch.nn.functional.pad(row, (0, x, 0, y)) for row, x, y in zip(rows, after, below, strict=True)]


def _class_map(labels: Any, settings: Mapping[str, Any]) -> Tensor:
    labels = torch.as_tensor(labels).long()
    if not settings.get("do_reduce_labels"):
        return labels
    reduced = torch.where(labels == 0, 255, labels) - 1  # the background becomes 255, which losses ignore
    return torch.where(reduced == 254, 255, reduced)


def _detector_labels(target: Mapping[str, Any], image: Tensor, settings: Mapping[str, Any]) -> dict[str, Any]:
    labels = {"class_labels" if key == "labels" else key: value for key, value in target.items()}
    height, width = image.shape[-2:]
    labels["size"] = torch.tensor([height, width], device=image.device)
    fractions = settings["do_convert_annotations"]
    if settings["do_normalize"] if fractions is None else fractions:
        low, high = torch.as_tensor(target["boxes"], dtype=torch.float32).reshape(-1, 4).split(2, dim=1)
        sides = torch.tensor([width, height], device=low.device)
        labels["boxes"] = torch.cat([(low + high) / 2 / sides, (high - low) / sides], dim=1)
    if "masks" in target:
        h, w = target["masks"].shape[-2:]
        labels["masks"] = torch.nn.functional.pad(torch.as_tensor(target["masks"]), (0, width - w, 0, height - h))
    return labels


def _patches_in_blocks(rows: Sequence[Tensor], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Patches of Qwen2-VL: block by block of merge_size x merge_size, each repeated as temporal_patch_size frames."""
    patch, merge, frames = (settings[key] for key in ("patch_size", "merge_size", "temporal_patch_size"))
    flat = []
    for row in rows:
        blocks = row.float().unflatten(1, (-1, merge, patch)).unflatten(4, (-1, merge, patch))
        patches = blocks.permute(1, 4, 2, 5, 0, 3, 6).flatten(0, 3)  # (patches, C, patch, patch)
        flat.append(patches[:, :, None].expand(-1, -1, frames, -1, -1).flatten(1))
    grids = [(1, row.shape[-2] // patch, row.shape[-1] // patch) for row in rows]
    return {"pixel_values": torch.cat(flat), "image_grid_thw": torch.tensor(grids, device=rows[0].device)}


def _padded_patches(rows: Sequence[Tensor], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Patches of SigLIP 2 from left to right, each with its channels last, and zeros up to max_num_patches."""
    patch, most, device = settings["patch_size"], settings["max_num_patches"], rows[0].device
    shapes = [(row.shape[-2] // patch, row.shape[-1] // patch) for row in rows]
    blocks = [row.unflatten(1, (-1, patch)).unflatten(3, (-1, patch)).permute(1, 3, 2, 4, 0) for row in rows]
    flat = [own.flatten(2).flatten(0, 1) for own in blocks]
    values = torch.stack([torch.nn.functional.pad(own, (0, 0, 0, most - len(own))) for own in flat])
    mask = torch.tensor([[1] * len(own) + [0] * (most - len(own)) for own in flat], dtype=torch.int32, device=device)
    return {"pixel_values": values, "pixel_attention_mask": mask, "spatial_shapes": torch.tensor(shapes, device=device)}
