"""The front door: image files in, augmented batches out."""

from __future__ import annotations

import logging
import operator
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from cuaug import sampling
from cuaug.codec import DEFAULT_MAX_PIXELS, gpu_decodes
from cuaug.errors import DeviceError, LoaderError
from cuaug.interop import type_of
from cuaug.pipeline.host import HostPipeline
from cuaug.pipeline.job import Job, Settings
from cuaug.pipeline.stats import Recorder, Stats
from cuaug.plan import Layout
from cuaug.prefetch import in_order
from cuaug.sources import Source, open_source
from cuaug.transforms import Compose, Transform

if TYPE_CHECKING:
    from cuaug.pipeline.cuda import CudaPipeline

__all__ = ["Loader"]

log = logging.getLogger("cuaug")

_LAYOUTS = {"NCHW": Layout.CHW, "NHWC": Layout.HWC}


def _integer(name: str, value: Any, least: int | None = None) -> int:
    """A Python int, from any kind of integer but a bool."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or (least is not None and number < least):
        raise LoaderError(f"{name} is an integer{'' if least is None else f' of at least {least}'}, not {value!r}")
    return number


def _one_of(name: str, value: Any, allowed: Sequence[str]) -> Any:
    if value not in allowed:
        raise LoaderError(f"{name} is one of {', '.join(map(repr, allowed))}, not {value!r}")
    return value


class Loader:
    """Loads, decodes and augments images in batches; iterate over it for one epoch after another.

    Args:
        files: a directory with one folder per class; paths, whose label is then their index; (path, label) pairs; or
            any object with `__len__` and `read(i) -> (path or bytes, label)`.
        transforms: a chain of `cuaug.transforms` that leaves all images with one size.
        batch_size: images per batch; the last batch may be smaller.
        shuffle: a new order each epoch.
        seed: what shuffling and transforms draw from, with the epoch and the sample's index, and nothing else.
        drop_last: leave a smaller last batch out.
        device: "cpu", "cuda", "cuda:1", ...; None takes CUDA where decoding and kernels truly run there.
        dtype: torch.uint8, float16, bfloat16 or float32; None: what the chain makes (uint8 without ToDtype or
            Normalize). uint8 becomes [0, 1] as a float, and back.
        layout: "NCHW", or "NHWC" for channels-last memory. The shape is (N, C, H, W) either way.
        threads: worker threads that read and decode; None: one per available core.
        prefetch: batches that are made ready ahead of the one you hold.
        on_error: "raise" a `DecodeError` when an image cannot be read or decoded, or "skip" it: its batch is then
            smaller by one, `stats()` counts it, and the log names it once.
        apply_exif: turn pictures as their EXIF orientation says.
        fancy_upsampling: smooth a JPEG's chroma as libjpeg does; without it decoding is faster and colours differ.
        max_pixels: refuse files whose header claims more.

    Iterating yields (images, labels): an (N, C, H, W) tensor on the device, yours to keep, and a CPU tensor of labels.
    Each iteration is the next epoch; `set_epoch` chooses it. It is a context manager; `close()` ends its threads.

    Raises:
        LoaderError, TransformError, DeviceError: arguments that do not fit, when the loader is made.
    """

    def __init__(
        self,
        files: str | os.PathLike[str] | Sequence[Any] | Source,
        transforms: Sequence[Transform] | Transform = (),
        *,
        batch_size: int = 1,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
        layout: str = "NCHW",
        threads: int | None = None,
        prefetch: int = 2,
        on_error: str = "raise",
        apply_exif: bool = True,
        fancy_upsampling: bool = True,
        max_pixels: int = DEFAULT_MAX_PIXELS,
    ) -> None:
        self.source = open_source(files)
        self.transforms = transforms if isinstance(transforms, Compose) else Compose(_as_list(transforms))
        self.batch_size = _integer("batch_size", batch_size, 1)
        self.shuffle = shuffle
        self.seed = _integer("seed", seed)
        self.drop_last = drop_last
        self.prefetch = _integer("prefetch", prefetch, 1)
        self.on_error = _one_of("on_error", on_error, ("raise", "skip"))
        self.threads = _cores() if threads is None else _integer("threads", threads, 1)
        self.device = _device(device)
        self.epoch = 0
        self._settings = Settings(
            source=self.source,
            transforms=self.transforms,
            seed=self.seed,
            target_type=None if dtype is None else type_of(dtype),
            layout=_LAYOUTS[_one_of("layout", layout, tuple(_LAYOUTS))],
            apply_exif=apply_exif,
            fancy_upsampling=fancy_upsampling,
            max_pixels=_integer("max_pixels", max_pixels, 1),
        )
        self._begin()
        self._named: set[str | int | None] = set()

    @property
    def classes(self) -> list[str] | None:
        """The class folders' names, in the order of their labels, where the source has them."""
        return getattr(self.source, "classes", None)

    def __len__(self) -> int:
        """Batches in an epoch."""
        return sampling.batch_count(len(self.source), self.batch_size, drop_last=self.drop_last)

    def set_epoch(self, epoch: int) -> None:
        """The epoch that the next iteration is: it decides the order and what is drawn."""
        self.epoch = _integer("epoch", epoch, 0)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        if self._process != os.getpid():
            self._begin()
        epoch, self.epoch = self.epoch, self.epoch + 1
        return self._batches(epoch)

    def _batches(self, epoch: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        order = sampling.epoch_order(len(self.source), shuffle=self.shuffle, seed=self.seed, epoch=epoch)
        batches = sampling.batches(order, self.batch_size, drop_last=self.drop_last)
        away = time.perf_counter()
        for job in in_order(batches, lambda indices: self._pipeline.start(epoch, indices), self.prefetch):
            self._recorder.add_seconds(wait_for_consumer=time.perf_counter() - away)
            with self._recorder.stage("wait_for_data"):
                samples = job.wait()
            self._report(job)
            if samples:
                self._recorder.count(batches=1, samples=samples)
                yield job.take()  # and keep nothing of it here: its memory is the consumer's to free
            away = time.perf_counter()

    def _begin(self) -> None:
        """Makes what belongs to one process. A fork begins anew: locks that it copied may never be released there."""
        self._process = os.getpid()
        self._recorder = Recorder()
        self._pipeline = self._make_pipeline()

    def _make_pipeline(self) -> HostPipeline | CudaPipeline:
        if self.device.type == "cpu":
            return HostPipeline(self._settings, self._recorder, self.threads)
        from cuaug.pipeline.cuda import CudaPipeline  # CuPy, and a context, only where a GPU is to be used

        return CudaPipeline(self._settings, self._recorder, self.threads, self.device)

    def _report(self, job: Job) -> None:
        """Raises or counts a batch's damaged samples."""
        for k in sorted(job.errors):
            error = job.errors[k]
            if self.on_error == "raise":
                raise error
            self._recorder.count(skipped=1)
            name = error.path or error.index
            if name not in self._named:
                self._named.add(name)
                log.warning("skipped: %s", error)

    def stats(self) -> Stats:
        """What was done so far, and how long each stage took."""
        if self._process != os.getpid():
            self._begin()
        return self._recorder.stats()

    def close(self) -> None:
        """Ends the threads, and every iteration under way with a LoaderError. Batches already yielded stay valid."""
        if self._process != os.getpid():
            self._begin()
        self._pipeline.close()

    def __reduce__(self) -> Any:
        raise TypeError("a Loader owns threads and does not pickle: make it in the process that iterates over it")

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()


def _as_list(transforms: Sequence[Transform] | Transform) -> list[Transform]:
    return list(transforms) if isinstance(transforms, Iterable) else [transforms]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _device(device: str | torch.device | None) -> torch.device:
    """The device to use; None: CUDA where it truly works.

    Raises:
        DeviceError: not a device, or CUDA was asked for and does not work, with the reason.
    """
    try:
        chosen = torch.device("cuda" if device is None else device)
    except (RuntimeError, TypeError) as error:
        raise DeviceError(f"device is 'cpu', 'cuda' or 'cuda:<number>', not {device!r}") from error
    if chosen.type == "cpu" or (device is None and not torch.cuda.is_available()):
        return torch.device("cpu")
    if chosen.type != "cuda":
        raise DeviceError(f"device is 'cpu', 'cuda' or 'cuda:<number>', not {device!r}")
    from cuaug.devices import cuda

    reason = cuda.unavailable(chosen)
    if not reason:
        index = torch.cuda.current_device() if chosen.index is None else chosen.index
        works, reason = gpu_decodes(index)
        if works:
            return torch.device("cuda", index)
    if device is None:
        log.warning("using the CPU, although torch sees a GPU: %s (`python -m cuaug doctor` tells more)", reason)
        return torch.device("cpu")
    raise DeviceError(f"cannot use {device}: {reason} (`python -m cuaug doctor` tells more)")
