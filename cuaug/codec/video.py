"""`VideoDecoder`: decodes chosen frames of a video, and no more than they need."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.codec.video_index import VideoIndex, open_container
from cuaug.codec.yuv import FORMATS, VideoFrame
from cuaug.errors import DecodeError
from cuaug.sources._extras import require_module

__all__ = ["VideoDecoder", "thread_video_decoder"]

_per_thread = threading.local()
# Decoders that skip single packets of frames to which no other frame refers.
_SKIPPING_CODECS = frozenset({"h264", "hevc", "mpeg4"})
# FFmpeg's AVColorSpace -> the matrix; without a tag BT.601, as libswscale takes it.
_MATRICES = {1: "bt709", 2: "bt601", 4: "fcc", 5: "bt601", 6: "bt601", 7: "smpte240m", 9: "bt2020"}
_FULL_RANGE = 2  # AVCOL_RANGE_JPEG
# Pixel formats that libswscale converts first, without losing depth or chroma.
_CONVERTED_TO = "yuv444p10le"


class VideoDecoder:
    """Decodes frames on the CPU, in the calling thread. One thread uses it."""

    def decode(self, path: str, index: VideoIndex, numbers: NDArray[np.int64]) -> list[VideoFrame]:
        """Decode frames of a video.

        Decoding starts at the last key frame before each wanted frame. Frames to which no other frame refers are
        skipped unless they are wanted. The planes are those of decoding from the first frame on, bit for bit.

        Args:
            index: the video's.
            numbers: (T,) frame numbers, in any order; a number may repeat.

        Raises:
            DecodeError: a frame is damaged or missing; the error names its time.
            OSError: the file cannot be read.
        """
        av = require_module("av", "video")
        wanted = index.pts[numbers].tolist()
        with open_container(path) as container:
            stream = container.streams.video[0]
            stream.codec_context.thread_count = 1  # threads decode different clips
            stream.codec_context.options = {"err_detect": "explode"}
            decoding = _Decoding(container, stream, index, wanted)
            try:
                decoding.run()
            except av.FFmpegError as error:
                raise DecodeError(f"damaged {decoding.place()}: {error.strerror}") from error
        return [decoding.found[pts] for pts in wanted]


def thread_video_decoder() -> VideoDecoder:
    """The calling thread's decoder."""
    decoder: VideoDecoder | None = getattr(_per_thread, "decoder", None)
    if decoder is None:
        decoder = _per_thread.decoder = VideoDecoder()
    return decoder


class _Decoding:
    """The search for some frames of an open video.

    Attributes:
        found: wanted frames by timestamp.
    """

    def __init__(self, container: Any, stream: Any, index: VideoIndex, wanted: Sequence[int]) -> None:
        self._container, self._stream, self._index = container, stream, index
        self._wanted = sorted(set(wanted))
        self._skips = index.codec in _SKIPPING_CODECS
        self._last_pts = int(index.pts[0])
        self.found: dict[int, VideoFrame] = {}

    def place(self) -> str:
        """Where decoding stands, in words."""
        seconds = (self._last_pts - int(self._index.pts[0])) * float(self._index.time_base)
        return f"near {seconds:.3f} s"

    def run(self) -> None:
        """Finds all wanted frames."""
        while len(self.found) < len(self._wanted):
            first = self._wanted[len(self.found)]
            key = self._key_before(first)
            # A frame may refer to more than the key frame before it, and a seek may lead too far.
            if not any(self._decode_from(start) for start in dict.fromkeys((key, max(key - 1, -1), -1))):
                self._last_pts = first
                raise DecodeError(f"no frame comes out {self.place()}")

    def _key_before(self, pts: int) -> int:
        """The number of the last key frame that is not after `pts`; -1: none."""
        return int(np.searchsorted(self._index.keys, pts, side="right")) - 1

    def _decode_from(self, key: int) -> bool:
        """Decodes from a key frame on, or from the beginning for -1; whether the next wanted frame came out."""
        first = len(self.found)
        start = int(self._index.keys[key]) if key >= 0 else min(int(self._index.pts[0]), 0)
        self._container.seek(start, stream=self._stream)
        context, wanted = self._stream.codec_context, set(self._wanted)
        for packet in self._container.demux(self._stream):
            if self._skips:
                context.skip_frame = "DEFAULT" if packet.pts is None or packet.pts in wanted else "NONREF"
            for frame in packet.decode():
                self._last_pts = frame.pts if frame.pts is not None else self._last_pts
                if frame.pts in wanted and frame.pts not in self.found:
                    if frame.pts != self._wanted[len(self.found)]:
                        return len(self.found) > first  # an earlier one did not come out
                    self.found[frame.pts] = self._take(frame)
                    if len(self.found) == len(self._wanted):
                        return True
                    if self._key_before(self._wanted[len(self.found)]) > self._key_before(frame.pts):
                        return True  # a later key frame is nearer to the next one
                elif frame.pts is not None and frame.pts > self._wanted[len(self.found)]:
                    return len(self.found) > first
        return len(self.found) > first

    def _take(self, frame: Any) -> VideoFrame:
        index = self._index
        if frame.is_corrupt:
            raise DecodeError(f"damaged {self.place()}")
        if (frame.height, frame.width) != (index.stored_height, index.stored_width):
            raise DecodeError(
                f"the frame {self.place()} has {frame.height} x {frame.width} pixels (height x width), but the first "
                f"{index.stored_height} x {index.stored_width}: a video of one size is needed"
            )
        matrix, full_range = _MATRICES.get(int(frame.colorspace), "bt601"), int(frame.color_range) == _FULL_RANGE
        if frame.format.name not in FORMATS:
            frame = frame.reformat(format=_CONVERTED_TO, dst_colorspace="ITU601", dst_color_range="JPEG")
            matrix, full_range = "bt601", True
        planes = [(plane.buffer_ptr, plane.line_size) for plane in frame.planes]
        return VideoFrame(
            planes, frame.height, frame.width, frame.format.name, matrix, full_range, index.cosited, frame
        )
