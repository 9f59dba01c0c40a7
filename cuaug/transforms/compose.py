"""Chains of transforms.

A chain runs in segments. Transforms in a row become one plan; each `BatchTransform` is a segment of its own.
"""

from __future__ import annotations

import copy
import functools
import math
import operator
import textwrap
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from cuaug.errors import ChainWarning, TransformError
from cuaug.images.image_types import is_clip
from cuaug.images.interop import disable_compile
from cuaug.plan import BOX_FORMATS, Plan, Replay, Trace
from cuaug.plan.trace import is_recorded_step
from cuaug.sampling.rng import SampleRNG
from cuaug.targets import TargetConversion
from cuaug.targets.names import TargetFormat
from cuaug.transforms import parameters
from cuaug.transforms.base import BatchFunction, BatchTransform, Transform, Where, check_transforms
from cuaug.transforms.detection import SanitizeKeyPoints
from cuaug.transforms.dtype import ConvertBoundingBoxFormat, Normalize, ToPureTensor, as_pure
from cuaug.transforms.inputs import Inputs
from cuaug.transforms.order import warn_about_order
from cuaug.transforms.packing import PackingTransform

#: Settings of a chain that say how targets are read. Tuples of names add up over inner chains.
_TARGET_DEFAULTS: dict[str, Any] = {
    "box_format": "xyxy",
    "relative_boxes": False,
    "mask_fill": 0,
    "masks": (),
    "pass_through": (),
    "instance_fields": (),
}


#: Sizes whose chains are kept.
_MAX_SIZES = 1024
_SIZES_PER_PLAN = 1 << 15
_PROBES = 1024

TransformT = TypeVar("TransformT", bound=Transform)


