"""Clips on their way from a video file to the kernels: which frames a clip holds, and their pixels.

`ClipReader` chooses the frames, and looks for their videos or pixels in the cache.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug._runtime.huge_pages import pages
from cuaug._runtime.limits import check_pixels
from cuaug.batch import ClipFrames
from cuaug.cache import DecodedCache, shrunken_size
from cuaug.codec import DecodeResult, Region
from cuaug.codec.decode_options import DecodeOptions
from cuaug.codec.video.decoder import thread_video_decoder
from cuaug.codec.video.video_index import VideoIndex
from cuaug.codec.video.yuv import VideoFrame, convert_frames, describe_frames
from cuaug.devices.cpu import CpuExecutor
from cuaug.errors import ArgumentError, DecodeError
from cuaug.plan import Layout, Plan, Type
from cuaug.sampling.clip_sampler import ClipSampler
from cuaug.sources.file_bytes import error_reason, is_fd_limit_error
from cuaug.sources.video_index_file import open_index
from cuaug.sources.videos import ClipRequest

__all__ = ["ClipReader", "EncodedClip", "check_clip_options", "decode_clip", "decode_planes", "read_clip"]

_per_thread = threading.local()


class EncodedClip:
    """A clip whose frames are chosen, but not decoded.

    Attributes:
        request: the video and the range of the clip.
        file: the video's path, or its bytes.
        index: of the video's frames.
        numbers: (T,) the frames' numbers, in the order of presentation.
        padding: (T,) bool, frames that repeat because the range is too short.
        height, width: of a frame as displayed, in pixels; with a decoded cache at its size there.
        frames: T.
        pixels: (T, height, width, 3), read-only, if the decoded cache holds the clip.
        keep: adds pixels of this shape to the decoded cache, if there is one, and returns its copy or None.
    """

    __slots__ = ("file", "frames", "height", "index", "keep", "numbers", "padding", "pixels", "request", "width")

    def __init__(
        self,
        request: ClipRequest,
        index: VideoIndex,
        numbers: NDArray[np.int64],
        padding: NDArray[np.bool_],
    ) -> None:
        self.request, self.index, self.numbers, self.padding = request, index, numbers, padding
        self.height, self.width, self.frames = index.height, index.width, len(numbers)
        self.pixels: NDArray[np.uint8] | None = None
        self.keep: Callable[[NDArray[np.uint8]], NDArray[np.uint8] | None] | None = None

    @property
    def clip_frames(self) -> ClipFrames:
        """The clip's entry in `Batch.clips`."""
        return ClipFrames(
            torch.from_numpy(self.index.seconds[self.numbers]),
            torch.from_numpy(self.numbers),
            torch.from_numpy(self.padding),
        )


def check_clip_options(cache: Any, options: DecodeOptions, sampler: ClipSampler, *, stack: bool) -> None:
    """Refuse the settings of a Loader that are for images alone.

    Raises:
        ArgumentError: one is set.
    """
    if isinstance(cache, DecodedCache) and cache.on_device:
        raise ArgumentError(
            "cache: on_device=True keeps images, not clips: keep decoded clips in memory or a directory"
        )
    if isinstance(cache, DecodedCache) and sampler.is_random:
        raise ArgumentError(
            f"cache: a decoded clip is never needed again, since sampling={sampler.sampling!r} draws other frames in "
            "each epoch; use sampling='uniform' or 'all'"
        )
    if options.mode != "RGB":
        raise ArgumentError(f"mode={options.mode!r} is for images: the frames of videos become RGB")
    if not stack:
        raise ArgumentError("stack=False gives a list of images; clips have one size")


def read_clip(
    request: ClipRequest,
    draws: NDArray[np.float64],
    max_pixels: int,
) -> EncodedClip:
    """Choose the frames of a clip.

    Args:
        draws: (T,) uniform in [0, 1), the clip's random numbers.

    Raises:
        DecodeError: the file is no video, or too short for the clip.
    """
    index = open_index(request.path)
    check_pixels(index.height, index.width, max_pixels)
    first, end = request.frame_range(index.seconds)
    numbers, padding = request.sampler.choose(index.seconds, request.clip, first, end, draws)
    return EncodedClip(request, index, numbers, padding)


