"""`VideoDecoder`: decodes chosen frames of a video, and no more than they need.

H.264 and HEVC carry messages beside the pictures, supplemental enhancement information (SEI); damage to those alone
costs no frame.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.extras import require_module
from cuaug.codec.video.packets import nal_units
from cuaug.codec.video.video_index import STREAM_FORMATS, VideoIndex, demux_packets, open_container, video_stream
from cuaug.codec.video.yuv import FORMATS, VideoFrame
from cuaug.errors import DecodeError

# NAL units of SEI, from the header on (H.264, 7.3.1 and 7.3.2.3; HEVC, 7.3.1.2 and 7.3.5). Two kinds change decoding,
# and stay: recovery points (type 6, up to 4 bytes), and x264's version (user data, type 5, with its size and a UUID).
_SEI_UNITS = {
    "h264": re.compile(rb"[\x06\x26\x46\x66](?!\x06[\x01-\x04]|\x05.{17,19}x264 - core)", re.DOTALL),
    "hevc": re.compile(rb"[\x4e-\x51].(?!\x06[\x01-\x04])", re.DOTALL),
}
# The bits of a header that hold no type, and the type of filler data, which decoders ignore.
_FILLER = {"h264": (0xE0, 12), "hevc": (0x81, 38 << 1)}


def hide_sei(packet: Any, codec: str, extradata: bytes | None) -> bool:
    """Turn the SEI of a packet into filler data, in place.

    Args:
        packet: PyAV's.
        codec: FFmpeg's name.
        extradata: the stream's: a decoder configuration record, or none for units behind start codes.

    Returns:
        Whether the packet held any.
    """
    if codec not in _SEI_UNITS:
        return False
    data, (kept, filler) = bytearray(packet), _FILLER[codec]
    places = [at for at, _ in nal_units(data, codec, extradata or b"") if _SEI_UNITS[codec].match(data, at)]
    for at in places:
        data[at] = data[at] & kept | filler
    if places:
        packet.update(data)
    return bool(places)


_per_thread = threading.local()
# Decoders that skip single packets of frames to which no other frame refers.
_SKIPPING_CODECS = frozenset({"h264", "hevc", "mpeg4"})
# Decoders that report an error for a damaged packet, and give its frame all the same, without a mark.
_INCOMPLETE_FRAMES = frozenset({"mpeg1video", "mpeg2video"})
_MAX_REORDERING = 16  # frames that a decoder holds back at most: H.264's and HEVC's limit
_FAR = 1 << 40  # in units of any time base: longer than a video
# FFmpeg's AVColorSpace -> the matrix; without a tag BT.601, as libswscale takes it.
_MATRICES = {1: "bt709", 2: "bt601", 4: "fcc", 5: "bt601", 6: "bt601", 7: "smpte240m", 9: "bt2020"}
_FULL_RANGE = 2  # AVCOL_RANGE_JPEG
# Pixel formats that libswscale converts first, without losing depth or chroma.
_CONVERTED_TO = "yuv444p10le"


class VideoDecoder:
    """Decodes frames on the CPU, in the calling thread. One thread uses it."""

    def decode(self, file: str | bytes, index: VideoIndex, numbers: NDArray[np.int64]) -> list[VideoFrame]:
        """Decode frames of a video.

        Decoding starts at the last key frame before each wanted frame. Frames to which no other frame refers are
        skipped unless they are wanted. The planes are those of decoding from the first frame on, bit for bit.

        Args:
            file: the video's path, or its bytes.
            index: the video's.
            numbers: (T,) frame numbers, in any order; a number may repeat.

        Raises:
            DecodeError: a frame is damaged or missing; the error names its time.
            OSError: the file cannot be read.
        """
        wanted = index.pts[numbers].tolist()
        found = self._run(file, index, wanted, _Decoding._take)
        return [found[pts] for pts in wanted]

    def check(
        self,
        file: str | bytes,
        index: VideoIndex,
        numbers: NDArray[np.int64],
        on_frame: Callable[[], None] | None = None,
    ) -> None:
        """Decode frames of a video as `decode` does, and keep none.

        Args:
            on_frame: called after each frame.

        Raises:
            DecodeError, OSError: as `decode`.
        """

        def check_frame(decoding: _Decoding, frame: Any) -> None:
            decoding._take(frame)
            if on_frame is not None:
                on_frame()

        self._run(file, index, index.pts[numbers].tolist(), check_frame)

    def _run(
        self, file: str | bytes, index: VideoIndex, wanted: Sequence[int], take: Callable[[_Decoding, Any], Any]
    ) -> dict[int, Any]:
        """The results of `take` for the wanted frames, by timestamp."""
        av = require_module("av", "video")
        with open_container(file) as container:
            stream = video_stream(container, index.delay)
            stream.codec_context.options |= {"err_detect": "explode"}
            decoding = _Decoding(container, stream, index, wanted, take)
            try:
                decoding.run()
            except av.FFmpegError as error:
                raise DecodeError(f"damaged {decoding.place()}: {error.strerror}") from error
        return decoding.found


def color_tags(frame: Any) -> tuple[str, bool]:
    """The matrix of a frame of PyAV's, a key of `color_coefficients`, and whether it has full range."""
    return _MATRICES.get(int(frame.colorspace), "bt601"), int(frame.color_range) == _FULL_RANGE


