"""Base classes of all transforms.

`make_params` draws the parameters, one row per sample. `write` adds the operations to the plan. Neither touches a
pixel. A transform that holds other transforms overrides `plan`. A transform that needs the finished images of a batch
derives from `BatchTransform`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, TypeVar, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cuaug._runtime.migration_hints import SuggestsArguments, foreign_transform, shared_draw
from cuaug.errors import ChainWarning, TransformError, warn_caller
from cuaug.images.image_types import is_image_type
from cuaug.plan import Plan, Trace, Where
from cuaug.plan.trace import check_params
from cuaug.sampling.rng import SampleRNG
from cuaug.targets.convert import map_types
from cuaug.transforms import parameters

#: A function of a batch of images (N, C, H, W), which chains run as `Lambda` does.
BatchFunction = Callable[[Tensor], Tensor]
Target = TypeVar("Target")


class Transform(SuggestsArguments):
    """Base class of all transforms.

    A subclass stores each argument of `__init__` as an attribute of the same name. `repr` and pickling use them.
    Arguments are read once, by `__init__`; only the `transforms` of a container may be edited later.
    """

    #: Output images per input image.
    views: int = 1
    #: The chain class, `Compose`. It registers itself, because it derives from this class.
    _chain: ClassVar[type[Any]]

    def make_params(self, rng: SampleRNG, heights: NDArray[np.int64], widths: NDArray[np.int64]) -> dict[str, Any]:
        """Draw the parameters of N samples.

        Args:
            rng: the random numbers of the N samples.
            heights, widths: (N,) image sizes at this point of the chain, in pixels.

        Returns:
            The keyword arguments of `write`: arrays with N rows.
        """
        return {}

    def write(self, plan: Plan, where: Where, *args: Any, **params: Any) -> None:
        """Add this transform to the plan.

        Args:
            plan: the plan of the batch.
            where: (N,) bool, the samples to transform; None: all samples.
            params: the result of `make_params`.
        """
        raise NotImplementedError(f"{type(self).__name__}.write")

    def plan(self, plan: Plan, rng: SampleRNG, where: Where = None) -> None:
        """Draw the parameters and add this transform to the plan.

        Each transform has draws of its own, by its class, whether or not it acts. So it never changes those of others.
        """
        rng.next_transform(self)
        plan.perform(self, where, self.make_params(rng, *plan.sizes))

    def as_batch_transform(self) -> BatchTransform | None:
        """The `BatchTransform` that runs this transform; None: the plan runs it."""
        return None

    def prepare(self, image: Any) -> Any:
        """The input of a call as this transform and those it holds convert it, before the chain begins."""
        inner = getattr(self, "transforms", ())
        for transform in inner if isinstance(inner, (list, tuple)) else ():
            if isinstance(transform, Transform):
                image = transform.prepare(image)
        return image

    def range_after(self, is_float: bool, normalized: bool) -> tuple[bool, bool]:
        """Whether images are floats after this transform and those it holds, and whether they leave [0, 1]."""
        inner = getattr(self, "transforms", ())
        for transform in inner if isinstance(inner, (list, tuple)) else ():
            if isinstance(transform, Transform):
                is_float, normalized = transform.range_after(is_float, normalized)
        return is_float, normalized

    # Views of several sizes make a tuple of tensors; programs with them cast it.
    @overload
    def __call__(self, image: Tensor, /) -> Tensor: ...
    @overload
    def __call__(self, image: Tensor, target: Target, /) -> tuple[Tensor, Target]: ...
    @overload
    def __call__(self, image: Any, *target: Any) -> Any: ...
    def __call__(self, image: Any, *target: Any) -> Any:
        """Transform an image or a batch, and its targets if there are any; see `Compose`."""
        chain = self if isinstance(self, Transform._chain) else Transform._chain([self])
        return chain._run((image, *target))[0]

    def __repr__(self) -> str:
        shown = []
        for name, parameter in inspect.signature(type(self)).parameters.items():
            value = getattr(self, name, parameter.default)
            if parameter.default is parameter.empty or not _equal(value, parameter.default):
                shown.append(f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


def _equal(a: Any, b: Any) -> bool:
    return bool(np.array_equal(a, b)) if hasattr(a, "__array__") else a == b


class RandomTransform(Transform):
    """Base class of transforms that act on each sample with probability `p`."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = parameters.probability("p", p)

    def plan(self, plan: Plan, rng: SampleRNG, where: Where = None) -> None:
        rng.next_transform(self)
        acts = rng.bernoulli(self.p)
        plan.perform(self, acts if where is None else acts & where, self.make_params(rng, *plan.sizes))


