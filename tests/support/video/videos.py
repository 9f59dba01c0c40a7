"""Small videos of every codec and container that cuaug reads, made by FFmpeg, and their frames by plain decoding."""

from __future__ import annotations

import contextlib
import functools
import os
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

av.logging.set_level(None)  # FFmpeg's lines about damage
os.environ.setdefault("SVT_LOG", "1")  # libsvtav1 prints its settings otherwise

_X264 = {"x264-params": "bframes=3:keyint=30:scenecut=0"}
_X265 = {"x265-params": "bframes=4:keyint=30:open-gop=0:log-level=none"}
_X265_CHOSEN = {"x265-params": "bframes=4:keyint=30:log-level=none"}  # whether groups are open
_OPEN = {"x264-params": "bframes=3:open-gop=1:scenecut=0:b-adapt=0"}
_VP9 = {"deadline": "realtime", "cpu-used": "8"}
_HIDDEN = {"lag-in-frames": "16", "auto-alt-ref": "1", "cpu-used": "8"}


@dataclass(frozen=True)
class Video:
    """How a test video is made.

    Attributes:
        container: FFmpeg's name of the format, which is also the file's extension.
        codec: FFmpeg's name of the encoder.
        options: of the encoder.
        pixel_format: FFmpeg's name.
        count: number of frames.
        key_distance: longest distance of two key frames.
        time_base: of the timestamps.
        times: timestamps of the frames in `time_base`; None: 0, 1, 2, ....
        muxer: options of the container.
        matrix: a, b, c, d of the display matrix: x' = a x + c y, y' = b x + d y.
        edits: the edit list of an mp4 file: (first, count) of the frames shown, one after the other; first is -1 where
            nothing is shown for the time of `count` frames. Frames last 1/25 s. None: the muxer's.
        cut: share of the file that is kept.
    """

    container: str
    codec: str
    options: Mapping[str, str] = field(default_factory=dict)
    pixel_format: str = "yuv420p"
    count: int = 90
    height: int = 64
    width: int = 96
    key_distance: int = 30
    time_base: Fraction = Fraction(1, 25)
    times: tuple[int, ...] | None = None
    muxer: Mapping[str, str] = field(default_factory=dict)
    matrix: tuple[float, float, float, float] = (1, 0, 0, 1)
    edits: tuple[tuple[int, int], ...] | None = None
    cut: float = 1.0


def pictures(count: int, height: int, width: int) -> Iterable[np.ndarray]:
    """Frames (H, W, 3) that all differ: a moving gradient with a block that jumps."""
    y, x = np.mgrid[:height, :width]
    for k in range(count):
        image = np.stack([x * 2 + 5 * k, y * 3 + 3 * k, (x + y) * 2 - 7 * k], axis=-1)
        image = np.abs(image % 510 - 255).astype(np.uint8)
        top, left = 11 * k % (height - 16), 7 * k % (width - 16)
        image[top : top + 16, left : left + 16] = (37 * k % 256, 91 * k % 256, 53 * k % 256)
        yield image


def make_video(video: Video) -> bytes:
    """The file's bytes."""
    with tempfile.TemporaryDirectory() as folder:  # "faststart" reads the file again
        path = Path(folder, "video")
        with _own_priority(), av.open(str(path), "w", format=video.container, options=dict(video.muxer)) as container:
            _encode(container, video)
        data = path.read_bytes()
    if video.matrix != (1, 0, 0, 1):
        data = with_matrix(data, *video.matrix)
    if video.edits is not None:
        data = _with_edits(data, video.edits)
    return data[: int(len(data) * video.cut)]


@contextlib.contextmanager
def _own_priority() -> Iterator[None]:
    """Gives the thread its scheduling policy back: as root, libsvtav1 makes it a real-time thread.

    Threads and processes that it starts later would inherit that, and would starve each other on a few CPUs.
    """
    if not hasattr(os, "sched_setscheduler"):
        yield
        return
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)


def _encode(container: Any, video: Video) -> None:
    stream = container.add_stream(video.codec, rate=round(1 / video.time_base), options=dict(video.options))
    stream.width, stream.height, stream.pix_fmt = video.width, video.height, video.pixel_format
    stream.gop_size = video.key_distance
    stream.codec_context.thread_count = 1
    stream.codec_context.time_base = stream.time_base = video.time_base
    times = range(video.count) if video.times is None else video.times
    for time, image in zip(times, pictures(video.count, video.height, video.width), strict=True):
        frame = av.VideoFrame.from_ndarray(image, format="rgb24").reformat(format=video.pixel_format)
        frame.pts, frame.time_base = time, video.time_base
        container.mux(stream.encode(frame))
    container.mux(stream.encode(None))


