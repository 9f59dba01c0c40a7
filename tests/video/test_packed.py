"""B-frames whose packets have the timestamps of other frames.

DivX packed MPEG-4's B-frames in AVI files: one packet holds two frames, another one none. Copies of such files to
other containers keep their wrong times.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from av.bitstream import BitStreamFilterContext

from cuaug.codec.video.decoder import VideoDecoder
from cuaug.codec.video.video_index import scan_video
from cuaug.errors import DecodeError
from tests.support.video.videos import pictures, plain_frames, plane_bytes, write_video

COUNT, RATE = 30, 25
_VOP = b"\0\0\1\xb6"


def encode(b_frames: int) -> list[av.Packet]:
    """Packets of an MPEG-4 video, in the order of decoding."""
    encoder = av.CodecContext.create("mpeg4", "w")
    encoder.width, encoder.height, encoder.pix_fmt = 96, 64, "yuv420p"
    encoder.time_base, encoder.framerate, encoder.gop_size = Fraction(1, RATE), RATE, 12
    encoder.thread_count, encoder.options = 1, {"bf": str(b_frames)}
    packets = []
    for time, image in enumerate(pictures(COUNT, 64, 96)):
        frame = av.VideoFrame.from_ndarray(image, format="rgb24").reformat(format="yuv420p")
        frame.pts, frame.time_base = time, Fraction(1, RATE)
        packets += encoder.encode(frame)
    return packets + encoder.encode(None)


def kind(data: bytes) -> str:
    """I, P or B."""
    return "IPBS"[data[data.index(_VOP) + 4] >> 6]


def not_coded(data: bytes) -> bytes:
    """A frame at the time of another one, which stands for no picture (ISO/IEC 14496-2, 6.2.5)."""
    at = data.index(_VOP) + 4
    bits = "".join(f"{byte:08b}" for byte in data[at : at + 6])
    end = bits.index("0", 2) + 1  # type, modulo_time_base
    bits = bits[: end + 1 + 5 + 1] + "00"  # marker, time increment below RATE, marker, vop_coded, stuffing
    bits += "1" * (-len(bits) % 8)
    return _VOP + int(bits, 2).to_bytes(len(bits) // 8, "big")


def pack(packets: Sequence[av.Packet]) -> list[bytes]:
    """A reference frame and the B-frame after it share a packet; a frame that is not coded keeps their number."""
    packed: list[bytes] = []
    frames = [bytes(packet).replace(b"Lavc", b"DivX503b1393p\0", 1) for packet in packets]
    for k, frame in enumerate(frames):
        after = frames[k + 1] if k + 1 < len(frames) else None
        is_b = kind(frame) == "B"
        if not is_b and after is not None and kind(after) == "B":
            packed.append(frame + after)
        elif not is_b or kind(frames[k - 1]) == "B":
            packed.append(frame)
        if is_b and (after is None or kind(after) != "B"):
            reference = next(frame for frame in reversed(frames[:k]) if kind(frame) != "B")
            packed.append(not_coded(reference))
    return packed


def write(path: Path, packets: Sequence[bytes], container: str) -> str:
    with av.open(str(path), "w", format=container) as output:
        stream = output.add_mux_stream("mpeg4", rate=RATE, width=96, height=64, pix_fmt="yuv420p")
        stream.time_base = Fraction(1, RATE)
        for time, data in enumerate(packets):
            packet = av.Packet(data)
            packet.stream, packet.time_base, packet.pts, packet.dts = stream, Fraction(1, RATE), time, time
            packet.is_keyframe = _VOP in data and kind(data) == "I"
            output.mux(packet)
    return str(path)


def decode(packets: Sequence[av.Packet]) -> list[list[bytes]]:
    """Planes of all frames, in the order of presentation."""
    decoder = av.CodecContext.create("mpeg4", "r")
    decoder.thread_count = 1
    return [plane_bytes(frame) for packet in [*packets, None] for frame in decoder.decode(packet)]


@pytest.mark.parametrize("b_frames", [1, 2])
@pytest.mark.parametrize("container", ["avi", "matroska", "mp4"])
def test_packed_b_frames_are_refused(tmp_path, container, b_frames):
    packets = encode(b_frames)
    packed = pack(packets)
    assert len(packed) == len(packets) == COUNT
    path = write(tmp_path / "packed", packed, container)
    plain = plain_frames(path)
    assert [planes for _, planes in plain] == decode(packets), "it is no packed video"
    assert [pts for pts, _ in plain] != sorted(pts for pts, _ in plain), "timestamps are usable"
    with pytest.raises(
        DecodeError, match=r"frame [23] has no timestamp, or that of another frame: encode the file anew"
    ):
        scan_video(path)


@pytest.mark.parametrize("b_frames", [1, 2])
def test_unpacked_b_frames(tmp_path, b_frames):
    """In AVI files FFmpeg finds the times of unpacked frames; in an mp4 file, which states them, they stay wrong."""
    packets = encode(b_frames)
    packed = write(tmp_path / "packed.avi", pack(packets), "avi")
    with av.open(packed) as container:
        unpacker = BitStreamFilterContext("mpeg4_unpack_bframes", container.streams.video[0])
        unpacked = [bytes(p) for packet in container.demux() for p in unpacker.filter(packet) if p.size]
    path = write(tmp_path / "unpacked.avi", unpacked, "avi")
    index = scan_video(path)
    frames = VideoDecoder().decode(path, index, np.arange(len(index.pts)))
    assert [plane_bytes(frame.owner) for frame in frames] == decode(packets)
    with pytest.raises(DecodeError, match=r"or that of another frame"):
        scan_video(write(tmp_path / "unpacked.mp4", unpacked, "mp4"))


def test_h264_copied_from_avi_is_refused(tmp_path):
    """`ffmpeg -c copy` numbers its packets in the order of decoding."""
    source = write_video(tmp_path, "h264 avi b-frames")
    with av.open(source) as old, av.open(str(tmp_path / "copy.mp4"), "w") as new:
        stream = new.add_stream_from_template(old.streams.video[0])
        for packet in old.demux(video=0):
            if packet.size:
                packet.stream, packet.pts = stream, packet.dts
                new.mux(packet)
    for path in (source, str(tmp_path / "copy.mp4")):
        with pytest.raises(DecodeError, match=r"or that of another frame"):
            scan_video(path)
