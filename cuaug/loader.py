"""The front door: image files in, augmented batches out."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch

from cuaug._runtime.distributed import check_rank, own_rank
from cuaug.arguments import flag, function, integer, one_of, seconds, share
from cuaug.batch import Batch, collate
from cuaug.cache import DecodedCache, EncodedCache, open_cache
from cuaug.device import resolve_device
from cuaug.errors import DecodeError, LoaderError
from cuaug.interop import type_of
from cuaug.limits import DEFAULT_MAX_BYTES, DEFAULT_MAX_PIXELS
from cuaug.migration_hints import LOADER_ARGUMENTS, suggest_arguments
from cuaug.pipeline.config import BatchConfig, choose
from cuaug.pipeline.cpu import CpuPipeline
from cuaug.pipeline.job import Job
from cuaug.pipeline.pipeline import Pipeline
from cuaug.pipeline.prefetch import prefetch_in_order
from cuaug.pipeline.reader import Reader
from cuaug.plan import Layout
from cuaug.profiling.bottleneck import Stats
from cuaug.profiling.profile import Profile
from cuaug.profiling.recorder import Recorder
from cuaug.sampling import LAST_BATCH, Epoch, Order, RankSlice, SamplerView, Steps, open_sampler, order_of, state
from cuaug.sources import open_source, optional_method
from cuaug.sources.open import Loadable
from cuaug.transforms import Compose, Transform

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch.utils.data import Sampler

__all__ = ["Loader"]

log = logging.getLogger("cuaug")

_LAYOUTS = {"NCHW": Layout.CHW, "NHWC": Layout.HWC}
OnError = Literal["raise", "skip", "replace"]


class Loader:
    """Loads, decodes and augments images in batches; iterate over it for one epoch after another.

    Args:
        files: a directory with one folder per class; paths, each labelled with its index; (path, label) pairs, or
            {path: label}; a file, folder or data set that `cuaug.sources` reads; or any object with `__len__` and
            `read(i) -> (data, label)`, where data is a path, encoded bytes or a uint8 array.
        transforms: a chain of `cuaug.transforms` after which all images, or the same view of all, have the same size.
        batch_size: images per batch, on each rank.
        shuffle: a new order each epoch.
        sampler: the order, instead: a torch Sampler, indices, `cuaug.WeightedSampler` or `cuaug.ShardSampler`. It gives
            the indices of all ranks.
        seed: with the epoch and the sample's index, it alone decides what shuffling and transforms draw. The same on
            all ranks.
        last_batch: what becomes of samples that do not fill a batch on every rank. "partial": they make smaller
            batches, so that an epoch has each sample once, which is right for evaluation. "drop": they are left out.
            "pad": the batches are filled with others, marked as not `valid`. All ranks make the same number of steps.
        rank, world_size: which process of how many; None: as torch.distributed says where it is initialised, else as
            torchrun's environment says.
        device: "cpu", "cuda", "cuda:1", ...; None: what the environment variable CUAUG_DEVICE says, or else CUDA where
            decoding and kernels truly run there. Without a number it is the GPU of torchrun's LOCAL_RANK.
        dtype: what the finished images become: torch.uint8, float16, bfloat16 or float32; None: what the chain makes
            (uint8 without ToDtype or Normalize). uint8 becomes [0, 1] as a float, and back. Functions of whole batches
            that end the chain, such as `Lambda`, are given this type already; what `Mosaic` makes is converted.
        layout: "NCHW", or "NHWC" for channels-last memory. The shape is (N, C, H, W) either way.
        stack: False: images of any size, as a list of N tensors (C, H, W), which detectors take.
        threads: worker threads that read and decode, in place of DataLoader's num_workers; None: one for each CPU that
            affinity and the control group's quota leave to this process, shared among the ranks of a machine; on a GPU
            at most 16.
        prefetch: batches that are made ready ahead of the one you hold; None: 2, or as many as keep all threads busy.
            `print(loader)` tells both, and why.
        on_error: what to do when a sample cannot be read or decoded. "raise" a `DecodeError`; "skip" it, its batch is
            then smaller by one, or even empty; or "replace" it by another, marked as not `valid`.
        error_callback: called with the `DecodeError` of each sample that is skipped or replaced, in the consumer's
            thread. The log names each such sample once; `stats()` counts them.
        max_errors: raise a LoaderError once more different samples than this have failed.
        timeout_seconds: raise a LoaderError when the loop waits longer while one sample is read, or what is decoded
            together: on the CPU up to eight small pictures, on a GPU a batch; None waits for ever.
        collate_fn: turns the list of a batch's labels into one object; None: `cuaug.collate`.
        cache: "encoded" keeps the files' bytes in memory, "decoded" the pixels; an `EncodedCache` or `DecodedCache`
            sets limits, a size that pictures are reduced to, and where. The first epoch fills it.
        index_bytes: memory for noting where in a JPEG the parts that crops need begin, so that they are decoded without
            the rest when it comes again. None: up to a 64th of what is available; 0: none. On a GPU it is not used.
        apply_exif: turn encoded pictures as their EXIF orientation says; PIL images of a Dataset are taken as they are.
        fancy_upsampling: smooth a JPEG's chroma as libjpeg does; without it decoding is faster and colours differ.
        load_hint: the share of a batch's JPEGs that a GPU's hardware engine decodes, from 0 to 1; its multiprocessors
            decode the rest, and round a little differently. None: 0.65, always. "auto": what is fastest, found in the
            first batches, and so perhaps not the same in every run; `stats()` tells. Ignored on the CPU.
        decode_threads: CPU threads that help the GPU to decode; None: `threads`, or chosen with the load_hint.
        max_pixels: height times width above which a picture is refused, before anything is allocated for it; also of
            images that the chain makes of it.
        max_bytes: encoded bytes above which a sample is refused, before it is read where its size is known.

    Iterating yields a `cuaug.Batch`, which unpacks as (images, labels): an (N, C, H, W) tensor on the device (of views
    more: see `Batch`), yours to keep, and a CPU tensor of labels. Boxes, masks and keypoints in labels have moved with
    their images, and labels that are dicts of these stay a list: see `cuaug.targets`. Each iteration is, from its first
    batch on, the next epoch; `set_epoch` chooses it. `state_dict` and `load_state_dict` stop and go on, on any number
    of ranks. It is a context manager; `close()` ends its threads.

    Raises:
        LoaderError, TransformError, DeviceError: arguments that do not fit, when the loader is made.
        TypeError: arguments that it does not have; for those of DataLoader, DALI and FFCV it names its own.
    """

    @suggest_arguments(LOADER_ARGUMENTS)
    def __init__(
        self,
        files: Loadable,
        transforms: Sequence[Transform] | Transform = (),
        *,
        batch_size: int = 1,
        shuffle: bool | None = False,
        sampler: Sampler[int] | Sequence[int] | NDArray[np.integer[Any]] | torch.Tensor | Order | None = None,
        seed: int = 0,
        last_batch: Literal["partial", "drop", "pad"] = "partial",
        rank: int | None = None,
        world_size: int | None = None,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
        layout: Literal["NCHW", "NHWC"] = "NCHW",
        stack: bool = True,
        threads: int | None = None,
        prefetch: int | None = None,
        on_error: OnError = "raise",
        error_callback: Callable[[DecodeError], object] | None = None,
        max_errors: int | None = None,
        timeout_seconds: float | None = 300.0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        cache: Literal["encoded", "decoded"] | EncodedCache | DecodedCache | None = None,
        index_bytes: int | None = None,
        apply_exif: bool = True,
        fancy_upsampling: bool = True,
        load_hint: float | Literal["auto"] | None = None,
        decode_threads: int | None = None,
        max_pixels: int = DEFAULT_MAX_PIXELS,
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> None:
        self.source = open_source(files)
        self.transforms = transforms if isinstance(transforms, Compose) else Compose(_as_list(transforms))
        self.batch_size = integer("batch_size", batch_size, 1)
        if not len(self.source):
            raise LoaderError(f"there is nothing to load: {self.source!r} has no samples")
        shuffle = flag("shuffle", False if shuffle is None else shuffle)
        self._sampler = open_sampler(sampler, len(self.source), shuffle=shuffle)
        self.seed = integer("seed", seed)
        self.last_batch = one_of("last_batch", last_batch, LAST_BATCH)
        self.rank, self.world_size = own_rank(rank, world_size)
        self._rank_given = rank is not None
        self.on_error: OnError = one_of("on_error", on_error, get_args(OnError))
        self.error_callback = function("error_callback", error_callback)
        self.max_errors = None if max_errors is None else integer("max_errors", max_errors, 0)
        self.timeout_seconds = seconds("timeout_seconds", timeout_seconds)
        self.device = resolve_device(device)
        self._setup = choose(
            self.device.type,
            self.batch_size,
            None if threads is None else integer("threads", threads, 1),
            None if prefetch is None else integer("prefetch", prefetch, 1),
        )
        self.threads, self.prefetch = self._setup.threads, self._setup.prefetch
        self.cache = open_cache(
            cache, self.source, self.device, apply_exif=apply_exif, fancy_upsampling=fancy_upsampling
        )
        max_pixels, max_bytes = integer("max_pixels", max_pixels, 1), integer("max_bytes", max_bytes, 1)
        reader = Reader(
            self.source,
            encoded=self.cache if isinstance(self.cache, EncodedCache) else None,
            decoded=self.cache if isinstance(self.cache, DecodedCache) else None,
            apply_exif=apply_exif,
            max_pixels=max_pixels,
            max_bytes=max_bytes,
            opened=self.device.type != "cpu",
        )
        self._settings = BatchConfig(
            reader=reader,
            transforms=self.transforms,
            target_type=None if dtype is None else type_of(dtype),
            layout=_LAYOUTS[one_of("layout", layout, _LAYOUTS)],
            stack=flag("stack", stack),
            fancy_upsampling=fancy_upsampling,
            index_bytes=None if index_bytes is None else integer("index_bytes", index_bytes, 0),
            load_hint=share("load_hint", load_hint),
            decode_threads=None if decode_threads is None else integer("decode_threads", decode_threads, 1),
            prefetch=self.prefetch,
            max_pixels=max_pixels,
            max_images=self.batch_size + self.transforms.partners,
            on_error=on_error,
            collate=collate if collate_fn is None else function("collate_fn", collate_fn),
        )
        self.epoch = 0
        self._start = 0  # where in the order of that epoch the next iteration begins
        self._consumed = 0, 0  # epoch, and how far in its order all ranks together have come
        self._order: Epoch | None = None
        self._failed: set[str | int | None] = set()
        self._begin()
        self._made = True

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(self, "_made") and name in _FIXED and (hasattr(self, name) or type(self) is Loader):
            raise AttributeError(
                f"{name} is fixed when a Loader is made and cannot become {value!r}: make another, which goes on from "
                "this one's `state_dict()`; of the chain, `loader.transforms.transforms` may be edited"
            )
        super().__setattr__(name, value)

    @property
    def classes(self) -> list[str] | None:
        """The class folders' names, in the order of their labels, where the source has them."""
        return getattr(self.source, "classes", None)

    @property
    def sampler(self) -> SamplerView:
        """For trainers that know torch's DataLoader: they tell its sampler the epoch, which here is `set_epoch`."""
        return SamplerView(len(self._sampler), 1, self.set_epoch)

    @property
    def batch_sampler(self) -> SamplerView:
        """Likewise: what has a sampler is taken for a DataLoader, which has both."""
        return SamplerView(len(self), self.batch_size, self.set_epoch)

    def __len__(self) -> int:
        """Batches in a whole epoch, on this rank as on every other."""
        return len(self._steps(len(self._sampler), 0))

    def set_epoch(self, epoch: int) -> None:
        """The epoch that the next iteration is: it decides the order and what is drawn.

        After `load_state_dict` the epoch of the state goes on where it stopped, any other begins at its beginning.
        """
        epoch = integer("epoch", epoch, 0)
        self._go_to(epoch, self._start if epoch == self.epoch else 0)

    def state_dict(self) -> dict[str, Any]:
        """How much has been consumed: every batch that an iteration has yielded, and none that was only prefetched.

        It is the same on all ranks that have made the same number of steps, and fits any number of ranks and any batch
        size. It holds numbers and strings. With two iterations alive it tells of the one that began or yielded last.
        """
        epoch, position = self._consumed
        return {"epoch": epoch, "position": position, **self._identity(epoch, position)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """The next iteration goes on where the state stopped.

        Raises:
            LoaderError: it is not a loader's state, or that of another data set, order or seed; it says what differs.
        """
        try:
            self._go_to(*state.check(state_dict, self._identity))
        except LoaderError:
            self._order = None  # its sampler is asked again, for there may be a generator to restore
            raise

    def _identity(self, epoch: int, position: int) -> dict[str, Any]:
        """What a state must have in common with the loader that goes on from it."""
        return {
            "version": state.VERSION,
            "seed": self.seed,
            "source_length": len(self.source),
            "source": self._fingerprint,
            "order": type(self._sampler).__name__,
            "order_length": len(self._sampler),
            "order_checksum": self._epoch(epoch).checksum if position else None,
        }

    @cached_property
    def _fingerprint(self) -> str | None:
        fingerprint = optional_method(self.source, "fingerprint")
        return None if fingerprint is None else fingerprint()

    def _go_to(self, epoch: int, start: int) -> None:
        self.epoch, self._start, self._consumed = epoch, start, (epoch, start)

    def _epoch(self, number: int) -> Epoch:
        if self._order is None or self._order.number != number:
            order = order_of(self._sampler, self.seed, number, len(self.source))
            self._order = Epoch(number, self.seed, order, repeats=self._sampler.repeats)
        return self._order

    def _steps(self, count: int, start: int) -> Steps:
        return Steps(count, self.batch_size, self.last_batch, rank=self.rank, world_size=self.world_size, start=start)

    def __iter__(self) -> Iterator[Batch]:
        if self._process != os.getpid():
            self._begin()
        if not self._rank_given:
            check_rank(self.rank, self.world_size)
        return self._batches()

    def _batches(self) -> Iterator[Batch]:
        # An iteration counts from its first batch on: trainers begin some only to look, or before they set the epoch.
        number, start = self.epoch, self._start
        if not start:
            self._order = None  # a sampler may give another order for the same epoch
        self._go_to(number + 1, 0)
        self._consumed = number, start
        epoch = self._epoch(number)
        steps, recorder = self._steps(len(epoch), start), self._recorder

        def start_job(share: RankSlice) -> Job:
            return self._pipeline.start(epoch, share)

        def on_next(under_way: Iterable[Job]) -> None:
            recorder.on_next(sum(job.ready for job in under_way))

        try:
            with recorder.at("wait_for_first_batch", lane="consumer") as clock:
                for job in prefetch_in_order(steps, start_job, self.prefetch, on_next):
                    clock.batch = job.number
                    job.wait(self.timeout_seconds)
                    self._report(job)
                    job.check()
                    self._consumed, self._order = (number, job.rank_slice.end), epoch
                    clock.count("batches")
                    clock.count("samples", job.sample_count)
                    clock.at("wait_for_consumer")
                    clock.flush()
                    yield job.take()  # and keep nothing of it here: its memory is the consumer's to free
                    clock.at("wait_for_data")
            self._consumed = number + 1, 0
        finally:
            self._pipeline.end_iteration()

    def _begin(self) -> None:
        """Makes what belongs to one process. A fork begins anew: locks that it copied may never be released there."""
        self._recorder = Recorder(self._setup)
        self._pipeline = self._make_pipeline()
        self._process = os.getpid()  # last: where no pipeline can be made, a child must not take its parent's

    def _make_pipeline(self) -> Pipeline:
        if self.device.type == "cpu":
            return CpuPipeline(self._settings, self._recorder, self.threads)
        from cuaug.pipeline.cuda import CudaPipeline  # CuPy, and a context, only where a GPU is to be used

        return CudaPipeline(self._settings, self._recorder, self.threads, self.device)

    def _report(self, job: Job) -> None:
        """Raises, or counts and tells of, a batch's damaged samples."""
        error: DecodeError | None = None
        try:
            for error in job.failures():
                if self.on_error == "raise":
                    raise error
                self._recorder.add({"failed": 1})
                name = error.path or error.index
                if name not in self._failed:
                    self._failed.add(name)
                    log.warning("%s: %s", {"skip": "skipped", "replace": "replaced"}[self.on_error], error)
                if self.error_callback is not None:
                    self.error_callback(error)
                if self.max_errors is not None and len(self._failed) > self.max_errors:
                    raise LoaderError(
                        f"{len(self._failed)} samples have failed, more than max_errors={self.max_errors}; the last: "
                        f"{error}"
                    ) from error
        finally:
            del error  # whose traceback has this frame

    def stats(self) -> Stats:
        """What was done so far, how long each stage took, and a verdict; `print` it."""
        if self._process != os.getpid():
            self._begin()
        return self._recorder.stats()

    def profile(self) -> Profile:
        """`stats()` of a while, and every thread's timeline: `with loader.profile() as profile:` around iterating."""
        if self._process != os.getpid():
            self._begin()
        return Profile(self._recorder, self._pipeline.ranges)

    def close(self) -> None:
        """Ends the threads, and every iteration under way with a LoaderError. Batches already yielded stay valid."""
        if self._process != os.getpid():
            self._begin()
        self._pipeline.close()

    def __repr__(self) -> str:
        return f"Loader({len(self.source)} samples, batch_size={self.batch_size}, {self._setup})"

    def __reduce__(self) -> Any:
        raise TypeError("a Loader owns threads and does not pickle: make it in the process that iterates over it")

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()


def _as_list(transforms: Sequence[Transform] | Transform) -> list[Transform]:
    return list(transforms) if isinstance(transforms, Iterable) else [transforms]


# What is left out is looked at anew whenever it is needed, and may be set.
_FIXED = {"source", *inspect.signature(Loader).parameters} - {"error_callback", "max_errors", "timeout_seconds"}