class Compose(Transform):
    """Compose several transforms into one chain.

    Images: a torch tensor (C, H, W) or (N, C, H, W), on CPU or CUDA; a NumPy or CuPy array (H, W), (H, W, C) or
    (N, H, W, C); or a PIL image. C is 1 to 16. Values are uint8, uint16 or floats in [0, 1]. The result has the type,
    the device and the axes of the input. A PIL image becomes a float tensor (C, H, W) after `ToDtype` or `Normalize`.

    Clips: a tensor (N, T, C, H, W), an array (N, T, H, W, C) or a tv_tensors.Video (T, C, H, W). All frames of a clip
    have the same draws.

    Each image of a batch has its own draws. Pixels are not rounded between transforms. On the CPU the images share the
    threads of `torch.set_num_threads`. Transforms that mix images (`MixUp`, ...) take batches only.

    Targets: further arguments hold the image's targets, or lists of the batch's N targets. The result is then the tuple
    (image, *targets). One argument may also be a tuple or a list of these, or a dict. The result has its form. In a
    dict, the image is under "image", or else the only value that can be one; the other values are the target. Boxes,
    masks and keypoints move with their image; `cuaug.targets.Targets` says where they are found. Labels of a batch may
    also be one tensor or array, (N,) or (N, C). They come back as one: unchanged, or from `MixUp` and `CutMix` as
    float32 (N, num_classes).

    Args:
        transforms: the transforms, in order. A function or an `nn.Module` runs as `Lambda` does, on the batch of images
            (N, C, H, W). This attribute may be edited later.
        generator: a `torch.Generator` that seeds each call. None: torch's default generator, so `torch.manual_seed`
            and a DataLoader's worker seeds apply.
        box_format: "xyxy", "xywh" or "cxcywh", for targets without a "format".
        relative_boxes: whether boxes are fractions of the image's width and height, as in YOLO's files. They come out
            in pixels. tv_tensors.BoundingBoxes are in pixels always.
        mask_fill: value of class masks beyond the image, or a dict of it by name. Instance masks are 0 there. A mask's
            value in a transform's `fill` by type, `fill={tv_tensors.Image: 114, tv_tensors.Mask: 255}`, sets it too.
        masks: names in targets that move as "mask", if (H, W), or "masks", if (K, H, W): `masks=("depth",)`.
        pass_through: names in targets that stay in place, whatever they hold.
        instance_fields: names in targets with one row per box, besides "labels" and other common ones.
        pillow: 12 or 13: resizes of uint8 images give the pixels of this version of Pillow, bit for bit, and
            `Normalize` the floats of torchvision's `ToTensor` and `Normalize`; True is 13. Version 13 sums columns
            first where an image shrinks mostly in height; all others get the same pixels from both. None: resizes are
            computed in floats and not rounded.

    A name is a key of a dict at any depth, or the keys of nested dicts joined by dots. The settings of targets apply to
    the whole chain, including chains inside it.

    Warns:
        ChainWarning: the order of the transforms does harm, such as color transforms after `Normalize`; or a call runs
            mixes with `until_epoch`, which only a Loader counts.

    Raises:
        TransformError: the type, shape or size of an argument is not supported, or a target has a name that does not
            say whether it moves with its image; or, with `pillow`, a resize meets floats, uint16 images, or other
            channels than RGB and gray, or has `antialias=False`.
    """

    _checks_order = True
    #: Properties of the chain when it was last looked at.
    _cached: _Structure | None = None

    def __init__(
        self,
        transforms: Sequence[Transform | BatchFunction],
        *,
        generator: Any = None,
        box_format: str = "xyxy",
        relative_boxes: bool = False,
        mask_fill: float | Mapping[str, float] = 0,
        masks: Sequence[str] = (),
        pass_through: Sequence[str] = (),
        instance_fields: Sequence[str] = (),
        pillow: Literal[12, 13, True] | None = None,
    ) -> None:
        self.transforms = check_transforms(transforms)
        self.generator = generator
        if generator is not None and not isinstance(generator, torch.Generator):
            raise TransformError(f"generator must be a torch.Generator or None, not {generator!r}")
        self.box_format = parameters.one_of("box_format", box_format, BOX_FORMATS)
        self.relative_boxes = parameters.flag("relative_boxes", relative_boxes)
        self.mask_fill = _checked_fill(mask_fill)
        self.masks = parameters.names("masks", masks)
        self.pass_through = parameters.names("pass_through", pass_through)
        self.instance_fields = parameters.names("instance_fields", instance_fields)
        self.pillow = parameters.pillow(pillow)
        if len(self._structure().nested) > 1 and self._checks_order:
            warn_about_order(self.transforms)

    def _structure(self) -> _Structure:
        """The chain's properties, computed again after `transforms`, here or inside, was edited."""
        cached = self._cached
        if cached is None or any((*holder.transforms,) != held for holder, held in cached.holders):
            nested = _flatten(self.transforms)
            checked = check_transforms(self.transforms)
            if any(map(operator.is_not, checked, self.transforms)):  # a callable became a Lambda
                self.transforms = checked
                nested = _flatten(checked)
            views = [transform.views for transform in self.transforms]
            leaves = (item for item in nested if isinstance(item, Transform) and not isinstance(item, Compose))
            if sum(leaf.views > 1 for leaf in leaves) > 1:
                raise TransformError("transforms must hold at most one transform that makes several images of one")
            chains = [self, *(item for item in nested if isinstance(item, Compose))]
            target_format = _merge_settings(chains, nested)
            formats = [item.format for item in nested if isinstance(item, ConvertBoundingBoxFormat)]
            conversion = TargetConversion(
                formats[-1] if formats else None, any(isinstance(item, ToPureTensor) for item in nested)
            )
            packing = _packing_of(nested, math.prod(views))
            has_until_epoch = any(getattr(item, "until_epoch", None) is not None for item in nested)
            versions = [chain.pillow for chain in chains if chain.pillow is not None]
            pillow = _one_setting("pillow", versions, None, "a chain and its inner chains")
            holders = [(item, (*item.transforms,)) for item in (self, *nested) if _holds_transforms(item)]
            has_bucket = any(_has_bucket(item) for item in nested)
            cached = self._cached = _Structure(
                nested,
                holders,
                math.prod(views),
                target_format,
                conversion,
                has_until_epoch,
                pillow,
                packing,
                has_bucket,
                [],
                {},
            )
        return cached

    @property
    def views(self) -> int:  # type: ignore[override]
        """Output images per input image."""
        return self._structure().views

    @property
    def segments(self) -> list[Compose | BatchTransform]:
        """The chain as it runs: a planned segment, then batch transforms and planned segments in order."""
        segments = self._structure().segments
        if not segments:
            segments[:] = self._split()  # one assignment: another thread may do the same
        return segments

    def _split(self) -> list[Compose | BatchTransform]:
        segments: list[Compose | BatchTransform] = []
        planned: list[Transform] = []
        segment = functools.partial(_Segment, pillow=self._structure().pillow)
        for transform in _inline_chains(self.transforms):
            if (batch_transform := transform.as_batch_transform()) is not None:
                segments += [segment(planned), batch_transform] if planned or not segments else [batch_transform]
                planned = []
            else:
                planned.append(transform)
        return segments + [segment(planned)] if planned or not segments else segments

    def at_size(self, size: tuple[int, int] | None) -> Compose:
        """The chain with this size, (height, width), in place of `cuaug.BUCKET`."""
        structure = self._structure()
        if not structure.has_bucket:
            return self
        if size is None:
            raise TransformError(parameters.NO_BUCKET)
        chain = structure.at_sizes.get(size)
        if chain is None:
            if len(structure.at_sizes) >= _MAX_SIZES:
                structure.at_sizes.clear()
            structure.at_sizes[size] = chain = _at_size(self, size)  # another thread may do the same
        return chain

    @property
    def partners(self) -> int:
        """Samples that the batch transforms read beyond a batch."""
        return sum(segment.partners for segment in self.segments if isinstance(segment, BatchTransform))

    @property
    def resizes_as_pillow(self) -> bool:
        """Whether the chain, or one inside it, has `pillow`."""
        return self._structure().pillow is not None

    @property
    def packing(self) -> PackingTransform | None:
        """The transform at the end that makes one tensor of images of any size; None: there is none."""
        return self._structure().packing

    @property
    def target_format(self) -> dict[str, Any]:
        """The keyword arguments of `Targets`."""
        return self._structure().target_format

    def convert_targets(self, targets: list[Any]) -> list[Any]:
        """Convert the targets that come out of the chain, as `ConvertBoundingBoxFormat` and `ToPureTensor` say."""
        if not (conversion := self._structure().conversion):
            return targets
        target_format = TargetFormat(**self.target_format)
        return [conversion.convert(target, target_format) for target in targets]

    def plan(self, plan: Plan, rng: SampleRNG, where: Where = None) -> None:
        plan.pillow = plan.pillow or self._structure().pillow
        for transform in self.transforms:
            transform.plan(plan, rng, where)

    def count_patches(self, sizes: ArrayLike) -> NDArray[np.int64]:
        """The number of patches that `Patches` makes of images of these sizes: the tokens for `TokenBudgetSampler`.

        Args:
            sizes: (N, 2) heights and widths in pixels, as `cuaug.sources.sizes` gives them.

        Returns:
            (N,) the patches of each image; 0 for (0, 0), an image that cannot be read.

        Raises:
            TransformError: the chain does not end with `Patches`, does not fit an image, or draws the sizes at random.
        """
        if self.packing is None or not self.packing.format.patch:
            raise TransformError("count_patches is for a chain with Patches or Tiles")
        given = np.asarray(sizes)
        if given.ndim != 2 or given.shape[1] != 2 or given.dtype.kind not in "iu":
            raise TransformError(f"sizes must be integers of shape (N, 2), heights and widths, not {sizes!r:.100}")
        counts = np.zeros(len(given), dtype=np.int64)
        known = np.flatnonzero(given.min(axis=1, initial=1))
        for start in range(0, len(known), _SIZES_PER_PLAN):
            rows = known[start : start + _SIZES_PER_PLAN]
            # Few images come many times: two draws of one could be equal by chance.
            probes = np.resize(given[rows], (max(len(rows), _PROBES), 2))
            first, second = (self._planned_sizes(probes, seed) for seed in range(2))
            if (first != second).any():
                raise TransformError("count_patches: the chain draws sizes at random: their patches differ each time")
            packing = self.packing.format
            counts[rows] = packing.counts(packing.grids(first, 1)[: len(rows)])
        return counts

    def _planned_sizes(self, sizes: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
        """(2, n) heights and widths of what the chain makes of images of (n, 2) pixels."""
        plan = Plan(*np.repeat(sizes.T, self.views, axis=1), views=self.views)
        self.plan(plan, SampleRNG(seed, 0, np.repeat(np.arange(len(sizes)), self.views)))
        return np.stack(plan.sizes)

    def trace(self, image: Any, *target: Any) -> tuple[Any, list[Any]]:
        """Transform an image or batch, and return the parameters too.

        Returns:
            The result of calling the chain, and the parameters for `replay`. The parameters of an image are a list of
            {"step", "transform", "params"} of Python numbers and lists: one dict per transform that acted, in order.
            Steps inside `MultiView` also have a "view". A batch has a list of such lists.
        """
        result, inputs, trace = self._run((image, *target))
        params = trace.params(inputs.count)
        return result, params if inputs.is_batch else params[0]

    def replay(self, params: Sequence[Any], image: Any, *target: Any) -> Any:
        """Apply recorded parameters to an image or batch. Nothing is drawn.

        Args:
            params: the parameters from `trace` or a Loader's `Batch.params`. You may edit the values.
            image: as for calls. Where parameters depend on the image size, use the size they were drawn for.

        Raises:
            TransformError: the parameters belong to another chain or another number of images, or have another type.
        """
        result, _, trace = self._run((image, *target), lambda inputs: _replay(params, inputs))
        trace.check_end()
        return result

    def explain(
        self, height: int = 375, width: int = 500, *, batch_size: int = 256, channels: int = 3, is_float: bool = False
    ) -> str:
        """Describe the kernel launches of a batch: what each does, and why it ends.

        Args:
            height, width: image size in pixels.
            batch_size: images to draw for. A larger batch takes no more launches, but shows rarer draws.
            channels: 1 to 16.
            is_float: whether the images are floats.
        """
        from cuaug.transforms.execute import explain

        text = explain(self.segments, height, width, batch_size=batch_size, channels=channels, is_float=is_float)
        return f"{len(self.transforms)} transforms, {text}"

    @disable_compile
    def _run(
        self, arguments: tuple[Any, ...], make_trace: Callable[[Inputs], Trace] = lambda inputs: Trace()
    ) -> tuple[Any, Inputs, Trace]:
        # Only calls need a device. A Loader's planning does not import one.
        from cuaug.transforms.execute import draw_seed, run_chain

        inputs = Inputs(arguments, self.target_format["pass_through"] + self.target_format["masks"])
        for segment in () if inputs.is_batch else self.segments:
            if isinstance(segment, BatchTransform) and segment.partners:
                raise TransformError(
                    f"{segment!r} mixes the images of a batch: use it in a Loader or call it on (N, C, H, W)"
                )
        if self.packing is not None and is_clip(inputs.image):
            raise TransformError(f"image: {self.packing!r} takes clips in a Loader, not in a call")
        trace = make_trace(inputs)
        if not trace.replays and self._structure().has_until_epoch:
            warnings.warn(
                "until_epoch has no effect in a call, which counts no epochs: use the chain in a cuaug.Loader",
                ChainWarning,
                stacklevel=4,
            )
        seed, epoch = draw_seed(self.generator)
        image, targets = run_chain(self.segments, inputs.image, inputs.targets, self.target_format, seed, epoch, trace)
        if self._structure().conversion.is_pure:
            image = as_pure(image)
        return inputs.result(image, None if targets is None else self.convert_targets(targets)), inputs, trace

    def __getstate__(self) -> dict[str, Any]:
        # A generator does not pickle into a spawned worker. Its state does, as bytes: torch shares tensors by handle.
        state = {name: value for name, value in self.__dict__.items() if name != "_cached"}
        if self.generator is not None:
            state["generator"] = str(self.generator.device), self.generator.get_state().numpy().tobytes()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state["generator"] is not None:
            device, generator_state = state["generator"]
            generator = torch.Generator(device)
            generator.set_state(torch.frombuffer(bytearray(generator_state), dtype=torch.uint8))
            state = {**state, "generator": generator}
        self.__dict__.update(state)

    def _settings(self) -> dict[str, Any]:
        """The settings that are not the default."""
        settings = self.target_format.items()
        shown = {name: value for name, value in settings if value != _TARGET_DEFAULTS.get(name, value)}
        return shown | ({} if (pillow := self._structure().pillow) is None else {"pillow": pillow})

    def __repr__(self) -> str:
        inner = ",\n".join(textwrap.indent(repr(transform), "    ") for transform in self.transforms)
        shown = "".join(f", {name}={value!r}" for name, value in self._settings().items())
        return f"Compose([\n{inner},\n]{shown})" if self.transforms else f"Compose([]{shown})"


class _Segment(Compose):
    """Consecutive transforms of a chain, which has been checked."""

    _checks_order = False


Transform._chain = Compose


def _replay(params: Sequence[Any], inputs: Inputs) -> Trace:
    """A trace that replays the parameters of these images."""
    recorded: Sequence[Any] = params if inputs.is_batch else [params]
    if not all(isinstance(steps, Sequence) and all(map(is_recorded_step, steps)) for steps in recorded):
        raise TransformError(
            "params must be the second result of trace: a list of steps for an image, a list of such lists for a batch"
        )
    if len(recorded) != inputs.count:
        raise TransformError(f"params are for {len(recorded)} images, but the batch has {inputs.count} images")
    return Trace(Replay(recorded))


class _Structure(NamedTuple):
    """Properties of a chain. `segments` and `at_sizes` are filled on first use.

    Attributes:
        nested: all transforms at any depth.
        holders: the chain and those of `nested` that hold transforms, and what each held.
    """

    nested: list[Any]
    holders: list[tuple[Any, tuple[Any, ...]]]
    views: int
    target_format: dict[str, Any]
    conversion: TargetConversion
    has_until_epoch: bool
    pillow: Literal[12, 13] | None
    packing: PackingTransform | None
    has_bucket: bool
    segments: list[Compose | BatchTransform]
    at_sizes: dict[tuple[int, int], Compose]


def _flatten(transforms: Iterable[Any]) -> list[Any]:
    """All transforms at any depth, each followed by those it holds."""
    nested: list[Any] = []
    for transform in transforms:
        nested.append(transform)
        if _holds_transforms(transform):
            nested += _flatten(transform.transforms)
    return nested


def _packing_of(nested: Sequence[Any], views: int) -> PackingTransform | None:
    """The packing transform among these; it has to be the last one, or `Tiles`."""
    found = [item for item in nested if isinstance(item, PackingTransform)]
    if not found:
        return None
    if (found[0] is not nested[-1] and not found[0].format.is_tiles) or len(found) > 1:
        raise TransformError(f"{found[0]!r} must be the last transform of the chain")
    if views != found[0].views:
        raise TransformError(f"{found[0]!r} takes one image of each sample, not several views")
    for item in nested:
        if isinstance(item, BatchTransform):
            raise TransformError(f"{found[0]!r} cannot follow {item!r:.200}, which makes batches of one size")
    return found[0]


def _holds_transforms(transform: Any) -> bool:
    return isinstance(getattr(transform, "transforms", None), (list, tuple))


def _has_bucket(transform: Any) -> bool:
    return any(value is parameters.BUCKET for value in getattr(transform, "__dict__", {}).values())


def _at_size(transform: TransformT, size: tuple[int, int]) -> TransformT:
    """A copy of a transform and those it holds with `size` in place of `BUCKET`; others are shared."""
    inner = getattr(transform, "transforms", None)
    if not any(map(_has_bucket, _flatten([transform]))):
        return transform
    new = copy.copy(transform)
    vars(new).update({name: size for name, value in vars(transform).items() if value is parameters.BUCKET})
    if isinstance(inner, (list, tuple)):
        vars(new)["transforms"] = [_at_size(item, size) for item in inner]
    return new


def _checked_fill(mask_fill: Any) -> float | dict[str, float]:
    if isinstance(mask_fill, Mapping):
        parameters.names("mask_fill", list(mask_fill))
        return {name: _fill_number(f"mask_fill[{name!r}]", fill) for name, fill in mask_fill.items()}
    return _fill_number("mask_fill", mask_fill)


def _fill_number(name: str, fill: Any) -> float:
    number = parameters.number(name, fill)
    return int(number) if number == math.floor(number) else number


def _merge_settings(chains: Sequence[Compose], nested: Sequence[Any]) -> dict[str, Any]:
    """The settings of targets that a chain and its inner chains make together; see `TargetFormat`."""
    settings: dict[str, Any] = {}
    for name, default in _TARGET_DEFAULTS.items():
        values = [value for chain in chains if (value := getattr(chain, name)) != default]
        if isinstance(default, tuple):
            settings[name] = tuple(dict.fromkeys(key for names in values for key in names))
        else:
            if name == "mask_fill":
                asked = [parameters.mask_fill(getattr(item, "fill", None)) for item in nested]
                values += [_fill_number(name, fill) for fill in asked if fill is not None]
            settings[name] = _one_setting(name, values, default, "a chain, its inner chains and every `fill` by type")
    both = [key for key in settings["pass_through"] if key in settings["masks"] + settings["instance_fields"]]
    if both:
        raise TransformError(f"pass_through must not hold names of masks or instance_fields, but it holds {both[0]!r}")
    dtypes = [item.mask_dtype for item in nested if getattr(item, "mask_dtype", None) is not None]
    settings["mask_dtype"] = _one_setting("dtype of masks", dtypes, None, "all ToDtype")
    sanitizing = [item for item in nested if hasattr(item, "labels_getter")]
    # SanitizeKeyPoints has None as its default, which says nothing of the labels of boxes.
    getters = [
        item.labels_getter
        for item in sanitizing
        if item.labels_getter is not None or not isinstance(item, SanitizeKeyPoints)
    ]
    settings["labels_getter"] = _one_setting(
        "labels_getter", getters, "default", "all SanitizeBoundingBoxes and SanitizeKeyPoints"
    )
    return settings


def _one_setting(name: str, values: Sequence[Any], default: Any, owners: str) -> Any:
    for value in values[1:]:
        if value != values[0]:
            raise TransformError(f"{name} must be the same for {owners}, not both {values[0]!r} and {value!r}")
    return values[0] if values else default


def _inline_chains(transforms: Sequence[Transform]) -> list[Transform]:
    """The transforms, with inner chains of several segments replaced by their transforms."""
    flat: list[Transform] = []
    for transform in transforms:
        has_segments = isinstance(transform, Compose) and len(transform.segments) > 1
        flat += _inline_chains(transform.transforms) if has_segments else [transform]  # type: ignore[attr-defined]
    return flat


def normalization_of(chain: Transform) -> tuple[Sequence[float], Sequence[float]] | None:
    """(mean, std) of the last `Normalize` that all samples pass; None: there is none."""
    if isinstance(chain, Compose):
        return next(filter(None, map(normalization_of, reversed(chain.transforms))), None)
    return (chain.mean, chain.std) if isinstance(chain, Normalize) else None