def with_matrix(data: bytes, a: float, b: float, c: float, d: float) -> bytes:
    """An mp4 file with another display matrix in its track header (ISO/IEC 14496-12, 8.3.2)."""
    at = data.index(b"tkhd") + 4 + 40  # version and flags, times, id, duration, reserved, layer, group, volume
    a, b, c, d = (round(value * 65536) for value in (a, b, c, d))
    packed = struct.pack(">9i", a, b, 0, c, d, 0, 0, 0, 1 << 30)
    return data[:at] + packed + data[at + len(packed) :]


def _with_edits(data: bytes, edits: Sequence[tuple[int, int]]) -> bytes:
    """An mp4 file with another edit list (ISO/IEC 14496-12, 8.6.6), behind its frames: their places stay."""
    at = data.index(b"elst") + 4
    _, count, _, time, rate = struct.unpack_from(">IIIii", data, at)
    assert count == 1 and data.index(b"mdat") < at
    (scale,) = struct.unpack_from(">I", data, data.index(b"mdhd") + 16)
    new = struct.pack(">II", 0, len(edits))
    for first, frames in edits:  # durations count milliseconds
        new += struct.pack(">Iii", frames * 40, -1 if first < 0 else time + first * scale // 25, rate)
    changed = bytearray(data)
    for name in (b"moov", b"trak", b"edts", b"elst"):
        start = data.index(name) - 4
        (size,) = struct.unpack_from(">I", data, start)
        struct.pack_into(">I", changed, start, size + len(new) - 20)
    return bytes(changed[:at]) + new + data[at + 20 :]


def truncated(video: Video, share: float = 0.7) -> Video:
    """The same video, whose file ends early."""
    return Video(**{**video.__dict__, "cut": share})


def write_video(folder: Path, name: str, video: Video | None = None) -> str:
    """Writes one of `VIDEOS`, or a video of one's own; returns its path."""
    video = VIDEOS[name] if video is None else video
    path = folder / f"{name.replace(' ', '_')}.{EXTENSIONS[video.container]}"
    path.write_bytes(_made(name) if video is VIDEOS.get(name) else make_video(video))
    return str(path)


def rewrite_packets(
    path: str, edit: Callable[[bytes], bytes] | Mapping[int, Callable[[bytes], bytes]], first_key: int = 0
) -> str:
    """Writes a video's packets, edited all or by number, from a key packet on; returns the path."""
    odd = str(Path(path).with_stem("rewritten"))
    with av.open(path) as source, av.open(odd, "w") as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        keys, packets = 0, [packet for packet in source.demux(video=0) if packet.size]
        for number, packet in enumerate(packets):
            keys += packet.is_keyframe
            if keys <= first_key:
                continue
            change = edit.get(number, bytes) if isinstance(edit, Mapping) else edit
            copy = av.Packet(change(bytes(packet)))
            copy.pts, copy.dts, copy.time_base = packet.pts, packet.dts, packet.time_base
            copy.is_keyframe, copy.stream = packet.is_keyframe, stream
            target.mux(copy)
    return odd


def write_copies(folder: Path, name: str, count: int) -> list[str]:
    """Writes one of `VIDEOS` several times, so that the files may be damaged apart; returns their paths."""
    data = Path(write_video(folder, name)).read_bytes()
    paths = [folder / f"{number}.{EXTENSIONS[VIDEOS[name].container]}" for number in range(count)]
    for path in paths:
        path.write_bytes(data)
    return list(map(str, paths))


@functools.cache
def _made(name: str) -> bytes:
    whole = name.removesuffix(" truncated")
    if whole == name:
        return make_video(VIDEOS[name])
    # Cut from the same bytes: x264 does not always encode a video to the same ones.
    data = _made(whole)
    return data[: int(len(data) * VIDEOS[name].cut)]


def plain_frames(path: str) -> list[tuple[int, list[bytes]]]:
    """All frames by decoding from the first on: (timestamp, bytes of each plane), in the order of presentation.

    It stops at the first error.
    """
    frames: list[tuple[int, list[bytes]]] = []
    with av.open(path) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        try:
            for frame in container.decode(stream):
                frames.append((frame.pts, plane_bytes(frame)))
        except av.FFmpegError:
            pass
    return frames


def plane_bytes(frame: Any) -> list[bytes]:
    """The samples of each plane, without what pads its rows."""
    planes = []
    for plane in frame.planes:
        rows = np.frombuffer(plane, np.uint8).reshape(plane.height, -1)
        planes.append(rows[:, : plane.width * _sample_bytes(frame.format.name)].tobytes())
    return planes


def _sample_bytes(name: str) -> int:
    return 2 if "10le" in name else 3 if name == "rgb24" else 1


EXTENSIONS = {"mp4": "mp4", "matroska": "mkv", "webm": "webm", "avi": "avi", "mov": "mov", "mpegts": "ts"}

#: Frames that are shown for 1 to 7 units: a variable frame rate.
_UNEVEN = tuple(np.cumsum([1 + (k * k + 3 * k) % 7 for k in range(90)]).tolist())

VIDEOS: dict[str, Video] = {
    "h264 mp4": Video("mp4", "libx264", _X264),
    "h264 mp4 no b-frames": Video("mp4", "libx264", {"x264-params": "bframes=0:scenecut=0"}),
    "h264 mp4 pyramid": Video("mp4", "libx264", {"x264-params": "bframes=7:b-pyramid=normal:b-adapt=0:scenecut=0"}),
    "h264 mp4 strict pyramid": Video("mp4", "libx264", {"x264-params": "bframes=5:b-pyramid=strict:b-adapt=0"}),
    "h264 mp4 open group": Video("mp4", "libx264", _OPEN),
    "h264 mp4 intra refresh": Video("mp4", "libx264", {"x264-params": "intra-refresh=1:keyint=20"}),
    "h264 mp4 one key frame": Video("mp4", "libx264", {"x264-params": "bframes=3:keyint=infinite"}, key_distance=999),
    "h264 mp4 variable rate": Video("mp4", "libx264", _X264, times=_UNEVEN),
    "h264 mp4 start offset": Video("mp4", "libx264", _X264, times=tuple(range(50, 140))),
    "h264 mp4 edit list": Video("mp4", "libx264", _X264, edits=((17, 73),)),
    "h264 mp4 edit list without b-frames": Video("mp4", "libx264", {"x264-params": "bframes=0"}, edits=((41, 49),)),
    "h264 mp4 edit list with an early end": Video("mp4", "libx264", _X264, edits=((9, 60),)),
    "h264 mp4 edit list with an empty edit": Video("mp4", "libx264", _X264, edits=((-1, 25), (0, 90))),
    "h264 mp4 edit list with a gap": Video("mp4", "libx264", _X264, edits=((5, 30), (50, 35))),
    "hevc mp4 edit list": Video("mp4", "libx265", _X265, edits=((-1, 10), (17, 50))),
    "mpeg4 mp4 edit list": Video("mp4", "mpeg4", {"bf": "2"}, edits=((7, 70),)),
    "av1 mp4 edit list": Video("mp4", "libsvtav1", {"preset": "12"}, edits=((33, 40),)),
    # The frames that these lists leave out have timestamps of frames that they show.
    "mpeg4 mp4 edit list of parts": Video("mp4", "mpeg4", {"bf": "0"}, count=85, edits=((-1, 39), (1, 7), (13, 16))),
    "mpeg4 mp4 edit list of parts with b-frames": Video("mp4", "mpeg4", {"bf": "2"}, edits=((37, 13), (81, 7))),
    "h264 mp4 edit list of parts": Video("mp4", "libx264", _X264, edits=((0, 3), (14, 4))),
    "h264 mp4 no edit list": Video("mp4", "libx264", _X264, muxer={"use_editlist": "0"}),
    "h264 mp4 fragments": Video("mp4", "libx264", _X264, muxer={"movflags": "frag_keyframe+empty_moov"}),
    "h264 mp4 index first": Video("mp4", "libx264", _X264, muxer={"movflags": "faststart"}),
    "h264 mp4 rotated": Video("mp4", "libx264", _X264, matrix=(0, -1, 1, 0)),
    "h264 mp4 422": Video("mp4", "libx264", _X264, "yuv422p"),
    "h264 mp4 444": Video("mp4", "libx264", _X264, "yuv444p"),
    "h264 mp4 10 bits": Video("mp4", "libx264", _X264, "yuv420p10le"),
    "h264 mp4 422 10 bits": Video("mp4", "libx264", _X264, "yuv422p10le"),
    "h264 mp4 gray": Video("mp4", "libx264", _X264, "gray"),
    "h264 mp4 odd size": Video("mp4", "libx264", _X264, "yuv444p", height=57, width=83),
    "h264 mov": Video("mov", "libx264", _X264),
    "h264 mkv": Video("matroska", "libx264", _X264),
    "h264 mkv variable rate": Video("matroska", "libx264", _X264, times=_UNEVEN),
    "h264 mkv open group": Video("matroska", "libx264", _OPEN),
    "h264 mkv start offset": Video("matroska", "libx264", _X264, times=tuple(range(50, 140))),
    "h264 avi": Video("avi", "libx264", {"x264-params": "bframes=0:scenecut=0"}),
    "h264 avi b-frames": Video("avi", "libx264", _X264),
    "h264 ts": Video("mpegts", "libx264", _X264),
    "h264 ts open group": Video("mpegts", "libx264", _OPEN),
    "h264 ts start offset": Video("mpegts", "libx264", _X264, times=tuple(range(200, 290))),
    "hevc mp4": Video("mp4", "libx265", _X265),
    "hevc mp4 open group": Video("mp4", "libx265", {"x265-params": "bframes=4:keyint=30:open-gop=1:log-level=none"}),
    "hevc mp4 variable rate": Video("mp4", "libx265", _X265, times=_UNEVEN),
    "hevc mkv 10 bits": Video("matroska", "libx265", _X265_CHOSEN, "yuv420p10le"),
    "vp9 webm": Video("webm", "libvpx-vp9", _VP9),
    "vp9 webm hidden frames": Video("webm", "libvpx-vp9", _HIDDEN),
    "vp9 webm variable rate": Video("webm", "libvpx-vp9", _VP9, times=tuple(k + 75 for k in _UNEVEN)),
    "vp9 mkv 444": Video("matroska", "libvpx-vp9", _VP9, "yuv444p"),
    "av1 mp4": Video("mp4", "libsvtav1", {"preset": "12"}),
    "av1 webm": Video("webm", "libsvtav1", {"preset": "12"}, "yuv420p10le"),
    "av1 webm variable rate": Video("webm", "libsvtav1", {"preset": "12"}, times=_UNEVEN),
    "mpeg4 avi": Video("avi", "mpeg4", {"bf": "0"}),
    "mpeg4 avi b-frames": Video("avi", "mpeg4", {"bf": "2"}),
    "mpeg4 mp4": Video("mp4", "mpeg4", {"bf": "2"}),
    "mpeg4 mkv": Video("matroska", "mpeg4", {"bf": "2"}),
    "mpeg4 mkv variable rate": Video("matroska", "mpeg4", {"bf": "2"}, times=_UNEVEN),
    "mjpeg avi": Video("avi", "mjpeg", {}, "yuvj420p"),
    "mjpeg mov 444": Video("mov", "mjpeg", {}, "yuvj444p"),
    "mjpeg mkv 422": Video("matroska", "mjpeg", {}, "yuvj422p"),
    "mpeg2 ts": Video("mpegts", "mpeg2video", {"bf": "2"}),
    "mpeg2 mkv": Video("matroska", "mpeg2video", {"bf": "2"}),
    "h264rgb mkv": Video("matroska", "libx264rgb", _X264, "rgb24"),
}
VIDEOS |= {
    f"{name} truncated": truncated(VIDEOS[name])
    for name in (
        *("h264 mkv", "h264 mkv open group", "h264 ts", "h264 ts open group", "h264 mp4 index first", "h264 avi"),
        *("h264 mkv variable rate", "hevc mkv 10 bits", "vp9 webm", "vp9 webm hidden frames"),
        *("av1 webm", "mpeg4 mkv", "mpeg4 avi", "mjpeg avi", "mpeg2 ts", "mpeg2 mkv"),
    )
}
VIDEOS["h264 mp4 fragments truncated"] = truncated(VIDEOS["h264 mp4 fragments"], 0.75)  # within frames
