"""Clips on their way from a video file to the kernels: which frames a clip holds, and their pixels."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug._runtime.huge_pages import pages
from cuaug.batch import ClipFrames
from cuaug.codec import DecodeResult, Region
from cuaug.codec.video import thread_video_decoder
from cuaug.codec.video_index import VideoIndex
from cuaug.codec.yuv import convert_frames, describe_frames
from cuaug.decode_options import DecodeOptions
from cuaug.errors import ArgumentError, DecodeError
from cuaug.limits import check_pixels
from cuaug.sources.video_index import open_index
from cuaug.sources.videos import ClipRequest

__all__ = ["EncodedClip", "check_clip_options", "decode_clip", "read_clip"]

_per_thread = threading.local()


class EncodedClip:
    """A clip whose frames are chosen, but not decoded.

    Attributes:
        request: the video and the range of the clip.
        index: of the video's frames.
        numbers: (T,) the frames' numbers, in the order of presentation.
        padding: (T,) bool, frames that repeat because the range is too short.
        height, width: of a frame as displayed, in pixels.
        frames: T.
    """

    __slots__ = ("frames", "height", "index", "numbers", "padding", "request", "width")

    def __init__(
        self, request: ClipRequest, index: VideoIndex, numbers: NDArray[np.int64], padding: NDArray[np.bool_]
    ) -> None:
        self.request, self.index, self.numbers, self.padding = request, index, numbers, padding
        self.height, self.width, self.frames = index.height, index.width, len(numbers)

    @property
    def clip_frames(self) -> ClipFrames:
        """The clip's entry in `Batch.clips`."""
        return ClipFrames(
            torch.from_numpy(self.index.seconds[self.numbers]),
            torch.from_numpy(self.numbers),
            torch.from_numpy(self.padding),
        )


def check_clip_options(device: torch.device, cache: Any, options: DecodeOptions, *, stack: bool) -> None:
    """Refuse the settings of a Loader that are for images alone.

    Raises:
        ArgumentError: one is set.
    """
    if device.type != "cpu":
        raise ArgumentError("device: clips of videos are decoded and augmented on the CPU: use device='cpu'")
    if cache is not None:
        raise ArgumentError("cache holds images, not clips: their files are read anew in each epoch")
    if options.mode != "RGB":
        raise ArgumentError(f"mode={options.mode!r} is for images: the frames of videos become RGB")
    if not stack:
        raise ArgumentError("stack=False gives a list of images; clips have one size")


def read_clip(request: ClipRequest, draws: NDArray[np.float64], max_pixels: int) -> EncodedClip:
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
    """Decode a region of a clip's frames: (T, h, w, 3), valid until the thread's next clip."""
    y0, x0, y1, x1 = region
    shape = clip.frames, y1 - y0, x1 - x0, 3
    try:
        frames = thread_video_decoder().decode(clip.request.path, clip.index, clip.numbers)
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


def _thread_memory(size: int) -> NDArray[np.uint8]:
    """Memory of the calling thread that its next clip reuses."""
    memory: Any = getattr(_per_thread, "memory", None)
    if memory is None or len(memory) < size:
        _per_thread.memory = memory = pages(size)
    return memory[:size]
