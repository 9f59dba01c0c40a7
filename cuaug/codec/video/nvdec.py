"""`NvdecDecoder`: decodes chosen frames of a video on a GPU's video engine, with PyNvVideoCodec.

PyAV demuxes, and cuaug's index chooses the packets, as for `VideoDecoder`. The engine gives NV12 or P010 planes, which
cuaug's kernel converts as it converts FFmpeg's. docs/decisions/0019-nvdec.md has the library's rules and their sources.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug._runtime.extras import require_module
from cuaug.codec.video.decoder import color_tags
from cuaug.codec.video.video_index import VideoIndex, demux_packets, open_container, video_stream
from cuaug.codec.video.yuv import VideoFrame
from cuaug.errors import DecodeError, DeviceError, LoaderError

# FFmpeg's name of a codec -> PyNvVideoCodec's, and the filter that gives packets the form which the engine parses.
_CODECS = {
    "h264": ("H264", "h264_mp4toannexb"),
    "hevc": ("HEVC", "hevc_mp4toannexb"),
    "vp9": ("VP9", None),
    "av1": ("AV1", None),
}
# FFmpeg's pixel format -> PyNvVideoCodec's, FFmpeg's name for the same samples there, and bytes per sample.
_FORMATS = {
    "yuv420p": ("NV12", "nv12", 1),
    "yuvj420p": ("NV12", "nv12", 1),
    "yuv420p10le": ("P016", "p010le", 2),
}
_IDR = 5  # NAL unit type (ITU-T H.264, table 7-1): no later frame refers to one before it


class NvdecError(Exception):
    """The engine does not decode a clip. FFmpeg may, or it names the damage."""


@dataclass(frozen=True)
class DeviceFrames:
    """Decoded frames on a GPU.

    Attributes:
        frames: T frames.
        memory: (bytes,) uint8, which holds the planes; of the decoder's stream.
        ready: event that passes once the planes are written.
    """

    frames: list[VideoFrame]
    memory: torch.Tensor
    ready: torch.cuda.Event


def load_nvdec() -> Any:
    """Imports PyNvVideoCodec.

    Raises:
        LoaderError: it is not installed.
        DeviceError: it finds no driver with NVIDIA's video libraries.
    """
    try:
        return require_module("PyNvVideoCodec", "nvdec")
    except LoaderError:
        raise
    except RuntimeError as error:  # on import it loads the driver's encoder
        raise DeviceError(
            f"video_decoder='nvdec': PyNvVideoCodec cannot be used here: {_first_line(error)}. In a container set "
            "NVIDIA_DRIVER_CAPABILITIES=compute,utility,video"
        ) from error


class NvdecDecoder:
    """Decodes frames on one GPU. One thread at a time uses it.

    It keeps the engine's session of the last video, for the next one of the same codec, format and size. A session
    scales the frames of another size.

    Args:
        stream: for the decoder alone. The library writes its surfaces on it.
    """

    def __init__(self, device: torch.device, stream: torch.cuda.Stream) -> None:
        self._library = load_nvdec()
        self._device, self._stream = device, stream
        self._session: Any = None
        self._session_key: tuple[Any, ...] = ()

    def decode(self, file: str | bytes, index: VideoIndex, numbers: NDArray[np.int64]) -> DeviceFrames:
        """Decode frames of a video, as `VideoDecoder.decode`.

        The engine conceals damage after the first key frame without an error.

        Raises:
            NvdecError: the engine or the library does not decode these frames.
            OSError: the file cannot be read.
        """
        if index.codec not in _CODECS:
            raise NvdecError(f"the codec {index.codec} is none of {', '.join(_CODECS)}")
        if not index.one_per_packet:
            raise NvdecError("its packets hold fields, frames that are not shown, or none")
        av, library = require_module("av", "video"), self._library
        errors = (library.PyNvVCException, library.PyNvVCExceptionUnsupported, av.FFmpegError, DecodeError)
        try:
            with open_container(file) as container, torch.cuda.stream(self._stream):
                return _Clip(self, container, index, index.pts[numbers].tolist()).decode()
        except (NvdecError, torch.cuda.OutOfMemoryError, *errors) as error:
            self.close()
            if isinstance(error, NvdecError):
                raise
            raise NvdecError(_first_line(error)) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the session, after the copies from its surfaces."""
        if self._session is not None:
            self._stream.synchronize()
        self._session, self._session_key = None, ()

    def open_session(self, codec: str, pixel_format: str, height: int, width: int) -> Any:
        """The session for a video; it must hold no packet of another one."""
        key = codec, pixel_format, height, width
        if key != self._session_key:
            self.close()
            # The library's stream is part of the GPU's primary context, which torch uses, too.
            self._session = self._library.CreateDecoder(
                gpuid=self._device.index,
                codec=getattr(self._library.cudaVideoCodec, codec),
                cudacontext=0,
                cudastream=self._stream.cuda_stream,
                usedevicememory=True,
                outputColorType=self._library.OutputColorType.NATIVE,
            )
            self._session_key = key
        return self._session

    def make_packet(self, address: int, size: int, number: int) -> Any:
        """A packet of the library; of size 0, the end of the stream."""
        packet = self._library.PacketData()
        packet.bsl_data, packet.bsl, packet.pts = address, size, number
        return packet

    def pixel_format(self, name: str) -> Any:
        """The library's constant."""
        return getattr(self._library.Pixel_Format, name)

    def allocate(self, size: int) -> torch.Tensor:
        """Memory of the decoder's stream, (size,) uint8."""
        return torch.empty(size, dtype=torch.uint8, device=self._device)

    def copy(self, target: int, source: int, size: int) -> None:
        """Queues a copy on the decoder's stream: before its next `Decode`, which writes to the same surfaces."""
        from cupy.cuda import runtime

        runtime.memcpyAsync(target, source, size, runtime.memcpyDeviceToDevice, self._stream.cuda_stream)