def ffmpeg_version() -> str:
    """The version of PyAV's FFmpeg."""
    version: str = require_module("av", "video").ffmpeg_version_info
    return version


def thread_video_decoder() -> VideoDecoder:
    """The calling thread's decoder."""
    decoder: VideoDecoder | None = getattr(_per_thread, "decoder", None)
    if decoder is None:
        decoder = _per_thread.decoder = VideoDecoder()
    return decoder


class _Decoding:
    """The search for some frames of an open video.

    Decoders report an error for each packet that they cannot decode as a whole. After an open group of pictures they
    also report the absence of frames that nobody needs. So a packet with an error is doubtful until its frame comes
    out, and no frame of that run counts while one is. They report SEI that they cannot read as well: a run that fails
    is repeated without the SEI of the packets with errors, so that damage to pictures alone remains.

    Attributes:
        found: results of `take` for the wanted frames, by timestamp.
    """

    def __init__(
        self,
        container: Any,
        stream: Any,
        index: VideoIndex,
        wanted: Sequence[int],
        take: Callable[[_Decoding, Any], Any],
    ) -> None:
        self._container, self._stream, self._index, self._accept = container, stream, index, take
        self._wanted = sorted(set(wanted))
        # A packet that holds a field may belong to a wanted frame, whatever its time.
        self._skips = index.codec in _SKIPPING_CODECS and index.one_per_packet
        self._errors_are_final = index.codec in _INCOMPLETE_FRAMES
        self._last_pts = self._last_sent = int(index.pts[0])
        self._doubtful: set[int] = set()
        self._without_sei: set[int] = set()
        # Without an index FFmpeg seeks by decoding timestamps, to packets of any frame.
        self._seeks_by_dts = container.format.name in STREAM_FORMATS
        self._error = require_module("av", "video").FFmpegError
        self.found: dict[int, Any] = {}

    def place(self) -> str:
        """Where decoding stands, in words."""
        seconds = (self._last_pts - int(self._index.pts[0])) * float(self._index.time_base)
        return f"near {seconds:.3f} s"

    def run(self) -> None:
        """Finds all wanted frames.

        Raises:
            DecodeError: a frame is damaged or does not come out.
        """
        while len(self.found) < len(self._wanted):
            key = self._key_before(self._wanted[len(self.found)])
            # A frame may refer to more than the key frame before it, and a seek may lead too far.
            if not any(self._decode_from(start) for start in dict.fromkeys((key, max(key - 1, -1), -1))):
                raise DecodeError(f"damaged {self.place()}: no frame, or no undamaged one, comes out")

    def _key_before(self, pts: int) -> int:
        """The number of the last key frame that is not after `pts`; -1: none."""
        return int(np.searchsorted(self._index.keys, pts, side="right")) - 1

    def _can_skip(self) -> bool:
        """Whether frames lie between the last packet and the key frame before the next wanted frame.

        Without any, to seek there would decode the key frame twice: decoders give frames a few packets late.
        """
        key = self._key_before(self._wanted[len(self.found)])
        after = int(np.searchsorted(self._index.pts, self._last_sent, side="right"))
        return key >= 0 and after < len(self._index.pts) and self._index.pts[after] < self._index.keys[key]

    def _decode_from(self, key: int) -> bool:
        """Decodes from a key frame on, or from the beginning for -1; whether wanted frames came out."""
        before = len(self._without_sei)
        return self._try_from(key) or (len(self._without_sei) > before and self._try_from(key))

    def _try_from(self, key: int) -> bool:
        """As `_decode_from`, once."""
        first, frames = len(self.found), self._frames(key)
        for frame in frames:
            next_wanted = self._wanted[len(self.found)]
            if frame.pts > next_wanted:
                break  # it did not come out
            if frame.pts == next_wanted:
                self.found[frame.pts] = self._accept(self, frame)
                if len(self.found) == len(self._wanted) or self._can_skip():
                    break
        if self._doubtful:
            end = max(self._doubtful)
            next((frame for frame in frames if frame.pts > end), None)  # frames come out in the order of presentation
            self._doubtful = {pts for pts in self._doubtful if pts <= end}  # packets sent since change no frame before
        if self._doubtful:
            for pts in self._wanted[first : len(self.found)]:
                del self.found[pts]
        if len(self.found) == first:
            place = min(self._doubtful or {self._wanted[first]})
            if self._without_sei:  # the rest of the run may hold more of them
                with contextlib.suppress(self._error):
                    for _ in frames:
                        pass
            self._last_pts = place
        return len(self.found) > first

    def _beginning(self) -> int:
        """A timestamp to seek to: the first packet follows."""
        # Frames that an edit list leaves out have any timestamp. Packets are decoded before the first frame is shown.
        if self._seeks_by_dts or "mov" in self._container.format.name:
            return -_FAR
        return min(int(self._index.pts[0]), 0)  # other containers cannot seek beyond the file's frames

    def _packets(self, key: int) -> Iterator[Any]:
        """The packets from a key frame on, or from the beginning for -1; none where the seek leads too far."""
        start = target = int(self._index.keys[key]) if key >= 0 else self._beginning()
        if by_dts := key >= 0 and self._seeks_by_dts:
            number = int(np.searchsorted(self._index.pts, start)) - _MAX_REORDERING
            target = int(self._index.pts[number]) if number > 0 else self._beginning()
        self._container.seek(target, stream=self._stream)
        for packet in demux_packets(self._container, self._stream):
            if by_dts and packet.pts != start:
                if packet.dts is None or packet.dts > start:
                    return
                continue
            by_dts = False
            yield packet

    def _sound_from(self, key: int) -> int:
        """The timestamp from which errors count.

        Before a key frame an open group of pictures may show frames that refer to frames before the group. A file may
        begin with such a group: nobody can decode these frames, nor does anybody need them unless they are wanted.
        """
        keys, next_wanted = self._index.keys, self._wanted[len(self.found)]
        return min(int(keys[max(key, 0)]), next_wanted) if len(keys) else -_FAR

    def _frames(self, key: int) -> Iterator[Any]:
        """Frames from a key frame on, in the order of presentation; fills `_doubtful` and `_without_sei`."""
        context, wanted, self._doubtful = self._stream.codec_context, set(self._wanted), set()
        unsent, sound_from = wanted - self.found.keys(), self._sound_from(key)
        self._last_sent = int(self._index.keys[key]) if key >= 0 else -_FAR
        for packet in self._packets(key):
            # After the last wanted packet the decoder gives the frames that it holds back; no other packet is needed.
            # One without a timestamp may still belong to the last frame, and others may where packets are no frames.
            drains = self._index.one_per_packet and not unsent and packet.pts is not None
            # Frames that an edit list leaves out are decoded, but not shown; their timestamps may be those of others.
            if packet.pts is not None and not packet.is_discard:
                unsent.discard(packet.pts)
                self._last_sent = max(self._last_sent, packet.pts)
            if hides := packet.pts in self._without_sei:
                hide_sei(packet, self._index.codec, context.extradata)
                if packet.pts >= sound_from:
                    self._doubtful.add(packet.pts)  # damage may have made a slice look like SEI
            if self._skips:
                needed = packet.pts is None or packet.pts in wanted or hides
                context.skip_frame = "DEFAULT" if needed else "NONREF"
            try:
                frames = context.decode(None if drains else packet)
            except self._error:
                if packet.pts is None or drains:
                    raise
                if packet.pts >= sound_from:
                    self._doubtful.add(packet.pts)
                if hide_sei(packet, self._index.codec, context.extradata):
                    self._without_sei.add(packet.pts)
                continue
            for frame in frames:
                if frame.pts is not None:
                    self._last_pts = frame.pts
                    if not self._errors_are_final:
                        self._doubtful.discard(frame.pts)
                    yield frame
            if drains:
                return

    def _take(self, frame: Any) -> VideoFrame:
        """The planes of a frame."""
        index = self._index
        if frame.is_corrupt:
            raise DecodeError(f"damaged {self.place()}")
        if (frame.height, frame.width) != (index.stored_height, index.stored_width):
            raise DecodeError(
                f"the frame {self.place()} has {frame.height} x {frame.width} pixels (height x width), but the first "
                f"{index.stored_height} x {index.stored_width}: a video of one size is needed"
            )
        matrix, full_range = color_tags(frame)
        if frame.format.name not in FORMATS:
            frame = frame.reformat(format=_CONVERTED_TO, dst_colorspace="ITU601", dst_color_range="JPEG")
            matrix, full_range = "bt601", True
        planes = [(plane.buffer_ptr, plane.line_size) for plane in frame.planes]
        return VideoFrame(
            planes, frame.height, frame.width, frame.format.name, matrix, full_range, index.cosited, frame
        )