class BatchTransform(Transform):
    """Base class of transforms that run on finished batches.

    A batch transform ends a segment: the transforms before it are one plan, the transforms after it another. Of the
    containers that decide per sample, only `RandomChoice` takes batch transforms, if all its members are.
    """

    #: Number of samples it reads beyond the batch: the next ones in epoch order. So a sample's partners depend neither
    #: on the batch size nor on the number of ranks. A batch without an epoch wraps around to its first samples.
    partners: int = 0
    #: Whether it has a fill value, in the images' units. A Loader then converts the images after it, not before.
    has_fill: bool = False
    #: Whether normalized images stay normalized, as they do when they are only mixed.
    keeps_range: bool = False
    #: Whether `run` also gets the chain's `target_format`.
    reads_targets: bool = False
    #: Whether it takes clips. Without partners, `run` takes all frames as images, (N T, C, H, W), and the frames of a
    #: clip have equal parameters. With partners it takes (N + partners, T, C, H, W), and no dicts as targets.
    takes_clips: bool = True

    def run(
        self, images: Tensor, targets: list[Any] | None, *args: Any, **params: Any
    ) -> tuple[Tensor, list[Any] | None]:
        """Transform a batch of N samples.

        Args:
            images: (N + partners, C, H, W), uint8 or floating point, on any device. Read-only.
            targets: N + partners targets of any kind; None: there are no targets.
            params: the result of `make_params`, N rows each.

        Returns:
            N images, and N targets or None.
        """
        raise NotImplementedError(f"{type(self).__name__}.run")

    def perform(
        self,
        images: Tensor,
        targets: list[Any] | None,
        rng: SampleRNG,
        trace: Trace,
        target_format: Mapping[str, Any],
        where: Where = None,
    ) -> tuple[Tensor, list[Any] | None, Where]:
        """Draw the parameters, record them and run, for N samples and `partners` or more after them.

        Returns:
            The images and targets of `run` for all N samples, and the samples that take them: `where`, or those of
            the replayed step.
        """
        rng.next_transform(self)
        if rng.is_clip and self.partners:
            return self._perform_on_clips(images, targets, rng, trace, target_format, where)
        n = len(rng)
        params = self._checked_params(rng, images)
        step = trace.record(self, where, params, n)
        batch_targets = None if targets is None else targets[: n + self.partners]
        result, new_targets = self._checked_run(images[: n + self.partners], batch_targets, step.params, target_format)
        return result, new_targets, step.where

    def _perform_on_clips(
        self,
        images: Tensor,
        targets: list[Any] | None,
        rng: SampleRNG,
        trace: Trace,
        target_format: Mapping[str, Any],
        where: Where,
    ) -> tuple[Tensor, list[Any] | None, Where]:
        """As `perform`, for the frames of clips, (N T, C, H, W): each clip is one sample."""
        n, frames = len(rng), trace.frames
        if not self.takes_clips:
            raise TransformError(f"{self!r} combines images and their targets, and takes no clips")
        clips = images.unflatten(0, (-1, frames))[: n // frames + self.partners]
        labels = None if targets is None else targets[: len(clips) * frames : frames]
        if any(isinstance(label, Mapping) for label in labels or ()):
            raise TransformError(f"{self!r} of clips takes class numbers or vectors as labels, not dicts")
        drawn = self._checked_params(rng.select(np.arange(0, n, frames)), clips)
        step = trace.record(self, where, {name: np.repeat(rows, frames, axis=0) for name, rows in drawn.items()}, n)
        params = {name: rows[::frames] for name, rows in step.params.items()}
        result, mixed = self._checked_run(clips, labels, params, target_format)
        per_frame = None if mixed is None else [label for label in mixed for _ in range(frames)]
        return result.flatten(0, 1), per_frame, step.where

    def _checked_params(self, rng: SampleRNG, images: Tensor) -> dict[str, Any]:
        heights, widths = (np.full(len(rng), side) for side in images.shape[-2:])
        params = self.make_params(rng, heights, widths)
        check_params(self, params, len(rng))
        return params

    def _checked_run(
        self, images: Tensor, targets: list[Any] | None, params: Mapping[str, Any], target_format: Mapping[str, Any]
    ) -> tuple[Tensor, list[Any] | None]:
        n, options = len(images) - self.partners, {"target_format": target_format} if self.reads_targets else {}
        result, new_targets = self.run(images, targets, **params, **options)
        if not isinstance(result, torch.Tensor) or len(result) != n:
            is_tensor = isinstance(result, torch.Tensor)
            shown = f"a tensor of shape {tuple(result.shape)}" if is_tensor else type(result).__name__
            raise TransformError(f"{self!r} must return a tensor of {n} images for a batch of {n}, not {shown}")
        return result, new_targets

    def as_batch_transform(self) -> BatchTransform | None:
        return self

    def plan(self, plan: Plan, rng: SampleRNG, where: Where = None) -> None:
        raise TransformError(
            f"{type(self).__name__} acts on whole batches, so another transform cannot hold it: put it into the chain"
        )


class Lambda(BatchTransform):
    """Apply a user-defined function to a batch of images.

    The transforms before it are one plan, the transforms after it another. uint8 images are rounded in between. Boxes,
    masks and keypoints stay in place, because the effect of the function is unknown.

    Args:
        function: takes a tensor (N, C, H, W), uint8 or floating point, on the chain's device, and returns a tensor
            whose first axis is N. Of clips it takes all frames, (N T, C, H, W). The function must not write to its
            argument. On CUDA it runs on the current stream. At the end of a chain it may return any tensor of length N.
            Parameters of an `nn.Module` get no gradients. A ChainWarning names torchvision's random transforms, which
            would draw once for all images.
        types_to_transform: types as in torchvision. The function then also takes each value of these types in the
            targets, in dicts, tuples and lists at any depth. It takes the batch of images if a type is `torch.Tensor`,
            a NumPy array, a PIL image, or torchvision's Image or Video.
    """

    def __init__(self, function: Callable[[Any], Any], *types_to_transform: type) -> None:
        if not callable(function):
            raise TransformError(f"function must be a function of a batch of images, not {function!r}")
        for kind in types_to_transform:
            if not isinstance(kind, type):
                raise TransformError(f"types_to_transform must be types, not {kind!r}")
        if (problem := shared_draw(function)) is not None:
            warn_caller(problem, ChainWarning)
        self.function = function
        self.types_to_transform = types_to_transform
        self._takes_images = not types_to_transform or any(map(is_image_type, types_to_transform))

    def run(self, images: Tensor, targets: list[Any] | None, **params: Any) -> tuple[Tensor, list[Any] | None]:
        with torch.no_grad():
            new = self.function(images) if self._takes_images else images
            if targets is not None and self.types_to_transform:
                targets = [map_types(self.function, target, self.types_to_transform) for target in targets]
        return new, targets

    def __repr__(self) -> str:
        shown = [f"function={getattr(self.function, '__qualname__', self.function)}"]
        shown += [f"{kind.__module__}.{kind.__qualname__}" for kind in self.types_to_transform]
        return f"Lambda({', '.join(shown)})"


def check_transforms(transforms: Iterable[Any]) -> list[Transform]:
    """Check the transforms of a container; plain callables and `nn.Module`s become `Lambda`s.

    Raises:
        TransformError: `transforms` is no sequence, or an element is no transform and no callable, or belongs to
            another library.
    """
    if not isinstance(transforms, Iterable) or isinstance(transforms, str):
        raise TransformError(f"transforms must be a sequence of transforms, not {transforms!r}")
    return [transform if isinstance(transform, Transform) else _wrapped(transform) for transform in transforms]


def _wrapped(transform: Any) -> Lambda:
    if isinstance(transform, type):
        name = transform.__name__
        raise TransformError(f"transforms must hold instances, not the class {name}: write {name}(...)")
    if isinstance(transform, (list, tuple)):
        raise TransformError("transforms must hold transforms, not a list: unpack it, or wrap it in Compose([...])")
    parts = transform.modules() if isinstance(transform, torch.nn.Module) else [transform]
    for part in parts:
        if (hint := foreign_transform(part)) is not None:
            raise TransformError(f"transforms: {hint}")
    if not callable(transform):
        is_label = np.isscalar(transform) or isinstance(transform, Tensor)
        hint = "; labels go with their paths: Loader(list(zip(paths, labels)))" if is_label else ""
        raise TransformError(
            "transforms must hold cuaug transforms, nn.Modules or functions of a batch of images, "
            f"not {transform!r}{hint}"
        )
    return Lambda(transform)
