"""The samples of a batch, their images, and how they become a `Batch`; the digest of what was drawn for them."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug.batch import Batch, ClipFrames, Packing
from cuaug.devices import PackedOutput
from cuaug.images.interop import to_uint16
from cuaug.pipeline.config import BatchConfig
from cuaug.pipeline.planning import PictureArrays, Planned, size_mismatch
from cuaug.plan import Layout, PackingFormat, Trace
from cuaug.plan.trace import TransformRecord
from cuaug.sampling import Epoch, RankSlice, loader_state
from cuaug.sampling.clip_sampler import ClipSampler
from cuaug.sampling.rng import SampleRNG
from cuaug.targets.clip_targets import ClipTargets
from cuaug.targets.collate import empty_labels
from cuaug.transforms.compose import normalization_of
from cuaug.transforms.execute import run_segments

__all__ = ["Images", "Packed", "Samples", "batch_digest", "values_at"]


def batch_digest(
    epoch: Epoch,
    indices: NDArray[np.int64],
    keys: NDArray[np.int64],
    traces: Sequence[tuple[Trace, int]],
    rows: NDArray[np.int64],
    own: int,
    later: Trace,
) -> str:
    """16 hex digits of the seed, the epoch, the samples and the parameters of their transforms.

    It is independent of how the samples were grouped into plans, and of the last digits of parameters, in which
    machines differ.

    Args:
        indices, keys: (n,) of the samples, and of the partners that they are mixed with.
        traces: each sample's trace of the first segment, and the number of samples in it.
        rows: (n,) each sample's row there.
        own: number of samples that are no partners; they come first.
        later: the trace of the later segments, in the samples' order.
    """
    digest = hashlib.blake2b(digest_size=8)
    digest.update(f"{loader_state.VERSION} {epoch.seed % 2**64} {epoch.number}".encode())
    digest.update(np.stack([indices, keys]).astype("<i8").tobytes())
    tables: dict[int, NDArray[np.uint8]] = {}
    for trace, count in traces:
        if id(trace) not in tables:
            tables[id(trace)] = _table(trace, count)
    last = _table(later, own)
    for i, (trace, _) in enumerate(traces):
        digest.update(tables[id(trace)][rows[i]].tobytes())
        digest.update(last[i : i + 1].tobytes())
    names = [step.transform for trace in (traces[0][0] if traces else later, later) for step in trace.steps]
    digest.update(" ".join(names).encode())
    return digest.hexdigest()


def _table(trace: Trace, count: int) -> NDArray[np.uint8]:
    """(count, bytes) the parameters of each sample's steps."""
    columns = [column for step in trace.steps for column in _columns(step, count, trace.frames)]
    return np.concatenate([np.zeros((count, 0), dtype=np.uint8), *columns], axis=1)


def _columns(step: TransformRecord, count: int, frames: int) -> list[NDArray[np.uint8]]:
    rows = count * frames * step.views
    acts = np.ones(rows, dtype=bool) if step.where is None else step.where
    arrays = [acts, *(step.params[name] for name in sorted(step.params))]
    return [_bytes(array[:rows], count) for array in arrays]


def _bytes(array: NDArray[Any], count: int) -> NDArray[np.uint8]:
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):  # half precision: machines differ in a double's last digits
            array = array.astype("<f2") + np.float16(0)
    elif array.dtype.kind in "biu":
        array = array.astype("<i8")
    else:
        array = np.array([hashlib.blake2b(str(value).encode(), digest_size=8).digest() for value in array], dtype="S8")
    width = array.size // count if count else 0  # an empty batch leaves no number to infer it from
    return np.ascontiguousarray(array).reshape(count, width).view(np.uint8)


T = TypeVar("T")


