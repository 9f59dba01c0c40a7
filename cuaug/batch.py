"""`Batch`: the images and labels of a step, and which samples they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils._pytree import register_pytree_node
from torch.utils.data._utils.collate import collate as torch_collate
from torch.utils.data._utils.collate import default_collate_fn_map

from cuaug.errors import ArgumentError
from cuaug.targets.collate import collate, empty_labels

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["Batch", "ClipFrames", "Packing", "collate", "each_tensor", "empty_labels"]

_MISSING: Any = object()
# Attributes of a batch besides its images and labels. `digest` and `paths` are computed on first use.
_FIELDS = ("indices", "valid", "epoch", "params", "digest", "paths", "normalization", "clips", "packing")


class ClipFrames(NamedTuple):
    """Which frames of their videos N clips hold; all tensors are on the CPU.

    Attributes:
        timestamps: (N, T) float64, when each frame is shown, in seconds from the video's beginning.
        numbers: (N, T) int64, numbers of the frames in their video, in the order of presentation.
        padding: (N, T) bool, frames that repeat because the video, or its range, is too short.
    """

    timestamps: torch.Tensor
    numbers: torch.Tensor
    padding: torch.Tensor

    @classmethod
    def stack(cls, clips: Sequence[ClipFrames | None], count: int) -> ClipFrames | None:
        """The first `count` of several clips, of (T,) each; None for images."""
        given = [clip for clip in clips if clip is not None]
        if not given:
            return None
        return cls(*(torch.stack(column)[:count] for column in zip(*given, strict=True)))


class Packing(NamedTuple):
    """Where N images of any size lie in a batch's one tensor. A Loader puts its tensors on the images' device.

    Attributes:
        sizes: (N, 2) int64, heights and widths in pixels.
        grid_thw: (N, 3) int64, patches of each image in time, down and across, or tiles without the thumbnail; None for
            whole images.
        cu_seqlens: (N + 1,) int32: image i has the rows from cu_seqlens[i] to cu_seqlens[i + 1]; None if it is padded.
        mask: (N, most patches), or (N, H, W) of whole images: False for padding; None without padding.
        merge: patches per side of a block whose patches follow each other.
    """

    sizes: torch.Tensor
    grid_thw: torch.Tensor | None = None
    cu_seqlens: torch.Tensor | None = None
    mask: torch.Tensor | None = None
    merge: int = 1

    def positions(self) -> torch.Tensor:
        """(total, 3) int64: time, row and column of each patch in its image's grid, in the batch's order.

        Raises:
            ArgumentError: the batch has whole images, or tiles with thumbnails, which are in no grid.
        """
        if self.grid_thw is None:
            raise ArgumentError("packing has the sizes of whole images: only patches have positions in a grid")
        rows = self.cu_seqlens[-1] if self.cu_seqlens is not None else None if self.mask is None else self.mask.sum()
        if rows is not None and int(rows) != int(self.grid_thw.prod(dim=1).sum()):
            raise ArgumentError("a thumbnail has no position in the grid of its image's tiles")
        found = [torch.zeros(0, 3, dtype=torch.int64, device=self.grid_thw.device)]
        for grid in self.grid_thw.tolist():
            axes = [torch.arange(side, device=self.grid_thw.device) for side in grid]
            blocks = [side // self.merge for side in grid[1:]]
            places = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)
            places = places.view(-1, blocks[0], self.merge, blocks[1], self.merge, 3).transpose(2, 3)
            found.append(places.reshape(-1, 3))
        return torch.cat(found)


class Batch(tuple[torch.Tensor, Any]):
    """One batch, which unpacks as `images, labels`.

    Attributes:
        images: (N, C, H, W) on the loader's device. With V views (N, V, C, H, W); with views of several sizes a tuple
            of one such tensor per size. With `stack=False` a list of N images (C, H, W). `T.Patches` makes other
            shapes.
        labels: the labels merged by `collate`, usually a tensor (N, ...), on the loader's `labels_device`.
        indices: (N,) int64 on the CPU, the samples' indices in the source.
        valid: (N,) bool on the CPU. False for padding (`last_batch="pad"`) and for replacements of damaged samples
            (`on_error="replace"`). Over an epoch and all ranks, each undamaged sample is valid once.
        epoch: the epoch's number.
        paths: the samples' paths; None for each that has none.
        digest: 16 hex digits of the seed, the epoch, the indices and the parameters of all transforms. It is equal on
            every machine, for the same data, and costs a few milliseconds.
        normalization: (mean, std) of the chain's last Normalize, which `show` undoes; None if there is none.
        clips: the `ClipFrames` of video clips; None for images.
        packing: the `Packing` of images that `T.Patches`, `T.Tiles` or `T.PadToLargest` has put into one tensor; None
            for others.
        params: a function that returns the applied transforms and parameters of each sample, as in `Compose.trace`;
            empty lists on copies.

    A batch is a tuple of two, which trainers move and gather as any pair. It is a node of torch's pytree: `tree_map`
    keeps all attributes, and so do `to`, `_replace`, `copy.replace` and torch's `default_collate`. A copy that other
    code builds from the two elements alone lacks the other attributes; reading one raises an AttributeError.
    """

    if TYPE_CHECKING:
        # A tensor, as nearly always; programs with views of several sizes or `stack=False` cast it.
        images: torch.Tensor
        # Whatever the source's labels are merged to.
        labels: Any
        indices: torch.Tensor
        valid: torch.Tensor
        epoch: int
        paths: list[str | None]
        digest: str
        params: Callable[[], list[list[dict[str, Any]]]]
        normalization: tuple[Sequence[float], Sequence[float]] | None
        clips: ClipFrames | None
        packing: Packing | None
    else:
        images = property(itemgetter(0))
        labels = property(itemgetter(1))

        def __getattr__(self, name: str) -> Any:
            if name in ("digest", "paths") and f"_{name}" in self.__dict__:
                value = self.__dict__[f"_{name}"]
                self.__dict__[name] = value = value() if callable(value) else value
                return value
            if name in _FIELDS:
                raise AttributeError(
                    f"this Batch has no {name}: it was made of images and labels alone, as trainers do that move its "
                    "elements; read it from the loader's batch, or move that with batch.to(device)"
                )
            raise AttributeError(f"Batch has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        """All attributes, also those that are computed on first use: editors and notebooks complete their names."""
        return [*super().__dir__(), *(name for name in ("digest", "paths") if f"_{name}" in self.__dict__)]

    def __new__(
        cls,
        images: Any,
        labels: Any = _MISSING,
        indices: torch.Tensor | None = None,
        valid: torch.Tensor | None = None,
        epoch: int | None = None,
        params: Callable[[], list[list[dict[str, Any]]]] | None = None,
        *,
        digest: str | Callable[[], str] | None = None,
        paths: Sequence[str | None] | Callable[[], list[str | None]] | None = None,
        normalization: tuple[Sequence[float], Sequence[float]] | None = None,
        clips: ClipFrames | None = None,
        packing: Packing | None = None,
    ) -> Batch:
        if labels is _MISSING:  # one argument, as for tuple: trainers rebuild batches by `type(batch)(elements)`
            if isinstance(images, torch.Tensor):
                raise TypeError("labels is missing: Batch(images, labels)")
            images, labels = images
        batch = super().__new__(cls, (images, labels))
        given = {"indices": indices, "valid": valid, "epoch": epoch, "_digest": digest, "_paths": paths}
        batch.__dict__.update({name: value for name, value in given.items() if value is not None})
        rows = images if isinstance(images, list) else each_tensor(images)[0]
        batch.params = params or (lambda: [[] for _ in rows])
        batch.normalization = normalization
        batch.clips = clips
        batch.packing = packing
        return batch

    def _fields_given(self) -> dict[str, Any]:
        """The attributes besides images and labels, as keyword arguments. Computes none."""
        given = {name: self.__dict__.get(name, self.__dict__.get(f"_{name}")) for name in _FIELDS}
        return {name: value for name, value in given.items() if value is not None}

    def _replace(self, **changes: Any) -> Batch:
        """A batch with other images, labels or attributes, as of a named tuple."""
        if unknown := [name for name in changes if name not in ("images", "labels", *_FIELDS)]:
            raise ArgumentError(f"{unknown[0]} is no field of a Batch: images, labels, {', '.join(_FIELDS)}")
        return Batch(**{"images": self.images, "labels": self.labels, **self._fields_given(), **changes})

    __replace__ = _replace  # copy.replace, from Python 3.13 on

    def to(self, device: str | torch.device, non_blocking: bool = False) -> Batch:
        """The batch with all its tensors on a device, also those in the labels.

        Lightning and Accelerate call this.
        """
        fields = {"images": self.images, "labels": self.labels, **self._fields_given()}
        moved = ("images", "labels", "indices", "valid", "packing")
        return self._replace(
            **{name: _to_device(fields[name], device, non_blocking) for name in moved if name in fields}
        )

    def show(self, **options: Any) -> Image:
        """Draw the batch as a grid of pictures, with boxes, masks, keypoints and labels; see `cuaug.show`."""
        from cuaug.drawing import show  # imports PIL

        return show(self, **options)

    def _repr_html_(self) -> str:
        """A notebook's view: the pictures, and a line about them."""
        from cuaug.drawing import to_html

        return to_html(self)

    def copy_into(self, images: Any, labels: torch.Tensor | None = None) -> None:
        """Copies the batch into existing tensors, such as the static inputs of a CUDA graph.

        The copies run on torch's current stream, without synchronization.

        Args:
            images: destination on the GPU, with the shapes, dtypes and memory format of the batch's images; a tuple
                where these are a tuple.
            labels: destination with the shape and dtype of the labels, where they are one tensor.

        Raises:
            ArgumentError: a shape or dtype differs (the last batch of an epoch may be smaller: `last_batch="drop"`), or
                the labels are not a tensor.
        """
        sources, targets = each_tensor(self.images), each_tensor(images)
        if len(sources) != len(targets):
            raise ArgumentError(f"images has {len(targets)} tensor(s), but the batch has {len(sources)}")
        pairs = [("images", *pair) for pair in zip(sources, targets, strict=True)]
        if labels is not None:
            pairs.append(("labels", self.labels, labels))
        for name, source, target in pairs:
            if not isinstance(source, torch.Tensor):
                raise ArgumentError(
                    f"labels of the batch are a {type(source).__name__}, not a tensor: copy its tensors"
                )
            if source.shape != target.shape or source.dtype != target.dtype:
                raise ArgumentError(
                    f"{name} is {tuple(target.shape)} {target.dtype}, but the batch has {tuple(source.shape)} "
                    f"{source.dtype}"
                )
        for _, source, target in pairs:
            if target.is_cuda and not source.is_cuda:
                source = source.pin_memory()  # a copy from pageable memory would wait for the stream
            target.copy_(source, non_blocking=True)

    def __reduce__(self) -> Any:
        fields = self._fields_given()
        fields |= {name: getattr(self, name) for name in ("digest", "paths") if name in fields}
        del fields["params"]
        return _rebuild, (self.images, self.labels, fields)

    def __repr__(self) -> str:
        tensors = each_tensor(self.images)
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
        images = f"{len(tensors)} of their own sizes" if isinstance(self.images, list) else shapes
        images += f" {tensors[0].dtype} on {tensors[0].device}" if tensors else ""
        labels = self.labels
        is_tensor = isinstance(labels, torch.Tensor)
        shown = f"{tuple(labels.shape)} {labels.dtype}" if is_tensor else type(labels).__name__
        return f"Batch(images: {images}, labels: {shown}, epoch={self.epoch})"


