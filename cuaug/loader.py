"""`Loader`: image files in, augmented batches out.

`DataLoaderAttributes` has the attributes that trainers look for on a torch DataLoader and its dataset.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch

from cuaug._runtime.arguments import flag, function, integer, one_of, seconds, thread_count
from cuaug._runtime.migration_hints import LOADER_ARGUMENTS, LOADER_ATTRIBUTES, suggest_arguments
from cuaug._runtime.ranks import RankAgreement, check_rank, own_rank
from cuaug.batch import Batch
from cuaug.cache import DecodedCache, EncodedCache, open_cache
from cuaug.codec.decode_options import DecodeOptions, open_options
from cuaug.errors import ArgumentError, DecodeError, LoaderError, SourceError
from cuaug.images.interop import type_of
from cuaug.pipeline.clip_reader import check_clip_options
from cuaug.pipeline.config import BatchConfig, choose, open_stream
from cuaug.pipeline.cpu_pipeline import CpuPipeline
from cuaug.pipeline.iteration import Failures, OnError, take_batches
from cuaug.pipeline.pipeline import Pipeline
from cuaug.pipeline.reader import Reader
from cuaug.pipeline.resolve_device import resolve_device, resolve_labels_device
from cuaug.plan import Layout
from cuaug.profiling.recorder import Recorder, Stats
from cuaug.profiling.timeline import Profile
from cuaug.sampling import (
    LAST_BATCH,
    BatchOrder,
    BatchSteps,
    Epoch,
    Order,
    Progress,
    RankSlice,
    RepeatedSampler,
    SamplerView,
    Steps,
    count_steps,
    open_batch_sampler,
    open_sampler,
    open_seed,
)
from cuaug.sampling.clip_sampler import ClipSampler
from cuaug.sources import FromDataset, Source, open_source, optional_method
from cuaug.sources.open import Loadable
from cuaug.targets.collate import LabelDtypes, collate, to_tensors
from cuaug.transforms import Compose, Transform
from cuaug.transforms.base import BatchFunction

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch.utils.data import Sampler

__all__ = ["DataLoaderAttributes", "Loader"]


class DataLoaderAttributes:
    """Base class of `Loader`: DataLoader's names for what it has, and hints for names that it lacks."""

    source: Source
    batch_size: int | None
    last_batch: str
    threads: int
    _sampler: Order

    def __len__(self) -> int:
        raise NotImplementedError

    def set_epoch(self, epoch: int) -> None:
        raise NotImplementedError

    @property
    def classes(self) -> list[str] | None:
        """Names of the class folders in label order; None where the source has none."""
        return getattr(self.source, "classes", None)

    @property
    def class_to_idx(self) -> dict[str, int] | None:
        """The label of each class, as in torchvision's ImageFolder; None where the source has no classes."""
        return None if self.classes is None else {name: label for label, name in enumerate(self.classes)}

    @property
    def dataset(self) -> Any:
        """The Dataset that the Loader was given; for all other data its source. Its items have no transforms."""
        return self.source.dataset if isinstance(self.source, FromDataset) else self.source

    @property
    def num_workers(self) -> int:
        """The number of worker threads."""
        return self.threads

    @property
    def drop_last(self) -> bool:
        """Whether an incomplete last batch is left out."""
        return self.last_batch == "drop"

    @property
    def pin_memory(self) -> bool:
        """False: batches are on the loader's device, so no caller copies them there."""
        return False

    @property
    def sampler(self) -> SamplerView:
        """A DataLoader-like sampler: trainers set the epoch on it. With a batch sampler it has the source's length."""
        return SamplerView(self.source if isinstance(self._sampler, BatchOrder) else self._sampler, 1, self.set_epoch)

    @property
    def batch_sampler(self) -> SamplerView:
        """A DataLoader-like batch sampler: trainers that find `sampler` expect both."""
        return SamplerView(self, self.batch_size, self.set_epoch)

    def reset(self) -> None:
        """Do nothing: each iteration begins anew.

        ultralytics calls it where its Mosaic ends, users of DALI after each epoch.
        """

    if not TYPE_CHECKING:  # type checkers shall refuse both

        def __getattr__(self, name: str) -> Any:
            hint = f": {LOADER_ATTRIBUTES[name]}" if name in LOADER_ATTRIBUTES else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")

        def __getitem__(self, index: Any) -> Any:
            raise TypeError(
                "a Loader makes batches and has no items: iterate over it, without a DataLoader around it; its samples "
                "are loader.source.read(i)"
            )