class Packed(NamedTuple):
    """The tensor of N images of any size; its attributes are those of `PackedOutput`.

    Attributes:
        tensor: None once some images were left out or replaced.
    """

    format: PackingFormat
    grids: NDArray[np.int64]
    tensor: torch.Tensor | None

    def of(self, grids: NDArray[np.int64]) -> Packed:
        """For other images, which lie in no such tensor yet."""
        return self._replace(grids=grids, tensor=None)

    def first(self, count: int) -> Packed:
        assert self.tensor is not None
        patches = self.format.counts(self.grids[:count]).sum()
        return self._replace(
            grids=self.grids[:count], tensor=self.tensor[: count if self.format.padded else int(patches)]
        )

    def fill(self, images: list[torch.Tensor]) -> Packed:
        """With a new tensor of these images, if there is none."""
        if self.tensor is not None:
            return self
        if not self.format.padded:
            return self._replace(tensor=torch.cat(images))
        tensor = images[0].new_zeros(len(images), *np.max([image.shape for image in images], axis=0).tolist())
        for place, image in zip(tensor, images, strict=True):
            place[tuple(map(slice, image.shape))] = image
        return self._replace(tensor=tensor)

    def describe(self) -> Packing:
        """`Batch.packing`."""
        grids, patch = self.grids, self.format.patch
        grid_thw, sizes = torch.from_numpy(grids), torch.from_numpy(grids[:, 1:] * max(patch, 1))
        assert self.tensor is not None
        if not patch:
            height, width = grids[:, 1:].max(axis=0, initial=0) if len(grids) else self.tensor.shape[-2:]
            rows, columns = (np.arange(side) < grids[:, axis, None] for axis, side in ((1, height), (2, width)))
            return Packing(sizes, mask=torch.from_numpy(rows[:, :, None] & columns[:, None]))
        counts = self.format.counts(grids)
        if self.format.padded:
            mask = torch.from_numpy(np.arange(self.tensor.shape[1]) < counts[:, None])
            return Packing(sizes, grid_thw, mask=mask, merge=self.format.merge)
        bounds = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        return Packing(sizes, grid_thw, torch.from_numpy(bounds), merge=self.format.merge)


class Images(NamedTuple):
    """The images of some samples, as one stack or several, or as a list.

    Attributes:
        tensors: stacks (N, ...), one for each size of views; or N images.
        views: the numbers of the views in each stack; None for a list of N images of any size.
        packed: the one tensor that holds these N images; None where each has its own memory.
    """

    tensors: list[torch.Tensor]
    views: list[list[int]] | None
    packed: Packed | None = None

    @property
    def batch_images(self) -> Any:
        """`Batch.images`: a tensor, a tuple of tensors, or a list of N images."""
        if self.packed is not None:
            return self.packed.tensor
        if self.views is None:
            return self.tensors
        return self.tensors[0] if len(self.tensors) == 1 else tuple(self.tensors)

    def of_loader(self, planned: Planned, layout: Layout) -> Images:
        """The images in the loader's layout, where other images than 8-bit RGB were planned in another form.

        The frames of clips become stacks (N, T, ...), or (N, V, T, ...) with V views. Packed images become a list.
        """
        if isinstance(planned.stacks, PackedOutput):
            stacks, tensor = planned.stacks, self.tensors[0]
            if planned.to_uint16:
                tensor = to_uint16(tensor)
            if not stacks.packing.patch and stacks.layout != layout:
                stacks, tensor = replace(stacks, layout=layout), tensor.movedim(-3, -1).contiguous()
            return Images(stacks.split(tensor), None, Packed(stacks.packing, stacks.grids, tensor))
        tensors = [_to_clips(tensor, planned.frames) for tensor in self.tensors] if planned.is_clip else self.tensors
        if planned.to_uint16:
            tensors = [to_uint16(tensor) for tensor in tensors]
        if planned.layout != layout:
            tensors = [tensor.movedim(-3, -1).contiguous() for tensor in tensors]
        return self._replace(tensors=tensors)

    def first(self, count: int) -> Images:
        """The images of the first `count` samples."""
        if self.packed is not None:
            return self._replace(tensors=self.tensors[:count], packed=self.packed.first(count))
        if self.views is None:
            return self._replace(tensors=self.tensors[:count])
        return self._replace(tensors=[stack[:count] for stack in self.tensors])

    def select(self, rows: NDArray[np.int64]) -> Images:
        """The images of these rows; copies, if they are stacks."""
        if self.views is None:
            packed = None if self.packed is None else self.packed.of(self.packed.grids[rows])
            return self._replace(tensors=[self.tensors[i] for i in rows.tolist()], packed=packed)
        return self._replace(tensors=[stack[torch.from_numpy(rows).to(stack.device)] for stack in self.tensors])

    def merge(
        self,
        positions: NDArray[np.int64],
        other: Images,
        other_positions: NDArray[np.int64],
        layout: Layout,
        name: Callable[[int], str],
    ) -> Images:
        """Merges two sets of images, in the order of their positions in the batch.

        Args:
            name: the name of the sample at a position, for errors.

        Raises:
            TransformError: stacks of different sizes.
        """
        if self.views is None:
            tensors = self.tensors + other.tensors
            if self.packed is not None and other.packed is not None:
                grids = np.concatenate([self.packed.grids, other.packed.grids])
                self = self._replace(packed=self.packed.of(grids))
        else:
            sizes, other_sizes = self._sizes(layout), other._sizes(layout)
            for view, size in sizes.items():
                if size != other_sizes[view]:
                    prefix = "" if len(sizes) == 1 else f"view {view} of "
                    raise size_mismatch(
                        (f"{prefix}{name(int(positions[0]))}", *size),
                        (f"{prefix}{name(int(other_positions[0]))}", *other_sizes[view]),
                    )
            tensors = [torch.cat(pair) for pair in zip(self.tensors, other.tensors, strict=True)]
        order = np.argsort(np.concatenate([positions, other_positions]), kind="stable")
        return self._replace(tensors=tensors).select(order)

    def _sizes(self, layout: Layout) -> dict[int, tuple[int, int]]:
        """(height, width) of each view's images."""
        side = slice(-2, None) if layout == Layout.CHW else slice(-3, -1)
        sizes: dict[int, tuple[int, int]] = {}
        for views, stack in zip(self.views or [], self.tensors, strict=True):
            height, width = stack.shape[side]
            sizes |= dict.fromkeys(views, (height, width))
        return sizes