def each_tensor(images: Any) -> tuple[torch.Tensor, ...]:
    """The tensors of a batch's images: one, one per view size, or one per image."""
    return tuple(images) if isinstance(images, (tuple, list)) else (images,)


def _rebuild(images: Any, labels: Any, fields: dict[str, Any]) -> Batch:
    return Batch(images, labels, **fields)


class _Rest:
    """The fields of a batch that are no tensors; all are equal, so that `tree_map` takes several batches."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Rest)

    def __hash__(self) -> int:
        return 0


def _flatten(batch: Batch) -> tuple[list[Any], _Rest]:
    fields = batch._fields_given()
    tensors = [fields.pop(name, None) for name in ("indices", "valid")]
    packed = [value for value in fields.get("packing") or () if isinstance(value, torch.Tensor)]
    return [*batch, *tensors, *packed], _Rest(fields)


def _unflatten(parts: Any, rest: Any) -> Batch:
    images, labels, indices, valid, *packed = parts
    fields = dict(rest.fields)
    if packed:
        values = iter(packed)
        given = fields["packing"]
        fields["packing"] = Packing(*(next(values) if isinstance(v, torch.Tensor) else v for v in given))
    return Batch(images, labels, indices=indices, valid=valid, **fields)


def _collate_batches(batches: list[Batch], *, collate_fn_map: Any = None) -> Batch:
    """torch's `default_collate` of several batches: all tensors get an axis in front."""
    fields = [batch._fields_given() for batch in batches]
    if any("packing" in field for field in fields):
        raise ArgumentError("batches of T.Patches, T.Tiles or T.PadToLargest do not collate: each has its own sizes")
    merged: dict[str, Any] = {
        name: torch_collate([field[name] for field in fields], collate_fn_map=collate_fn_map)
        for name in ("indices", "valid")
        if all(name in field for field in fields)
    }
    if len({field.get("epoch") for field in fields}) == 1 and "epoch" in fields[0]:
        merged["epoch"] = fields[0]["epoch"]
    images, labels = (torch_collate([batch[k] for batch in batches], collate_fn_map=collate_fn_map) for k in (0, 1))
    return Batch(images, labels, **merged, normalization=batches[0].normalization)


register_pytree_node(Batch, _flatten, _unflatten, serialized_type_name="cuaug.Batch")
default_collate_fn_map[Batch] = _collate_batches


def _to_device(value: Any, device: str | torch.device, non_blocking: bool) -> Any:
    """Moves objects that have `to`, also within dicts, lists and tuples."""
    if callable(getattr(value, "to", None)):
        return value.to(device, non_blocking=True) if non_blocking else value.to(device)
    if isinstance(value, dict):
        return {name: _to_device(item, device, non_blocking) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_to_device(item, device, non_blocking) for item in value]
        return items if isinstance(value, list) else type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value
