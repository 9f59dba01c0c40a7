"""`VideoIndex`: when each frame of a video is shown, and where decoding may begin."""

from __future__ import annotations

import ctypes
import errno
import functools
import importlib
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.extras import require_module
from cuaug._runtime.limits import check_pixels
from cuaug.codec.sniff import swaps_axes
from cuaug.codec.video.packets import packet_check
from cuaug.errors import DecodeError

#: Most frames of a video: a day at 60 frames a second. A damaged header may claim more.
MAX_FRAMES = 60 * 60 * 60 * 24
#: Largest frame, height x width: 8192 x 8192, above the highest levels of H.264, HEVC and AV1 (35.7 megapixels).
MAX_PIXELS = 1 << 26
#: Largest allocation of FFmpeg's in this process, in bytes: 8 bytes for each pixel of the largest frame. libswscale
#: takes 6 for a frame of `MAX_PIXELS`, the index of `MAX_FRAMES` frames 124 MB. FFmpeg's default is 2 GB.
MAX_ALLOCATION = 8 * MAX_PIXELS
#: Frames that FFmpeg's decoder of H.264 is told to hold back at most: beyond 16 it ends the process.
MAX_DELAY = 15
#: Codecs that are decoded, by FFmpeg's name. FFmpeg has hundreds more, few of them used or fuzzed.
CODECS = frozenset(
    {"h264", "hevc", "vp8", "vp9", "av1", "mpeg4", "mjpeg", "mpeg1video", "mpeg2video", "h263", "flv1"}
    | {"msmpeg4v2", "msmpeg4v3", "wmv1", "wmv2", "wmv3", "vc1"}
)
# Containers that are opened, whatever the file's name: others are playlists and scripts that open further files.
_FORMATS = "mov,matroska,webm,avi,mpegts,mpeg,flv,asf"
#: Containers without an index, which store the decoding timestamps: FFmpeg computes those of others.
STREAM_FORMATS = frozenset({"mpegts", "mpeg"})
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
# Matrices within one degree of a turn are that turn, as for the ffmpeg command.
_MAX_ROUNDING = 0.0175
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
        one_per_packet: whether each packet that is shown holds one frame, and has its timestamp.
        delay: frames that the decoder must hold back, to give them in the order of presentation.
    """

    pts: NDArray[np.int64]
    keys: NDArray[np.int64]
    time_base: Fraction
    stored_height: int
    stored_width: int
    orientation: int
    codec: str
    one_per_packet: bool
    delay: int

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


def video_stream(container: Any, delay: int = 0) -> Any:
    """The main video stream, set up for decoding in this thread; pictures of a cover are none.

    Args:
        delay: the index's.

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
    if delay and context.codec.canonical_name == "h264":
        # Without it FFmpeg guesses where the stream does not tell, or lies, and drops frames that come too late.
        context.options |= {"has_b_frames": str(delay)}
    return stream


def demux_packets(container: Any, stream: Any) -> Iterator[Any]:
    """The packets of a stream, and an empty one at the end.

    PyAV's own generator leaks 150 bytes where it is dropped before its end without `close`. `yield from` closes it.
    """
    yield from container.demux(stream)


def scan_video(path: str) -> VideoIndex:
    """Make the index of a video: demux all packets, and decode the first frame.

    The frames are those that FFmpeg's decoder gives. All are decoded, unless each packet is certain to give one frame
    at its own time (`packet_check`). AVI files number packets in the order of decoding.

    Raises:
        DecodeError: the file is no video, or its frames have no usable timestamps.
        OSError: the file cannot be read.
    """
    with open_container(path) as container:
        packets = _demux(container, video_stream(container))
    pts, keys, one_per_packet = np.sort(packets.pts), packets.keys, packets.is_certain
    delay = _delay(packets.pts)
    if not one_per_packet:
        pts, keys = _decode_all(path, delay)
        one_per_packet = packets.have_times and np.array_equal(pts, np.sort(packets.pts))
    if int(pts[-1]) - int(pts[0]) >= _MAX_SPAN:
        raise DecodeError(f"its timestamps reach from {pts[0]} to {pts[-1]}: they are damaged")
    with open_container(path) as container:
        stream = video_stream(container)
        frame = next(_decode(container, stream))
        codec, time_base = stream.codec_context.codec.canonical_name, stream.time_base
        if not time_base:
            raise DecodeError("its timestamps have no unit")
        base = Fraction(time_base.numerator, time_base.denominator)
        orientation = _orientation(frame)
        return VideoIndex(pts, keys, base, frame.height, frame.width, orientation, codec, one_per_packet, delay)


def _orientation(frame: Any) -> int:
    """The EXIF orientation of a frame, from its display matrix (ISO/IEC 14496-12, 8.3.2: 3 x 3 of 16.16 bits)."""
    data = frame.side_data.get("DISPLAYMATRIX")
    if data is None:
        return 1
    matrix = np.frombuffer(bytes(data), dtype=np.int32)[[0, 1, 3, 4]].astype(np.int64)
    if not matrix.any():  # some muxers write no matrix so
        return 1
    matrix[np.abs(matrix) < np.abs(matrix).max() * _MAX_ROUNDING] = 0
    a, b, c, d = np.sign(matrix).tolist()
    if (a, b, c, d) not in _ORIENTATIONS:
        raise DecodeError("its frames are displayed rotated by another angle than 90, 180 or 270 degrees")
    return _ORIENTATIONS[a, b, c, d]


