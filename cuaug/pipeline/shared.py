"""The pipelines of calls without a loader: `cuaug.decode` and `cuaug.ray.Augment`.

Calls with the same device, number of threads and options share threads and decoders, until the process ends.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug._runtime.fork import renew_after_fork
from cuaug.codec.decode_options import DecodeOptions
from cuaug.devices import first_size_mismatch
from cuaug.errors import TransformError
from cuaug.pipeline.config import BatchConfig, choose
from cuaug.pipeline.cpu_pipeline import CpuPipeline
from cuaug.pipeline.iteration import OnError
from cuaug.pipeline.pipeline import Pipeline, SeparateBuffers
from cuaug.pipeline.reader import Reader
from cuaug.plan import MAX_CHANNELS, Layout, Plan
from cuaug.profiling.recorder import Recorder
from cuaug.sampling import Epoch
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import Compose

__all__ = ["GPU_BATCH", "BlackLast", "black_image", "call_config", "is_plain", "makes_one_size", "shared_pipeline"]

#: A first batch of this size fixes the GPU decoder's split; larger ones open it anew.
GPU_BATCH = 64
# Image sizes for which a chain that makes one size of all images is recognized.
_PROBES = np.array([[480, 640, 517, 389], [640, 480, 389, 389]])


@functools.lru_cache(maxsize=8)
def shared_pipeline(device: torch.device, threads: int | None, options: DecodeOptions) -> Pipeline:
    """The threads and decoders that all calls with these arguments share; a call gives it its own config."""
    runtime = choose(device.type, 1, threads, 1)
    config = call_config(_NoSamples(), Compose([]), options, device, stack=False, max_images=GPU_BATCH)
    if device.type == "cpu":
        pipeline = CpuPipeline(config, Recorder(runtime), runtime.threads, thread_name="cuaug-decode")
        pipeline.buffer_pool = SeparateBuffers()
        return pipeline
    from cuaug.pipeline.cuda.cuda_pipeline import CudaPipeline  # imports CuPy, only where a GPU is used

    return CudaPipeline(config, Recorder(runtime), runtime.threads, device)


renew_after_fork(shared_pipeline.cache_clear)  # a forked child has none of the threads


class BlackLast(Epoch):
    """The samples of a call in order, and after them a black image in place of damaged ones."""

    def replacements(self, positions: NDArray[np.int64], attempt: int) -> NDArray[np.int64]:
        return np.full(len(positions), len(self) - 1)


def black_image(mode: str, multiple_of: int = 1) -> NDArray[np.uint8]:
    """The black image, of a size that most crops fit in, for a call in this mode of `DecodeOptions`."""
    side = max(1024 // multiple_of, 1) * multiple_of
    return np.zeros((side, side, {"L": 1, "RGBA": 4}.get(mode, 3)), dtype=np.uint8)


class _NoSamples:
    """The source of a config that loads nothing."""

    def __len__(self) -> int:
        return 0

    def read(self, index: int) -> tuple[Any, Any]:
        raise IndexError(index)


def call_config(
    source: Any,
    chain: Compose,
    options: DecodeOptions,
    device: torch.device,
    *,
    stack: bool,
    layout: Layout = Layout.CHW,
    max_images: int = 1,
    on_error: OnError = "raise",
) -> BatchConfig:
    """The settings of one call's batches, whose labels become a list."""
    return BatchConfig(
        reader=Reader(source, options, on_gpu=device.type != "cpu"),
        transforms=chain,
        target_type=None,
        layout=layout,
        stack=stack,
        decode=_without_index(options),
        prefetch=1,
        max_images=max_images,
        on_error=on_error,
        collate=list,
    )


@functools.lru_cache(maxsize=8)
def _without_index(options: DecodeOptions) -> DecodeOptions:
    return replace(options, index_bytes=0, video_decoder="ffmpeg")


def is_plain(chain: Compose) -> bool:
    """Whether a chain makes one image of each, without batch transforms."""
    return len(chain.segments) == 1 and chain.views == 1


def makes_one_size(chain: Compose) -> bool:
    """Whether images of all sizes come out in one, as planned for a few sizes."""
    return _makes_one_size(chain, repr(chain))  # a server asks at each request


@functools.lru_cache(maxsize=64)
def _makes_one_size(chain: Compose, parameters: str) -> bool:
    # A crop may need larger images, and numbers per channel as many channels.
    for channels, scale in itertools.product([3, *range(1, MAX_CHANNELS + 1)], (1, 8)):
        plan = Plan(*(scale * _PROBES), channels=channels)
        try:
            chain.plan(plan, SampleRNG(0, 0, np.arange(len(plan))))
        except TransformError:
            continue
        return first_size_mismatch(np.array(plan.sizes), 1) is None
    return True  # the run raises the same error