def _to_clips(images: torch.Tensor, frames: int) -> torch.Tensor:
    """(N T, ...) as (N, T, ...); (N T, V, C, H, W), with V views, as (N, V, T, C, H, W)."""
    clips = images.unflatten(0, (-1, frames))
    return clips.transpose(1, 2) if clips.ndim == 6 else clips


def _to_frames(clips: torch.Tensor) -> torch.Tensor:
    """The inverse of `_to_clips`."""
    return (clips.transpose(1, 2) if clips.ndim == 6 else clips).flatten(0, 1)


class _PlanTrace(NamedTuple):
    """The trace of one plan, its number of samples, and the `SampleRNG.counts` after it."""

    trace: Trace
    samples: int
    counts: Mapping[str, int]


class Samples:
    """The samples of one rank slice, then the partners that batch transforms mix them with.

    Args:
        partners: number of partners, the next samples in epoch order.

    Attributes:
        size: of the rank slice.
        own: number of samples of the rank slice.
        order_positions: (n,) positions in the epoch's order.
        indices: (n,) indices in the source.
        keys: (n,) random keys.
        valid: (n,) False for padding and replacements.
        labels: n labels; None until they are read.
        pictures: each sample's further pictures, such as depth maps, by position, until transforms have moved them.
        clips: n times the frames of the sample's clip; None for an image.
    """

    def __init__(self, epoch: Epoch, rank_slice: RankSlice, partners: int) -> None:
        self.epoch, self.size = epoch, rank_slice.size
        self.own = len(rank_slice.positions)
        self.order_positions = epoch.with_next(rank_slice.positions, partners)
        self.indices = epoch.indices[self.order_positions]
        self.keys = epoch.keys(self.order_positions)
        self.valid = np.concatenate([rank_slice.valid, np.zeros(partners, dtype=bool)])
        self.labels: list[Any] = [None] * len(self.indices)
        self.pictures: dict[int, PictureArrays] = {}
        self.clips: list[ClipFrames | None] = [None] * len(self.indices)
        # Each sample's plan trace, and its row there.
        self._traces: list[_PlanTrace | None] = [None] * len(self.indices)
        self._trace_rows = np.zeros(len(self.indices), dtype=np.int64)

    def rng(self, positions: NDArray[np.int64], *, is_clip: bool = False) -> SampleRNG:
        return SampleRNG(self.epoch.seed, self.epoch.number, self.keys[positions], is_clip=is_clip)

    def draw_clips(self, positions: Sequence[int], sampler: ClipSampler | None) -> NDArray[np.float64] | None:
        """(n, T) random numbers for the frames of the clips at these positions; None for images."""
        if sampler is None:
            return None
        rng = self.rng(np.array(positions))
        rng.next_transform(sampler)
        return rng.uniform(sampler.frames)

    def set_clips(self, positions: Sequence[int], items: Sequence[Any]) -> None:
        """Stores which frames the clips at these positions hold."""
        for k, item in zip(positions, items, strict=True):
            self.clips[k] = None if item is None else item.clip_frames

    def set_trace(self, planned: Planned, positions: NDArray[np.int64]) -> None:
        """Stores the trace of a plan of the samples at these positions, in this order."""
        plan_trace = _PlanTrace(planned.trace, len(positions), planned.counts)
        if len(positions) == len(self._traces):
            self._traces = [plan_trace] * len(positions)
        else:
            for k in positions.tolist():
                self._traces[k] = plan_trace
        self._trace_rows[positions] = np.arange(len(positions))

    def replace(self, positions: NDArray[np.int64], others: Samples) -> None:
        """Puts replacements at these positions."""
        for i, k in enumerate(positions.tolist()):
            self.labels[k], self._traces[k] = others.labels[i], others._traces[i]
            self.clips[k] = others.clips[i]
            self._trace_rows[k] = others._trace_rows[i]
            self.indices[k], self.keys[k] = others.indices[i], others.keys[i]
            self.valid[k] = False

    def make_batch(self, images: Images, positions: NDArray[np.int64], config: BatchConfig) -> Batch:
        """Makes the batch; runs the chain's segments after the first.

        Args:
            images: output of the chain's first segment for the samples at `positions`.
            positions: empty for an empty batch, whose shapes come from one image and the first label.
        """
        if images.packed is not None:
            packed = images.packed.fill(images.tensors)
            if config.layout == Layout.HWC and not packed.format.patch and packed.tensor is not None:
                packed = packed._replace(tensor=packed.tensor.movedim(-1, -3))
            images = images._replace(packed=packed)
        elif config.layout == Layout.HWC:
            images = images._replace(tensors=[tensor.movedim(-1, -3) for tensor in images.tensors])
        used = positions if len(positions) else np.arange(1)
        images, labels, traces = images.first(len(used)), values_at(self.labels, used), values_at(self._traces, used)
        later = Trace(first=0 if traces[0] is None else traces[0].trace.next)
        chain = config.transforms.at_size(self.size)
        if len(chain.segments) > 1:
            images, labels = self._run_later_segments(images, labels, used, traces[0], later, config)
        drawn = self.indices[used], self.keys[used], traces, self._trace_rows[used]
        positions = positions[positions < self.own]
        if config.time_axis != 1:
            # A Lambda at the end may return other values than images.
            stacks = [stack.transpose(-3, -4).contiguous() if stack.ndim > 4 else stack for stack in images.tensors]
            images = images._replace(tensors=stacks)
        collated = config.collate(chain.convert_targets(labels[: max(len(positions), 1)]))
        images = images.first(len(positions))
        return Batch(
            images.batch_images,
            collated if len(positions) else empty_labels(collated),
            torch.from_numpy(self.indices[positions]),
            torch.from_numpy(self.valid[positions]),
            self.epoch.number,
            functools.partial(_params, traces[: len(positions)], self._trace_rows[positions], later),
            digest=functools.partial(_digest, self.epoch, *drawn, len(positions), later),
            paths=config.reader.paths(self.indices[positions].tolist()),
            normalization=normalization_of(chain),
            clips=None
            if config.reader.clip_sampler is None
            else ClipFrames.stack(values_at(self.clips, used), len(positions)),
            packing=None if images.packed is None else images.packed.describe(),
        )

    def _run_later_segments(
        self,
        images: Images,
        labels: list[Any],
        used: NDArray[np.int64],
        first: _PlanTrace | None,
        later: Trace,
        config: BatchConfig,
    ) -> tuple[Images, list[Any]]:
        """Runs the chain's segments after the first. Those of clips run on frames, which share their clip's draws."""
        chain, sampler, targets = config.transforms.at_size(self.size), config.reader.clip_sampler, None
        stacks, per_row = images.tensors, labels
        if sampler is not None:
            later.frames = sampler.frames
            heights, widths = (np.full(len(labels), side) for side in stacks[0].shape[-2:])
            target_format = {**chain.target_format, "relative_boxes": None}
            targets = ClipTargets(labels, heights, widths, sampler.frames, **target_format)
            stacks, per_row = [_to_frames(stack) for stack in stacks], targets.per_frame()
        rng = self.rng(np.repeat(used, later.frames), is_clip=sampler is not None)
        rng.skip({} if first is None else first.counts)
        stacks, new_labels = run_segments(
            chain.segments,
            stacks,
            per_row,
            chain.target_format,
            rng,
            later,
            extra=int((used >= self.own).sum()) * later.frames,
            target_type=config.target_type,
        )
        if targets is not None:
            stacks = [_to_clips(stack, later.frames) for stack in stacks]
            new_labels = targets.merge(new_labels or per_row)
        return images._replace(tensors=stacks), new_labels or labels


def values_at(values: list[T], positions: NDArray[np.int64]) -> list[T]:
    """The values of the samples at these positions, which ascend."""
    return values[:] if len(positions) == len(values) else [values[k] for k in positions.tolist()]


def _digest(
    epoch: Epoch,
    indices: NDArray[np.int64],
    keys: NDArray[np.int64],
    traces: list[_PlanTrace | None],
    rows: NDArray[np.int64],
    own: int,
    later: Trace,
) -> str:
    plans = [(plan.trace, plan.samples) for plan in traces if plan is not None]
    return batch_digest(epoch, indices, keys, plans, rows, own, later)


def _params(traces: list[_PlanTrace | None], rows: NDArray[np.int64], later: Trace) -> list[list[dict[str, Any]]]:
    """Each sample's recorded parameters: of the chain's first segment, then of the later segments."""
    first = {id(plan): plan.trace.params(plan.samples) for plan in traces if plan is not None}
    rest = later.params(len(traces))
    return [first[id(plan)][rows[i]] + rest[i] for i, plan in enumerate(traces) if plan is not None]
