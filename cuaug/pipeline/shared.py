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

from cuaug._runtime.fork import renew_after_fork
from cuaug.codec.decode_options import DecodeOptions
from cuaug.devices import first_size_mismatch
from cuaug.errors import TransformError
from cuaug.pipeline.config import BatchConfig, choose
from cuaug.pipeline.cpu_job import CpuPipeline
from cuaug.pipeline.iteration import OnError
from cuaug.pipeline.pipeline import Pipeline, SeparateBuffers
from cuaug.pipeline.reader import Reader
from cuaug.plan import MAX_CHANNELS, Layout, Plan
from cuaug.profiling.recorder import Recorder
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import Compose

__all__ = ["GPU_BATCH", "call_config", "is_plain", "makes_one_size", "shared_pipeline"]

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
    from cuaug.pipeline.cuda.cuda_job import CudaPipeline  # imports CuPy, only where a GPU is used

    return CudaPipeline(config, Recorder(runtime), runtime.threads, device)


renew_after_fork(shared_pipeline.cache_clear)  # a forked child has none of the threads


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
        decode=replace(options, index_bytes=0, video_decoder="ffmpeg"),
        prefetch=1,
        max_images=max_images,
        on_error=on_error,
        collate=list,
    )


def is_plain(chain: Compose) -> bool:
    """Whether a chain makes one image of each, without batch transforms."""
    return len(chain.segments) == 1 and chain.views == 1


def makes_one_size(chain: Compose) -> bool:
    """Whether images of all sizes come out in one, as planned for a few sizes."""
    # A crop may need larger images, and numbers per channel as many channels.
    for channels, scale in itertools.product([3, *range(1, MAX_CHANNELS + 1)], (1, 8)):
        plan = Plan(*(scale * _PROBES), channels=channels)
        try:
            chain.plan(plan, SampleRNG(0, 0, np.arange(len(plan))))
        except TransformError:
            continue
        return first_size_mismatch(np.array(plan.sizes), 1) is None
    return True  # the run raises the same error
