"""`VideoIndex`: when each frame of a video is shown, and where decoding may begin; made by demuxing once."""

from __future__ import annotations

import ctypes
import errno
import functools
import importlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.extras import require_module
from cuaug._runtime.limits import check_pixels
from cuaug.codec.sniff import swaps_axes
from cuaug.errors import DecodeError

__all__ = [
    "CODECS",
    "MAX_FRAMES",
    "MAX_PIXELS",
    "VideoIndex",
    "demux_packets",
    "open_container",
    "scan_video",
    "video_stream",
]

#: Most frames of a video: a day at 60 frames a second. A damaged header may claim more.
MAX_FRAMES = 60 * 60 * 60 * 24
#: Largest frame, height x width: 8192 x 8192, above the highest levels of H.264, HEVC and AV1 (35.7 megapixels).
MAX_PIXELS = 1 << 26
#: Largest allocation of FFmpeg's in this process, in bytes: 8 bytes for each pixel of the largest frame. libswscale
#: takes 6 for a frame of `MAX_PIXELS`, the index of `MAX_FRAMES` frames 124 MB. FFmpeg's default is 2 GB.
MAX_ALLOCATION = 8 * MAX_PIXELS
#: Codecs that are decoded, by FFmpeg's name. FFmpeg has hundreds more, few of them used or fuzzed.
CODECS = frozenset(
    {"h264", "hevc", "vp8", "vp9", "av1", "mpeg4", "mjpeg", "mpeg1video", "mpeg2video", "h263", "flv1"}
    | {"msmpeg4v2", "msmpeg4v3", "wmv1", "wmv2", "wmv3", "vc1"}
)
# Containers that are opened, whatever the file's name: others are playlists and scripts that open further files.
_FORMATS = "mov,matroska,webm,avi,mpegts,mpeg,flv,asf"
# FFmpeg's decoders for these codecs say where chroma lies: at even columns.
_COSITED_CODECS = frozenset({"h264", "hevc", "mpeg4", "mpeg2video"})
# The EXIF orientation for the signs of a display matrix, (a, b, c, d): x' = a x + c y, y' = b x + d y.
_ORIENTATIONS = {
    (1, 0, 0, 1): 1,
    (-1, 0, 0, 1): 2,
    (-1, 0, 0, -1): 3,
    (1, 0, 0, -1): 4,
    (0, 1, 1, 0): 5,
    (0, 1, -1, 0): 6,
    (0, -1, -1, 0): 7,
    (0, -1, 1, 0): 8,
}
# FFmpeg's demuxers report damage as one of these, too.
_OF_DAMAGE = (errno.EIO, errno.EPERM, errno.ENOSYS)
# Two timestamps further apart overflow when one is subtracted.
_MAX_SPAN = 1 << 62


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


def open_container(file: str | bytes) -> Any:
    """Open a video with PyAV. FFmpeg decodes no frame meanwhile, which would take most of the time.

    FFmpeg opens this file alone: no other protocol, and no container that refers to other files.

    Args:
        file: the video's path, or its bytes.

    Raises:
        DecodeError: the file is no video, of another container than those that are read, or FFmpeg needs more than
            `MAX_ALLOCATION` at once for its tables.
        OSError: the file cannot be read.
    """
    av = require_module("av", "video")
    _limit_allocations()
    options = {"skip_frame": "all", "protocol_whitelist": "file", "format_whitelist": _FORMATS}
    try:
        # "file:", or FFmpeg takes the path up to a colon as a protocol. BytesIO copies no bytes.
        opened: Any = f"file:{file}" if isinstance(file, str) else io.BytesIO(file)
        container = av.open(opened, options=options | {"max_pixels": str(MAX_PIXELS)}, metadata_errors="ignore")
    except av.FFmpegError as error:
        if isinstance(file, str) and isinstance(error, OSError) and error.errno not in _OF_DAMAGE:
            raise OSError(error.errno, error.strerror, file) from error
        if isinstance(error, MemoryError):
            raise DecodeError(_no_memory("it cannot be opened")) from error
        raise DecodeError(
            f"not a video in one of the containers {_FORMATS.replace(',', ', ')}: {error.strerror}"
        ) from error
    if not container.streams.video:
        container.close()
        raise DecodeError("the file holds no video stream")
    return container


@functools.cache
def _limit_allocations() -> None:
    """Sets `MAX_ALLOCATION` in the libavutil that PyAV has loaded, for the whole process.

    FFmpeg allocates a container's tables by the numbers in the file, before any limit of ours applies.
    """
    # A symbol is also looked up in the libraries that PyAV's module is linked with (dlsym(3)).
    core = ctypes.CDLL(importlib.import_module("av._core").__file__)
    core.av_max_alloc(ctypes.c_size_t(MAX_ALLOCATION))


def _no_memory(claim: str) -> str:
    return f"{claim}: no memory. FFmpeg may allocate {MAX_ALLOCATION >> 20} MB at once; damaged tables ask for more"


def video_stream(container: Any) -> Any:
    """The main video stream, set up for decoding in this thread; pictures of a cover are none.

    Raises:
        DecodeError: its codec or size is not allowed.
    """
    stream = container.streams.best("video")
    if stream is None:
        raise DecodeError("the file holds no video stream")
    context = stream.codec_context
    if context is None or context.codec.canonical_name not in CODECS:
        name = "unknown" if context is None else context.codec.canonical_name
        raise DecodeError(f"its codec is {name}, which is none of {', '.join(sorted(CODECS))}")
    check_pixels(context.height, context.width, MAX_PIXELS)
    context.skip_frame = "DEFAULT"
    context.thread_count = 1  # threads decode different clips
    context.options = {"max_pixels": str(MAX_PIXELS)}
    return stream