class _Clip:
    """The search for some frames of an open video.

    Packets are numbered, and the numbers stand in for timestamps: frames that an edit list leaves out may have the
    timestamps of others.
    """

    def __init__(self, decoder: NvdecDecoder, container: Any, index: VideoIndex, pts: Sequence[int]) -> None:
        self._decoder, self._container, self._index, self._pts = decoder, container, index, pts
        self._stream = video_stream(container)
        self._stream.codec_context.options |= {"err_detect": "explode"}
        self._codec, self._filter_name = _CODECS[index.codec]
        self._places = {time: place for place, time in enumerate(dict.fromkeys(sorted(pts)))}
        self._found: set[int] = set()
        self._sent: list[int | None] = []  # the timestamp of each packet; None: its frame is not shown

    def decode(self) -> DeviceFrames:
        """Finds all wanted frames. The decoder's stream must be current."""
        for part, (key, wanted) in enumerate(self._parts()):
            first, packets = self._seek(key)
            if part == 0:
                self._check_crop(first)
                self._open(self._first_frame(first))
            self._decode_part(first, packets, set(wanted))
        if missing := self._places.keys() - self._found:
            seconds = (min(missing) - int(self._index.pts[0])) * float(self._index.time_base)
            raise NvdecError(f"the frame at {seconds:.3f} s does not come out")
        frames = [self._frame_at(self._places[pts]) for pts in self._pts]
        ready = torch.cuda.Event()
        ready.record()
        return DeviceFrames(frames, self._memory, ready)

    def _parts(self) -> list[tuple[int, list[int]]]:
        """(timestamp of a key frame, wanted timestamps): decoding skips the frames between parts."""
        index, parts = self._index, list[tuple[int, list[int]]]()
        for pts in self._places:
            number = int(np.searchsorted(index.keys, pts, side="right")) - 1
            if number < 0:
                raise NvdecError("no key frame that is shown comes before the first frame")
            key = int(index.keys[number])
            if parts:
                after = int(np.searchsorted(index.pts, parts[-1][1][-1], side="right"))
                if index.pts[after] >= key:  # `pts` is a later frame's, so there is one
                    parts[-1][1].append(pts)
                    continue
            parts.append((key, [pts]))
        return parts

    def _seek(self, key: int) -> tuple[Any, Iterator[Any]]:
        """The packet of a key frame, or of an earlier one, and the packets behind it."""
        index = self._index
        before = int(index.keys[max(int(np.searchsorted(index.keys, key)) - 1, 0)])
        for start in (key, before, min(int(index.pts[0]), 0)):  # a seek may lead too far
            self._container.seek(start, stream=self._stream)
            packets = demux_packets(self._container, self._stream)
            first = next((packet for packet in packets if packet.is_keyframe), None)
            if first is not None and first.pts is not None and first.pts <= key:
                return first, packets
        raise NvdecError("no seek leads to the key frame")

    def _check_crop(self, packet: Any) -> None:
        """Refuses frames that are cropped at the left or top, as H.264 and HEVC allow: the library ignores that.

        FFmpeg has a filter that writes the edges of a crop, but none that tells them: writing 0 must change nothing.
        """
        if self._filter_name is None:
            return
        data, texts = bytes(packet), []
        for edges in ("crop_right=0:crop_bottom=0", "crop_right=0:crop_bottom=0:crop_left=0:crop_top=0"):
            chain = self._bitstream_filter(f"{self._filter_name},{self._index.codec}_metadata={edges}")
            texts.append(b"".join(map(bytes, chain.filter(require_module("av", "video").Packet(data)))))
        if texts[0] != texts[1]:
            raise NvdecError("its frames are cropped at the left or top, which the library does not apply")

    def _bitstream_filter(self, chain: str) -> Any:
        return require_module("av", "video").BitStreamFilterContext(chain, self._stream)

    def _first_frame(self, packet: Any) -> Any:
        """The key frame by FFmpeg: it tells format, colors and size as `VideoDecoder` takes them."""
        context = self._stream.codec_context
        frames = context.decode(packet) + context.decode(None)
        if not frames:
            raise NvdecError("the key frame is not shown, or does not decode alone")
        return frames[0]

    def _open(self, frame: Any) -> None:
        """Opens a session, and memory for all frames."""
        index, name = self._index, frame.format.name
        if name not in _FORMATS:
            raise NvdecError(f"the pixel format {name} is none of {', '.join(_FORMATS)}")
        if frame.interlaced_frame:
            raise NvdecError("interlaced frames, which the library deinterlaces")
        if (frame.height, frame.width) != (index.stored_height, index.stored_width):
            raise NvdecError(f"a key frame has {frame.height} x {frame.width} pixels (height x width)")
        surface, self._format, sample_bytes = _FORMATS[name]
        self._matrix, self._full_range = color_tags(frame)
        self._full_range |= name == "yuvj420p"
        self._surface = self._decoder.pixel_format(surface)
        self._height, self._width = frame.height, frame.width
        # Rows are packed, of an even number of pixels; chroma follows luma at once.
        self._pitch = (frame.width + 1) // 2 * 2 * sample_bytes
        self._frame_bytes = self._pitch * (frame.height + (frame.height + 1) // 2)
        self._session = self._decoder.open_session(self._codec, name, frame.height, frame.width)
        self._memory = self._decoder.allocate(len(self._places) * self._frame_bytes)

    def _frame_at(self, place: int) -> VideoFrame:
        start = self._memory.data_ptr() + place * self._frame_bytes
        planes = [(start, self._pitch), (start + self._pitch * self._height, self._pitch)]
        height, width, cosited = self._height, self._width, self._index.cosited
        return VideoFrame(planes, height, width, self._format, self._matrix, self._full_range, cosited, self._memory)

    def _decode_part(self, first: Any, packets: Iterator[Any], unsent: set[int]) -> None:
        """Sends packets up to the last wanted one, and takes the frames that come out."""
        bitstream_filter = None if self._filter_name is None else self._bitstream_filter(self._filter_name)
        packet: Any = first
        while packet is not None and packet.size and unsent:
            number, hidden = len(self._sent), packet.is_discard
            if packet.pts is None:
                raise NvdecError("a packet has no timestamp")
            self._sent.append(None if hidden else packet.pts)
            if not hidden:
                unsent.discard(packet.pts)
            for part in [packet] if bitstream_filter is None else bitstream_filter.filter(packet):
                if packet is first and self._index.codec == "h264" and _IDR not in _nal_types(part):
                    raise NvdecError("the key frame is no IDR frame: later frames may refer to earlier ones")
                self._send(part.buffer_ptr, part.buffer_size, number)
            packet = next(packets, None)
        # The end of the stream: the session gives the frames that it holds back, and is ready for other packets.
        self._send(0, 0, 0)

    def _send(self, address: int, size: int, number: int) -> None:
        """Decodes a packet, and copies the wanted frames that come out: the next `Decode` overwrites the surfaces."""
        surfaces = self._session.Decode(self._decoder.make_packet(address, size, number))
        for surface in surfaces:
            pts = self._sent[surface.getPTS()]
            if pts is None or pts not in self._places or pts in self._found:
                continue
            height, width = surface.cuda()[0].shape[:2]
            if surface.format != self._surface or (height, width) != (self._height, (self._width + 1) // 2 * 2):
                raise NvdecError(f"a frame of {height} x {width} pixels (height x width) as {surface.format} comes out")
            target = self._memory.data_ptr() + self._places[pts] * self._frame_bytes
            self._decoder.copy(target, surface.GetPtrToPlane(0), self._frame_bytes)
            self._found.add(pts)


def _nal_types(packet: Any) -> set[int]:
    """The types of the NAL units of an H.264 packet in Annex B form."""
    data = ctypes.string_at(packet.buffer_ptr, packet.buffer_size)
    return {unit[0] & 31 for unit in data.split(b"\0\0\1")[1:] if unit}


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