log = logging.getLogger("cuaug")

_LAYOUTS = {"NCHW": Layout.CHW, "NHWC": Layout.HWC}
# Of clips: the axis of frames.
_CLIP_LAYOUTS = {"NTCHW": 1, "NCTHW": 2}


class Loader(DataLoaderAttributes):
    """Loads, decodes and augments images in batches; each iteration is one epoch.

    Args:
        files: a folder with one subfolder per class; a folder of images, a pattern ("photos/*.jpg") or paths, each
            image labeled with its index; (path, label) pairs or {path: label}; a file, folder or Dataset that
            `cuaug.sources` reads; or an object with `__len__` and `read(i) -> (data, label)`, where data is a path,
            encoded bytes or a uint8 array (H, W, 3).
        transforms: a chain of `cuaug.transforms`. Its images must have one size, or each view its own.
        batch_size: samples per batch on each rank.
        shuffle: True for a new random order each epoch.
        sampler: the order, in place of `shuffle`: a torch Sampler, indices, `cuaug.WeightedSampler`,
            `cuaug.RepeatedSampler` or `cuaug.ShardSampler`. It yields the indices of all ranks.
        batch_sampler: the batches of all ranks, in place of `batch_size`, `shuffle` and `sampler`: yields lists of
            indices, of any lengths, such as images of one aspect ratio. Each epoch is read as a whole when it begins,
            after `set_epoch` of the batch sampler and its `sampler`, where they have it. Several ranks take whole
            batches in turn; `last_batch` says how the last step is handled where it has fewer batches than ranks.
        seed: seed of shuffling and transforms; equal on all ranks. A sample's random numbers depend only on the seed,
            the epoch and the sample's index. None: a number from torch's generator, so `torch.manual_seed` repeats a
            run; all ranks of torch.distributed get that of rank 0. The state, the repr and the log hold it.
        last_batch: how the last samples of an epoch are handled, where they fill no batch on every rank. "partial":
            smaller batches, so that each sample comes once; right for evaluation. "drop": left out. "pad": filled up
            with other samples, marked as not `valid`. All ranks make the same number of steps.
        rank, world_size: this process's rank and the number of ranks. None: from torch.distributed where it is
            initialized, else from torchrun's environment variables.
        device: "cpu", "cuda" or "cuda:1", .... "cuda" is the GPU of torchrun's LOCAL_RANK. None: the environment
            variable CUAUG_DEVICE, else CUDA if decoding and kernels work there, else the CPU.
        dtype: dtype of the images: torch.uint8, float16, bfloat16 or float32. uint8 values are scaled to [0, 1] for
            floats, and back. None: the dtype of the chain, uint8 unless it has ToDtype or Normalize. `Lambda` at the
            end of a chain receives this dtype.
        layout: of images, their memory format: "NCHW", the default, or "NHWC" (channels last); the shape is
            (N, C, H, W) either way. Of clips, their shape: "NTCHW", the default, or "NCTHW".
        stack: False for images of any size, as a list of N tensors (C, H, W). Detectors take these.
        threads: worker threads that read and decode, in place of DataLoader's `num_workers`. None: one per CPU of
            this process (affinity and control group count), shared by the ranks of a machine; at most 16 with a GPU.
            They run near the GPU, see docs/performance.md.
        prefetch: batches prepared ahead of the current one. None: 2, or enough to keep all threads busy.
            `print(loader)` shows both numbers and the reasons.
        on_error: handling of samples that cannot be read or decoded. "raise": raise a `DecodeError`. "skip": leave the
            sample out; the batch is smaller by one, or empty. "replace": load another sample, marked as not `valid`.
        error_callback: called in the consumer's thread with the `DecodeError` of each skipped or replaced sample. The
            log names each such sample once; `stats()` counts them.
        max_errors: raise a LoaderError once more than this number of different samples have failed.
        timeout_seconds: limit for one read or decode task while the loop waits, in seconds. A task is one read, up to
            eight small images on the CPU, or a batch on a GPU. None: no limit.
        collate_fn: merges the list of a batch's labels into one object; their arrays are CPU tensors, also in dicts and
            tuples. None: `cuaug.collate`.
        labels_device: device of the tensors in the labels. None: the loader's device. "cpu" keeps them on the CPU.
        cache: "decoded" keeps pixels in memory; `DecodedCache` sets a limit, a reduced image size and a folder.
            `EncodedCache` keeps JPEGs in a GPU's memory. The first epoch fills the cache.
        decode: `cuaug.DecodeOptions`: EXIF, chroma upsampling, size limits, the JPEG index, GPU decoding.
        pillow: 12, 13 or True: the pixels of this version of Pillow; see `Compose`. None: as the chain says.

    Iterating yields a `cuaug.Batch`, which unpacks as (images, labels): an (N, C, H, W) tensor on the device, yours to
    keep, and a tensor of labels. Chains with several views add an axis, see `Batch`. Boxes, masks and keypoints in the
    labels move with their images; labels that are dicts of targets stay a list, see `cuaug.targets`.

    Each iteration is the next epoch, from its first batch on; `set_epoch` chooses another. `state_dict` and
    `load_state_dict` resume in mid-epoch, on any number of ranks. The ranks of torch.distributed iterate together: each
    iteration begins by comparing what they will load. `peek` gives a batch on one rank, and moves nothing; `replay`
    makes any batch again. A Loader is a context manager; `close()` ends its threads. It belongs to the process that
    made it: a forked child makes its own.

    Raises:
        ArgumentError, TransformError, DeviceError: an argument is invalid, or arguments do not fit together.
        SourceError: the data set cannot be used.
        RankError: when an iteration begins, the ranks are about to load different data, or one iterates alone.
        TypeError: an unknown argument. For arguments of DataLoader, DALI and FFCV the message names the equivalent.
    """

    @suggest_arguments(LOADER_ARGUMENTS)
    def __init__(
        self,
        files: Loadable,
        transforms: Sequence[Transform | BatchFunction] | Transform | BatchFunction = (),
        *,
        batch_size: int = 1,
        shuffle: bool | None = False,
        sampler: Sampler[int] | Sequence[int] | NDArray[np.integer[Any]] | torch.Tensor | Order | None = None,
        batch_sampler: Iterable[Iterable[int]] | None = None,
        seed: int | None = None,
        last_batch: Literal["partial", "drop", "pad"] = "partial",
        rank: int | None = None,
        world_size: int | None = None,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
        layout: Literal["NCHW", "NHWC", "NTCHW", "NCTHW"] | None = None,
        stack: bool = True,
        threads: int | None = None,
        prefetch: int | None = None,
        on_error: OnError = "raise",
        error_callback: Callable[[DecodeError], object] | None = None,
        max_errors: int | None = None,
        timeout_seconds: float | None = 300.0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        labels_device: str | torch.device | None = None,
        cache: Literal["decoded"] | EncodedCache | DecodedCache | None = None,
        decode: DecodeOptions | None = None,
        pillow: Literal[12, 13, True] | None = None,
    ) -> None:
        if isinstance(files, Loader):
            raise ArgumentError("files is a Loader, which has its own transforms: give its .source")
        if isinstance(transforms, int):
            raise ArgumentError(f"transforms must be transforms, not {transforms}: write batch_size={transforms}")
        self.source = open_source(files)
        self.transforms = transforms if isinstance(transforms, Compose) else Compose(_as_list(transforms))
        if pillow is not None:
            self.transforms = Compose([self.transforms], pillow=pillow)
        self.batch_size = batch_size = integer("batch_size", batch_size, 1)
        if not len(self.source):
            raise SourceError(f"there is nothing to load: {self.source!r} has no samples")
        shuffle = flag("shuffle", False if shuffle is None else shuffle)
        has_order = shuffle or sampler is not None
        if batch_sampler is None:
            self._sampler = open_sampler(sampler, len(self.source), shuffle=shuffle)
        else:
            self._sampler, self.batch_size = open_batch_sampler(
                batch_sampler, len(self.source), batch_size, excluded=has_order
            )
            has_order = True
        self.last_batch = one_of("last_batch", last_batch, LAST_BATCH)
        self.rank, self.world_size = own_rank(rank, world_size)
        self._has_given_rank = rank is not None
        drawn_or_given = open_seed(seed, self.rank, self.world_size)
        fingerprint = optional_method(self.source, "fingerprint")
        self._progress = Progress(self._sampler, len(self.source), drawn_or_given, fingerprint)
        self._agreement = RankAgreement(self.rank, self.world_size)
        self.on_error: OnError = one_of("on_error", on_error, get_args(OnError))
        self.error_callback = function("error_callback", error_callback)
        self.max_errors = None if max_errors is None else integer("max_errors", max_errors, 0)
        self.timeout_seconds = seconds("timeout_seconds", timeout_seconds)
        self.decode = open_options(decode)
        self.device = resolve_device(device)
        self.labels_device = resolve_labels_device(labels_device, self.device)
        clip_sampler: ClipSampler | None = getattr(self.source, "clip_sampler", None)
        is_clips = clip_sampler is not None
        self._runtime = choose(
            self.device.type,
            self.batch_size,
            thread_count(threads),
            None if prefetch is None else integer("prefetch", prefetch, 1),
            "clip" if is_clips else "image",
        )
        self.threads, self.prefetch = self._runtime.threads, self._runtime.prefetch
        self.cache = open_cache(cache, self.source, self.device, self.decode)
        if self.transforms.resizes_as_pillow:
            _check_pillow(self.cache, self.decode)
        if clip_sampler is not None:
            check_clip_options(self.cache, self.decode, clip_sampler, stack=stack)
        self._stream = open_stream(self, has_order=has_order, has_cache=cache is not None)
        layouts: dict[str, Any] = _CLIP_LAYOUTS if is_clips else _LAYOUTS
        layout = one_of("layout", next(iter(layouts)) if layout is None else layout, layouts)
        config = BatchConfig(
            reader=Reader(self.source, self.decode, self.cache, on_gpu=self.device.type != "cpu"),
            transforms=self.transforms,
            target_type=None if dtype is None else type_of(dtype),
            layout=Layout.CHW if is_clips else _LAYOUTS[layout],
            time_axis=_CLIP_LAYOUTS[layout] if is_clips else 1,
            stack=flag("stack", stack),
            decode=self.decode,
            prefetch=self.prefetch,
            max_images=(self.batch_size or 1) + self.transforms.partners,
            on_error=on_error,
            collate=collate if collate_fn is None else _of_tensors(function("collate_fn", collate_fn)),
            label_dtypes=LabelDtypes(getattr(self.source, "labels", None)) if collate_fn is None else None,
            uploads_labels=labels_device is None or self.labels_device.type != "cpu",
        )
        self._recorder = Recorder(self._runtime, optional_method(self.source, "remote_counts"))
        self._pipeline = self._make_pipeline(config)
        self._failures = Failures(self.on_error, self._pipeline.recorder)
        if isinstance(self._sampler, BatchOrder):
            with contextlib.suppress(TypeError):  # it has no length
                len(self)  # refuses batches that the ranks cannot share
        elif not len(self):
            warnings.warn(
                f"last_batch='drop' leaves no batch: {len(self._sampler)} samples are fewer than one step's "
                f"{self.world_size} x {self.batch_size}; use smaller batches or last_batch='partial'",
                stacklevel=3,
            )
        self._is_initialized = True

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(self, "_is_initialized") and name in _READ_ONLY and (hasattr(self, name) or type(self) is Loader):
            raise AttributeError(
                f"{name} is fixed when a Loader is made and cannot become {value!r}: make another Loader, which "
                "continues from this one's `state_dict()`. `loader.transforms.transforms` may be edited"
            )
        super().__setattr__(name, value)

    @property
    def seed(self) -> int:
        """The seed, also one that was drawn. With `seed=None`, ranks other than 0 wait for that of rank 0."""
        return self._progress.seed

    @property
    def epoch(self) -> int:
        """Number of the next epoch."""
        return self._progress.epoch

    def __len__(self) -> int:
        """Batches in a whole epoch, the same on every rank; a TypeError where a batch sampler has no length."""
        if isinstance(self._sampler, BatchOrder):
            return count_steps(self._sampler.batch_count, self.last_batch, self.world_size)
        return len(self._steps(len(self._sampler), 0))

    def set_epoch(self, epoch: int) -> None:
        """Sets the number of the next epoch, which decides its order and random numbers.

        After `load_state_dict` the state's epoch continues where it stopped; any other epoch starts at its beginning.
        """
        self._progress.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """The consumed position: batches that were yielded, without prefetched ones.

        The state is equal on all ranks after the same number of steps. It fits any number of ranks and any batch size.
        It holds numbers and strings. With two iterators alive it follows the one that yielded last.
        """
        return self._progress.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Sets the position of a `state_dict()`, from where the next iteration continues.

        With `seed=None` the loader also takes the state's seed.

        Raises:
            LoaderError: not a loader's state, or the state of another data set, order or seed. It names the difference.
        """
        self._progress.load_state_dict(state_dict)

    def peek(self) -> Batch:
        """The next batch, on this rank alone; it moves nothing, and waits for no other rank.

        Raises:
            LoaderError: no batch is left in the epoch, or the batch cannot be made.
        """
        epoch = self._progress.next_epoch()
        steps = self._steps(len(epoch), self._progress.start, epoch)
        if not len(steps):
            raise LoaderError(f"peek: no batch is left in epoch {epoch.number}: set_epoch chooses another")
        return self._load_one(epoch, steps[0])

    def replay(self, epoch: int, step: int) -> Batch:
        """Makes a batch of any epoch again, on this rank alone; it moves nothing.

        The batch has the bits and the digest that it had, if the data set is the same. Samplers with a generator of
        their own do not repeat an epoch.

        Args:
            epoch: number of the epoch.
            step: number of the batch, counted from the beginning of the epoch, with this loader's batch size.

        Raises:
            ArgumentError: the epoch has no such step.
        """
        order = self._progress.order_of(integer("epoch", epoch, 0))
        steps = self._steps(len(order), 0, order)
        if integer("step", step, 0) >= len(steps):
            raise ArgumentError(f"step must be from 0 to {len(steps) - 1}, the last batch of an epoch, not {step}")
        return self._load_one(order, steps[step])

    def _steps(self, count: int, start: int, epoch: Epoch | None = None) -> Steps:
        ranks: Any = {"rank": self.rank, "world_size": self.world_size, "start": start}
        if epoch is not None and epoch.ends is not None:
            return BatchSteps(epoch.ends, self.last_batch, buckets=epoch.buckets, **ranks)
        assert self.batch_size is not None
        is_interleaved = isinstance(self._sampler, RepeatedSampler)
        return Steps(count, self.batch_size, self.last_batch, interleaved=is_interleaved, **ranks)

    def __iter__(self) -> Iterator[Batch]:
        if not self._has_given_rank:
            check_rank(self.rank, self.world_size)
        return self._batches()

    def _batches(self) -> Iterator[Batch]:
        self._pipeline.workers.check()  # not closed, and not in a forked child
        # An iterator counts as an epoch from its first batch on: trainers make some only to look, or before set_epoch.
        progress, agreement = self._progress, self._agreement
        number = agreement.begin(self._describe) if self.world_size > 1 else 0
        epoch, position = progress.begin()
        is_at_end = False

        def received(rank_slice: RankSlice) -> None:
            nonlocal position
            position = rank_slice.end
            progress.advance(epoch, position)

        try:
            steps = self._steps(len(epoch), position, epoch)
            if self._stream is not None:
                self._stream.start(epoch, steps)
            yield from take_batches(self._pipeline, epoch, steps, self._failures, self, received)
            progress.finish(epoch)
            is_at_end = True
        finally:
            if not is_at_end and self.world_size > 1:
                agreement.leave(number, f"position {position} of {len(epoch)} in epoch {epoch.number}")
        if self.world_size > 1:
            agreement.end(number)

    def _describe(self) -> dict[str, Any]:
        """The settings that must be equal on all ranks when an iteration begins."""
        return self._progress.describe() | {"batch_size": self.batch_size, "last_batch": self.last_batch}

    def _load_one(self, epoch: Epoch, rank_slice: RankSlice) -> Batch:
        self._pipeline.workers.check()
        if self._stream is not None:
            raise LoaderError(f"peek and replay need samples by index, which {self.source!r} does not have")
        (batch,) = take_batches(self._pipeline, epoch, [rank_slice], self._failures, self, lambda _: None)
        return batch

    def _make_pipeline(self, config: BatchConfig) -> Pipeline:
        if self.device.type == "cpu":
            if config.decode.video_decoder == "nvdec":
                raise ArgumentError("video_decoder='nvdec' needs device='cuda': on the CPU FFmpeg decodes videos")
            return CpuPipeline(config, self._recorder, self.threads)
        from cuaug.pipeline.cuda.cuda_pipeline import CudaPipeline  # imports CuPy, only where a GPU is used

        return CudaPipeline(config, self._recorder, self.threads, self.device)

    def stats(self) -> Stats:
        """Counts, seconds per stage, and the bottleneck so far; `print` it."""
        return self._recorder.stats()

    def profile(self) -> Profile:
        """`stats()` and a timeline of a part of training: `with loader.profile() as profile:` around iterating."""
        return Profile(self._recorder, self._pipeline.ranges)

    def close(self) -> None:
        """Ends the threads, and every iteration under way with a LoaderError. Yielded batches stay valid."""
        self._pipeline.close()

    def __repr__(self) -> str:
        seed = self._progress.known_seed
        return f"Loader({len(self.source)} samples, batch_size={self.batch_size}, seed={seed}, {self._runtime})"

    def __reduce__(self) -> Any:
        raise TypeError("a Loader owns threads and does not pickle: make it in the process that iterates over it")

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()


def _of_tensors(collate_fn: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    def collate_labels(labels: list[Any]) -> Any:
        try:
            return collate_fn([*map(to_tensors, labels)])
        except (TypeError, ValueError, IndexError, AttributeError) as error:
            if isinstance(error, ValueError) and "unpack" not in str(error):
                raise
            raise LoaderError(
                f"collate_fn failed: {type(error).__name__}: {error}. It takes the list of a batch's labels, without "
                "the images, which the Loader stacks itself; DataLoader's takes (image, label) pairs"
            ) from error

    return collate_labels


def _check_pillow(cache: EncodedCache | DecodedCache | None, decode: DecodeOptions) -> None:
    """Refuses settings that change pixels before a chain with `pillow` gets them."""
    problem = ""
    if isinstance(cache, DecodedCache) and cache.short_side is not None:
        problem = f"cache must keep full-size images with pillow=, not short_side={cache.short_side}"
    elif not decode.fancy_upsampling:
        problem = "decode must have fancy_upsampling=True with pillow=, as Pillow decodes"
    elif decode.decoder == "nvimgcodec":
        problem = "decode must have decoder='auto' with pillow=: nvImageCodec's pixels are not Pillow's"
    if problem:
        raise ArgumentError(problem)


def _as_list(transforms: Any) -> list[Any]:
    return list(transforms) if isinstance(transforms, Iterable) else [transforms]


# These attributes are read again for each batch, and may be set.
_READ_ONLY = {"source", *inspect.signature(Loader).parameters} - {"error_callback", "max_errors", "timeout_seconds"}
