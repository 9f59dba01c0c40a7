"""`VideoIndex`: when each frame of a video is shown, and where decoding may begin; made by demuxing once."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.extras import require_module
from cuaug.codec.sniff import swaps_axes
from cuaug.errors import DecodeError

__all__ = ["MAX_FRAMES", "ORIENTATIONS", "VideoIndex", "open_container", "scan_video"]

#: Most frames of a video: a day at 60 frames a second. A damaged header may claim more.
MAX_FRAMES = 60 * 60 * 60 * 24
#: The EXIF orientation for each rotation of the display matrix, in degrees counter-clockwise.
ORIENTATIONS = {0: 1, 90: 8, 180: 3, 270: 6}
# FFmpeg's decoders for these codecs say where chroma lies: at even columns.
_COSITED_CODECS = frozenset({"h264", "hevc", "mpeg4", "mpeg2video"})


@dataclass(frozen=True)
class VideoIndex:
    """The frames of a video, in the order of presentation.

    Attributes:
        pts: (F,) int64 presentation timestamps, ascending, in units of `time_base`.
        keys: (K,) int64 timestamps of key frames, ascending.
        time_base: seconds of one unit.
        stored_height, stored_width: size of a frame in the file, in pixels.
        orientation: the EXIF orientation that turns stored frames into displayed ones.
        codec: FFmpeg's name of the codec.
    """

    pts: NDArray[np.int64]
    keys: NDArray[np.int64]
    time_base: Fraction
    stored_height: int
    stored_width: int
    orientation: int
    codec: str

    @property
    def height(self) -> int:
        """Height of a displayed frame, in pixels."""
        return self.stored_width if swaps_axes(self.orientation) else self.stored_height

    @property
    def width(self) -> int:
        """Width of a displayed frame, in pixels."""
        return self.stored_height if swaps_axes(self.orientation) else self.stored_width

    @functools.cached_property
    def seconds(self) -> NDArray[np.float64]:
        """(F,) when each frame is shown, in seconds from the first frame."""
        return (self.pts - self.pts[0]) * float(self.time_base)

    @property
    def cosited(self) -> bool:
        """Whether chroma columns lie on even luma columns."""
        return self.codec in _COSITED_CODECS


def open_container(file: Any) -> Any:
    """Open a video with PyAV. FFmpeg decodes no frame meanwhile, which would take most of the time.

    Args:
        file: a path, or a readable binary file.

    Raises:
        DecodeError: the file is no video.
        OSError: the file cannot be read.
    """
    av = require_module("av", "video")
    try:
        container = av.open(file, options={"skip_frame": "all"})
    except av.FFmpegError as error:
        if isinstance(error, OSError):
            raise
        raise DecodeError(f"not a video: {error.strerror}") from error
    if not container.streams.video:
        container.close()
        raise DecodeError("the file holds no video stream")
    return container


def scan_video(path: str) -> VideoIndex:
    """Make the index of a video: demux all packets, and decode the first frame.

    Where packets carry no presentation timestamps, as in AVI files, all frames are decoded.

    Raises:
        DecodeError: the file is no video, or its frames have no usable timestamps.
        OSError: the file cannot be read.
    """
    with open_container(path) as container:
        stream = container.streams.video[0]
        pts, keys = _demux(container, stream)
        # AVI files number packets in the order of decoding.
        if pts is None or (container.format.name == "avi" and len(keys) < len(pts)):
            pts, keys = _decode_all(path)
    with open_container(path) as container:
        stream = container.streams.video[0]
        stream.codec_context.skip_frame = "DEFAULT"
        frame = _first_frame(container, stream)
        rotation = round(frame.rotation / 90.0) * 90 % 360
        codec = stream.codec_context.codec.canonical_name
        time_base = Fraction(stream.time_base.numerator, stream.time_base.denominator)
        return VideoIndex(pts, keys, time_base, frame.height, frame.width, ORIENTATIONS[rotation], codec)


def _demux(container: Any, stream: Any) -> tuple[NDArray[np.int64] | None, NDArray[np.int64]]:
    """Timestamps of the frames and of the key frames, by the packets alone; None where these do not tell."""
    av = require_module("av", "video")
    pts: list[int] = []
    keys: list[int] = []
    no_keys = np.zeros(0, dtype=np.int64)
    try:
        for packet in container.demux(stream):
            if packet.size == 0 or packet.is_discard:  # the end of the stream; frames that an edit list leaves out
                continue
            if packet.pts is None:
                return None, no_keys
            pts.append(packet.pts)
            if packet.is_keyframe:
                keys.append(packet.pts)
            if len(pts) > MAX_FRAMES:
                raise DecodeError(f"the video has more than {MAX_FRAMES} frames")
    except av.FFmpegError as error:
        if not pts:
            raise DecodeError(f"its first packet cannot be read: {error.strerror}") from error
        # A truncated file: its frames end here.
    if not pts:
        raise DecodeError("the video stream holds no frames")
    unique = np.unique(np.array(pts, dtype=np.int64))
    return (unique if len(unique) == len(pts) else None), np.unique(np.array(keys, dtype=np.int64))


def _decode_all(path: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Timestamps of the frames and of the key frames, by decoding the whole video."""
    av = require_module("av", "video")
    pts: list[int] = []
    keys: list[int] = []
    with open_container(path) as container:
        stream = container.streams.video[0]
        stream.codec_context.skip_frame = "DEFAULT"
        stream.thread_type = "AUTO"
        try:
            for frame in container.decode(stream):
                if frame.pts is None or (pts and frame.pts <= pts[-1]):
                    raise DecodeError(f"frame {len(pts)} has no timestamp of its own: convert the file to mp4 or mkv")
                pts.append(frame.pts)
                if frame.key_frame:
                    keys.append(frame.pts)
        except av.FFmpegError as error:
            if not pts:
                raise DecodeError(f"its first frame cannot be decoded: {error.strerror}") from error
    if not pts:
        raise DecodeError("the video stream holds no frames")
    return np.array(pts, dtype=np.int64), np.array(keys, dtype=np.int64)


def _first_frame(container: Any, stream: Any) -> Any:
    av = require_module("av", "video")
    try:
        for frame in container.decode(stream):
            return frame
    except av.FFmpegError as error:
        raise DecodeError(f"its first frame cannot be decoded: {error.strerror}") from error
    raise DecodeError("none of its frames can be decoded")