class _Packets(NamedTuple):
    """The packets of a stream, in the file's order, without those whose frames an edit list leaves out.

    Attributes:
        pts: timestamps, where there are any.
        keys: those of key frames, ascending.
        have_times: whether each packet has a timestamp.
        is_certain: whether each packet is certain to give one frame, with its timestamp.
    """

    pts: NDArray[np.int64]
    keys: NDArray[np.int64]
    have_times: bool
    is_certain: bool


def _demux(container: Any, stream: Any) -> _Packets:
    av = require_module("av", "video")
    pts: list[int] = []
    keys: list[int] = []
    check, is_edited = packet_check(stream), "mov" in container.format.name
    is_certain, have_times, returns = container.format.name != "avi", True, False
    last_dts = last_pts = -_MAX_SPAN
    try:
        for count, packet in enumerate(demux_packets(container, stream)):
            if count > MAX_FRAMES:
                raise DecodeError(f"the video has more than {MAX_FRAMES} frames")
            if packet.dts is not None:
                returns |= packet.dts < last_dts
                last_dts = packet.dts
            if packet.size == 0:  # the end of the stream
                continue
            if is_certain:
                is_certain = (packet.is_keyframe or count > 0) and _is_certain(check, packet)
            if packet.is_discard:  # an edit list leaves out its frame
                continue
            if packet.pts is None:
                have_times = False
                continue
            pts.append(packet.pts)
            if packet.is_keyframe:
                is_certain &= packet.pts > last_pts  # or the clock goes back
                keys.append(packet.pts)
            last_pts = max(last_pts, packet.pts)
    except av.FFmpegError as error:
        if isinstance(error, MemoryError):
            raise DecodeError(_no_memory(f"the packet after {len(pts)} others cannot be read")) from error
        if not pts:
            raise DecodeError(f"its first packet cannot be read: {error.strerror}") from error
        # A truncated file: its frames end here.
    times = np.array(pts, dtype=np.int64)
    is_unique = len(np.unique(times)) == len(times)
    if returns and is_edited and not is_unique:  # an edit list of several parts repeats packets
        raise DecodeError(
            "its edit list gives several frames one timestamp: encode the file anew, by ffmpeg -i old.mp4 new.mp4"
        )
    # With reordering, packets in the order of presentation have been numbered without regard to it.
    is_numbered_anew = stream.codec_context.has_b_frames and pts == sorted(pts)
    is_certain &= have_times and is_unique and bool(pts) and not is_numbered_anew
    is_certain &= not (returns and container.format.name in STREAM_FORMATS)
    return _Packets(times, np.array(keys, dtype=np.int64), have_times, is_certain)


def _is_certain(check: Callable[[bytes], bool], packet: Any) -> bool:
    try:
        return check(bytes(packet))
    except (IndexError, require_module("av", "video").FFmpegError):  # damaged
        return False


def _delay(pts: NDArray[np.int64]) -> int:
    """The index's `delay`, for packets in the order of decoding."""
    later = np.zeros(len(pts), dtype=np.int64)
    for distance in range(1, min(2 * MAX_DELAY, len(pts))):
        later[distance:] += pts[:-distance] > pts[distance:]
    return min(int(later.max(initial=0)), MAX_DELAY)


def _decode_all(path: str, delay: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Timestamps of the frames and of the key frames, by decoding the whole video."""
    pts: list[int] = []
    keys: list[int] = []
    with open_container(path) as container:
        stream = video_stream(container, delay)
        for frame in _decode(container, stream):
            if pts and frame.pts is not None and frame.pts < pts[-1] and frame.key_frame:
                before, after = (float(time * stream.time_base) for time in (pts[-1], frame.pts))
                raise DecodeError(
                    f"its timestamps go back from {before:.3f} to {after:.3f} s at frame {len(pts)}, as where "
                    "recordings are joined by cat: use these, or one clock: ffmpeg -i old.ts -vf setpts=N/FR/TB new.mp4"
                )
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
    return np.array(pts, dtype=np.int64), np.array(keys, dtype=np.int64)


def _decode(container: Any, stream: Any) -> Iterator[Any]:
    """The frames from the first on. Packets that cannot be decoded give none, and a truncated file ends early.

    Raises:
        DecodeError: no frame comes out, or FFmpeg's memory does not suffice.
    """
    av = require_module("av", "video")
    count, first_error = 0, None
    try:
        for packet in demux_packets(container, stream):
            try:
                frames = packet.decode()
            except av.FFmpegError as error:
                if isinstance(error, MemoryError):
                    raise
                first_error = first_error or error
                continue
            count += len(frames)
            yield from frames
    except av.FFmpegError as error:
        if isinstance(error, MemoryError):
            raise DecodeError(_no_memory(f"frame {count} cannot be decoded")) from error
        first_error = first_error or error
    if not count:
        reason = "it has none" if first_error is None else first_error.strerror
        raise DecodeError(f"no frame of the video stream can be decoded: {reason}") from first_error