def decode_clip(clip: EncodedClip, region: Region) -> DecodeResult | DecodeError:
    """Decode a region of a clip's frames: (T, h, w, 3), valid until the thread's next clip.

    With a decoded cache the region is one of the cached frames.
    """
    y0, x0, y1, x1 = region
    if clip.pixels is not None:
        return DecodeResult(clip.pixels[:, y0:y1, x0:x1], "cache")
    if clip.keep is None:
        return _decode_frames(clip, region)
    result = _decode_frames(clip, (0, 0, clip.index.height, clip.index.width))
    if isinstance(result, DecodeError):
        return result
    try:
        pixels = _shrink(result.pixels, clip.height, clip.width)
    except MemoryError as error:
        return DecodeError(f"not enough memory to scale it down for the cache: {error}")
    kept = clip.keep(pixels)
    return DecodeResult((pixels if kept is None else kept)[:, y0:y1, x0:x1], "video")


def _shrink(frames: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """Scale (T, H, W, 3) frames down to their size in the cache."""
    if frames.shape[1:3] == (height, width):
        return frames
    plan = Plan([frames.shape[1]], [frames.shape[2]])
    plan.resize([height], [width])
    executor = CpuExecutor(plan.compile(Type.UINT8, Layout.HWC))
    small = np.empty((len(frames), height, width, 3), dtype=np.uint8)
    for frame, target in zip(frames, small, strict=True):
        executor.run(0, frame, target.ctypes.data)
    return small


def _decode_frames(clip: EncodedClip, region: Region) -> DecodeResult | DecodeError:
    y0, x0, y1, x1 = region
    shape = clip.frames, y1 - y0, x1 - x0, 3
    try:
        frames = decode_planes(clip)
        pixels = _thread_memory(int(np.prod(shape))).reshape(shape)
    except DecodeError as error:
        return error.with_traceback(None)
    except MemoryError as error:
        return DecodeError(f"not enough memory: {error}")
    targets = pixels.ctypes.data + np.arange(clip.frames) * pixels.strides[0]
    convert_frames(
        describe_frames(frames, region, targets.tolist(), pixels.strides[1], orientation=clip.index.orientation)
    )
    return DecodeResult(pixels, "video")


def decode_planes(clip: EncodedClip) -> list[VideoFrame]:
    """Decode a clip's frames as planes, on the calling thread.

    Raises:
        DecodeError: a frame is damaged, the file cannot be read any more, or memory is short.
        OSError: too many files are open.
    """
    try:
        return thread_video_decoder().decode(clip.request.path, clip.index, clip.numbers)
    except MemoryError as error:
        raise DecodeError(f"not enough memory: {error}") from error
    except OSError as error:
        if is_fd_limit_error(error):
            raise
        raise DecodeError(error_reason(error)) from error


def _thread_memory(size: int) -> NDArray[np.uint8]:
    """Memory of the calling thread that its next clip reuses."""
    memory: Any = getattr(_per_thread, "memory", None)
    if memory is None or len(memory) < size:
        _per_thread.memory = memory = pages(size)
    return memory[:size]


class ClipReader:
    """Reads clips for a loader. A cache holds all frames of each clip that fits, converted to RGB."""

    def __init__(self, options: DecodeOptions, cache: DecodedCache | None) -> None:
        self._decoded, self._max_pixels = cache, options.max_pixels

    def read(self, sample: int, request: ClipRequest, draws: NDArray[np.float64]) -> EncodedClip:
        """Choose the frames of a clip.

        Args:
            sample: its index in the source.
            draws: (T,) uniform in [0, 1), the clip's random numbers.

        Raises:
            DecodeError: the file is no video, too short for the clip, or not the expected one.
            OSError: the file cannot be read.
        """
        pixels = None if self._decoded is None else self._decoded.get(sample)
        clip = read_clip(request, draws, self._max_pixels)
        if self._decoded is not None:
            side = self._decoded.short_side
            clip.height, clip.width = shrunken_size(clip.index.height, clip.index.width, side)
            self._use_decoded(clip, sample, pixels)
        return clip

    def _use_decoded(self, clip: EncodedClip, sample: int, found: object) -> None:
        """The cache keeps a clip as one image, (T * height, width, 3): its frames one below the other."""
        cache, shape = self._decoded, (clip.frames, clip.height, clip.width, 3)
        assert cache is not None
        if isinstance(found, np.ndarray):
            clip.pixels = found.reshape(shape)
            return

        def keep(pixels: NDArray[np.uint8]) -> NDArray[np.uint8] | None:
            kept = cache.put(sample, pixels.reshape(-1, *shape[2:]))
            return None if kept is None else kept.reshape(shape)

        clip.keep = keep