def demux_packets(container: Any, stream: Any) -> Iterator[Any]:
    """The packets of a stream, and an empty one at the end.

    PyAV's own generator leaks 150 bytes where it is dropped before its end without `close`. `yield from` closes it.
    """
    yield from container.demux(stream)


def scan_video(path: str) -> VideoIndex:
    """Make the index of a video: demux all packets, and decode the first frame.

    Where packets carry no presentation timestamps, as in AVI files, or those of their own order in spite of B-frames,
    all frames are decoded.

    Raises:
        DecodeError: the file is no video, or its frames have no usable timestamps.
        OSError: the file cannot be read.
    """
    with open_container(path) as container:
        pts, keys = _demux(container, video_stream(container))
        # AVI files number packets in the order of decoding.
        if pts is None or (container.format.name == "avi" and len(keys) < len(pts)):
            pts, keys = _decode_all(path)
    if int(pts[-1]) - int(pts[0]) >= _MAX_SPAN:
        raise DecodeError(f"its timestamps reach from {pts[0]} to {pts[-1]}: they are damaged")
    with open_container(path) as container:
        stream = video_stream(container)
        frame = _first_frame(container, stream)
        codec, time_base = stream.codec_context.codec.canonical_name, stream.time_base
        if not time_base:
            raise DecodeError("its timestamps have no unit")
        base = Fraction(time_base.numerator, time_base.denominator)
        return VideoIndex(pts, keys, base, frame.height, frame.width, _orientation(frame), codec)


def _orientation(frame: Any) -> int:
    """The EXIF orientation of a frame, from its display matrix (ISO/IEC 14496-12, 8.3.2: 3 x 3 of 16.16 bits)."""
    data = frame.side_data.get("DISPLAYMATRIX")
    if data is None:
        return 1
    a, b, _, c, d = np.sign(np.frombuffer(bytes(data), dtype=np.int32)[:5]).tolist()
    if (a, b, c, d) not in _ORIENTATIONS:
        raise DecodeError("its frames are displayed rotated by another angle than 90, 180 or 270 degrees")
    return _ORIENTATIONS[a, b, c, d]


def _demux(container: Any, stream: Any) -> tuple[NDArray[np.int64] | None, NDArray[np.int64]]:
    """Timestamps of the frames and of the key frames, by the packets alone; None where these do not tell."""
    av = require_module("av", "video")
    pts: list[int] = []
    keys: list[int] = []
    no_keys = np.zeros(0, dtype=np.int64)
    last_dts, returns = -_MAX_SPAN, False
    try:
        for count, packet in enumerate(demux_packets(container, stream)):
            if count > MAX_FRAMES:
                raise DecodeError(f"the video has more than {MAX_FRAMES} frames")
            if packet.dts is not None:
                returns |= packet.dts < last_dts
                last_dts = packet.dts
            if packet.size == 0 or packet.is_discard:  # the end of the stream; frames that an edit list leaves out
                continue
            if packet.pts is None:
                return None, no_keys
            pts.append(packet.pts)
            if packet.is_keyframe:
                keys.append(packet.pts)
    except av.FFmpegError as error:
        if isinstance(error, MemoryError):
            raise DecodeError(_no_memory(f"the packet after {len(pts)} others cannot be read")) from error
        if not pts:
            raise DecodeError(f"its first packet cannot be read: {error.strerror}") from error
        # A truncated file: its frames end here.
    if not pts:
        raise DecodeError("the video stream holds no frames")
    # Frames come out in another order than their packets: these have been numbered without regard to that.
    if stream.codec_context.has_b_frames and pts == sorted(pts):
        return None, no_keys
    unique = np.unique(np.array(pts, dtype=np.int64))
    if returns and len(unique) < len(pts):  # an edit list of several parts repeats packets
        raise DecodeError(
            "its edit list gives several frames one timestamp: encode the file anew, by ffmpeg -i old.mp4 new.mp4"
        )
    return (unique if len(unique) == len(pts) else None), np.unique(np.array(keys, dtype=np.int64))


def _decode_all(path: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Timestamps of the frames and of the key frames, by decoding the whole video."""
    av = require_module("av", "video")
    pts: list[int] = []
    keys: list[int] = []
    with open_container(path) as container:
        stream = video_stream(container)
        try:
            for frame in _decode(container, stream):
                if frame.pts is None or (pts and frame.pts <= pts[-1]):
                    raise DecodeError(
                        f"frame {len(pts)} has no timestamp, or that of another frame: encode the file anew, by "
                        "ffmpeg -i old.avi new.mp4"
                    )
                pts.append(frame.pts)
                if len(pts) > MAX_FRAMES:
                    raise DecodeError(f"the video has more than {MAX_FRAMES} frames")
                if frame.key_frame:
                    keys.append(frame.pts)
        except av.FFmpegError as error:
            if isinstance(error, MemoryError):
                raise DecodeError(_no_memory(f"frame {len(pts)} cannot be decoded")) from error
            if not pts:
                raise DecodeError(f"its first frame cannot be decoded: {error.strerror}") from error
    if not pts:
        raise DecodeError("the video stream holds no frames")
    return np.array(pts, dtype=np.int64), np.array(keys, dtype=np.int64)


def _decode(container: Any, stream: Any) -> Iterator[Any]:
    """The frames from the first on."""
    for packet in demux_packets(container, stream):
        yield from packet.decode()


def _first_frame(container: Any, stream: Any) -> Any:
    av = require_module("av", "video")
    try:
        for frame in _decode(container, stream):
            return frame
    except av.FFmpegError as error:
        raise DecodeError(f"its first frame cannot be decoded: {error.strerror}") from error
    raise DecodeError("none of its frames can be decoded")
